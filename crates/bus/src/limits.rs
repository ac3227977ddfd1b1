//! The limits of messages: those of receivers, which senders observe, and those for messages that this process encoded.

use sealbus_fipa::bitefficient::{decode_ref, encode};
use sealbus_fipa::{AclMessage, Aid, DecodeProblem, Expression, Limits};

/// The limits for a message of any length, for callers whose carrier has limited the length.
pub const ANY_LENGTH: Limits = Limits {
    message_length: usize::MAX,
    ..Limits::DEFAULT
};

/// The limits for a message that this process encoded itself: they admit everything that the encoder writes. The
/// encoder limits the nesting as the decoder does, whatever the limits say.
pub const OWN_ENCODING: Limits = Limits {
    message_length: usize::MAX,
    depth: usize::MAX,
    values: usize::MAX,
    agents: usize::MAX,
};

/// The kind of part of which a message has more than its receivers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Its name.
    pub(crate) what: &'static str,
    /// How many a message may have.
    pub(crate) most: usize,
}

/// Whether a message has no lists of values, and only names in its agents. It is then within the limits if its lists of
/// agents are.
#[inline]
pub(crate) fn is_plain(message: &AclMessage) -> bool {
    let is_bare = |aid: &Aid| {
        aid.addresses.is_empty() && aid.resolvers.is_empty() && aid.user_defined.is_empty()
    };
    let is_flat = |value: &Option<Expression>| !matches!(value, Some(Expression::List(_)));
    message.user_defined.is_empty()
        && message.sender.as_ref().is_none_or(is_bare)
        && message.receivers.iter().all(is_bare)
        && message.reply_to.iter().all(is_bare)
        && is_flat(&message.conversation_id)
        && is_flat(&message.language)
        && is_flat(&message.ontology)
        && is_flat(&message.encoding)
        && is_flat(&message.reply_with)
        && is_flat(&message.in_reply_to)
}

/// Why the receivers of a message would refuse it; `None` if they would not.
#[cold]
pub(crate) fn excess(message: &AclMessage) -> Option<Excess> {
    let mut count = Count::default();
    if let Err(excess) = count.message(message) {
        return Some(excess);
    }
    if count.values <= ANY_LENGTH.values {
        return None;
    }
    // Brackets beside some values take no place of their own, so only the encoding shows how many values there are.
    let mut encoded = Vec::new();
    encode(message, &mut encoded).ok()?;
    match decode_ref(&encoded, &ANY_LENGTH).err()?.problem {
        DecodeProblem::Limit { what, limit } => Some(Excess { what, most: limit }),
        _ => None,
    }
}

/// Counts the values of a message. The count is never lower than that of its receivers.
#[derive(Default)]
struct Count {
    values: usize,
}

impl Count {
    fn message(&mut self, message: &AclMessage) -> Result<(), Excess> {
        let agents = message.sender.iter().chain(&message.receivers);
        for agent in agents.chain(&message.reply_to) {
            self.agent(agent, ANY_LENGTH.depth)?;
        }
        let values = [
            &message.conversation_id,
            &message.language,
            &message.ontology,
            &message.encoding,
            &message.reply_with,
            &message.in_reply_to,
        ];
        for value in values.into_iter().flatten() {
            self.value(value, ANY_LENGTH.depth)?;
        }
        self.parameters(&message.user_defined)?;
        self.values += usize::from(message.content.is_some());
        Ok(())
    }

    /// `depth`: the levels of nesting that are still allowed.
    fn agent(&mut self, agent: &Aid, depth: usize) -> Result<(), Excess> {
        let depth = deeper("levels of resolvers", depth)?;
        if agent.resolvers.len() > ANY_LENGTH.agents {
            return Err(Excess {
                what: "agents in one list",
                most: ANY_LENGTH.agents,
            });
        }
        self.values += 1 + agent.addresses.len();
        self.parameters(&agent.user_defined)?;
        for resolver in &agent.resolvers {
            self.agent(resolver, depth)?;
        }
        Ok(())
    }

    fn parameters(&mut self, parameters: &[(String, Expression)]) -> Result<(), Excess> {
        for (_, value) in parameters {
            self.values += 1;
            self.value(value, ANY_LENGTH.depth)?;
        }
        Ok(())
    }

