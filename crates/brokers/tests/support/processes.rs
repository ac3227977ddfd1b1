//! Several processes of one platform on one broker, each with a way to it that can be cut.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use sealbus_brokers::rabbitmq::{Death, Management, ProcessLogin, RabbitEndpoint, names};
use sealbus_bus::{
    BoxFuture, Bus, BusConfig, Location, Mailbox, MailboxLimits, Outbox, ProcessEndpoint,
    ReceivedMessage, ResolveError, Resolver, UndeliverableReason,
};
use sealbus_conformance::World;
use sealbus_fipa::{Limits, bitefficient};
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::tls::{CertificateSource, Connector};
use sealbus_seal::{Identity, ProcessId, SecurityLevel, Timestamp, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{DAY, LOOPBACK, Platform, certify};

/// Who is where, as the platform's directory knows it.
#[derive(Default)]
struct Directory(Mutex<HashMap<String, Location>>);

impl Resolver for Directory {
    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        let location = self.0.lock().get(agent).cloned();
        Box::pin(async move { Ok(location.unwrap_or(Location::Unknown)) })
    }
}

struct Process {
    identity: Identity,
    bus: Bus,
    endpoint: RabbitEndpoint,
    trust: Arc<Trust>,
    way: Arc<Way>,
}

/// Several processes, and what the Master does for them.
pub struct Processes {
    platform: Arc<Platform>,
    management: Arc<Management>,
    directory: Arc<Directory>,
    processes: Vec<Process>,
    placed: Arc<Mutex<Placed>>,
    /// What the Master does.
    following: JoinHandle<()>,
}

