//! The notices that a sender gets: that a message could not be delivered (FIPA00067, in the form of JADE's AMS), or
//! that it has arrived.

use sealbus_fipa::sl::{ActionExpression, Content, Parameter, Term, Wff};
use sealbus_fipa::{AclMessage, AclMessageRef, Aid, Performative};
use sealbus_proof::Proof;

use crate::acknowledgement::Acknowledgement;
use crate::error::UndeliverableReason;

/// The `failure` from the AMS for `lost`, which did not reach `receiver`. `None` if `lost` has no sender or is itself
/// such a notice, so that notices never answer each other.
///
/// The content is the SL tuple of the failed action and the reason: `((action (agent-identifier :name SENDER)
/// (ACLMessage)) (MTS-error (agent-identifier :name RECEIVER) (internal-error "REASON")))`. Protocol, ontology and
/// conversation are those of the lost message. `:in-reply-to` is its `:reply-with`.
pub fn failure_notice(
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
    let action = ActionExpression::new(
        agent_identifier(sender.name()),
        Term::function("ACLMessage", Vec::new()),
    );
    let reason = Term::function("internal-error", vec![Term::text(reason.to_string())]);
    let error = Wff::predicate("MTS-error", vec![agent_identifier(receiver), reason]);
    Some(notice.with_content(Content::of(action).and(error)))
}

/// The `inform` from the AMS for a message that `receiver` has got, in the sense of `acknowledgement`. `None` if the
/// message has no sender.
///
/// The content is the SL tuple of the action and its outcome: `((action (agent-identifier :name SENDER) (ACLMessage))
/// (delivered (agent-identifier :name RECEIVER) agent))`. The last word names the acknowledgement, such as `agent` or
/// `process`. Protocol, ontology and conversation are those of the message. `:in-reply-to` is its `:reply-with`.
pub fn receipt_notice(
    ams: &Aid,
    message: &AclMessageRef<'_>,
    receiver: &str,
    acknowledgement: Acknowledgement,
) -> Option<AclMessage> {
    let by = match acknowledgement {
        Acknowledgement::ReceiverProcess => "process",
        Acknowledgement::ReceiverAgent => "agent",
        Acknowledgement::OnDisk | Acknowledgement::OnMajority => "disk",
    };
    delivered(ams, message, receiver, vec![Term::text(by.to_owned())])
}

/// The `inform` from `receiver` itself, which has taken a signed message. The receiver signs it, and so proves to
/// others that the message arrived.
///
/// The content is that of [`receipt_notice`]. After `agent` it names the message as evidence does: by the serial number
/// of its author's certificate, and its number under that certificate.
pub fn receiver_receipt(
    receiver: &Aid,
    message: &AclMessageRef<'_>,
    proof: &Proof,
) -> Option<AclMessage> {
    let named = vec![
        Parameter::new("certificate", Term::text(proof.serial().to_string())),
        Parameter::new("number", Term::text(proof.number().to_string())),
    ];
    let words = vec![
        Term::text("agent".to_owned()),
        Term::frame("message", named),
    ];
    delivered(receiver, message, &receiver.name, words)
}

fn delivered(
    from: &Aid,
    message: &AclMessageRef<'_>,
    receiver: &str,
    words: Vec<Term<'static>>,
) -> Option<AclMessage> {
    let sender = message.sender()?;
    let mut notice = message
        .create_reply(Performative::Inform)
        .with_sender(from.clone());
    notice.receivers = vec![crate::aid_of(sender.name())];
    notice.language = Some("fipa-sl".into());
    notice.encoding = None;
    let action = ActionExpression::new(
        agent_identifier(sender.name()),
        Term::function("ACLMessage", Vec::new()),
    );
    let mut terms = vec![agent_identifier(receiver)];
    terms.extend(words);
    let delivered = Wff::predicate("delivered", terms);
    Some(notice.with_content(Content::of(action).and(delivered)))
}

fn agent_identifier(name: &str) -> Term<'static> {
    Term::frame(
        "agent-identifier",
        vec![Parameter::new("name", Term::text(name.to_owned()))],
    )
}