    fn value(&mut self, value: &Expression, depth: usize) -> Result<(), Excess> {
        self.values += 1;
        if let Expression::List(items) = value {
            let depth = deeper("nested lists", depth)?;
            // The list's end.
            self.values += 1;
            for item in items {
                self.value(item, depth)?;
            }
        }
        Ok(())
    }
}

/// The levels of nesting that are allowed one level deeper.
fn deeper(what: &'static str, depth: usize) -> Result<usize, Excess> {
    let most = ANY_LENGTH.depth;
    depth.checked_sub(1).ok_or(Excess { what, most })
}

#[cfg(test)]
mod tests {
    use sealbus_fipa::Performative;

    use super::*;

    fn message() -> AclMessage {
        AclMessage::new(Performative::Inform)
            .with_sender(crate::aid_of("alice@factory"))
            .with_receiver(crate::aid_of("bob@factory"))
            .with_content("hello")
    }

    fn nested(depth: usize) -> Expression {
        let word = Expression::from("x");
        (0..depth).fold(word, |inner, _| Expression::List(vec![inner]))
    }

    fn under(depth: usize) -> Aid {
        let last = crate::aid_of("a@factory");
        (1..depth).fold(last, |inner, _| Aid {
            resolvers: vec![inner],
            ..crate::aid_of("a@factory")
        })
    }

    /// Whether the message is within the limits. Senders and receivers must agree.
    fn is_taken(message: &AclMessage) -> bool {
        let mut encoded = Vec::new();
        encode(message, &mut encoded).unwrap();
        assert!(decode_ref(&encoded, &OWN_ENCODING).is_ok());
        let refused = decode_ref(&encoded, &ANY_LENGTH).err();
        let refused = refused.map(|error| match error.problem {
            DecodeProblem::Limit { what, limit } => Excess { what, most: limit },
            other => panic!("{other}"),
        });
        let excess = match is_plain(message) {
            true => None,
            false => excess(message),
        };
        assert_eq!(excess, refused);
        excess.is_none()
    }

    #[test]
    fn senders_know_what_receivers_refuse() {
        assert!(is_taken(&message()));
        for (depth, is_right) in [(0, true), (32, true), (33, false), (256, false)] {
            let of_message = message().with_user_defined("X-deep", nested(depth));
            assert_eq!(is_taken(&of_message), is_right, "{depth}");
            let of_tag = message().with_conversation_id(nested(depth));
            assert_eq!(is_taken(&of_tag), is_right, "{depth}");
            let receiver = Aid {
                user_defined: vec![("X-deep".to_owned(), nested(depth))],
                ..crate::aid_of("bob@factory")
            };
            assert_eq!(is_taken(&message().with_receiver(receiver)), is_right);
        }
        for (depth, is_right) in [(1, true), (32, true), (33, false), (256, false)] {
            let mut of_agent = message().with_receiver(under(depth));
            assert_eq!(is_taken(&of_agent), is_right, "{depth}");
            of_agent.reply_to = of_agent.receivers.split_off(1);
            assert_eq!(is_taken(&of_agent), is_right, "{depth}");
        }
    }

    #[test]
    fn senders_count_as_receivers_do() {
        let list = |items: Vec<Expression>| message().with_user_defined("X-long", items);
        let words = |count: usize| vec![Expression::from("x"); count];
        assert!(is_taken(&list(words(65_000))));
        assert!(!is_taken(&list(words(65_536))));
        // The beginnings of lists in a list take no place of their own.
        assert!(is_taken(&list(vec![nested(1); 30_000])));
        assert!(!is_taken(&list(vec![nested(1); 40_000])));
        let with = |addresses: usize, resolvers: usize| {
            message().with_receiver(Aid {
                addresses: vec!["http://x".to_owned(); addresses],
                resolvers: vec![crate::aid_of("r@factory"); resolvers],
                ..crate::aid_of("bob@factory")
            })
        };
        assert!(is_taken(&with(60_000, 4096)));
        assert!(!is_taken(&with(60_000, 4097)));
        assert!(!is_taken(&with(65_536, 0)));
    }
}
