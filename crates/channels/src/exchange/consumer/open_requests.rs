//! The requests that an agent has taken and not answered.

use std::collections::VecDeque;
use std::sync::Arc;

use sealbus_bus::Moment;

use crate::event::{Mechanism, ReceivedEvent, RequestId};
use crate::exchange::aftermath::PeerKey;

/// The most open requests. If there are more, the oldest counts as declined.
const OPEN_REQUESTS: usize = 4096;

/// The process that a request came from, and the request's number.
pub(super) type RequestSource = (Option<PeerKey>, RequestId);

struct Open {
    source: Option<PeerKey>,
    id: RequestId,
    requester: Arc<str>,
    expiry: Option<Moment>,
}

/// The open requests of a subscription, the oldest first.
#[derive(Default)]
pub(super) struct OpenRequests(VecDeque<Open>);

impl OpenRequests {
    /// Adds a request that the agent takes, or that it could not answer just now.
    pub(super) fn add(&mut self, event: &ReceivedEvent, (source, id): RequestSource) {
        self.0.push_back(Open {
            source,
            id,
            requester: requester(event),
            expiry: event.header.expiry,
        });
    }

    /// Takes out a request that counts as declined: the oldest one, if it has expired or there are too many.
    pub(super) fn pop_overdue(&mut self, now: Moment) -> Option<RequestSource> {
        let first = self.0.front()?;
        let is_over = first.expiry.is_some_and(|expiry| expiry <= now);
        if self.0.len() > OPEN_REQUESTS || is_over {
            return self.0.pop_front().map(|open| (open.source, open.id));
        }
        None
    }

    /// Takes out the request `event`, if it is open.
    pub(super) fn close(&mut self, event: &ReceivedEvent) -> Option<RequestSource> {
        let Mechanism::Request { id } = event.header.mechanism else {
            return None;
        };
        let requester = requester(event);
        let is_meant = |open: &Open| open.id == id && open.requester == requester;
        let index = self.0.iter().position(is_meant)?;
        let open = self.0.remove(index)?;
        Some((open.source, open.id))
    }

    /// Takes out all requests.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = RequestSource> {
        self.0.drain(..).map(|open| (open.source, open.id))
    }

    /// Removes the requests of a process that is gone.
    pub(super) fn forget(&mut self, peer: PeerKey) {
        self.0.retain(|open| open.source != Some(peer));
    }
}

fn requester(event: &ReceivedEvent) -> Arc<str> {
    event
        .message
        .message()
        .sender()
        .map(|sender| sender.name().into())
        .unwrap_or_default()
}
