//! Arrivals for an agent, from its mailbox or the channels it listens to.

use std::future::poll_fn;
use std::task::{Context as Waiting, Poll};

use sealbus_bus::ReceivedMessage;
use sealbus_process::AgentHandle;

use crate::channel::{ChannelEvent, ChannelSubscription};
use crate::filter::Filter;

pub(super) enum Arrival {
    Mail(Option<ReceivedMessage>),
    Event(Box<ChannelEvent>),
}

/// The first arrival, from the mailbox or a channel; neither has precedence.
pub(super) async fn arrival(
    handle: &mut AgentHandle,
    listening: &mut Vec<(u64, ChannelSubscription)>,
) -> Arrival {
    if listening.is_empty() {
        return Arrival::Mail(handle.receive().await);
    }
    tokio::select! {
        received = handle.receive() => Arrival::Mail(received),
        event = poll_fn(|waiting| poll_events(listening, waiting)) => Arrival::Event(Box::new(event)),
    }
}

fn poll_events(
    listening: &mut Vec<(u64, ChannelSubscription)>,
    waiting: &mut Waiting<'_>,
) -> Poll<ChannelEvent> {
    let mut index = 0;
    while index < listening.len() {
        let (number, subscription) = &mut listening[index];
        match subscription.poll_next(waiting) {
            Poll::Ready(Some(mut event)) => {
                event.listener = Some(*number);
                // Another channel comes first next time, so that a busy channel does not starve the others.
                listening.rotate_left(index + 1);
                return Poll::Ready(event);
            }
            Poll::Ready(None) => {
                let (_, ended) = listening.remove(index);
                if let Some(why) = ended.ended() {
                    tracing::warn!(channels = %ended.pattern(), "a subscription has ended: {why}");
                }
            }
            Poll::Pending => index += 1,
        }
    }
    Poll::Pending
}

pub(super) fn takes(filter: &Filter, received: &ReceivedMessage) -> bool {
    filter.is_any() || filter.takes(&received.message())
}
