//! Arrivals for an agent, from its mailbox or the channels it listens to.

use std::future::poll_fn;
use std::task::{Context as TaskContext, Poll};

use sealbus_bus::ReceivedMessage;
use sealbus_process::AgentHandle;

use crate::channel::{ChannelEvent, ChannelSubscription};
use crate::filter::Filter;
use crate::handler::Handlers;
use crate::labour::Labour;
use crate::tool::Tools;

pub(super) enum MailOrEvent {
    Mail(Option<ReceivedMessage>),
    Event(Box<ChannelEvent>),
}

/// The first arrival, from the mailbox or a channel; neither has precedence.
pub(super) async fn arrival(
    handle: &mut AgentHandle,
    listening: &mut Vec<(u64, ChannelSubscription)>,
    beside: Beside<'_>,
) -> MailOrEvent {
    if listening.is_empty() {
        return MailOrEvent::Mail(mail(handle, beside).await);
    }
    tokio::select! {
        received = mail(handle, beside) => MailOrEvent::Mail(received),
        event = poll_fn(|waiting| poll_events(listening, waiting)) => MailOrEvent::Event(Box::new(event)),
    }
}

/// The takers of messages that work beside the hooks.
#[derive(Clone, Copy)]
pub(super) struct Beside<'a> {
    pub(super) tools: &'a Tools,
    pub(super) handlers: &'a Handlers,
    pub(super) labour: &'a Labour,
}

/// The next message, except messages for a tool or a handler that has no room.
async fn mail(handle: &mut AgentHandle, beside: Beside<'_>) -> Option<ReceivedMessage> {
    let Beside {
        tools,
        handlers,
        labour,
    } = beside;
    if tools.is_empty() && handlers.is_empty() {
        return handle.receive().await;
    }
    loop {
        let has_room = |it: &ReceivedMessage| {
            !tools.is_waiting(it) && !handlers.is_waiting(it) && !labour.is_beginning(it)
        };
        tokio::select! {
            biased;
            () = labour.room() => {}
            received = handle.mailbox().receive_matching(has_room) => return received,
        }
    }
}

fn poll_events(
    listening: &mut Vec<(u64, ChannelSubscription)>,
    waiting: &mut TaskContext<'_>,
) -> Poll<ChannelEvent> {
    let mut index = 0;
    while index < listening.len() {
        let (number, subscription) = &mut listening[index];
        match subscription.poll_next(waiting) {
            Poll::Ready(Some(mut event)) => {
                event.listener = Some(*number);
                // Next time, begin with another channel, so that a busy channel does not starve the others.
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
