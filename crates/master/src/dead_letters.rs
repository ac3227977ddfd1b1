//! Messages that the broker did not deliver: counted, shown to operators, and reported to their senders by `ams`.

use parking_lot::Mutex;
use sealbus_brokers::{DeadLetter, Death};
use sealbus_bus::{ANY_LENGTH, LogShares, Outbox, RefusalReason, UndeliverableReason};
use sealbus_fipa::{AclMessageRef, bitefficient};

use sealbus_control::RefusalRecord;
use sealbus_control::admin::DeadLetterRecord;
use sealbus_control::clock::now;
use sealbus_control::text::excerpt;

use super::latest::Latest;

/// Dead letters remembered.
const REMEMBERED: usize = 1000;
/// Characters kept of a sender's name. Legal ones have at most 257, with that of the platform.
const LONGEST_NAME: usize = 300;

/// The messages not delivered since the Master was started.
#[derive(Default)]
pub(super) struct DeadLetters(Mutex<Remembered>);

struct Remembered {
    total: u64,
    /// The latest dead letters, by their senders. Letters without a known sender have one share together.
    latest: Latest<DeadLetterRecord>,
    /// The shares of the log for them, by their senders.
    log: LogShares,
}

impl Default for Remembered {
    fn default() -> Self {
        Self {
            total: 0,
            latest: Latest::of(REMEMBERED),
            log: LogShares::default(),
        }
    }
}

impl DeadLetters {
    /// The number of dead letters, and the latest of them.
    pub(super) fn so_far(&self) -> (u64, Vec<DeadLetterRecord>) {
        let remembered = self.0.lock();
        (
            remembered.total,
            remembered.latest.all().into_iter().cloned().collect(),
        )
    }

    /// Notes a dead letter. Its sender is told if the sender is proved, or if the level proves no sender (`is_proved`
    /// says which). `refusal` gives the latest reported refusal of a message to a receiver, by its sender.
    pub(super) async fn note<R>(
        &self,
        letter: DeadLetter,
        is_proved: bool,
        refusal: impl FnOnce(String, Option<String>) -> R,
        ams: &Outbox,
    ) where
        R: Future<Output = Option<RefusalRecord>>,
    {
        let lost = bitefficient::decode_ref(&letter.payload, &ANY_LENGTH).ok();
        let claimed = lost
            .as_ref()
            .and_then(|lost| lost.sender())
            .map(|sender| sender.name().to_owned());
        let from = match is_proved {
            true => letter.from.clone(),
            false => claimed.clone(),
        };
        let reason = reason(&letter, from.as_deref(), refusal).await;
        let told = match (&lost, &letter.receiver) {
            // Neither the forger nor the impersonated agent gets an answer.
            (Some(lost), Some(receiver)) if from.is_some() && from == claimed => {
                tell(lost, receiver, &reason, ams).await
            }
            _ => false,
        };
        let record = DeadLetterRecord {
            at: letter
                .at
                .map_or_else(now, |seconds| seconds.saturating_mul(1000)),
            from: from.map(|name| excerpt(&name, LONGEST_NAME)),
            to: letter.receiver.clone(),
            why: reason.to_string(),
            performative: lost.map(|lost| lost.performative().to_string()),
            bytes: letter.payload.len() as u64,
            told,
        };
        let mut remembered = self.0.lock();
        let claimed = claimed.map(|name| excerpt(&name, LONGEST_NAME));
        let sender = record.from.clone().or(claimed).unwrap_or_default();
        if let Some(left_out) = remembered.log.admit(sender.clone()) {
            tracing::warn!(
                target: "sealbus::dead_letters",
                from = record.from.as_deref(), to = record.to.as_deref(), told, left_out,
                "not delivered: {}", record.why
            );
        }
        remembered.total = remembered.total.saturating_add(1);
        let known = record.from.clone().unwrap_or_default();
        remembered.latest.keep(&known, sender, record);
    }
}

async fn tell(
    lost: &AclMessageRef<'_>,
    receiver: &str,
    reason: &UndeliverableReason,
    ams: &Outbox,
) -> bool {
    let Some(notice) = sealbus_bus::failure_notice(&ams.aid(), lost, receiver, reason) else {
        return false;
    };
    match ams.send(notice).await {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(receiver, %error, "a sender could not be told");
            false
        }
    }
}

async fn reason<R>(
    letter: &DeadLetter,
    from: Option<&str>,
    refusal: impl FnOnce(String, Option<String>) -> R,
) -> UndeliverableReason
where
    R: Future<Output = Option<RefusalRecord>>,
{
    let receiver = letter.receiver.clone().unwrap_or_default();
    match &letter.death {
        Death::Left => UndeliverableReason::ReceiverGone,
        Death::Expired => UndeliverableReason::Expired { receiver },
        Death::Refused => refused(refusal(receiver, from.map(str::to_owned)).await),
        Death::Other(word) => UndeliverableReason::NotKept(format!("the broker says {word}")),
    }
}