/// Where agents are, and which processes were killed.
#[derive(Default)]
struct Placed {
    agents: HashMap<String, usize>,
    killed: HashSet<usize>,
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl Processes {
    /// Opens them in a virtual host of their own.
    pub async fn open(platform: Arc<Platform>, vhost: &str, count: usize) -> Self {
        let certified = certify(
            &platform.issuing,
            Identity::agent(&platform.name, names::BROKER).unwrap(),
        );
        let source = CertificateSource::new(&certified).unwrap();
        let tls = Connector::new(SecurityLevel::Tls, source, platform.trust(), &[]).unwrap();
        let management = Management::new(
            vec![format!("127.0.0.1:{}", platform.ports.management)],
            vhost,
            &platform.operator,
            tls,
            platform.name.clone(),
        );
        management.prepare(&platform.operator.user).await.unwrap();
        if !platform.level.authenticates() {
            management.admit_all(&platform.shared).await.unwrap();
        }
        let directory = Arc::new(Directory::default());
        let mut processes = Vec::new();
        for number in 1..=count + 1 {
            let node = format!("node-{number}");
            let identity =
                Identity::process(&platform.name, &node, ProcessId::random().unwrap()).unwrap();
            let Identity::Process { process, .. } = &identity else {
                unreachable!()
            };
            management.open_process_queue(process).await.unwrap();
            if platform.level.authenticates() {
                management.admit_process(&identity, LOOPBACK).await.unwrap();
            }
            let way = Way::to(SocketAddr::new(LOOPBACK, platform.ports.amqp)).await;
            let trust = platform.trust();
            let mut config = platform.config();
            if let sealbus_brokers::rabbitmq::RabbitSecurity::Auth(trusted) = &mut config.security {
                *trusted = trust.clone();
            }
            config.vhost = vhost.to_owned();
            config.addresses = vec![way.address.to_string()];
            config.redial.0 = Duration::from_millis(5);
            // Few, so that what a dead connection holds matters.
            config.prefetch = 64;
            config.process = Some(ProcessLogin {
                identity: identity.clone(),
                credential: Some(certify(&platform.issuing, identity.clone())),
            });
            let bus = Bus::new(BusConfig::new(platform.name.clone()), Handle::current());
            bus.set_resolver(directory.clone());
            let endpoint = RabbitEndpoint::open(config, &bus).unwrap();
            processes.push(Process {
                identity,
                bus,
                endpoint,
                trust,
                way,
            });
        }
        // The last one is the platform's own.
        let own = processes.pop().unwrap();
        for process in &processes {
            for other in &processes {
                if other.identity != process.identity {
                    process.bus.process_joined(other.contact());
                }
            }
        }
        let (ams, at_ams) = attach(
            &platform,
            &management,
            &own,
            "ams@factory",
            None,
            Vec::new(),
        )
        .await;
        let management = Arc::new(management);
        let placed = Arc::new(Mutex::new(Placed::default()));
        let buses = processes.iter().map(|it| it.bus.clone()).collect();
        let master = Master {
            buses,
            placed: placed.clone(),
            directory: directory.clone(),
            management: management.clone(),
            ams,
            _at_ams: at_ams,
            _own: own,
        };
        Self {
            platform,
            management,
            directory,
            processes,
            placed,
            following: tokio::spawn(master.follow()),
        }
    }

    fn place(&self, process: usize, agent: &str) {
        let location = Location::Process(self.processes[process].contact());
        self.directory.0.lock().insert(agent.to_owned(), location);
        self.placed.lock().agents.insert(agent.to_owned(), process);
    }
}

/// How long the Master lets a queue be that nobody reads any more.
const SETTLING: Duration = Duration::from_secs(15);

/// Closes the queues of agents that have ended, as the Master does.
struct Master {
    buses: Vec<Bus>,
    placed: Arc<Mutex<Placed>>,
    directory: Arc<Directory>,
    management: Arc<Management>,
    /// The platform's own agent, which says what became of messages.
    ams: Outbox,
    _at_ams: Mailbox,
    _own: Process,
}

impl Master {
    async fn follow(self) {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let ended: Vec<String> = {
                let placed = self.placed.lock();
                let has_ended = |agent: &str, process: usize| {
                    placed.killed.contains(&process) || self.buses[process].agent(agent).is_none()
                };
                let agents = placed.agents.iter();
                let ended = agents.filter(|(agent, process)| has_ended(agent, **process));
                ended.map(|(agent, _)| agent.clone()).collect()
            };
            for agent in ended {
                let queue = names::queue(&agent);
                if self.management.is_read(&queue).await.unwrap() {
                    continue;
                }
                self.placed.lock().agents.remove(&agent);
                self.directory.0.lock().remove(&agent);
                // The broker learns late who read it, and gives back what a dead reader held.
                let mut empty_since = Instant::now();
                while empty_since.elapsed() < SETTLING {
                    let depth = self.management.depth(&queue).await.unwrap();
                    let has_left = self.tell_of_left(&agent).await;
                    if has_left || depth.is_some_and(|depth| depth.messages > 0) {
                        empty_since = Instant::now();
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                self.close(&agent).await;
            }
        }
    }

    /// Whether there was something left.
    async fn tell_of_left(&self, agent: &str) -> bool {
        let mut has_left = false;
        while self.management.bury_left(agent).await.unwrap() > 0 {
            has_left = true;
        }
        loop {
            let dead = self.management.take_dead().await.unwrap();
            if dead.is_empty() {
                break has_left;
            }
            for letter in dead.iter().filter(|letter| letter.death == Death::Left) {
                let lost = bitefficient::decode_ref(&letter.payload, &Limits::default()).unwrap();
                let reason = UndeliverableReason::ReceiverGone;
                let receiver = letter.receiver.as_deref().unwrap();
                let notice = sealbus_bus::failure_notice(&self.ams.aid(), &lost, receiver, &reason);
                self.ams.send(notice.unwrap()).await.unwrap();
            }
        }
    }

    async fn close(&self, agent: &str) {
        let queue = names::queue(agent);
        self.management.remove_queue(&queue).await.unwrap();
        for bus in &self.buses {
            bus.location_changed(agent);
        }
    }
}

async fn attach(
    platform: &Platform,
    management: &Management,
    process: &Process,
    name: &str,
    limits: Option<MailboxLimits>,
    unread: Vec<ReceivedMessage>,
) -> (Outbox, Mailbox) {
    management.open_queue(name).await.unwrap();
    if platform.level.authenticates() {
        let local = name.split('@').next().unwrap();
        management.admit(local, LOOPBACK).await.unwrap();
    }
    let credential = certify(&platform.issuing, Identity::from_agent_name(name).unwrap());
    let attached = match unread.is_empty() {
        true => process.bus.attach(name, Some(credential), limits),
        false => process
            .bus
            .attach_moved(name, Some(credential), limits, unread),
    };
    attached.unwrap()
}

impl Process {
    fn contact(&self) -> ProcessEndpoint {
        ProcessEndpoint {
            identity: self.identity.clone(),
            address: SocketAddr::new(LOOPBACK, 0),
        }
    }
}

impl World for Processes {
    fn bus(&self, process: usize) -> &Bus {
        &self.processes[process].bus
    }

    fn identity(&self, process: usize) -> Identity {
        self.processes[process].identity.clone()
    }

    fn attach<'a>(
        &'a self,
        process: usize,
        name: &'a str,
        limits: Option<MailboxLimits>,
    ) -> BoxFuture<'a, (Outbox, Mailbox)> {
        Box::pin(async move {
            let at = &self.processes[process];
            let attached = attach(
                &self.platform,
                &self.management,
                at,
                name,
                limits,
                Vec::new(),
            )
            .await;
            self.place(process, name);
            attached
        })
    }

