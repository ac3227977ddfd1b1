//! The links of this process: made for agents that send, or by processes that connect to this one.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use sealbus_bus::{RefusalReason, WeakBus, network_of};
use sealbus_seal::{Identity, VerifiedIdentity};
use sealbus_web::accept_until;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::frame::{GoodbyeReason, RandomId};
use crate::greeting::{Greeted, GreetingError, say_goodbye};
use crate::inward::Inward;
use crate::link::Link;
use crate::own_process::OwnProcess;
use crate::session::Session;
use crate::strangers::Strangers;
use crate::task::Task;

/// The most forgotten links of which something is remembered. If there are more, all of it is forgotten.
const FORMER: usize = 65_536;

/// The remainder of a forgotten link, from which the next link to the same process continues. Without it, that process
/// would take the next connections for earlier ones, and could send again what the forgotten link took.
struct ForgottenLink {
    last_number: u64,
    given_up: RandomId,
}

/// The links of this process.
pub(crate) struct Links {
    pub(crate) own: Arc<OwnProcess>,
    bus: WeakBus,
    runtime: Handle,
    by_process: Mutex<HashMap<Identity, Arc<Link>>>,
    /// Lock this after `by_process` if you need both.
    former: Mutex<HashMap<Identity, ForgottenLink>>,
    strangers: Strangers<IpAddr>,
    end: Notify,
}

impl Links {
    /// No links yet. Their tasks run on the runtime on which this is called.
    pub(crate) fn new(own: OwnProcess, bus: WeakBus) -> Arc<Self> {
        Arc::new(Self {
            bus,
            runtime: Handle::current(),
            by_process: Mutex::default(),
            former: Mutex::default(),
            strangers: Strangers::new(own.config.unproved_connections),
            end: Notify::new(),
            own: Arc::new(own),
        })
    }

    /// Accepts connections until [`stop_listening`](Self::stop_listening).
    pub(crate) fn listen(self: &Arc<Self>, listener: TcpListener) {
        let links = self.clone();
        self.runtime.spawn(async move {
            let end = links.end.notified();
            let accepting = accept_until(end, &listener, usize::MAX, |tcp, from, _| {
                Some(links.clone().take_in(tcp, from))
            });
            // Connections that have come already are still taken in.
            accepting.await.detach_all();
        });
    }

    pub(crate) fn stop_listening(&self) {
        self.end.notify_waiters();
        self.end.notify_one();
    }