/// The reason in the receiving process's report. Processes report once a second, so the report may not be there yet.
fn refused(record: Option<RefusalRecord>) -> UndeliverableReason {
    let unknown = || {
        UndeliverableReason::NotKept(
            "the receiving side refused it; `sealbus ps --refused` says why".to_owned(),
        )
    };
    let Some(record) = record else {
        return unknown();
    };
    let (word, explanation) = record
        .reason
        .split_once(": ")
        .unwrap_or((&record.reason, ""));
    let known = RefusalReason::ALL
        .into_iter()
        .find(|reason| reason.as_str() == word);
    known.map_or_else(unknown, |reason| UndeliverableReason::Refused {
        reason,
        explanation: explanation.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use sealbus_bus::{Bus, BusConfig, aid_of};
    use sealbus_fipa::{AclMessage, Limits, Performative};
    use sealbus_seal::PlatformName;
    use tokio::runtime::Handle;

    use super::*;

    #[tokio::test]
    async fn the_sender_of_a_dead_letter_of_any_length_is_told() {
        let platform = PlatformName::new("factory").unwrap();
        let bus = Bus::new(BusConfig::new(platform), Handle::current());
        let (ams, _at_ams) = bus.attach("ams@factory", None, None).unwrap();
        let (_alice, mut at_alice) = bus.attach("alice@factory", None, None).unwrap();
        // As long as a greater `max-message` allows.
        let long = AclMessage::new(Performative::Inform)
            .with_sender(aid_of("alice@factory"))
            .with_receiver(aid_of("bob@factory"))
            .with_content("x".repeat(Limits::DEFAULT.message_length + 1));
        let mut payload = Vec::new();
        bitefficient::encode(&long, &mut payload).unwrap();
        let letter = DeadLetter {
            from: Some("alice@factory".to_owned()),
            receiver: Some("bob@factory".to_owned()),
            death: Death::Left,
            at: None,
            payload: payload.into(),
        };
        let letters = DeadLetters::default();
        let refusal = |_, _| std::future::ready(None);
        letters.note(letter, true, refusal, &ams).await;
        let (_, latest) = letters.so_far();
        assert!(latest[0].told && latest[0].performative.is_some());
        let notice = at_alice.recv().await.unwrap();
        assert_eq!(notice.message().performative(), Performative::Failure);
    }

    #[tokio::test]
    async fn a_sender_pushes_out_its_own_dead_letters_alone() {
        let platform = PlatformName::new("factory").unwrap();
        let bus = Bus::new(BusConfig::new(platform), Handle::current());
        let (ams, _at_ams) = bus.attach("ams@factory", None, None).unwrap();
        let letters = DeadLetters::default();
        let note = async |from: Option<&str>, claimed: &str| {
            let lost = AclMessage::new(Performative::Inform)
                .with_sender(aid_of(claimed))
                .with_receiver(aid_of("bob@factory"));
            let mut payload = Vec::new();
            bitefficient::encode(&lost, &mut payload).unwrap();
            let letter = DeadLetter {
                from: from.map(str::to_owned),
                receiver: None,
                death: Death::Left,
                at: None,
                payload: payload.into(),
            };
            let refusal = |_, _| std::future::ready(None);
            letters.note(letter, true, refusal, &ams).await;
        };
        let count = |from: Option<&str>| {
            let (_, latest) = letters.so_far();
            let from = |letter: &&DeadLetterRecord| letter.from.as_deref() == from;
            latest.iter().filter(from).count()
        };
        for _ in 0..3 {
            note(Some("alice@factory"), "alice@factory").await;
        }
        for _ in 0..2 * REMEMBERED {
            note(Some("mallory@factory"), "mallory@factory").await;
        }
        let (alice, mallory) = (Some("alice@factory"), Some("mallory@factory"));
        assert_eq!((count(alice), count(mallory)), (3, REMEMBERED - 3));
        // A stranger may claim names without end.
        for number in 0..2 * REMEMBERED {
            note(None, &format!("nobody-{number}@factory")).await;
        }
        let (total, latest) = letters.so_far();
        assert_eq!(
            (total, latest.len()),
            (4 * REMEMBERED as u64 + 3, REMEMBERED)
        );
        assert!(count(alice) == 3 && count(mallory) > 400 && count(None) > 400);
        assert_eq!(latest.last().unwrap().from, None);
    }

    #[tokio::test]
    async fn a_sender_of_dead_letters_without_end_has_a_share_of_the_log() {
        let platform = PlatformName::new("factory").unwrap();
        let bus = Bus::new(BusConfig::new(platform), Handle::current());
        let (ams, _at_ams) = bus.attach("ams@factory", None, None).unwrap();
        let letter = DeadLetter {
            from: Some("mallory@factory".to_owned()),
            receiver: Some("bob@factory".to_owned()),
            death: Death::Left,
            at: None,
            payload: Vec::new().into(),
        };
        let letters = DeadLetters::default();
        for _ in 0..20 {
            let refusal = |_, _| std::future::ready(None);
            letters.note(letter.clone(), true, refusal, &ams).await;
        }
        let mut remembered = letters.0.lock();
        let log = &mut remembered.log;
        assert_eq!(log.admit("mallory@factory".to_owned()), None);
        assert!(log.admit("alice@factory".to_owned()).is_some());
    }
}