    fn move_to<'a>(
        &'a self,
        from: usize,
        to: usize,
        name: &'a str,
        unread: Vec<ReceivedMessage>,
    ) -> BoxFuture<'a, (Outbox, Mailbox)> {
        Box::pin(async move {
            self.placed.lock().agents.remove(name);
            self.directory
                .0
                .lock()
                .insert(name.to_owned(), Location::InTransit);
            self.processes[from].bus.detach(name);
            let at = &self.processes[to];
            let attached = attach(&self.platform, &self.management, at, name, None, unread).await;
            self.place(to, name);
            for process in &self.processes {
                process.bus.location_changed(name);
            }
            attached
        })
    }

    fn break_connections(&self) {
        for process in &self.processes {
            process.way.cut();
        }
    }

    fn kill(&self, process: usize) -> BoxFuture<'_, ()> {
        self.processes[process].way.close();
        self.placed.lock().killed.insert(process);
        Box::pin(std::future::ready(()))
    }

    fn revoke<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let now = Timestamp::from(SystemTime::now());
            let issuing = &self.platform.issuing;
            let mut list = DenyList::new(issuing.identity().clone());
            let denial = Denial {
                at: now,
                reason: Reason::ByOperator,
            };
            list.deny_identity(
                Identity::from_agent_name(agent).unwrap(),
                now.plus(DAY),
                denial,
            )
            .unwrap();
            let signed = list.sign(issuing).unwrap();
            let local = agent.split('@').next().unwrap();
            self.management
                .dismiss(&names::user(local, LOOPBACK))
                .await
                .unwrap();
            for process in &self.processes {
                process.trust.apply_deny_list(&signed, now).unwrap();
                process.endpoint.trust_changed();
            }
        })
    }
}

/// A way to the broker that can be cut.
struct Way {
    address: SocketAddr,
    cut: Arc<Notify>,
    is_closed: Arc<AtomicBool>,
    carried: Arc<AtomicU64>,
    carried_at_cut: AtomicU64,
    cuts: AtomicUsize,
}

/// Bytes that pass before connections are cut again, in turn: a login at the broker takes many round trips, and nothing
/// would ever arrive if each connection, or each long message, were cut short.
const BETWEEN_CUTS: [u64; 3] = [100_000, 400_000, 3_000_000];
/// How often connections are cut: what finds no way to the broker for a minute is given up, as it should be, and after
/// each cut the broker begins with all that was not acknowledged.
const CUTS: usize = 12;

impl Way {
    async fn to(target: SocketAddr) -> Arc<Self> {
        let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let way = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            cut: Arc::default(),
            is_closed: Arc::default(),
            carried: Arc::default(),
            carried_at_cut: AtomicU64::new(0),
            cuts: AtomicUsize::new(0),
        });
        let (cut, is_closed, carried) =
            (way.cut.clone(), way.is_closed.clone(), way.carried.clone());
        tokio::spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                if is_closed.load(Ordering::Relaxed) {
                    continue;
                }
                let (cut, carried) = (cut.clone(), carried.clone());
                tokio::spawn(async move {
                    let Ok(there) = TcpStream::connect(target).await else {
                        return;
                    };
                    let _ = (here.set_nodelay(true), there.set_nodelay(true));
                    let (read_here, write_here) = here.into_split();
                    let (read_there, write_there) = there.into_split();
                    tokio::select! {
                        () = pass_on(read_here, write_there, &carried) => {}
                        () = pass_on(read_there, write_here, &carried) => {}
                        () = cut.notified() => {}
                    }
                });
            }
        });
        way
    }

    /// Breaks all connections there are, wherever their bytes are, once enough has passed.
    fn cut(&self) {
        let carried = self.carried.load(Ordering::Relaxed);
        let cuts = self.cuts.load(Ordering::Relaxed);
        if cuts >= CUTS {
            return;
        }
        let between = BETWEEN_CUTS[cuts % BETWEEN_CUTS.len()];
        if carried - self.carried_at_cut.load(Ordering::Relaxed) >= between {
            self.cuts.fetch_add(1, Ordering::Relaxed);
            self.carried_at_cut.store(carried, Ordering::Relaxed);
            self.cut.notify_waiters();
        }
    }

    /// Breaks them, and ends new ones at once.
    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.cut.notify_waiters();
    }
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, carried: &AtomicU64) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length) = from.read(&mut buffer).await {
        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        carried.fetch_add(length as u64, Ordering::Relaxed);
    }
}
