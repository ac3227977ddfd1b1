//! The way out: messages from agents of this platform to agents of other platforms, until they are taken or have
//! failed.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use sealbus_bus::{Mailbox, MessageRoom, UndeliverableReason, failure_notice};
use sealbus_fipa::envelope::{Envelope, Received};
use sealbus_fipa::{AclMessage, Aid, DateTime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::address::Address;
use crate::arrivals::Arrivals;
use crate::config::milliseconds;
use crate::counters::Counts;
use crate::iiop;
use crate::outside::Outside;
use crate::peer::{MayReach, Outcome, Peer, PeerConfig, Request};
use crate::peer_handle::{PeerHandle, Ticket, UNIT};
use crate::reach::{self, OutOfReach};
use crate::shared::Shared;
use crate::subscriber;

/// How long a stand-in stays without messages before it is removed.
const IDLE_TIME: Duration = Duration::from_secs(600);
/// How often a waiting message counts the messages behind it.
const LOOK: Duration = Duration::from_secs(1);
/// The number of requests that wait for a peer's task. A separate limit holds for their bytes.
const WAITING: usize = 256;
/// Messages taken from a mailbox at a time.
const ROW: usize = 32;
/// Messages for one agent take no more of the room than the whole divided by this number.
const SHARE: usize = 16;

/// The part of the room that messages for one agent may take.
pub(crate) struct Share {
    units: usize,
    room: Arc<Semaphore>,
}

async fn taken(room: &Arc<Semaphore>, units: usize) -> Option<OwnedSemaphorePermit> {
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    // Nobody closes the semaphore.
    room.clone().acquire_many_owned(units).await.ok()
}

impl Shared {
    /// Whether something is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        let whole = self.config.limits.outgoing / UNIT;
        let peers = self.peers.lock();
        peers
            .values()
            .any(|peer| peer.room.available_permits() < whole)
            || !self.lines.lock().is_empty()
    }

    /// Carries messages from the mailbox of a stand-in to the agent that it stands for.
    pub(crate) async fn carry(self: Arc<Self>, name: Arc<str>, mut mailbox: Mailbox) {
        let mut row = Vec::new();
        let share = (self.config.limits.outgoing / UNIT / SHARE).max(1);
        let share = Share {
            units: share,
            room: Arc::new(Semaphore::new(share)),
        };
        let mut arrivals = Arrivals::default();
        let mut looks = tokio::time::interval(LOOK);
        loop {
            let next = mailbox.recv_many(&mut row, ROW);
            match tokio::time::timeout(IDLE_TIME, next).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    // Messages that come in between are still in the mailbox.
                    self.outbox.bus().retire_stand_in(&name);
                    continue;
                }
            }
            let now = Instant::now();
            let taken: Vec<_> = row
                .drain(..)
                .map(|mut received| {
                    let of_all = received.take_room();
                    (received.into_message(), of_all, arrivals.take(now))
                })
                .collect();
            arrivals.look(mailbox.len(), now);
            for (message, of_all, since) in taken {
                let share = Some(&share);
                let mut sending = pin!(self.send(message, &name, false, share, of_all, since));
                // Messages behind it count from their own arrival.
                loop {
                    tokio::select! {
                        biased;
                        () = &mut sending => break,
                        _ = looks.tick() => arrivals.look(mailbox.len(), Instant::now()),
                    }
                }
            }
        }
    }

    /// Hands a message that has been here since `since` to the peer of its receiver. Waits for room as long as the
    /// message is worth sending. `of_all`: its room among the messages of other processes to all platforms, which it
    /// keeps until it was taken or has failed.
    pub(crate) async fn send(
        self: &Arc<Self>,
        message: Arc<AclMessage>,
        receiver: &Arc<str>,
        is_notice: bool,
        share: Option<&Share>,
        of_all: Option<Arc<MessageRoom>>,
        since: Instant,
    ) {
        // The message is usually not shared any more, and then nothing is copied.
        let mut message = Arc::unwrap_or_clone(message);
        let failed = |message: &AclMessage, reason: String| {
            Counts::add(&self.counts.failed, 1);
            if is_notice {
                tracing::debug!(%receiver, reason, "a failure notice cannot be sent");
            } else {
                self.tell(message, receiver, reason);
            }
        };
        let expires = since + self.patience(&message);
        let (peer, bytes) = match self.build(&mut message, receiver) {
            Ok(built) => built,
            Err(reason) => return failed(&message, reason),
        };
        // A notice of failure needs all but the content.
        message.content = None;
        let whole = self.config.limits.outgoing / UNIT;
        let units = bytes.len() / UNIT + 1;
        let room = async {
            // The agent's own share comes first: a message that waits for it takes no room from others.
            let own = match share {
                Some(share) => taken(&share.room, units.min(share.units)).await,
                None => None,
            };
            let room = taken(&peer.room, units.min(whole)).await;
            // The peer's task lives as long as its handle.
            let place = peer.requests.reserve().await.ok();
            (own, room, place)
        };
        let Ok((share, room, place)) = tokio::time::timeout_at(expires.into(), room).await else {
            let reason = "it could not be sent in time: the messages before it wait, too";
            return failed(&message, reason.to_owned());
        };
        let request = Request {
            bytes,
            expires,
            receiver: receiver.clone(),
            ticket: Ticket {
                message,
                receiver: receiver.clone(),
                _room: room,
                _share: share,
                _of_all: of_all,
            },
        };
        if let Some(place) = place {
            place.send(request);
        }
    }

    /// How long a message is worth sending.
    fn patience(&self, message: &AclMessage) -> Duration {
        let usual = milliseconds(self.config.limits.patience);
        let now = SystemTime::now();
        let reply_by = message.reply_by.and_then(|it| it.system_time(now).ok());
        match reply_by.map(|it| it.duration_since(now)) {
            Some(Ok(left)) => left.min(usual),
            // The answer is already late, but the message itself may still be of use.
            Some(Err(_)) | None => usual,
        }
    }

    /// The request for a message, except its first lines, and the peer to hand it to. The message is changed to the
    /// form for other platforms.
    fn build(
        self: &Arc<Self>,
        message: &mut AclMessage,
        receiver: &str,
    ) -> Result<(PeerHandle, Bytes), String> {
        let platform = receiver
            .rsplit_once('@')
            .map_or("", |(_, platform)| platform);
        let known = self.known.get(&platform.to_ascii_lowercase());
        let named = message.receivers.iter().find(|it| it.name == receiver);
        let named = named.map(|it| it.addresses.clone()).unwrap_or_default();
        let of_operator = known
            .map(|known| &known.addresses)
            .filter(|it| !it.is_empty());
        let wrote_from = subscriber::noted(message, receiver, &self.platform);
        let (mut addresses, learnt) = {
            let mut book = self.book.lock();
            if let Some(address) = wrote_from {
                book.remember(platform, address);
            }
            let addresses = match of_operator {
                Some(addresses) => addresses.clone(),
                None => Some(book.usable(&named))
                    .filter(|told| !told.is_empty())
                    .or_else(|| book.addresses(receiver).cloned())
                    .unwrap_or_default(),
            };
            (addresses, book.encoding(platform))
        };
        if addresses.is_empty() {
            return Err(match named.first() {
                Some(address) => match Address::read(address) {
                    Err(error) => error.to_string(),
                    Ok(_) => "none of its addresses can be used".to_owned(),
                },
                None => format!(
                    "no address of platform {platform} is known: name one in the agent's identifier, such as http://host:7778/acc"
                ),
            });
        }
        let is_own = |it: &Address| self.own.ways.iter().any(|own| own.leads_to(it));
        if addresses.iter().any(is_own) {
            return Err(format!(
                "{receiver} is said to be behind {}, which is this platform's own gateway",
                self.own.http
            ));
        }
        if of_operator.is_none() {
            self.drop_out_of_reach(platform, &mut addresses)
                .map_err(|why| why.to_string())?;
        }
        // A request is written for one transport.
        let transport = addresses[0].transport();
        addresses.retain(|it| it.transport() == transport);
        Outside {
            platform: &self.platform,
            own: &self.own,
            transport,
        }
        .message(message);
        let message = &*message;
        let encoding = known.cloned().unwrap_or_default().encoding(learnt);
        let to = Aid {
            addresses: if named.is_empty() {
                addresses.iter().map(ToString::to_string).collect()
            } else {
                named
            },
            resolvers: Vec::new(),
            user_defined: Vec::new(),
            name: receiver.to_owned(),
        };
        let plain = |aid: &Aid| Aid {
            name: aid.name.clone(),
            addresses: aid.addresses.clone(),
            resolvers: Vec::new(),
            user_defined: Vec::new(),
        };
        let from = message.sender.as_ref().map(plain);
        let mut all: Vec<Aid> = message.receivers.iter().map(plain).collect();
        for aid in &mut all {
            if aid.name == to.name {
                aid.addresses.clone_from(&to.addresses);
            }
        }
        let date =
            DateTime::from_system_time(SystemTime::now()).map_err(|error| error.to_string())?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut envelope = Envelope::new(
            all,
            from.unwrap_or_else(|| to.clone()),
            encoding.message.name(),
            date,
        );
        envelope.base.intended_receivers = vec![to];
        // The stamp tells this copy apart from any other, if it must be sent again.
        envelope.base.received = Some(Received {
            by: self.own.http.clone(),
            date,
            from: None,
            id: Some(format!("{}-{number}", self.run)),
            via: Some(transport.name().to_owned()),
            user_defined: Vec::new(),
        });
        let unencodable = |error| UndeliverableReason::Encoding(error).to_string();
        let request = match &addresses[0] {
            Address::Http(_) => {
                let mut writer = self.writer.lock();
                let request = writer.request(envelope, message, encoding);
                request.map_err(unencodable)?
            }
            Address::Iiop(profile) => {
                let code_set = iiop::code_set(profile);
                let request =
                    iiop::transmission::write(envelope, message, encoding.message, code_set);
                request.map_err(|error| error.to_string())?
            }
        };
        let peer = self.peer(platform, addresses, of_operator.is_some());
        Ok((peer, request.into()))
    }

    /// Checks that the gateway may connect to a network address on behalf of an agent of a platform.
    fn may_reach(&self, platform: &str, address: IpAddr) -> Result<(), OutOfReach> {
        let policy = self.policy.read().clone();
        reach::check(&policy, platform, &self.book.lock().seen(platform), address)
    }

    /// Takes out addresses that are out of reach even without resolving. An error if none is left.
    fn drop_out_of_reach(
        &self,
        platform: &str,
        addresses: &mut Vec<Address>,
    ) -> Result<(), OutOfReach> {
        let mut last = Ok(());
        addresses.retain(|it| match it.host().parse() {
            Ok(address) => match self.may_reach(platform, address) {
                Ok(()) => true,
                why => {
                    last = why;
                    false
                }
            },
            Err(_) => true,
        });
        if addresses.is_empty() { last } else { Ok(()) }
    }

    fn peer(
        self: &Arc<Self>,
        platform: &str,
        addresses: Vec<Address>,
        is_of_operator: bool,
    ) -> PeerHandle {
        let key = (platform.to_ascii_lowercase(), addresses);
        let mut peers = self.peers.lock();
        if let Some(peer) = peers.get(&key) {
            return peer.clone();
        }
        let (platform, addresses) = key.clone();
        let limits = &self.config.limits;
        let whole = limits.outgoing / UNIT;
        // Peers without traffic are made again when they are needed.
        if peers.len() >= 256 {
            peers.retain(|_, peer| {
                peer.room.available_permits() < whole || peer.requests.capacity() < WAITING
            });
        }
        let (requests, taken) = mpsc::channel(WAITING);
        let gateway = Arc::downgrade(self);
        let may_reach: MayReach = Box::new(move |address| match gateway.upgrade() {
            Some(gateway) => gateway.may_reach(&platform, address),
            // The gateway is ending, and connects to nothing any more.
            None => Ok(()),
        });
        let config = PeerConfig {
            addresses,
            may_reach,
            is_of_operator,
            tls: self.tls.clone(),
            window: limits.window,
            answer_time: milliseconds(limits.answer_time),
        };
        let handle = PeerHandle {
            requests,
            room: Arc::new(Semaphore::new(whole)),
        };
        peers.insert(key, handle.clone());
        drop(peers);
        self.spawn(Peer::new(config, taken, self.clone()).run());
        handle
    }

    /// Tells the sender of a message, an agent of this platform, that the message did not get through.
    fn tell(self: &Arc<Self>, message: &AclMessage, receiver: &str, reason: String) {
        let ams = self.aid("ams");
        let reason = UndeliverableReason::Foreign(reason);
        tracing::debug!(target: "sealbus::undeliverable", receiver, %reason, "message not delivered");
        let Some(notice) = failure_notice(&ams, &AclMessage::view(message), receiver, &reason)
        else {
            return;
        };
        let Some(sender) = notice.receivers.first().map(|it| it.name.clone()) else {
            return;
        };
        let gateway = self.clone();
        // The sender's mailbox may be full. The peer continues meanwhile, and the notice waits in the bounded line of
        // that mailbox.
        self.spawn(async move { gateway.give_notice(notice, &sender).await });
    }
}

impl Outcome<Ticket> for Shared {
    fn taken(&self, ticket: Ticket) {
        drop(ticket);
        Counts::add(&self.counts.sent, 1);
    }

    fn failed(self: &Arc<Self>, ticket: Ticket, reason: String) {
        Counts::add(&self.counts.failed, 1);
        self.tell(&ticket.message, &ticket.receiver, reason);
    }

    fn retried(&self) {
        Counts::add(&self.counts.retried, 1);
    }
}
