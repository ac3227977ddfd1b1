//! The sending end of an agent.

mod answer;
mod keeping;
mod last_words;
mod level;
mod row;
mod sealing;
mod turn;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use sealbus_fipa::{AclMessage, Aid, Limits};

use crate::agent::LocalAgent;
use crate::bus::Bus;
use crate::delegation::Delegation;
use crate::error::{SendError, TrySendError, Unsent};
use crate::limits::{Excess, excess, is_plain};
use crate::permission::Permit;
use crate::route::{Bottleneck, Parcel, ParcelMessage, Route, Sent, Way};
use crate::transport::Outgoing;

use level::check_level;
use turn::Turn;

/// The sending side of an attached agent. Calls may come from any thread.
///
/// A message accepted here is delivered once, and in order for each sender and receiver. Otherwise the sender finds a
/// `failure` message from `ams@PLATFORM` in its mailbox. The failure names the receiver and the reason, and has the
/// conversation of the lost message.
pub struct Outbox {
    bus: Bus,
    agent: Arc<LocalAgent>,
    /// The last used route: agents mostly write to the same receiver again.
    last: Mutex<Option<Last>>,
    turn: Turn,
}

/// The last used route, the permission to use it, and where it led.
struct Last {
    route: Arc<Route>,
    permit: Permit,
    way: Option<Way>,
}

/// Why an attempt to send to one receiver was not accepted.
enum NotAccepted {
    Full(Arc<Route>, Bottleneck),
    Failed(SendError),
}

impl Outbox {
    pub(crate) fn new(bus: Bus, agent: Arc<LocalAgent>) -> Self {
        Self {
            bus,
            agent,
            last: Mutex::new(None),
            turn: Turn::default(),
        }
    }

    /// A further sending side of an agent of this process, with which its process speaks in its name.
    pub fn of(bus: &Bus, agent: &str) -> Option<Self> {
        Some(Self::new(bus.clone(), bus.agent(agent)?))
    }

    /// The agent's name.
    pub fn name(&self) -> &Arc<str> {
        self.agent.name()
    }

    /// The agent's identifier.
    pub fn aid(&self) -> Aid {
        self.agent.aid()
    }

    /// The bus that the agent is attached to.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// The agent that sends.
    pub fn agent(&self) -> &Arc<LocalAgent> {
        &self.agent
    }

    /// Sends `message` to all its receivers, waiting while there is no room. A missing `:sender` is filled in.
    ///
    /// If the future is dropped, the remaining receivers do not get the message.
    ///
    /// # Errors
    /// [`SendError`]: neither the receiver named nor those after it accepted the message.
    pub fn send(
        &self,
        message: impl Into<Arc<AclMessage>>,
    ) -> impl Future<Output = Result<(), SendError>> + Send {
        // A message is some hundred bytes long, so it is shared before the future would move it.
        let message = message.into();
        async move {
            match self.try_send(message) {
                Ok(()) => {
                    self.turn.sent().await;
                    Ok(())
                }
                Err(TrySendError::Failed(error)) => Err(error),
                Err(TrySendError::Full(mut unsent)) => self.finish(&mut unsent).await,
            }
        }
    }

    /// Sends without waiting.
    ///
    /// # Errors
    /// [`TrySendError::Full`] holds the rest of the work.
    pub fn try_send(&self, message: impl Into<Arc<AclMessage>>) -> Result<(), TrySendError> {
        let mut unsent = self.unsent(message)?;
        match self.try_finish(&mut unsent)? {
            true => Ok(()),
            false => Err(TrySendError::Full(unsent)),
        }
    }

    /// A message under the agent's name that no receiver has yet.
    ///
    /// # Errors
    /// [`SendError`]: the message cannot be sent to anybody.
    pub fn unsent(&self, message: impl Into<Arc<AclMessage>>) -> Result<Unsent, SendError> {
        let message = self.signed(message.into())?;
        let left = 0..message.receivers.len();
        Ok(Unsent { message, left })
    }

