//! Several processes of one platform on one broker, each with a way to it that can be cut.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sealbus_brokers::{
    Account, Accounts, Administration, BrokerConfig, BrokerEndpoint, BrokerPromise, BrokerSecurity,
    Client, Death, Login, Placed, ProcessLogin, Queue, Receiver,
};
use sealbus_bus::{
    BoxFuture, Bus, BusConfig, Location, Mailbox, MailboxLimits, Outbox, ProcessEndpoint,
    ReceivedMessage, ResolveError, Resolver, Transport, UndeliverableReason,
};
use sealbus_conformance::World;
use sealbus_fipa::{Limits, bitefficient};
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::{Identity, SecurityLevel, Timestamp, Trust};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{Authority, DAY, LOOPBACK};

/// A process's way to its broker.
pub trait Way: Send + Sync {
    /// Breaks all open connections, if enough has passed since the last break.
    fn cut(&self);

    /// Breaks them, and lets no new one through.
    fn close(&self);
}

/// How a process reaches its broker: its completed configuration, its client and its way.
pub type Connected = (BrokerConfig, Arc<dyn Client>, Arc<dyn Way>);

/// The broker that processes run on.
pub struct Ground {
    pub authority: Arc<Authority>,
    pub level: SecurityLevel,
    pub promise: BrokerPromise,
    pub administration: Arc<dyn Administration>,
    /// The login that all agents share at the levels at which they do not prove their identity.
    pub shared: Login,
    /// How long a queue must be empty before it is removed.
    pub settling: Duration,
}

impl Ground {
    pub fn accounts(&self) -> Accounts {
        Accounts::new(
            self.administration.clone(),
            self.level,
            self.promise,
            self.settling,
        )
    }

    /// The queue of an agent.
    pub fn queue(&self, agent: &str) -> Queue {
        Queue {
            owner: Receiver::Agent(agent.into()),
            promise: self.promise,
        }
    }
}

/// The locations of agents, as the platform's directory knows them.
#[derive(Default)]
pub struct Directory(pub Mutex<HashMap<String, Location>>);

impl Resolver for Directory {
    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        let location = self.0.lock().get(agent).cloned();
        Box::pin(async move { Ok(location.unwrap_or(Location::Unknown)) })
    }
}

pub struct Process {
    pub identity: Identity,
    pub bus: Bus,
    pub endpoint: BrokerEndpoint,
    trust: Arc<Trust>,
    way: Arc<dyn Way>,
}

/// Several processes, and the Master's work for them.
pub struct Processes {
    ground: Arc<Ground>,
    accounts: Arc<Accounts>,
    directory: Arc<Directory>,
    processes: Vec<Process>,
    known: Arc<Mutex<Known>>,
    /// The effects of the Master's decisions.
    following: JoinHandle<()>,
}

