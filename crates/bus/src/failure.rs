//! The notice a sender gets for a message that could not be delivered (FIPA00067 and what JADE's AMS sends).

use sealbus_acl::sl::{ActionExpression, Content, Parameter, Term, Wff};
use sealbus_acl::{AclMessage, AclMessageRef, Aid, Performative};

use crate::error::UndeliverableReason;

/// The `failure` from the AMS for `lost`, which did not reach `receiver`; `None` if `lost` has no sender or is such
/// a notice itself, so that notices never answer each other.
///
/// The content is the SL tuple of the action that failed and why:
/// `((action (agent-identifier :name SENDER) (ACLMessage)) (MTS-error (agent-identifier :name RECEIVER)
/// (internal-error "REASON")))`. Protocol, ontology and conversation are those of the lost message, and
/// `:in-reply-to` is its `:reply-with`.
pub fn notice(
    ams: &Aid,
    lost: &AclMessageRef<'_>,
    receiver: &str,
    reason: &UndeliverableReason,
) -> Option<AclMessage> {
    let sender = lost.sender()?;
    if sender.name() == ams.name && lost.performative() == Performative::Failure {
        return None;
    }
    let mut notice = lost
        .create_reply(Performative::Failure)
        .with_sender(ams.clone());
    notice.receivers = vec![crate::aid_of(sender.name())];
    notice.language = Some("fipa-sl".into());
    notice.encoding = None;
    let name = |name: &str| {
        Term::frame(
            "agent-identifier",
            vec![Parameter::new("name", Term::text(name.to_owned()))],
        )
    };
    let action = ActionExpression::new(
        name(sender.name()),
        Term::function("ACLMessage", Vec::new()),
    );
    let reason = Term::function("internal-error", vec![Term::text(reason.to_string())]);
    let error = Wff::predicate("MTS-error", vec![name(receiver), reason]);
    Some(notice.with_content(Content::of(action).and(error)))
}