    /// Continues to send a message that found no room, and waits for room.
    ///
    /// Safe to cancel: `unsent` holds the receivers that are left.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn finish(&self, unsent: &mut Unsent) -> Result<(), SendError> {
        let Unsent { message, left } = unsent;
        let message = &*message;
        let outgoing = Outgoing::new(message);
        let parcel = self.parcel(message, &outgoing);
        for receiver in message.receivers.iter().take(left.end).skip(left.start) {
            let receiver = &receiver.name;
            if self.must_seal(message, receiver) {
                let sealed = self.sealed(message, receiver, None).await?;
                let outgoing = Outgoing::sealed(sealed.bytes());
                self.deliver(&self.sealed_parcel(&sealed, &outgoing), receiver)
                    .await?;
            } else {
                self.deliver(&parcel, receiver).await?;
            }
            left.start += 1;
        }
        Ok(())
    }

    /// For the gateway: sends `message` to one agent of this platform in the name of its sender, an agent of another
    /// platform. The message may also be the AMS's notice that a message could not be carried outside. Waits for room.
    ///
    /// # Errors
    /// [`SendError::ForgedSender`] for any other sender; otherwise as [`send`](Self::send).
    pub async fn relay(&self, message: &Arc<AclMessage>, receiver: &str) -> Result<(), SendError> {
        let view = AclMessage::view(message);
        let Some(provenance) = self.bus.spoken_for(self.agent.name(), &view) else {
            return Err(SendError::ForgedSender {
                sender: self.agent.name().clone(),
                claimed: match &message.sender {
                    Some(sender) => sender.name.clone(),
                    None => String::new(),
                },
            });
        };
        let outgoing = Outgoing::new(message);
        let parcel = Parcel {
            is_own: false,
            is_notice: provenance.is_of_platform(),
            ..self.parcel(message, &outgoing)
        };
        self.deliver(&parcel, receiver).await
    }

    /// Checks that this message may be sent to `receiver`.
    #[inline]
    fn check_parcel(
        &self,
        parcel: &Parcel<'_>,
        permit: &mut Permit,
        receiver: &str,
    ) -> Result<(), NotAccepted> {
        if parcel.is_notice {
            return Ok(());
        }
        let permitted = match &parcel.chain {
            None => self.check_permission(permit, receiver),
            Some(chain) => self.check_chain(chain, receiver),
        };
        permitted.map_err(NotAccepted::Failed)
    }

    /// Checks that the agent may write this message to `receiver`.
    fn check_for(&self, message: &AclMessage, receiver: &str) -> Result<(), SendError> {
        match (chain_of(message), &mut *self.last.lock()) {
            (Some(chain), _) => self.check_chain(&chain, receiver),
            (None, Some(Last { route, permit, .. })) if *route.name == *receiver => {
                self.check_permission(permit, receiver)
            }
            (None, _) => self.check_permission(&mut Permit::default(), receiver),
        }
    }

    /// Checks that the agent may write to `receiver` on behalf of others.
    fn check_chain(&self, chain: &Delegation, receiver: &str) -> Result<(), SendError> {
        let sender = self.agent.name();
        let permitted = self.bus.inner.rules.check_for(sender, receiver, chain);
        permitted.map_err(|refused| {
            self.bus.refused_own(sender, receiver, &refused);
            SendError::NotPermittedFor {
                sender: sender.clone(),
                receiver: receiver.to_owned(),
                askers: chain.to_string(),
            }
        })
    }

    /// Checks that the agent may write to `receiver`.
    #[inline]
    fn check_permission(&self, permit: &mut Permit, receiver: &str) -> Result<(), SendError> {
        match self.bus.inner.rules.gave(permit) {
            true => Ok(()),
            false => self.ask_permission(permit, receiver),
        }
    }

    #[cold]
    fn ask_permission(&self, permit: &mut Permit, receiver: &str) -> Result<(), SendError> {
        let sender = self.agent.name();
        self.bus
            .permits(permit, sender, receiver)
            .map_err(|refused| {
                self.bus.refused_own(sender, receiver, &refused);
                SendError::NotPermitted {
                    sender: sender.clone(),
                    receiver: receiver.to_owned(),
                }
            })
    }

    /// Sends to one receiver, waiting for room.
    async fn deliver(&self, parcel: &Parcel<'_>, receiver: &str) -> Result<(), SendError> {
        let mut my_turn = false;
        loop {
            let (route, waiting) = match self.attempt(parcel, receiver, my_turn) {
                Ok(()) => return Ok(()),
                Err(NotAccepted::Failed(error)) => return Err(error),
                Err(NotAccepted::Full(route, waiting)) => (route, waiting),
            };
            let answer = waiting
                .gate()
                .pass_as(self.agent.number(), || {
                    if self.bus.given_up().is_some() {
                        return Some(Sent::Stale);
                    }
                    match self.bus.send_along(&route, parcel, true) {
                        Sent::Full(now) if now.is_same(&waiting) => None,
                        answer => Some(answer),
                    }
                })
                .await;
            match answer {
                Sent::Accepted => {
                    let _last = self.last.lock();
                    self.agent.count_sent(1);
                    return Ok(());
                }
                Sent::Impossible(reason) => return Err(self.impossible(receiver, reason)),
                // The route has changed, so the message takes another way.
                Sent::Full(_) | Sent::Stale => my_turn = true,
            }
        }
    }

    /// Continues to send a message without waiting. Returns false if the next receiver has no room.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[inline]
    pub fn try_finish(&self, unsent: &mut Unsent) -> Result<bool, SendError> {
        let Unsent { message, left } = unsent;
        let message = &*message;
        let outgoing = Outgoing::new(message);
        let parcel = self.parcel(message, &outgoing);
        for receiver in message.receivers.get(left.clone()).unwrap_or_default() {
            let receiver = &receiver.name;
            let attempt = match self.must_seal(message, receiver) {
                true => self.attempt_sealed(message, receiver),
                false => self.attempt(&parcel, receiver, false).map(|()| true),
            };
            match attempt {
                Ok(true) => left.start += 1,
                Err(NotAccepted::Failed(error)) => return Err(error),
                Ok(false) | Err(NotAccepted::Full(..)) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn parcel<'a>(
        &'a self,
        message: &'a Arc<AclMessage>,
        outgoing: &'a Outgoing<'a>,
    ) -> Parcel<'a> {
        Parcel {
            sender: &self.agent,
            message: ParcelMessage::Message(message),
            outgoing,
            is_own: true,
            is_notice: false,
            chain: chain_of(message),
        }
    }

    /// Puts the message under the agent's own name.
    #[inline]
    fn signed(&self, mut message: Arc<AclMessage>) -> Result<Arc<AclMessage>, SendError> {
        self.check(&message)?;
        self.name_sender(&mut message);
        Ok(message)
    }

    /// Fills in the sender of a message that names none.
    #[inline]
    fn name_sender(&self, message: &mut Arc<AclMessage>) {
        if message.sender.is_none() {
            Arc::make_mut(message).sender = Some(self.agent.aid());
        }
    }

    /// Checks the sender that a message claims, the number of agents that it names, the limits of its receivers, and
    /// the level that it asks for.
    #[inline]
    fn check(&self, message: &AclMessage) -> Result<(), SendError> {
        let is_own = |sender: &Aid| *sender.name == **self.agent.name();
        let most = Limits::DEFAULT.agents;
        match message.sender.as_ref().is_none_or(is_own)
            && (1..=most).contains(&message.receivers.len())
            && message.reply_to.len() <= most
            && is_plain(message)
        {
            true => Ok(()),
            false => self.fault(message, most),
        }
    }

    /// Explains why a message cannot be sent, if it cannot.
    #[cold]
    fn fault(&self, message: &AclMessage, most: usize) -> Result<(), SendError> {
        if let Some(sender) = &message.sender
            && sender.name != **self.agent.name()
        {
            return Err(SendError::ForgedSender {
                sender: self.agent.name().clone(),
                claimed: sender.name.clone(),
            });
        }
        if message.receivers.is_empty() {
            return Err(SendError::NoReceiver {
                sender: self.agent.name().clone(),
            });
        }
        for (what, count) in [
            ("receivers", message.receivers.len()),
            ("reply-to entries", message.reply_to.len()),
        ] {
            if count > most {
                return Err(SendError::TooManyAgents {
                    sender: self.agent.name().clone(),
                    what,
                    count,
                    most,
                });
            }
        }
        let sender = self.agent.name();
        if let Some(Excess { what, most }) = excess(message) {
            let sender = sender.clone();
            return Err(SendError::OverLimits { sender, what, most });
        }
        Delegation::from_sender(&message.view(), sender).map_err(|reason| {
            SendError::Delegation {
                sender: sender.clone(),
                reason,
            }
        })?;
        check_level(&self.bus, message).map_err(|reason| SendError::Level {
            sender: sender.clone(),
            reason,
        })
    }

    fn attempt(
        &self,
        parcel: &Parcel<'_>,
        receiver: &str,
        my_turn: bool,
    ) -> Result<(), NotAccepted> {
        self.check_standing().map_err(NotAccepted::Failed)?;
        let mut last = self.last.lock();
        loop {
            let Last { route, permit, way } = match &mut *last {
                Some(last) if *last.route.name == *receiver => last,
                other => {
                    let mut permit = Permit::default();
                    // The check comes before the search for the receiver.
                    self.check_parcel(parcel, &mut permit, receiver)?;
                    let route = self.bus.route(receiver);
                    let way = None;
                    other.insert(Last { route, permit, way })
                }
            };
            self.check_parcel(parcel, permit, receiver)?;
            match self.bus.send_again(route, way, parcel, my_turn) {
                Sent::Accepted => {
                    self.agent.count_sent(1);
                    return Ok(());
                }
                Sent::Full(waiting) => return Err(NotAccepted::Full(route.clone(), waiting)),
                Sent::Impossible(reason) => {
                    return Err(NotAccepted::Failed(self.impossible(receiver, reason)));
                }
                Sent::Stale => *last = None,
            }
        }
    }

    /// Checks that the platform has not given up this process.
    fn check_process(&self) -> Result<(), SendError> {
        match self.bus.given_up() {
            None => Ok(()),
            Some(why) => Err(SendError::GivenUp {
                sender: self.agent.name().clone(),
                why: why.to_owned(),
            }),
        }
    }

    #[inline]
    fn check_standing(&self) -> Result<(), SendError> {
        match self.bus.given_up().is_none() && !self.agent.mailbox().is_barred() {
            true => Ok(()),
            false => self.why_barred(),
        }
    }

    #[cold]
    fn why_barred(&self) -> Result<(), SendError> {
        self.check_process()?;
        let mailbox = self.agent.mailbox();
        let name = self.agent.name().clone();
        Err(if mailbox.closed().is_some() {
            SendError::Detached(name)
        } else {
            SendError::UnreadFailures(name)
        })
    }

    fn impossible(&self, receiver: &str, reason: crate::UndeliverableReason) -> SendError {
        SendError::Impossible {
            sender: self.agent.name().clone(),
            receiver: receiver.to_owned(),
            reason,
        }
    }
}

/// The agents on whose behalf a message asks, if it names any.
#[inline]
fn chain_of(message: &AclMessage) -> Option<Delegation> {
    match Delegation::is_in(message) {
        true => Delegation::of(&message.view()).ok(),
        false => None,
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("agent", self.agent.name())
            .finish_non_exhaustive()
    }
}