    /// All links.
    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        self.by_process.lock().values().cloned().collect()
    }

    /// The link to a process, if there is one.
    pub(crate) fn get(&self, peer: &Identity) -> Option<Arc<Link>> {
        self.by_process.lock().get(peer).cloned()
    }

    /// A process is gone for good. Nothing about it is remembered.
    pub(crate) fn forget_former(&self, peer: &Identity) {
        self.former.lock().remove(peer);
    }

    /// Forgets all links.
    pub(crate) fn clear(&self) {
        self.by_process.lock().clear();
    }

    /// Whether any link has messages that the peer has not acknowledged, or has no room for.
    pub(crate) fn are_any_unacknowledged(&self) -> bool {
        self.all()
            .iter()
            .any(|link| link.outward.lock().awaits_peer())
    }

    /// Whether a connected peer does not know yet which of its messages an agent received that has left here.
    pub(crate) fn owe_outcomes(&self) -> bool {
        self.all().iter().any(|link| {
            let is_connected = link.wire.lock().is_some();
            let has_left = link.requests.agents_left.load(Ordering::Acquire);
            is_connected && (has_left || link.outward.lock().owes_outcomes())
        })
    }

    pub(crate) fn for_each_link(&self, each: impl Fn(&Link)) {
        for link in self.all() {
            each(&link);
            link.wake();
        }
    }

    /// The link to a process. Makes one if there is none. `None`: there are too many links, or the bus is gone.
    pub(crate) fn link(
        self: &Arc<Self>,
        peer: &Identity,
        address: SocketAddr,
    ) -> Option<Arc<Link>> {
        let mut links = self.by_process.lock();
        if let Some(link) = links.get(peer) {
            return Some(link.clone());
        }
        if links.len() >= self.own.config.links {
            forget_idle(&mut links, &mut self.former.lock());
            if links.len() >= self.own.config.links {
                return None;
            }
        }
        let bus = self.bus.upgrade()?;
        let (link, connections) = Link::new(
            self.own.config.clone(),
            peer.clone(),
            address,
            self.bus.clone(),
        );
        if let Some(former) = self.former.lock().remove(peer) {
            link.note_number(former.last_number);
            link.outward.lock().session = Session::after(former.given_up);
        }
        links.insert(peer.clone(), link.clone());
        let inward = Inward::new(&link, bus);
        let task = Task::new(self.own.clone(), link.clone(), inward, connections);
        self.runtime.spawn(task.run());
        Some(link)
    }

    /// Treats an incoming connection.
    async fn take_in(self: Arc<Self>, tcp: TcpStream, from: SocketAddr) {
        let stranger = self.strangers.came(network_of(from.ip()));
        let greeted = timeout(self.own.config.handshake_time, self.own.admit(tcp));
        let greeted = tokio::select! {
            greeted = greeted => greeted.unwrap_or(Err(GreetingError::TooSlow)),
            () = stranger.must_go() => Err(GreetingError::Crowded),
        };
        drop(stranger);
        match greeted {
            Ok(greeted) => self.hand_over(greeted, from).await,
            Err(GreetingError::Refused {
                reason,
                explanation,
            }) => {
                self.note_refusal(from, reason, explanation);
            }
            Err(error @ GreetingError::TooSlow) => {
                self.note_refusal(from, RefusalReason::NotProved, error.to_string());
            }
            Err(error @ GreetingError::Crowded) => {
                self.note_refusal(from, RefusalReason::OverLimit, error.to_string());
            }
            // The peer only probed whether the port is open, or changed its mind.
            Err(error) => tracing::debug!(%from, %error, "a connection came to nothing"),
        }
    }

    async fn hand_over(self: &Arc<Self>, mut greeted: Greeted, from: SocketAddr) {
        let peer = greeted.greeting.process.clone();
        let own = &self.own.config.process;
        if peer == *own || peer.platform() != own.platform() {
            let text = format!(
                "{peer} is not another process of platform {}",
                own.platform()
            );
            say_goodbye(&mut greeted.wire, GoodbyeReason::NotPermitted, &text, true);
            self.note_refusal(from, RefusalReason::WrongIdentity, text);
            return;
        }
        let certified = greeted.peer.as_ref().and_then(VerifiedIdentity::address);
        let address = match (greeted.greeting.address, certified) {
            // A proved process does not choose the machine to which others then connect.
            (Some(address), Some(ip)) => SocketAddr::new(ip, address.port()),
            // A process that listens on all addresses is reachable at the address from which it connected.
            (Some(address), None) if address.ip().is_unspecified() => {
                SocketAddr::new(from.ip(), address.port())
            }
            (Some(address), None) => address,
            (None, _) => from,
        };
        match self.link(&peer, address) {
            // A full channel means that the link is busy with other connections of this peer.
            Some(link) => drop(link.incoming.try_send(greeted)),
            None => {
                let text = "this process talks to as many others as it may";
                say_goodbye(&mut greeted.wire, GoodbyeReason::OverLimit, text, true);
                self.note_refusal(from, RefusalReason::OverLimit, text.to_owned());
            }
        }
    }

    fn note_refusal(&self, from: SocketAddr, reason: RefusalReason, explanation: String) {
        if let Some(bus) = self.bus.upgrade() {
            bus.refused(&from.to_string(), None, None, reason, explanation);
        }
    }
}

/// Makes room: removes links without a connection that have nothing to send and expect nothing back.
fn forget_idle(
    links: &mut HashMap<Identity, Arc<Link>>,
    former: &mut HashMap<Identity, ForgottenLink>,
) {
    links.retain(|peer, link| {
        let is_connected = link.wire.lock().is_some();
        let mut outward = link.outward.lock();
        let is_idle = !is_connected && !outward.awaits_peer();
        if is_idle {
            if former.len() >= FORMER {
                former.clear();
            }
            let rest = ForgottenLink {
                last_number: link.last_number(),
                given_up: outward.session.given_up(),
            };
            former.insert(peer.clone(), rest);
            outward.forget();
            link.requests.make(|requests| &requests.end);
            link.wake();
        }
        !is_idle
    });
}
