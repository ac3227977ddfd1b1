//! Questions to a channel and the answers to them.

use std::sync::Arc;

use super::ChannelEvent;

/// The answers to a request, as they come. Dropping this value ends the request.
#[derive(Debug)]
pub struct ChannelReplies(sealbus_channels::Replies);

/// All answers to a request, and the agents that gave none.
#[derive(Clone, Debug)]
pub struct ChannelAnswers {
    /// The answers, in the order they came.
    pub replies: Vec<ChannelEvent>,
    /// The agents that were asked and did not answer: they declined, left, or took too long.
    pub missing: Vec<Arc<str>>,
}

impl ChannelReplies {
    pub(super) fn new(replies: sealbus_channels::Replies) -> Self {
        Self(replies)
    }

    /// Waits for the next answer. Returns `None` when all agents have answered, enough have, or the time is over. Safe
    /// to cancel.
    pub async fn next(&mut self) -> Option<ChannelEvent> {
        self.0.next().await.map(ChannelEvent::new)
    }

    /// Waits until the request is over. Returns the answers that were not taken yet.
    pub async fn all(mut self) -> ChannelAnswers {
        let mut replies = Vec::new();
        while let Some(reply) = self.next().await {
            replies.push(reply);
        }
        ChannelAnswers {
            replies,
            missing: self.missing(),
        }
    }

    /// The agents that were asked and have not answered. The list is complete once [`next`](Self::next) has returned
    /// `None`.
    pub fn missing(&self) -> Vec<Arc<str>> {
        self.0.unanswered()
    }
}
