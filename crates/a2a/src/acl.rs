//! ACL messages in messages of A2A: the extension of the project MOSAICO, which names a message's act, with the whole message
//! beside it where both ends are FIPA's. Free of I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealbus::acl::AclMessageRef;
use sealbus::body::{BYTES, JSON};
use sealbus::process::ReceivedMessage;
use sealbus::{AclMessage, Aid, Content, Performative, Provenance};
use serde_json::{Map, Value, json};

use crate::log::State;

/// The extension's name.
pub(crate) const ACL: &str = "https://mosaico-project.eu/extensions/a2a-acl/";
/// The form of whole messages: FIPA00069, in base64.
pub(crate) const WHOLE: &str = "fipa.acl.rep.bitefficient.std";
/// The `mediaType` that the extension gives its data.
const MEDIA_TYPE: &str = "application/x-mosaico-a2a-acl";
/// The `codec` of content in natural language.
const NATURAL: &str = "nl";
/// Longest act, in bytes.
const LONGEST_ACT: usize = 64;
/// The parameter with the word of its own platform about the sender of a message, and the words.
const PROVENANCE: &str = "X-A2A-Provenance";
const WORDS: [&str; 8] = [
    "same-process",
    "proved",
    "signed",
    "vouched",
    "carried",
    "foreign",
    "claimed",
    "platform",
];
/// The beginning of the parameters that a platform's own parts understand.
const OWN: &str = "X-Sealbus-";

/// The data of a message are none of the extension's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AclError(&'static str);

/// The data of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct AclData {
    /// Its act.
    pub performative: Performative,
    /// The whole message, if there is more than the act.
    pub whole: Option<AclMessage>,
}

/// The metadata of a message of A2A about the ACL message in it. `is_whole`: the message itself goes along.
/// `provenance`: the platform's knowledge of its sender.
pub(crate) fn write(message: &AclMessage, provenance: &Provenance, is_whole: bool) -> Value {
    let act = match &message.performative {
        // The extension's own name for a question.
        Performative::QueryRef if !is_whole => "ask",
        act => act.as_str(),
    };
    let language = message.language.as_ref().and_then(|it| it.as_str());
    let mut data = json!({
        "performative": act, "codec": language.unwrap_or(NATURAL), "mediaType": MEDIA_TYPE,
    });
    if is_whole {
        let message = ReceivedMessage::shared(message.clone().into(), Provenance::Claimed);
        // It was decoded or sent, so it can be encoded.
        if let Ok(encoded) = message.to_bytes() {
            data["representation"] = WHOLE.into();
            data["message"] = STANDARD.encode(encoded).into();
            data["provenance"] = provenance.as_str().into();
        }
    }
    data
}

/// The ACL message that metadata tell of; `None` if they tell of none.
///
/// # Errors
/// [`AclError`].
pub fn read(metadata: Option<&Map<String, Value>>) -> Result<Option<AclData>, AclError> {
    let Some(data) = metadata.and_then(|it| it.get(ACL)) else {
        return Ok(None);
    };
    let text = |name: &str| data.get(name).and_then(Value::as_str);
    let act = text("performative").ok_or(AclError("it has no performative"))?;
    let is_act = act.starts_with(|it: char| it.is_ascii_lowercase())
        && act.len() <= LONGEST_ACT
        && act.bytes().all(|it| it.is_ascii_lowercase() || it == b'-');
    if !is_act {
        return Err(AclError("its performative is a word of small letters"));
    }
    let performative = match act {
        "ask" => Performative::QueryRef,
        act => Performative::from(act),
    };
    let Some(encoded) = text("message") else {
        return Ok(Some(AclData {
            performative,
            whole: None,
        }));
    };
    if text("representation") != Some(WHOLE) {
        return Err(AclError(
            "the representation of its message is not known here",
        ));
    }
    let encoded = STANDARD.decode(encoded);
    let encoded = encoded.map_err(|_| AclError("its message is no base64"))?;
    let whole = ReceivedMessage::from_bytes(encoded.into(), Provenance::Claimed);
    let whole = whole.map_err(|_| AclError("its message is no ACL message"))?;
    let mut whole = AclMessage::clone(&whole.into_message());
    let parameters = &mut whole.user_defined;
    parameters.retain(|(name, _)| !name.eq_ignore_ascii_case(PROVENANCE));
    if let Some(word) = text("provenance").filter(|it| WORDS.contains(it)) {
        parameters.push((PROVENANCE.to_owned(), word.into()));
    }
    if whole.performative != performative {
        return Err(AclError("its message has another performative"));
    }
    Ok(Some(AclData {
        performative,
        whole: Some(whole),
    }))
}

/// A whole message from outside, for an agent here. Its sender is the agent that sends it here. Parameters of a platform's own
/// parts do not come from outside.
pub(crate) fn addressed(mut message: AclMessage, to: Aid) -> AclMessage {
    message.sender = None;
    message.receivers = vec![to];
    message.reply_to.clear();
    let is_own = |name: &str| {
        let start = name.as_bytes().get(..OWN.len());
        start.is_some_and(|it| it.eq_ignore_ascii_case(OWN.as_bytes()))
    };
    message.user_defined.retain(|(name, _)| !is_own(name));
    message
}

/// `Part` with the content of a message.
pub(crate) fn part(message: &AclMessage) -> Value {
    let language = message.language.as_ref().and_then(|it| it.as_str());
    match &message.content {
        None => json!({"text": ""}),
        Some(Content::Bytes(bytes)) => {
            json!({"raw": STANDARD.encode(bytes), "mediaType": language.unwrap_or(BYTES)})
        }
        Some(Content::Text(text)) => match serde_json::from_str::<Value>(text) {
            Ok(data) if language == Some(JSON) => json!({"data": data, "mediaType": JSON}),
            _ => json!({"text": text, "mediaType": "text/plain"}),
        },
    }
}