/// The Master's state.
#[derive(Default)]
struct Known {
    /// The processes of agents.
    agents: HashMap<String, usize>,
    /// Agents that are about to be placed.
    awaited: HashSet<String>,
    killed: HashSet<usize>,
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl Process {
    /// Opens a process that reaches the broker as `connect` says.
    pub async fn open(
        ground: &Ground,
        accounts: &Accounts,
        directory: &Arc<Directory>,
        node: &str,
        connect: &impl Fn(BrokerConfig) -> BoxFuture<'static, Connected>,
    ) -> Self {
        let authority = &ground.authority;
        let identity = authority.process(node);
        accounts.admit(&identity, LOOPBACK).await.unwrap();
        let trust = authority.trust();
        let security = match ground.level {
            SecurityLevel::None => BrokerSecurity::None(ground.shared.clone()),
            SecurityLevel::Tls => BrokerSecurity::Tls(ground.shared.clone(), trust.clone()),
            SecurityLevel::Auth => BrokerSecurity::Auth(trust.clone()),
            SecurityLevel::Signed | SecurityLevel::Sealed => BrokerSecurity::Signed(trust.clone()),
        };
        let mut config = BrokerConfig::new(authority.name.clone(), Vec::new(), security);
        config.promise = ground.promise;
        config.redial.0 = Duration::from_millis(5);
        // Nothing is given up or passed over because the machine is busy.
        config.give_up = Duration::from_secs(600);
        config.reorder_time = config.give_up;
        // Few, so that the messages held by a dead connection matter.
        config.prefetch = 64;
        config.process = Some(ProcessLogin {
            identity: identity.clone(),
            credential: Some(authority.certify(identity.clone())),
        });
        let (config, client, way) = connect(config).await;
        let mut bus = BusConfig::new(authority.name.clone());
        // No process is given up because the machine is busy.
        bus.hold_time = Duration::from_secs(120);
        let bus = Bus::new(bus, Handle::current());
        bus.set_resolver(directory.clone());
        let endpoint = BrokerEndpoint::open(config, client, &bus).unwrap();
        Self {
            identity,
            bus,
            endpoint,
            trust,
            way,
        }
    }

    pub fn contact(&self) -> ProcessEndpoint {
        ProcessEndpoint {
            identity: self.identity.clone(),
            address: SocketAddr::new(LOOPBACK, 0),
        }
    }

    /// Attaches an agent that was certified and admitted.
    pub async fn attach(
        &self,
        ground: &Ground,
        accounts: &Accounts,
        name: &str,
        limits: Option<MailboxLimits>,
        unread: Vec<ReceivedMessage>,
    ) -> (Outbox, Mailbox) {
        let identity = Identity::from_agent_name(name).unwrap();
        accounts.admit(&identity, LOOPBACK).await.unwrap();
        let credential = Some(ground.authority.certify(identity));
        let attached = match unread.is_empty() {
            true => self.bus.attach(name, credential, limits),
            false => self.bus.attach_moved(name, credential, limits, unread),
        };
        attached.unwrap()
    }
}

/// Two processes without the Master's work, which would remove the queues of agents that have left.
pub struct Pair {
    ground: Arc<Ground>,
    accounts: Accounts,
    pub directory: Arc<Directory>,
    pub here: Process,
    pub there: Process,
}

impl Pair {
    pub async fn open(
        ground: Arc<Ground>,
        connect: impl Fn(BrokerConfig) -> BoxFuture<'static, Connected>,
    ) -> Self {
        let accounts = ground.accounts();
        let directory = Arc::new(Directory::default());
        let here = Process::open(&ground, &accounts, &directory, "node-1", &connect).await;
        let there = Process::open(&ground, &accounts, &directory, "node-2", &connect).await;
        Self {
            ground,
            accounts,
            directory,
            here,
            there,
        }
    }

    /// Attaches an agent in one of them.
    pub async fn attach(&self, process: &Process, name: &str) -> (Outbox, Mailbox) {
        process
            .attach(&self.ground, &self.accounts, name, None, Vec::new())
            .await
    }

