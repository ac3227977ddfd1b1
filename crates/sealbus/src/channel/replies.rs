//! Questions to a channel and the answers to them.

use std::sync::Arc;

use super::ChannelEvent;

/// The answers to a request, as they come; dropping it ends the request.
#[derive(Debug)]
pub struct ChannelReplies(sealbus_channels::Replies);

/// All answers to a request, and who gave none.
#[derive(Clone, Debug)]
pub struct ChannelAnswers {
    /// The answers, in the order they came.
    pub replies: Vec<ChannelEvent>,
    /// The agents that were asked and did not answer: they declined, are gone, or took too long.
    pub missing: Vec<Arc<str>>,
}

impl ChannelReplies {
    pub(super) fn new(replies: sealbus_channels::Replies) -> Self {
        Self(replies)
    }

    /// Waits for the next answer. `None`: all have answered, enough have, or the time is over. Safe to cancel.
    pub async fn next(&mut self) -> Option<ChannelEvent> {
        self.0.next().await.map(ChannelEvent::new)
    }

    /// Waits until the request is over, and gives the answers that were not taken yet.
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

    /// The agents that were asked and have not answered; complete once [`next`](Self::next) has given `None`.
    pub fn missing(&self) -> Vec<Arc<str>> {
        self.0.unanswered()
    }
}
