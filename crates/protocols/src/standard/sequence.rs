//! Plays a sequence of acts through both roles, for the tests of each protocol.
//!
//! A sequence starts with the opening act and `>`. Then come `> act` by the initiator, `< act` by the participant,
//! `confirm` and `deny` for the participant's answer to `cancel`, and `conclude` by both.

use sealbus_fipa::{AclMessage, Aid, Expression, Performative};

use crate::{ActError, Initiator, Outcome, Participant, Protocol, To};

pub(crate) fn aid(name: &str) -> Aid {
    Aid::new(name).unwrap()
}

/// Both roles must end with this outcome, and every message must carry the parameters that the standard asks for.
pub(crate) fn plays(protocol: &'static Protocol, sequence: &str, outcome: Outcome) {
    let (initiator, participant) = play(protocol, sequence).unwrap();
    assert_eq!(
        initiator.branches()[0].outcome(),
        Some(outcome),
        "{sequence}"
    );
    assert_eq!(participant.outcome(), Some(outcome), "{sequence}");
    assert!(initiator.has_ended() && initiator.deadline().is_none());
    assert_eq!(initiator.refused() + participant.refused(), 0, "{sequence}");
}

/// The last act must not be possible.
pub(crate) fn refuses(protocol: &'static Protocol, sequence: &str) {
    match play(protocol, sequence) {
        Err(ActError::Forbidden { .. } | ActError::NotOpening { .. }) => {}
        other => panic!("{sequence}: {other:?}"),
    }
}

fn play(protocol: &'static Protocol, sequence: &str) -> Result<(Initiator, Participant), ActError> {
    let mut words = sequence.split_whitespace();
    let opening = AclMessage::new(words.next().unwrap().into());
    assert_eq!(words.next(), Some(">"));
    let (mut initiator, mut messages) =
        Initiator::open(protocol, "c1", [aid("participant")], &opening, 0)?;
    let opening = checked(protocol, messages.pop().unwrap(), "initiator", None);
    assert_eq!(opening.receivers, [aid("participant")]);
    assert_eq!(
        Protocol::opened_by(&opening).unwrap().name(),
        protocol.name()
    );
    let mut participant = Participant::open(protocol, &opening, 0).unwrap();
    // The tags of the messages that the next one answers.
    let (mut to_initiator, mut to_participant, mut cancel) = (None, opening.reply_with, None);
    while let Some(word) = words.next() {
        match word {
            ">" => {
                let act = Performative::from(words.next().unwrap());
                let message = initiator
                    .send(To::All, &AclMessage::new(act.clone()), 0)?
                    .pop()
                    .unwrap();
                let answered = if act == Performative::Cancel {
                    None
                } else {
                    to_initiator.take()
                };
                let message = checked(protocol, message, "initiator", answered);
                if act == Performative::Cancel {
                    cancel.clone_from(&message.reply_with);
                } else {
                    to_participant.clone_from(&message.reply_with);
                }
                participant.receive(&message, 0).unwrap();
            }
            "conclude" => {
                initiator.conclude();
                participant.conclude();
            }
            word => {
                let act = match word {
                    "<" => Performative::from(words.next().unwrap()),
                    "confirm" => Performative::Inform,
                    "deny" => Performative::Failure,
                    _ => panic!("{word}"),
                };
                let draft = AclMessage::new(act);
                let (message, answered) = if word == "<" {
                    (participant.send(&draft, 0)?, to_participant.clone())
                } else {
                    (participant.answer_cancel(&draft, 0)?, cancel.clone())
                };
                let message = checked(protocol, message, "participant", answered);
                to_initiator.clone_from(&message.reply_with);
                initiator.receive(&message, 0).unwrap();
            }
        }
    }
    Ok((initiator, participant))
}

fn checked(
    protocol: &Protocol,
    message: AclMessage,
    sender: &str,
    answered: Option<Expression>,
) -> AclMessage {
    assert_eq!(message.protocol.as_deref(), Some(protocol.name()));
    assert_eq!(message.conversation_id, Some("c1".into()));
    assert!(message.reply_with.is_some());
    assert_eq!(message.in_reply_to, answered, "{message:?}");
    message.with_sender(aid(sender))
}
