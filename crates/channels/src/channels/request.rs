//! A request, as the asking agent sees it: the options, and the answers as they come.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Channels;
use crate::event::ReceivedEvent;
use crate::exchange::Collector;

/// The receivers of a request and its deadline: see [`Channels::request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOptions {
    /// How long the agent waits for answers.
    pub within: Duration,
    /// The number of answers that ends the request; `None`: it ends when all agents have answered.
    pub first: Option<usize>,
}

impl RequestOptions {
    /// All answers that come within this time.
    pub const fn within(time: Duration) -> Self {
        Self {
            within: time,
            first: None,
        }
    }

    /// As before, but the request ends after this many answers.
    #[must_use]
    pub const fn first(mut self, count: usize) -> Self {
        self.first = Some(count);
        self
    }
}

/// The outcome of a request.
#[derive(Clone, Debug)]
pub struct Answers {
    /// The answers, in the order they came.
    pub replies: Vec<ReceivedEvent>,
    /// The agents that were asked and have not answered: they declined, left, or took too long.
    pub unanswered: Vec<Arc<str>>,
}

/// The answers to a request, as they come. Dropping this value ends the request.
pub struct Replies {
    pub(super) channels: Channels,
    pub(super) id: u64,
    pub(super) collector: Arc<Collector>,
}

impl Replies {
    /// Waits for the next answer. `None`: all agents have answered, there are enough answers, or the time is over. Safe
    /// to cancel.
    pub async fn next(&mut self) -> Option<ReceivedEvent> {
        loop {
            match self.collector.take() {
                Ok(Some(reply)) => return Some(reply),
                Ok(None) => self.collector.news().await,
                Err(()) => return None,
            }
        }
    }

    /// Waits until the request is over. Returns all answers that were not taken before.
    pub async fn all(mut self) -> Answers {
        let mut replies = Vec::new();
        while let Some(reply) = self.next().await {
            replies.push(reply);
        }
        Answers {
            replies,
            unanswered: self.collector.unanswered(),
        }
    }

    /// The agents that were asked and have not answered. The list is complete once [`next`](Self::next) has returned
    /// `None`.
    pub fn unanswered(&self) -> Vec<Arc<str>> {
        self.collector.unanswered()
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        self.channels
            .shared
            .work(|exchange, _| exchange.end_request(self.id));
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
