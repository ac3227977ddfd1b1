//! The judge of messages that arrive on channels. Successive messages mostly differ only in content, and have the same
//! publisher and channel. The answer for one message then holds for the next.

use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::{ArrivedFrame, FrameOrigin, RefusalReason};
use sealbus_fipa::Limits;
use sealbus_fipa::bitefficient::{Checker, EncodedMessage, Likeness};
use sealbus_seal::permission::ChannelRight;

use super::arrival::{Objection, refuse};
use crate::path::ChannelPath;
use crate::permission::ChannelPermissions;

/// The judge, with its last answers.
pub(super) struct Judge {
    checker: Checker,
    /// The author of the last message, if the author really wrote it.
    author: Option<Arc<str>>,
    /// An agent that may publish on a channel, according to the rules with this number.
    may_publish: Option<(Arc<str>, ChannelPath, u64)>,
}

impl Judge {
    /// A judge of messages of at most this many bytes.
    pub(super) fn new(largest_message: usize) -> Self {
        Self {
            checker: Checker::new(Limits {
                message_length: largest_message,
                ..Limits::default()
            }),
            author: None,
            may_publish: None,
        }
    }

    /// The message of a frame, and the agent that wrote both. `body`: the bytes of the message in the frame.
    pub(super) fn message<'a>(
        &mut self,
        arrived: &'a ArrivedFrame,
        body: Bytes,
    ) -> Result<(&'a Arc<str>, EncodedMessage<Bytes>), Objection> {
        // The author is remembered only if all checks pass: the next message may be like one that is refused here.
        let last_author = self.author.take();
        let (message, likeness) = self
            .checker
            .check(body)
            .map_err(|error| refuse(RefusalReason::Malformed, error.to_string()))?;
        if message.length() != message.bytes().len() {
            return Err(refuse(
                RefusalReason::Malformed,
                "there are bytes after the ACL message",
            ));
        }
        let FrameOrigin::Agent(author) = &arrived.origin else {
            return Err(refuse(
                RefusalReason::ForgedSender,
                format!(
                    "{} sent an agent's message as its own, which only the agent may",
                    arrived.process
                ),
            ));
        };
        let known =
            last_author.filter(|last| likeness == Likeness::AllButContent && **last == **author);
        self.author = match known {
            // The check does not depend on the content.
            Some(known) => Some(known),
            None => {
                arrived.check_message(&message.message())?;
                Some(author.clone())
            }
        };
        Ok((author, message))
    }

    /// Whether an agent may publish on a channel. `number` changes with the rules.
    pub(super) fn may_publish(
        &mut self,
        agent: &Arc<str>,
        channel: &ChannelPath,
        rules: &ChannelPermissions,
        number: u64,
    ) -> bool {
        if let Some((known, on, by)) = &self.may_publish
            && *by == number
            && **known == **agent
            && on == channel
        {
            return true;
        }
        let may = rules.may(agent, ChannelRight::Publish, channel);
        self.may_publish = may.then(|| (agent.clone(), channel.clone(), number));
        may
    }
}
