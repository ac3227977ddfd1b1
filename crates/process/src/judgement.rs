//! Judges whether a waiting letter or a kept event may still be delivered, by the rules and revocations in force. These may
//! be newer than the letter or the event.

use sealbus_bus::{ExplainedRefusal, Permit, Provenance, ReceivedMessage, RefusalReason, level_of};
use sealbus_seal::denylist::{Denial, Reason};
use sealbus_seal::{Identity, SecurityLevel, Trust};

use super::Shared;
use sealbus_control::UnixMillis;
use sealbus_control::post::LetterRefusal;

impl Shared {
    /// Judges a letter for `receiver` (an AID name) that was sent at `posted`. A refusal is noted.
    ///
    /// The letter's sender was proved when the letter was kept. So the letter stays valid if the sender's certificate
    /// has expired since, or was given back because the agent ended or moved. Messages that an agent sent before an
    /// operator revoked it are not delivered, because nobody knows since when another party has had the key.
    ///
    /// # Errors
    /// The reason why the letter may not be delivered.
    pub(super) fn judge_letter(
        &self,
        letter: &ReceivedMessage,
        posted: UnixMillis,
        receiver: &str,
    ) -> Result<(), LetterRefusal> {
        let proved = match letter.provenance() {
            Provenance::Platform => return Ok(()),
            Provenance::Carried(identity) => Some(identity.as_ref()),
            Provenance::Signed(evidence) => Some(evidence.author().identity()),
            _ => None,
        };
        let sender = letter.message().sender().map(|it| it.name().to_owned());
        let sender = sender.unwrap_or_default();
        let revoked = proved.and_then(|identity| revoked_since(&self.trust, identity, posted));
        let wanted = level_of(&letter.message()).ok().flatten();
        let level = self.level.max(wanted.unwrap_or_default());
        let is_proved = level < SecurityLevel::Signed || letter.provenance().evidence().is_some();
        let (refusal, refused) = match revoked {
            None if !is_proved => (
                LetterRefusal::NotProved,
                ExplainedRefusal {
                    reason: RefusalReason::NotProved,
                    explanation: format!(
                        "{sender} did not sign this message, and level={level} holds for it"
                    ),
                },
            ),
            Some(denial) => (
                LetterRefusal::Revoked,
                ExplainedRefusal {
                    reason: RefusalReason::Revoked,
                    explanation: format!(
                        "{sender} was revoked at {}, after it had sent this message: {}",
                        denial.at, denial.reason
                    ),
                },
            ),
            None => {
                let permitted = self.bus.permits_message(
                    &mut Permit::default(),
                    &sender,
                    receiver,
                    &letter.message(),
                );
                match permitted {
                    Ok(()) => return Ok(()),
                    Err(refused) => (LetterRefusal::NotPermitted, refused),
                }
            }
        };
        self.bus.refused(
            &sender,
            proved.map(ToString::to_string),
            Some(receiver),
            refused.reason,
            refused.explanation,
        );
        Err(refusal)
    }

    /// Opens a message that waited for `receiver`, if it is sealed. A refusal is noted.
    ///
    /// # Errors
    /// The reason why the message may not be delivered.
    pub(super) fn opened(
        &self,
        message: ReceivedMessage,
        receiver: &str,
    ) -> Result<ReceivedMessage, LetterRefusal> {
        let opened = self.bus.open(&message.message(), receiver);
        let refused = match opened {
            Ok(opened) => return Ok(message.opened(opened)),
            Err(not_opened) => ExplainedRefusal::from(not_opened),
        };
        let sender = message.message().sender().map(|it| it.name().to_owned());
        let sender = sender.unwrap_or_default();
        let proved = message.provenance().certified();
        let proved = proved.map(|verified| verified.identity().to_string());
        let reason = refused.reason;
        self.bus
            .refused(&sender, proved, Some(receiver), reason, refused.explanation);
        Err(match reason {
            RefusalReason::NotSealed => LetterRefusal::NotSealed,
            RefusalReason::NotPermitted => LetterRefusal::NotPermitted,
            _ => LetterRefusal::NotOpened,
        })
    }
}

/// The operator's revocation of an agent, at `then` or later. Nobody knows since when another party has had the agent's key.
pub(super) fn revoked_since(trust: &Trust, agent: &Identity, then: UnixMillis) -> Option<Denial> {
    let lists = trust.deny_lists();
    lists
        .iter()
        .filter_map(|list| list.denied_identity(agent))
        .find(|denial| {
            denial.reason == Reason::ByOperator && then / 1000 <= denial.at.as_unix_seconds()
        })
}
