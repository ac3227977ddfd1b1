//! A broker in memory. On demand it loses, doubles and delays messages and cuts connections, by a seed.

mod administration;
mod client;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sealbus_brokers::{
    Account, Answer, BrokerConfig, BrokerDelivery, BrokerEnvelope, BrokerFailure, BrokerPromise,
    Client, DeadLetter, Death, Login, Queue, Receiver,
};
use sealbus_bus::BoxFuture;
use sealbus_conformance::schedule::Random;
use sealbus_seal::{Identity, SecurityLevel};
use tokio::runtime::Handle;

use self::client::MemoryClient;
use super::Authority;
use super::processes::{Connected, Ground, Way};

/// Deliveries handed out together at most.
const TOGETHER: u64 = 64;
/// The number of messages taken or acknowledged before connections are broken again, so that some get through between
/// two breaks.
const BETWEEN_CUTS: u64 = 200;

/// A message in a queue.
#[derive(Clone)]
struct Message {
    from: Option<String>,
    envelope: BrokerEnvelope,
}

#[derive(Default)]
struct WaitingMessages {
    next: u64,
    /// By their places.
    waiting: BTreeMap<u64, Message>,
}

/// A connection that publishes.
#[derive(Default)]
struct Publications {
    /// Published, and not looked at by the broker.
    line: VecDeque<(u64, BrokerEnvelope)>,
    answers: VecDeque<(u64, Answer)>,
}

/// A connection that receives.
struct Deliveries {
    queue: Queue,
    prefetch: usize,
    next: u64,
    /// The place in the queue and the message, by tag.
    open: BTreeMap<u64, (u64, Message)>,
}

enum Work {
    Publishes(Publications),
    Receives(Deliveries),
}

struct Connection {
    /// The process that it belongs to.
    way: u64,
    user: Option<String>,
    work: Work,
    waker: Option<Waker>,
}

struct State {
    random: Random,
    is_hostile: bool,
    /// Whether the broker breaks connections of its own accord, and takes messages late.
    loses: bool,
    queues: HashMap<Queue, WaitingMessages>,
    /// The queue to which messages for each owner go.
    bindings: HashMap<Receiver, Queue>,
    accounts: Vec<Account>,
    /// The owners that have published since the broker began.
    marks: HashSet<Receiver>,
    /// The open connections. A broken one is taken out.
    connections: BTreeMap<u64, Connection>,
    next: u64,
    dead: VecDeque<DeadLetter>,
    dead_so_far: u64,
    closed: BTreeSet<u64>,
    /// The number of messages taken or acknowledged since connections were last broken.
    carried: u64,
    /// The broker looks at a line.
    is_working: bool,
}

/// A broker in memory.
#[derive(Clone)]
pub struct MemoryBroker(Arc<Mutex<State>>);

fn broken() -> BrokerFailure {
    BrokerFailure::new("the connection broke")
}

impl State {
    /// True in one of this many cases, if the broker is hostile.
    fn strikes(&mut self, one_in: u64) -> bool {
        self.is_hostile && self.random.one_in(one_in)
    }

    fn wake(&mut self, connection: u64) {
        let connection = self.connections.get_mut(&connection);
        if let Some(waker) = connection.and_then(|it| it.waker.take()) {
            waker.wake();
        }
    }

    fn wake_readers(&mut self, queue: &Queue) {
        let reads = |work: &Work| matches!(work, Work::Receives(it) if it.queue == *queue);
        for connection in self.connections.values_mut() {
            if reads(&connection.work)
                && let Some(waker) = connection.waker.take()
            {
                waker.wake();
            }
        }
    }

    /// Breaks a connection. Publications on it that were not taken are lost, and unacknowledged deliveries are
    /// delivered again.
    fn cut(&mut self, connection: u64) {
        let Some(connection) = self.connections.remove(&connection) else {
            return;
        };
        if let Work::Receives(Deliveries { queue, open, .. }) = connection.work {
            if let Some(there) = self.queues.get_mut(&queue) {
                there.waiting.extend(open.into_values());
            }
            self.wake_readers(&queue);
        }
        if let Some(waker) = connection.waker {
            waker.wake();
        }
    }

    fn cut_where(&mut self, is_meant: impl Fn(&Connection) -> bool) {
        let meant = self.connections.iter().filter(|(_, it)| is_meant(it));
        let meant: Vec<u64> = meant.map(|(number, _)| *number).collect();
        for number in meant {
            self.cut(number);
        }
    }

