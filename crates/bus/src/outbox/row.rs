//! Many messages at a time: a row of messages costs one look at the route, one lock and one wake.

use std::collections::VecDeque;
use std::sync::Arc;

use sealbus_fipa::AclMessage;

use super::{Last, Outbox, turn};
use crate::delegation::Delegation;
use crate::error::{SendError, TrySendError};
use crate::message::{Provenance, ReceivedMessage};
use crate::permission::Permit;
use crate::route::State;
use crate::transport::Outgoing;

impl Outbox {
    /// Sends messages in order, each as [`send`](Self::send) does. Messages in succession to one agent take one lock,
    /// and wake the agent once.
    ///
    /// If the future is dropped, some of the messages are not sent.
    ///
    /// # Errors
    /// [`SendError`] for the first message that cannot be sent. The messages before it are sent, those after it are not.
    pub async fn send_many<M: Into<Arc<AclMessage>>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<(), SendError> {
        let mut messages = messages.into_iter().map(Into::into);
        let mut row = VecDeque::with_capacity(turn::LONGEST);
        loop {
            // The caller's iterator runs without any lock, because it may send messages itself.
            row.extend(messages.by_ref().take(turn::LONGEST));
            if row.is_empty() {
                return Ok(());
            }
            loop {
                match self.try_send_many(&mut row) {
                    Ok(()) => break,
                    Err(TrySendError::Failed(error)) => return Err(error),
                    Err(TrySendError::Full(mut unsent)) => self.finish(&mut unsent).await?,
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sends messages in order, without waiting. Messages that are done leave `messages`.
    ///
    /// # Errors
    /// [`TrySendError`] for the message that left `messages` last. [`TrySendError::Full`] holds the rest of its work:
    /// [finish](Self::finish) it before the messages that are still in `messages`.
    pub fn try_send_many(
        &self,
        messages: &mut VecDeque<Arc<AclMessage>>,
    ) -> Result<(), TrySendError> {
        loop {
            self.send_row(messages)?;
            // The next message has several receivers, or its receiver is not found yet, or finds no room, or is at fault.
            match messages.pop_front() {
                None => return Ok(()),
                Some(message) => self.try_send(message)?,
            }
        }
    }

    /// Sends the first messages: as many as are for the same agent and find room.
    fn send_row(&self, messages: &mut VecDeque<Arc<AclMessage>>) -> Result<(), SendError> {
        let Some([receiver]) = messages.front().map(|first| &*first.receivers) else {
            return Ok(());
        };
        self.check_standing()?;
        let mut last = self.last.lock();
        let Last { route, permit, .. } = match &mut *last {
            Some(last) if *last.route.name == *receiver.name => last,
            other => {
                let mut permit = Permit::default();
                self.check_permission(&mut permit, &receiver.name)?;
                let route = self.bus.route(&receiver.name);
                let way = None;
                other.insert(Last { route, permit, way })
            }
        };
        self.check_permission(permit, &receiver.name)?;
        let state = route.state.lock();
        let gate = match &*state {
            State::Local(agent) => agent.mailbox().gate(),
            State::Remote(destination) => destination.gate(),
            State::Held(_) | State::Ended => return Ok(()),
        };
        if gate.is_crowded() || self.agent.gate().is_crowded() {
            return Ok(());
        }
        let is_for_it = |message: &&mut Arc<AclMessage>| {
            matches!(&*message.receivers, [receiver] if *receiver.name == *route.name)
                && !self.must_seal(message, &route.name)
                && !Delegation::is_in(message)
                && self.check(message).is_ok()
        };
        let length = messages
            .iter_mut()
            .take_while(is_for_it)
            .map(|message| self.name_sender(message))
            .count();
        let sent = match &*state {
            State::Local(agent) => {
                let row = messages.iter().take(length).cloned();
                let row = row.map(|it| ReceivedMessage::shared(it, Provenance::SameProcess));
                agent.mailbox().try_push_row(row)
            }
            State::Remote(destination) => {
                let mut row = messages.iter().take(length).map(|it| Outgoing::new(it));
                destination.try_send_row(&self.agent, &mut row)
            }
            State::Held(_) | State::Ended => 0,
        };
        messages.drain(..sent);
        self.agent.count_sent(sent as u64);
        Ok(())
    }
}
