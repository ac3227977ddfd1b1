//! The operator's remedy for a refusal.

use sealbus_bus::RefusalReason;
use sealbus_control::RefusalRecord;
use serde::Serialize;

/// A refusal as the page shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Explained {
    #[serde(flatten)]
    record: RefusalRecord,
    /// The reason in one word, if the record begins with one.
    word: Option<&'static str>,
    remedy: &'static str,
}

impl From<RefusalRecord> for Explained {
    fn from(record: RefusalRecord) -> Self {
        let word = record.reason.split(':').next().unwrap_or_default();
        let reason = RefusalReason::ALL
            .into_iter()
            .find(|it| it.as_str() == word);
        Self {
            word: reason.map(RefusalReason::as_str),
            remedy: reason.map_or("", remedy),
            record,
        }
    }
}

const fn remedy(reason: RefusalReason) -> &'static str {
    use RefusalReason as R;
    match reason {
        R::ForgedSender => {
            "The message named another sender than the one that was proved, and was not delivered. If the program is \
             yours, let it send in its own name; otherwise end and revoke it: sealbus kill NAME"
        }
        R::NotProved => {
            "The sender showed no certificate. Start it as an agent of the manifest, or give it a ticket: sealbus ticket NAME"
        }
        R::UnknownIssuer => {
            "Its certificate is of another platform's CA. If it belongs here, let it join again: sealbus token, or \
             sealbus ticket NAME"
        }
        R::WrongIdentity => {
            "Its certificate is valid, and of something else: another kind, or another platform. Check which platform \
             it was told to join"
        }
        R::LevelMismatch => {
            "Both ends run at different levels. Give both platforms the same level, or start the older process again"
        }
        R::Revoked => {
            "Its certificate was revoked: the log of certificates says why. To let it in again: sealbus start NAME"
        }
        R::Expired => {
            "Its certificate was not renewed in time. Check that its node reaches the Master, and the clocks: sealbus doctor"
        }
        R::NotPermitted => {
            "A rule of [permission] forbids it. If it should be allowed, change the rule: sealbus apply"
        }
        R::OverLimit => {
            "The sender has used up its share of memory, connections or time. Let it send less, or raise the limit in the manifest"
        }
        R::TooLarge => {
            "The message is larger than max-message. Send it in parts, or raise the limit in the manifest"
        }
        R::NotSealed => {
            "The message said that it was sealed, and everybody could read it. An honest program does not do that: end and \
             revoke it, or look at the nodes on the way"
        }
        R::NotOpened => {
            "The message was sealed to a key that its receiver no longer has, or was changed on the way. Send it again; a \
             program keeps its keys when it starts again on the same node"
        }
        R::NotLogged => {
            "Its certificate is not in the issuance log: the CA's key was used in secret. Find out by whom (sealbus ca log verify), \
             and revoke the CA: sealbus ca revoke --authority"
        }
        R::Malformed => {
            "It is no message of this platform: a stranger that knocked, or a program of another version"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_word_and_a_remedy() {
        let explained = |reason: &str| {
            Explained::from(RefusalRecord {
                at: 1,
                who: "mallory".to_owned(),
                proved: None,
                receiver: None,
                reason: reason.to_owned(),
                count: 1,
                by: None,
            })
        };
        for reason in RefusalReason::ALL {
            let told = explained(&format!("{reason}: more"));
            assert_eq!(told.word, Some(reason.as_str()));
            assert!(told.remedy.len() > 20);
        }
        let told = explained("other words");
        assert_eq!((told.word, told.remedy), (None, ""));
    }
}
