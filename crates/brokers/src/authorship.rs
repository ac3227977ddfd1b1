//! Level `signed`: the author's evidence travels with each message and frame, so that it is whole wherever the broker
//! delivers it. Messages that are published together are signed together. No I/O.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sealbus_bus::{ExplainedRefusal, LocalAgent, Moment, RefusalReason};
use sealbus_proof::{Evidence, Hash, NotEvident, Signer, Verifier, sign_together};
use sealbus_seal::{SecurityLevel, Serial, Timestamp, Trust, VerifyError};

/// The certificates of which the last number is remembered in one queue.
const CERTIFICATES: usize = 65_536;

/// The author of a message, the hash of its statement, and the evidence once it is signed. A message that is published again has
/// the same evidence. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    author: Arc<LocalAgent>,
    statement: Hash,
    evidence: Arc<OnceLock<Bytes>>,
}

impl Written {
    pub(crate) fn new(author: Arc<LocalAgent>, statement: Hash) -> Self {
        Self {
            author,
            statement,
            evidence: Arc::default(),
        }
    }

    /// The evidence, if the author could sign.
    pub(crate) fn evidence(&self) -> Option<Bytes> {
        self.evidence.get().cloned()
    }
}

/// Has the authors sign all messages that are not signed yet, with one signature. If an author cannot sign, its message goes
/// without evidence, and the receiver reports this.
pub(crate) fn sign<'a>(written: impl Iterator<Item = &'a Written>) {
    let mut authors: Vec<(Arc<Signer>, Vec<&Written>)> = Vec::new();
    for written in written.filter(|written| written.evidence.get().is_none()) {
        match written.author.signer() {
            Ok(signer) => {
                let known = authors.iter_mut().find(|(it, _)| Arc::ptr_eq(it, &signer));
                match known {
                    Some((_, of_author)) => of_author.push(written),
                    None => authors.push((signer, vec![written])),
                }
            }
            Err(error) => {
                let agent = written.author.name();
                tracing::warn!(%agent, %error, "an agent cannot sign its messages");
            }
        }
    }
    if authors.is_empty() {
        return;
    }
    let statements: Vec<Vec<Hash>> = authors
        .iter()
        .map(|(_, written)| written.iter().map(|it| it.statement).collect())
        .collect();
    let signers = authors.iter().map(|(signer, _)| &**signer);
    let said: Vec<_> = signers.zip(statements.iter().map(|of| &**of)).collect();
    match sign_together(&said, Moment::now().unix_ms()) {
        Ok(evidence) => {
            let written = authors.iter().flat_map(|(_, written)| written);
            for (written, evidence) in written.zip(evidence) {
                let _ = written.evidence.set(evidence.into());
            }
        }
        Err(error) => tracing::warn!(%error, "messages cannot be signed"),
    }
}

/// A verifier of the messages from one source.
pub(crate) fn verifier(trust: &Trust) -> Verifier {
    Verifier::new(trust.platform().clone(), SecurityLevel::Signed)
}

/// Checks that `author` signed `statement`, and was not revoked since.
pub(crate) fn verify(
    verifier: &mut Verifier,
    shown: Option<&Bytes>,
    statement: Option<Hash>,
    author: &str,
    trust: &Trust,
) -> Result<Evidence, ExplainedRefusal> {
    let not_proved = |explanation: String| ExplainedRefusal {
        reason: RefusalReason::NotProved,
        explanation,
    };
    let shown = shown.ok_or_else(|| not_proved(format!("{author} did not sign it")))?;
    let statement = statement.ok_or_else(|| {
        not_proved("it brings an agent's proof, but no statement of an agent".to_owned())
    })?;
    let now = Moment::now().unix_ms();
    let evidence = Evidence::decode_with(verifier, shown, statement, trust, now);
    let evidence = evidence.map_err(|error| ExplainedRefusal {
        reason: match &error {
            NotEvident::Author(error) => RefusalReason::from(error),
            _ => RefusalReason::NotProved,
        },
        explanation: error.to_string(),
    })?;
    let verified = evidence.author();
    if !verified.identity().is_agent_named(author) {
        return Err(ExplainedRefusal {
            reason: RefusalReason::ForgedSender,
            explanation: format!("{} signed it, and not {author}", verified.identity()),
        });
    }
    // A certificate may have ended since it was signed.
    let now = Timestamp::from_unix_seconds(now / 1_000);
    match trust.check(verified, now) {
        Err(error @ VerifyError::Revoked { .. }) => Err(ExplainedRefusal {
            reason: RefusalReason::Revoked,
            explanation: error.to_string(),
        }),
        _ => Ok(evidence),
    }
}