/// Whether an act says something, and wants no answer.
pub(crate) fn says(act: &Performative) -> bool {
    matches!(
        act,
        Performative::Confirm
            | Performative::Disconfirm
            | Performative::Inform
            | Performative::InformIf
            | Performative::InformRef
    )
}

/// The state of a task after a message of its agent. `is_stopped`: the agent was told to stop.
pub(crate) fn state_after(message: &AclMessageRef<'_>, is_stopped: bool) -> State {
    let is = |names: &[&str]| {
        let mut parameters = message.user_defined();
        parameters.any(|(name, _)| names.iter().any(|it| name.eq_ignore_ascii_case(it)))
    };
    let goes_on = || {
        let protocol = message.protocol();
        let is_subscription = protocol.is_some_and(|it| it.eq_ignore_ascii_case("fipa-subscribe"));
        !is_stopped && (is_subscription || is(&["X-partial", "X-progress"]))
    };
    match message.performative() {
        Performative::Agree => State::Working,
        Performative::Refuse | Performative::NotUnderstood => State::Rejected,
        Performative::Failure => State::Failed,
        act if says(&act) && goes_on() => State::Working,
        act if says(&act) || act == Performative::RejectProposal => State::Completed,
        _ => State::InputRequired,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn offer() -> AclMessage {
        AclMessage::new(Performative::Propose)
            .with_sender(Aid::new("seller@market").unwrap())
            .with_receiver(Aid::new("buyer@factory").unwrap())
            .with_protocol("fipa-contract-net")
            .with_conversation_id("sale-7")
            .with_reply_with("offer-1")
            .with_in_reply_to("call-1")
            .with_user_defined("X-colour", "red")
            .with_user_defined("x-sealbus-on-behalf-of", "boss@factory")
            .with_content(Content::Bytes(vec![0, 255]))
    }

    fn said(data: Value) -> Result<Option<AclData>, AclError> {
        let metadata = json!({ ACL: data });
        read(metadata.as_object())
    }

    #[test]
    fn a_message_travels_whole() {
        let data = said(write(&offer(), &Provenance::Claimed, true))
            .unwrap()
            .unwrap();
        let known = offer().with_user_defined(PROVENANCE, "claimed");
        assert_eq!(data.whole, Some(known));
        let here = addressed(data.whole.unwrap(), Aid::new("clerk@factory").unwrap());
        assert_eq!(here.sender, None);
        assert_eq!(here.receivers[0].name, "clerk@factory");
        assert_eq!(here.user_defined.len(), 2);
        assert_eq!(here.reply_with, offer().reply_with);
        assert_eq!(here.in_reply_to, offer().in_reply_to);
    }

    #[test]
    fn others_get_and_give_the_act_alone() {
        let data = write(&offer(), &Provenance::Claimed, false);
        let form = json!({"performative": "propose", "codec": "nl", "mediaType": MEDIA_TYPE});
        assert_eq!(data, form);
        let data = said(data).unwrap().unwrap();
        assert_eq!(
            (data.performative, data.whole),
            (Performative::Propose, None)
        );
        let question = AclMessage::new(Performative::QueryRef);
        assert_eq!(
            write(&question, &Provenance::Claimed, false)["performative"],
            "ask"
        );
        let asked = said(write(&question, &Provenance::Claimed, false))
            .unwrap()
            .unwrap();
        assert_eq!(asked.performative, Performative::QueryRef);
        assert_eq!(read(None), Ok(None));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let with = |name: &str, value: Value| {
            let mut data = write(&offer(), &Provenance::Claimed, true);
            data[name] = value;
            said(data)
        };
        assert!(with("more", json!(1)).is_ok());
        let lied = with("provenance", json!("certain")).unwrap().unwrap();
        assert_eq!(lied.whole, Some(offer()));
        for (name, value) in [
            ("performative", json!("inform")),
            ("performative", json!("Propose")),
            ("performative", json!("a".repeat(65))),
            ("performative", Value::Null),
            ("representation", json!("fipa.acl.rep.xml.std")),
            ("message", json!("!")),
            ("message", json!("AAAA")),
        ] {
            assert!(with(name, value.clone()).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn the_agents_acts_are_states() {
        let after = |message: &AclMessage, is_stopped| state_after(&message.view(), is_stopped);
        let act = |act: Performative| AclMessage::new(act);
        for (performative, state) in [
            (Performative::Agree, State::Working),
            (Performative::Refuse, State::Rejected),
            (Performative::Failure, State::Failed),
            (Performative::Inform, State::Completed),
            (Performative::Propose, State::InputRequired),
            (Performative::QueryRef, State::InputRequired),
        ] {
            assert_eq!(
                after(&act(performative.clone()), false),
                state,
                "{performative}"
            );
        }
        let part = act(Performative::Inform).with_user_defined("x-partial", "1");
        assert_eq!(after(&part, false), State::Working);
        let news = act(Performative::Inform).with_protocol("fipa-subscribe");
        assert_eq!(after(&news, false), State::Working);
        assert_eq!(after(&news, true), State::Completed);
    }

    proptest! {
        #[test]
        fn any_data_are_read_or_refused(
            act in "[a-z-]{0,8}|\\PC{0,4}", bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let message = STANDARD.encode(bytes);
            let _ = said(json!({"performative": act, "representation": WHOLE, "message": message}));
        }
    }
}