    /// Looks at one message of one line. Returns whether there may be more.
    fn work(&mut self) -> bool {
        let is_waiting = |work: &Work| matches!(work, Work::Publishes(it) if !it.line.is_empty());
        let lines = self
            .connections
            .iter()
            .filter(|(_, it)| is_waiting(&it.work));
        let lines: Vec<u64> = lines.map(|(number, _)| *number).collect();
        if lines.is_empty() {
            return false;
        }
        let chosen = lines[self.random.below(lines.len() as u64) as usize];
        // The message is lost, with all messages after it.
        if self.loses && self.strikes(300) {
            self.cut(chosen);
            return true;
        }
        let refuses = self.loses && self.strikes(100);
        let Some(Connection {
            user,
            work: Work::Publishes(publications),
            ..
        }) = self.connections.get_mut(&chosen)
        else {
            return true;
        };
        let Some((order, envelope)) = publications.line.pop_front() else {
            return true;
        };
        let from = user.clone();
        let to = self.bindings.get(&envelope.to).cloned();
        let bound = to.and_then(|to| Some((self.queues.get_mut(&to)?, to)));
        let answer = match bound {
            None => Answer::NoQueue,
            Some(_) if refuses => Answer::NotTaken,
            Some((queue, to)) => {
                queue.waiting.insert(queue.next, Message { from, envelope });
                queue.next += 1;
                self.carried += 1;
                self.wake_readers(&to);
                Answer::Taken
            }
        };
        // Taken, and its sender does not hear of it.
        if self.loses && self.strikes(300) {
            self.cut(chosen);
            return true;
        }
        if let Some(Connection {
            work: Work::Publishes(publications),
            ..
        }) = self.connections.get_mut(&chosen)
        {
            publications.answers.push_back((order, answer));
        }
        self.wake(chosen);
        true
    }

    fn receiver(&mut self, connection: u64) -> Result<&mut Deliveries, BrokerFailure> {
        match self.connections.get_mut(&connection).map(|it| &mut it.work) {
            Some(Work::Receives(deliveries)) => Ok(deliveries),
            _ => Err(broken()),
        }
    }