/// The last number that each author signed for a queue. An author numbers the messages that it signs, and publishes them in
/// that order. The numbers thus reveal a broker that repeats messages or changes their order.
#[derive(Debug, Default)]
pub(crate) struct LastNumbers {
    /// The last number, and when it was signed, by certificate.
    last: HashMap<Serial, (u64, u64)>,
    /// When the latest message was signed under a certificate that was forgotten since.
    forgotten: Option<u64>,
}

impl LastNumbers {
    /// Checks and notes the number of a message that is handed over.
    pub(crate) fn next(&mut self, evidence: &Evidence) -> Result<(), ExplainedRefusal> {
        let serial = evidence.author().serial();
        self.take(serial, evidence.number(), evidence.time(), CERTIFICATES)
            .map_err(|why| ExplainedRefusal {
                reason: RefusalReason::NotProved,
                explanation: format!(
                    "{why}: the broker repeats it, or has changed the order of messages"
                ),
            })
    }

    fn take(&mut self, serial: Serial, number: u64, time: u64, most: usize) -> Result<(), String> {
        match self.last.get(&serial) {
            Some((last, _)) if number <= *last => Err(format!(
                "its author numbered it {number}, and number {last} came before"
            )),
            None if self.forgotten.is_some_and(|forgotten| time <= forgotten) => {
                Err("it was signed under an earlier certificate".to_owned())
            }
            known => {
                if known.is_none() && self.last.len() >= most {
                    self.forget_some();
                }
                self.last.insert(serial, (number, time));
                Ok(())
            }
        }
    }

    /// Forgets the half of the certificates that signed nothing for longest.
    fn forget_some(&mut self) {
        let mut times: Vec<_> = self.last.values().map(|(_, time)| *time).collect();
        times.sort_unstable();
        let middle = times.get(times.len() / 2).copied();
        self.last
            .retain(|_, (_, time)| middle.is_some_and(|middle| *time > middle));
        self.forgotten = self.forgotten.max(middle);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sealbus_seal::Serial;

    use super::LastNumbers;

    const MOST: usize = 8;

    fn serial(byte: u8) -> Serial {
        Serial::from_bytes([byte; 16])
    }

    proptest! {
        /// Whatever a broker repeats and reorders, and however many certificates there are: no message counts twice, and
        /// none counts after a later one of its author.
        #[test]
        fn no_message_counts_twice_or_after_a_later_one(
            shown in proptest::collection::vec((0..24u8, 0..6u64), 0..200),
        ) {
            let mut last = LastNumbers::default();
            let mut taken = Vec::new();
            for (author, number) in shown {
                // Certificates follow one another, and each signs some messages.
                let time = 100 * u64::from(author) + number;
                if last.take(serial(author), number, time, MOST).is_ok() {
                    prop_assert!(!taken.iter().any(|(of, before)| *of == author && *before >= number));
                    taken.push((author, number));
                }
                prop_assert!(last.last.len() <= MOST);
            }
        }

        /// Messages that come as they were signed are taken, also if there are more certificates than are remembered.
        #[test]
        fn what_comes_in_order_is_taken(gaps in proptest::collection::vec(1..5u64, 1..200)) {
            let mut last = LastNumbers::default();
            let mut number = 0;
            for (place, gap) in gaps.into_iter().enumerate() {
                number += gap;
                let author = serial((place / 10) as u8);
                prop_assert!(last.take(author, number, 1_000 + place as u64, MOST).is_ok());
            }
        }
    }
}
