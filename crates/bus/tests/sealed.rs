//! Sealed messages: their form, and what changes do to them.
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use proptest::prelude::*;
use sealbus_bus::{
    Envelope, Opened, Provenance, ReceivedMessage, SEALED_OVERHEAD, SealedRow, aid_of as aid,
    level_of, open_sealed,
};
use sealbus_fipa::{AclMessage, Content, Expression, Limits, Performative, bitefficient};
use sealbus_proof::{Base64, Line, MessageLine, disclose, write_file};
use sealbus_seal::SecurityLevel;
use sealbus_seal::encryption::EncryptionKey;

static KEY: LazyLock<EncryptionKey> = LazyLock::new(|| EncryptionKey::generate().unwrap());

const BEN: &str = "ben@factory";

fn said(content: &str) -> AclMessage {
    AclMessage::new(Performative::Propose)
        .with_sender(aid("ann@factory"))
        .with_receivers([aid(BEN), aid("cleo@factory")])
        .with_protocol("fipa-contract-net")
        .with_content(content)
        .with_user_defined("X-Trace", "secret-trace")
}

fn row() -> SealedRow {
    SealedRow::begin(KEY.public(), "ann@factory", BEN).unwrap()
}

fn opened_by(key: &EncryptionKey, outer: &AclMessage, receiver: &str) -> Result<Opened, String> {
    let secret = |envelope: &Envelope<'_>, sender: &str| {
        let opening = envelope.opening(key, sender, receiver);
        opening.map_err(|error| error.to_string())
    };
    open_sealed(&outer.view(), secret).map(|(opened, _)| opened)
}

fn opened(outer: &AclMessage) -> Result<AclMessage, String> {
    Ok(opened_by(&KEY, outer, BEN)?.message.message().to_owned())
}

fn says_so(message: &AclMessage) -> bool {
    level_of(&message.view()) == Ok(Some(SecurityLevel::Sealed))
        && message.performative.as_str() == "sealed"
}