    fn deliver(
        &mut self,
        number: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<Vec<BrokerDelivery>, BrokerFailure>> {
        let is_hostile = self.is_hostile;
        let count = 1 + self.random.below(TOGETHER) as usize;
        let Ok(Deliveries {
            queue,
            prefetch,
            open,
            ..
        }) = self.receiver(number)
        else {
            return Poll::Ready(Err(broken()));
        };
        let room = prefetch.saturating_sub(open.len());
        let queue = queue.clone();
        let Some(there) = self.queues.get_mut(&queue) else {
            self.cut(number);
            return Poll::Ready(Err(broken()));
        };
        let count = if is_hostile { count } else { TOGETHER as usize }.min(room);
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some(first) = there.waiting.pop_first()
        {
            taken.push(first);
        }
        if taken.is_empty() {
            if let Some(connection) = self.connections.get_mut(&number) {
                connection.waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        let Ok(deliveries) = self.receiver(number) else {
            return Poll::Ready(Err(broken()));
        };
        let mut out = Vec::new();
        for (place, message) in taken {
            deliveries.next += 1;
            let tag = deliveries.next;
            let Message { from, envelope } = message.clone();
            deliveries.open.insert(tag, (place, message));
            out.push(BrokerDelivery {
                tag,
                from,
                stamp: Some(envelope.stamp),
                kind: Some(envelope.kind),
                process: envelope.process,
                author: envelope.author,
                proof: envelope.proof,
                evidence: envelope.evidence,
                payload: envelope.payload,
            });
        }
        Poll::Ready(Ok(out))
    }

    fn take(&mut self, number: u64, tag: u64) -> Result<Option<Message>, BrokerFailure> {
        let taken = self.receiver(number)?.open.remove(&tag);
        self.carried += 1;
        Ok(taken.map(|(_, message)| message))
    }

    fn bury(&mut self, message: Message, receiver: &Receiver, death: Death) {
        let from = message.from.map(|user| {
            let identity: Option<Identity> = user.parse().ok();
            identity.and_then(|it| it.agent_name()).unwrap_or(user)
        });
        self.dead_so_far += 1;
        self.dead.push_back(DeadLetter {
            from,
            receiver: match receiver {
                Receiver::Agent(name) => Some(name.to_string()),
                Receiver::Process(_) => None,
            },
            death,
            at: None,
            payload: message.envelope.payload,
        });
    }
}

impl MemoryBroker {
    /// A broker that keeps all it is told.
    pub fn quiet() -> Self {
        Self::new(0, false)
    }

    /// A broker that breaks connections, loses, doubles and delays, as the seed says.
    pub fn hostile(seed: u64) -> Self {
        Self::new(seed, true)
    }

    fn new(seed: u64, is_hostile: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Random(seed),
            is_hostile,
            loses: is_hostile,
            queues: HashMap::new(),
            bindings: HashMap::new(),
            accounts: Vec::new(),
            marks: HashSet::new(),
            connections: BTreeMap::new(),
            next: 0,
            dead: VecDeque::new(),
            dead_so_far: 0,
            closed: BTreeSet::new(),
            carried: 0,
            is_working: false,
        })))
    }

    /// The same broker, but it only delays.
    pub fn losing_nothing(self) -> Self {
        self.state().loses = false;
        self
    }

    /// The platform `factory` on this broker.
    pub fn ground(&self, level: SecurityLevel, promise: BrokerPromise) -> Arc<Ground> {
        Arc::new(Ground {
            authority: Arc::new(Authority::new()),
            level,
            promise,
            administration: Arc::new(self.clone()),
            shared: Login {
                user: "agents".to_owned(),
                password: "shared by all".to_owned(),
            },
            // This broker knows at once which connections read.
            settling: Duration::ZERO,
        })
    }

    /// How processes reach this broker.
    pub fn connecting(&self) -> impl Fn(BrokerConfig) -> BoxFuture<'static, Connected> + use<> {
        let broker = self.clone();
        move |mut config| {
            config.addresses = vec!["memory".to_owned()];
            let (client, way) = broker.client(&config);
            Box::pin(std::future::ready((config, client, way)))
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// A client of a process with this configuration, and its way.
    pub fn client(&self, config: &BrokerConfig) -> (Arc<dyn Client>, Arc<dyn Way>) {
        let way = {
            let mut state = self.state();
            state.next += 1;
            state.next
        };
        let client = MemoryClient {
            broker: self.clone(),
            way,
            security: config.security.clone(),
            promise: config.promise,
        };
        let way = MemoryWay {
            broker: self.clone(),
            way,
        };
        (Arc::new(client), Arc::new(way))
    }

    /// Connections that read a queue.
    pub fn readers(&self, queue: &Queue) -> usize {
        let state = self.state();
        let reads = |work: &Work| matches!(work, Work::Receives(it) if it.queue == *queue);
        let connections = state.connections.values();
        connections.filter(|it| reads(&it.work)).count()
    }

    /// How many deliveries a reader of a queue may have without an acknowledgement; `None`: nobody reads it now.
    pub fn prefetch(&self, queue: &Queue) -> Option<usize> {
        let state = self.state();
        let mut connections = state.connections.values();
        connections.find_map(|connection| match &connection.work {
            Work::Receives(it) if it.queue == *queue => Some(it.prefetch),
            _ => None,
        })
    }

    /// Ends and begins again, as a broker does that was killed: every connection breaks, and transient messages are lost.
    pub fn restart(&self) {
        let mut state = self.state();
        state.cut_where(|_| true);
        state.marks.clear();
        for (queue, there) in &mut state.queues {
            if queue.promise == BrokerPromise::Transient {
                there.waiting.clear();
            }
        }
    }

    /// Starts a task that looks at publications, a message at a time.
    fn begin_work(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.is_working, true) {
            return;
        }
        let broker = self.clone();
        Handle::current().spawn(async move {
            loop {
                {
                    let mut state = broker.state();
                    if !state.work() {
                        state.is_working = false;
                        return;
                    }
                }
                tokio::task::yield_now().await;
            }
        });
    }
}

struct MemoryWay {
    broker: MemoryBroker,
    way: u64,
}

impl Way for MemoryWay {
    fn cut(&self) {
        let mut state = self.broker.state();
        if state.carried >= BETWEEN_CUTS {
            state.carried = 0;
            // The connections of all processes are cut: one cut serves the others too.
            state.cut_where(|_| true);
        }
    }

    fn close(&self) {
        let mut state = self.broker.state();
        state.closed.insert(self.way);
        state.cut_where(|connection| connection.way == self.way);
    }
}
