//! Whether a letter that waited may still be delivered, by what holds now: rules and revocations may be younger than it.

use sealbus_bus::{Permit, Provenance, ReceivedMessage, RefusalReason, Refused};
use sealbus_seal::Identity;
use sealbus_seal::denylist::{Denial, Reason};

use super::Shared;
use sealbus_control::UnixMillis;
use sealbus_control::post::LetterRefusal;

impl Shared {
    /// Judges a letter for `receiver`, by AID name, that was sent at `posted`. What is refused is noted.
    ///
    /// Its sender was proved when it was kept, so that certificates which have expired since, or were given back because
    /// the agent ended or moved, take nothing from it. What an agent sent before an operator revoked it is not delivered
    /// any more: whoever revokes by hand does not know since when somebody else has had the key.
    ///
    /// # Errors
    /// Why it is not to be delivered.
    pub(super) fn judge_letter(
        &self,
        letter: &ReceivedMessage,
        posted: UnixMillis,
        receiver: &str,
    ) -> Result<(), LetterRefusal> {
        let proved = match letter.provenance() {
            Provenance::Platform => return Ok(()),
            Provenance::Carried(identity) => Some(identity.as_ref()),
            _ => None,
        };
        let sender = letter.message().sender().map(|it| it.name().to_owned());
        let sender = sender.unwrap_or_default();
        let revoked = proved.and_then(|identity| self.revoked_since(identity, posted));
        let (refusal, refused) = match revoked {
            Some(denial) => (
                LetterRefusal::Revoked,
                Refused {
                    reason: RefusalReason::Revoked,
                    explanation: format!(
                        "{sender} was revoked at {}, after it had sent this message: {}",
                        denial.at, denial.reason
                    ),
                },
            ),
            None => {
                let permitted = self.bus.permits(&mut Permit::default(), &sender, receiver);
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

    /// The revocation by hand of who sent something at `posted`, if there was one since.
    fn revoked_since(&self, sender: &Identity, posted: UnixMillis) -> Option<Denial> {
        let lists = self.trust.deny_lists();
        lists
            .iter()
            .filter_map(|list| list.denied_identity(sender))
            .find(|denial| {
                denial.reason == Reason::ByOperator && posted / 1000 <= denial.at.as_unix_seconds()
            })
    }
}