fn encoded(message: &AclMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    bitefficient::encode(message, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_receiver_has_the_words_for_others() {
    let outer = row().seal(&said("the price is 7")).unwrap();
    let opened = opened_by(&KEY, &outer, BEN).unwrap();
    let received = ReceivedMessage::from_bytes(encoded(&outer).into(), Provenance::Claimed);
    let received = received.unwrap();
    assert!(received.words().is_none());
    let words = received.opened(Some(opened)).words().unwrap();
    let words = words.to_string().parse().unwrap();
    let line = |message: &AclMessage| {
        Line::Message(MessageLine {
            certificate: 0,
            channel: None,
            qos: String::new(),
            receivers: vec![BEN.to_owned()],
            message: Base64(encoded(message)),
            proof: Base64(Vec::new()),
        })
    };
    let another = row().seal(&said("the price is 7")).unwrap();
    let file = write_file(&[line(&another), line(&outer)]).unwrap();
    let shown = disclose(&file, std::slice::from_ref(&words)).unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains(r#"{"disclosed":{"message":1,"#), "{shown}");
    let file = write_file(&[line(&another)]).unwrap();
    assert!(disclose(&file, &[words]).is_err());
}

#[test]
fn only_what_leads_a_message_to_its_receiver_shows() {
    let mut message = said("the price is 7");
    message.conversation_id = Some("order-17".into());
    message.reply_with = Some("r1".into());
    message.in_reply_to = Some("secret-reply".into());
    let outer = row().seal(&message).unwrap();
    assert_eq!(opened(&outer).unwrap(), message);
    assert_eq!(outer.conversation_id, message.conversation_id);
    assert_eq!(outer.reply_with, message.reply_with);
    assert!(says_so(&outer));
    let seen = encoded(&outer);
    for hidden in [
        "the price",
        "propose",
        "contract-net",
        "secret-trace",
        "secret-reply",
    ] {
        let found = seen.windows(hidden.len()).any(|at| at == hidden.as_bytes());
        assert!(!found, "{hidden}");
    }
    let length = encoded(&message).len();
    let content = outer.content_bytes().unwrap().len();
    assert_eq!(content, length + SEALED_OVERHEAD);
}

#[test]
fn the_messages_of_a_row_open_in_any_order_with_one_secret() {
    let mut row = row();
    let outers: Vec<_> = (0..3)
        .map(|number| row.seal(&said(&number.to_string())).unwrap())
        .collect();
    assert_eq!(row.length(), 3);
    let mut secret = None;
    for number in [2, 0, 1, 1] {
        let take = |envelope: &Envelope<'_>, sender: &str| {
            let new = || envelope.opening(&KEY, sender, BEN);
            secret
                .take()
                .map_or_else(new, Ok)
                .map_err(|error| error.to_string())
        };
        let (opened, opening) = open_sealed(&outers[number].view(), take).unwrap();
        assert_eq!(
            opened.message.message().to_owned(),
            said(&number.to_string())
        );
        secret = Some(opening);
    }
}

#[test]
fn a_sealed_message_is_good_for_one_receiver_and_of_one_sender() {
    let outer = row().seal(&said("the price is 7")).unwrap();
    assert!(opened_by(&KEY, &outer, "cleo@factory").is_err());
    let other = EncryptionKey::generate().unwrap();
    assert!(opened_by(&other, &outer, BEN).is_err());
    let changes: [fn(&mut AclMessage); 5] = [
        |it| it.sender = Some(aid("mallory@factory")),
        |it| it.receivers = vec![aid(BEN)],
        |it| it.conversation_id = Some("another".into()),
        |it| it.reply_with = Some("another".into()),
        |it| it.protocol = Some("fipa-request".into()),
    ];
    for change in changes {
        let mut changed = outer.clone();
        change(&mut changed);
        assert!(opened(&changed).is_err(), "{changed:?}");
    }
    let unnamed = AclMessage {
        sender: None,
        ..outer.clone()
    };
    assert_eq!(opened(&unnamed).unwrap_err(), "it names no sender");
    assert!(opened(&outer).is_ok());
}

#[test]
fn a_message_inside_that_is_not_the_one_outside_is_refused() {
    // Whoever has the receiver's key seals in another's name: the message inside must agree with the one outside.
    let mut row = row();
    let mallory = said("hello").with_sender(aid("mallory@factory"));
    let mut content = row.seal(&mallory).unwrap();
    content.sender = Some(aid("ann@factory"));
    assert!(opened(&content).is_err());
}

fn expressions() -> impl Strategy<Value = Option<Expression>> {
    proptest::option::of("[a-z0-9 \"é-]{0,20}".prop_map(Expression::from))
}

proptest! {
    #[test]
    fn what_is_sealed_opens_as_it_was(
        content in proptest::collection::vec(any::<u8>(), 0..300),
        conversation in expressions(),
        reply_with in expressions(),
        in_reply_to in expressions(),
    ) {
        let message = AclMessage {
            conversation_id: conversation,
            reply_with,
            in_reply_to,
            content: Some(Content::Bytes(content)),
            ..said("")
        };
        let outer = row().seal(&message).unwrap();
        // As it comes from the wire.
        let arrived = bitefficient::decode_ref(&encoded(&outer), &Limits::default()).unwrap().to_owned();
        let found = opened(&arrived).unwrap();
        prop_assert_eq!(encoded(&found), encoded(&message));
    }

    #[test]
    fn a_changed_bit_anywhere_is_noticed(at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
        let message = said("the price is 7");
        let outer = row().seal(&message).unwrap();
        let mut bytes = encoded(&outer);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(changed) = bitefficient::decode_ref(&bytes, &Limits::default()) {
            let changed = changed.to_owned();
            // Letter case in the name of a parameter means nothing; a message that says no more that it is sealed is
            // not proved by its author.
            if changed != outer && says_so(&changed) {
                prop_assert!(opened(&changed).is_err(), "{:?}", changed);
            }
        }
    }

    #[test]
    fn any_content_is_an_error_at_worst(content in proptest::collection::vec(any::<u8>(), 0..1400), plain in 0..1300_usize) {
        let mut outer = row().seal(&said("x")).unwrap();
        for content in [content, vec![1; plain]] {
            outer.content = Some(Content::Bytes(content));
            prop_assert!(opened(&outer).is_err());
        }
    }
}