    /// Has `here` know where an agent is from now on.
    pub fn locate(&self, agent: &str, location: Location) {
        self.directory.0.lock().insert(agent.to_owned(), location);
        self.here.bus.location_changed(agent);
    }
}

impl Processes {
    /// Opens them on a broker that was prepared.
    pub async fn open(
        ground: Arc<Ground>,
        count: usize,
        connect: impl Fn(BrokerConfig) -> BoxFuture<'static, Connected>,
    ) -> Self {
        let accounts = Arc::new(ground.accounts());
        let directory = Arc::new(Directory::default());
        let mut processes = Vec::new();
        for number in 1..=count + 1 {
            let node = format!("node-{number}");
            processes.push(Process::open(&ground, &accounts, &directory, &node, &connect).await);
        }
        let mut all = Placed::default();
        for process in &processes {
            if let Identity::Process { process, .. } = &process.identity {
                all.processes.insert(process.to_string());
            }
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
        let (ams, at_ams) = own
            .attach(&ground, &accounts, "ams@factory", None, Vec::new())
            .await;
        all.admit("ams@factory".to_owned(), LOOPBACK);
        let known = Arc::new(Mutex::new(Known::default()));
        let master = Master {
            buses: processes.iter().map(|it| it.bus.clone()).collect(),
            known: known.clone(),
            always: all,
            directory: directory.clone(),
            accounts: accounts.clone(),
            administration: ground.administration.clone(),
            ground: ground.clone(),
            ams,
            _at_ams: at_ams,
            _own: own,
        };
        Self {
            ground,
            accounts,
            directory,
            processes,
            known,
            following: tokio::spawn(master.follow()),
        }
    }

    pub fn endpoint(&self, process: usize) -> &BrokerEndpoint {
        &self.processes[process].endpoint
    }

    fn place(&self, process: usize, agent: &str) {
        let location = Location::Process(self.processes[process].contact());
        self.directory.0.lock().insert(agent.to_owned(), location);
        let mut known = self.known.lock();
        known.agents.insert(agent.to_owned(), process);
        known.awaited.remove(agent);
    }

    fn await_agent(&self, agent: &str) {
        let mut known = self.known.lock();
        known.agents.remove(agent);
        known.awaited.insert(agent.to_owned());
    }
}

/// Closes the queues of agents that have ended, as the Master does.
struct Master {
    buses: Vec<Bus>,
    known: Arc<Mutex<Known>>,
    /// The agents and processes that are placed for good.
    always: Placed,
    directory: Arc<Directory>,
    accounts: Arc<Accounts>,
    administration: Arc<dyn Administration>,
    ground: Arc<Ground>,
    /// The platform's own agent, which reports the outcomes of messages.
    ams: Outbox,
    _at_ams: Mailbox,
    _own: Process,
}

impl Master {
    async fn follow(self) {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let ended = self.ended();
            if ended.is_empty() {
                continue;
            }
            for agent in &ended {
                let queue = self.ground.queue(agent);
                if !self.administration.is_read(&queue).await.unwrap() {
                    self.directory.0.lock().remove(agent);
                }
            }
            let is_more = self
                .accounts
                .close_others(|| std::future::ready(Some(self.placed())))
                .await;
            self.tell_of_left().await;
            if is_more.unwrap() {
                continue;
            }
            for agent in &ended {
                let queue = self.ground.queue(agent);
                if self.administration.depth(&queue).await.unwrap().is_none() {
                    self.known.lock().agents.remove(agent);
                    for bus in &self.buses {
                        bus.location_changed(agent);
                    }
                }
            }
        }
    }

    fn ended(&self) -> Vec<String> {
        let known = self.known.lock();
        let has_ended = |agent: &str, process: usize| {
            known.killed.contains(&process) || self.buses[process].agent(agent).is_none()
        };
        let agents = known.agents.iter();
        let ended = agents.filter(|(agent, process)| has_ended(agent, **process));
        ended.map(|(agent, _)| agent.clone()).collect()
    }

    fn placed(&self) -> Placed {
        let ended = self.ended();
        let known = self.known.lock();
        let mut placed = self.always.clone();
        placed.awaited.extend(known.awaited.iter().cloned());
        for agent in known.agents.keys() {
            if !ended.contains(agent) {
                placed.admit(agent.clone(), LOOPBACK);
            }
        }
        placed
    }

    async fn tell_of_left(&self) {
        loop {
            let dead = self.administration.take_dead().await.unwrap();
            if dead.is_empty() {
                return;
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
            self.await_agent(name);
            let at = &self.processes[process];
            let attached = at
                .attach(&self.ground, &self.accounts, name, limits, Vec::new())
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
            self.await_agent(name);
            self.directory
                .0
                .lock()
                .insert(name.to_owned(), Location::InTransit);
            self.processes[from].bus.detach(name);
            let at = &self.processes[to];
            let attached = at
                .attach(&self.ground, &self.accounts, name, None, unread)
                .await;
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
        self.known.lock().killed.insert(process);
        Box::pin(std::future::ready(()))
    }

    fn revoke<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let now = Timestamp::from(SystemTime::now());
            let issuing = &self.ground.authority.issuing;
            let identity = Identity::from_agent_name(agent).unwrap();
            let mut list = DenyList::new(issuing.identity().clone());
            let denial = Denial {
                at: now,
                reason: Reason::ByOperator,
            };
            list.deny_identity(identity.clone(), now.plus(DAY), denial)
                .unwrap();
            let signed = list.sign(issuing).unwrap().whole();
            let account = Account {
                identity,
                address: LOOPBACK,
            };
            let administration = &self.ground.administration;
            administration.dismiss(&account).await.unwrap();
            for process in &self.processes {
                process.trust.apply_deny_list(&signed, now).unwrap();
                process.endpoint.trust_changed();
            }
        })
    }
}
