// Longer than 500 lines: one simulation, whose parts mean nothing alone.

//! Letters over random walks. The mailboxes of some nodes are on real journals. Their receiver moves and is killed,
//! nodes fail and come back, requests and answers are lost and doubled, and nodes learn late where the receiver is.
//!
//! Each accepted letter is taken once, or again with a mark that says so, and in the order in which its sender wrote
//! it.

#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::FutureExt;
use sealbus_conformance::schedule::{Random, seeds};
use sealbus_control::FaultCode;
use sealbus_control::WaitingProvenance;
use sealbus_control::post::LetterOutcome;
use sealbus_fipa::{AclMessage, Performative};
use sealbus_journal::JournalConfig;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::mailbox::HANDED;
use super::*;

const RECEIVER: &str = "receiver";
/// A guard against waiting for ever.
const LONG: Duration = Duration::from_secs(600);
/// The number of simulations that run side by side, because each mostly waits.
const TOGETHER: u64 = 16;

fn pace() -> Pace {
    Pace {
        pause: Duration::from_millis(1),
        look: Duration::from_millis(4),
        // This never happens: the order is kept, however slow the machine is.
        given_up: Duration::from_secs(24 * 3600),
    }
}

/// The place of the receiver: its node and its process.
type ReceiverPlace = Option<(usize, u64)>;

struct World {
    _folder: TempDir,
    nodes: Vec<SimulatedNode>,
    chance: Mutex<Random>,
    is_lossy: AtomicBool,
    process: Mutex<Option<Receiver>>,
    processes: AtomicU64,
}

struct SimulatedNode {
    folder: PathBuf,
    running: Mutex<Option<Running>>,
    /// The place where the node believes the receiver to be, and the moves that the node has not learned yet.
    place: Mutex<(ReceiverPlace, VecDeque<ReceiverPlace>)>,
    in_order: tokio::sync::Mutex<()>,
}

struct Running {
    post: Arc<KeptLetters>,
    carriers: JoinHandle<()>,
}

/// The receiver's process.
struct Receiver {
    node: usize,
    process: u64,
    unread: VecDeque<DeliveredLetter>,
    /// The letters that it has, and whether it has taken each.
    known: HashMap<u64, bool>,
    reports: VecDeque<(u64, LetterOutcome)>,
}

/// A sender's process.
struct Sender {
    name: String,
    node: usize,
    origin: u64,
    written: u64,
    /// The letters for which its node has not answered.
    waiting: Vec<PostedLetter>,
}

/// The letters that were taken, to be compared with the accepted ones.
#[derive(Default)]
struct Books {
    accepted: HashSet<(u64, u64)>,
    taken: HashSet<(u64, u64)>,
    last: HashMap<u64, u64>,
}

impl Books {
    fn take(&mut self, letter: &DeliveredLetter, seed: u64) {
        let message = &letter.waiting.message.0;
        let view = bitefficient::decode_ref(message, &Limits::default()).unwrap();
        let text = view.content_text().unwrap().into_owned();
        let (origin, sequence) = text.split_once(' ').unwrap();
        let (origin, sequence) = (origin.parse().unwrap(), sequence.parse().unwrap());
        if !self.taken.insert((origin, sequence)) {
            assert!(letter.again, "seed {seed}: {text} comes twice unmarked");
            return;
        }
        let last = self.last.insert(origin, sequence).unwrap_or(0);
        assert!(last < sequence, "seed {seed}: {text} comes after {last}");
    }

    fn is_complete(&self) -> bool {
        self.accepted.is_subset(&self.taken)
    }
}

fn lost() -> Fault {
    Fault::new(FaultCode::Unavailable, "lost")
}

fn name(node: usize) -> String {
    format!("node-{node}")
}

struct SimulatedWays {
    world: Arc<World>,
    node: usize,
    connection: u64,
}

impl World {
    fn new(seed: u64, nodes: usize) -> Arc<Self> {
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let folder = folder.unwrap();
        let nodes = (0..nodes).map(|node| SimulatedNode {
            folder: folder.path().join(name(node)),
            running: Mutex::default(),
            place: Mutex::default(),
            in_order: tokio::sync::Mutex::default(),
        });
        let world = Arc::new(Self {
            nodes: nodes.collect(),
            _folder: folder,
            chance: Mutex::new(Random(seed)),
            is_lossy: AtomicBool::new(false),
            process: Mutex::default(),
            processes: AtomicU64::new(0),
        });
        for node in 0..world.nodes.len() {
            world.start(node, pace());
        }
        world
    }

    fn below(&self, limit: u64) -> u64 {
        self.chance.lock().below(limit)
    }

    fn any_node(&self) -> usize {
        self.below(self.nodes.len() as u64) as usize
    }

    fn is_lost(&self) -> bool {
        self.is_lossy.load(Ordering::SeqCst) && self.below(6) == 0
    }

    fn start(self: &Arc<Self>, node: usize, pace: Pace) {
        let folder = &self.nodes[node].folder;
        let (journal, report) = Journal::open(folder, JournalConfig::default()).unwrap();
        assert!(report.damaged.is_empty());
        let mut post = KeptLetters::open(journal, &name(node), "factory", 1 << 20).unwrap();
        post.pace = pace;
        let post = Arc::new(post);
        let ways = SimulatedWays {
            world: self.clone(),
            node,
            connection: post.origin,
        };
        let carriers = tokio::spawn(run(post.clone(), Arc::new(ways)));
        *self.nodes[node].running.lock() = Some(Running { post, carriers });
    }

    async fn kill(&self, node: usize) {
        let running = self.nodes[node].running.lock().take();
        let Some(Running { post, carriers }) = running else {
            return;
        };
        carriers.abort();
        let _ = carriers.await;
        let closing = move || post.journal.close();
        tokio::task::spawn_blocking(closing).await.unwrap();
    }

    fn post(&self, node: usize) -> Option<Arc<KeptLetters>> {
        let running = self.nodes[node].running.lock();
        running.as_ref().map(|running| running.post.clone())
    }

    /// Tells all nodes the receiver's place. They learn it later, in order.
    fn place(&self, place: ReceiverPlace) {
        for node in &self.nodes {
            node.place.lock().1.push_back(place);
        }
    }

    /// Lets a node learn the moves that it does not know yet.
    fn learn(&self, node: usize) {
        {
            let mut place = self.nodes[node].place.lock();
            let Some(next) = place.1.pop_front() else {
                return;
            };
            place.0 = next;
        }
        if let Some(post) = self.post(node) {
            post.wake(RECEIVER);
        }
    }

    fn open_receiver(&self, node: usize) {
        let process = self.processes.fetch_add(1, Ordering::SeqCst) + 1;
        *self.process.lock() = Some(Receiver {
            node,
            process,
            unread: VecDeque::new(),
            known: HashMap::new(),
            reports: VecDeque::new(),
        });
        self.place(Some((node, process)));
    }

    /// Reports the outcomes of letters to the receiver's node. Returns false if the report does not reach the node now.
    async fn report(&self) -> bool {
        let (node, process, reports) = {
            let process = self.process.lock();
            let Some(receiver) = &*process else {
                return true;
            };
            let reports: Vec<_> = receiver.reports.iter().copied().collect();
            (receiver.node, receiver.process, reports)
        };
        let Some(post) = self.post(node) else {
            return false;
        };
        let settled = post
            .settle(&process.to_string(), RECEIVER, reports.clone())
            .await;
        let now = self.post(node);
        let is_killed = !now.is_some_and(|now| Arc::ptr_eq(&now, &post));
        if settled.is_err() || is_killed || self.is_lost() {
            return false;
        }
        let mut process = self.process.lock();
        let receiver = process.as_mut().unwrap();
        for (number, outcome) in reports {
            receiver.reports.pop_front();
            if outcome.is_final() {
                receiver.known.remove(&number);
            }
        }
        true
    }

    /// Moves in the usual way: unread letters are left, and all others are reported.
    async fn move_to(self: &Arc<Self>, node: usize) {
        {
            let mut process = self.process.lock();
            let Some(receiver) = process.as_mut() else {
                return;
            };
            let unread = std::mem::take(&mut receiver.unread);
            for letter in unread {
                receiver.known.remove(&letter.number);
                let left = (letter.number, LetterOutcome::Left(letter.hand_over));
                receiver.reports.push_back(left);
            }
        }
        let here = self.process.lock().as_ref().map(|process| process.node);
        while !self.report().await {
            if let Some(here) = here
                && self.post(here).is_none()
            {
                self.start(here, pace());
            }
        }
        *self.process.lock() = None;
        self.place(None);
        self.open_receiver(node);
    }

    /// Brings a request to a node, unless the request is lost.
    fn reach(&self, to: usize) -> Result<Arc<KeptLetters>, Fault> {
        if self.is_lost() {
            return Err(lost());
        }
        self.post(to).ok_or_else(lost)
    }

    /// How often a request arrives: once or twice.
    fn times(&self) -> usize {
        1 + usize::from(self.is_lost())
    }

    /// Brings back the answer of a node that was reached, unless it is lost or the node was killed in between.
    fn answer<T>(&self, from: usize, post: &Arc<KeptLetters>, answer: T) -> Result<T, Fault> {
        let now = self.post(from);
        let is_killed = !now.is_some_and(|now| Arc::ptr_eq(&now, post));
        match is_killed || self.is_lost() {
            true => Err(lost()),
            false => Ok(answer),
        }
    }
}

fn number_of(node: &str) -> usize {
    node.strip_prefix("node-").unwrap().parse().unwrap()
}

impl Ways for SimulatedWays {
    fn whereabouts(&self, agent: &str) -> Whereabouts {
        if agent != RECEIVER {
            return Whereabouts::Away;
        }
        match self.world.nodes[self.node].place.lock().0 {
            None => Whereabouts::Away,
            Some((node, process)) if node == self.node => {
                Whereabouts::Here(process.to_string(), self.connection)
            }
            Some((node, _)) => Whereabouts::There(name(node)),
        }
    }

    fn deliver<'a>(
        &'a self,
        agent: &'a str,
        letters: Vec<DeliveredLetter>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        async move {
            let post = self.world.post(self.node).ok_or_else(lost)?;
            let mailbox = post.mailbox(RECEIVER).unwrap();
            let noted = mailbox.stream.cursor(HANDED);
            let place = self.world.nodes[self.node].place.lock().0;
            // A node that knows by now that the agent is elsewhere has no connection to its process.
            let place = place.filter(|(node, _)| *node == self.node);
            let mut process = self.world.process.lock();
            let receiver = process
                .as_mut()
                .filter(|receiver| Some((receiver.node, receiver.process)) == place)
                .ok_or_else(lost)?;
            assert_eq!(agent, RECEIVER);
            for letter in letters {
                assert!(
                    Some(letter.number) <= noted,
                    "letter {} goes before the disk has the note that it may be taken",
                    letter.number
                );
                let outcome = match receiver.known.get(&letter.number) {
                    Some(true) => LetterOutcome::Taken,
                    Some(false) => LetterOutcome::Arrived,
                    None => {
                        receiver.known.insert(letter.number, false);
                        let number = letter.number;
                        receiver.unread.push_back(letter);
                        receiver.reports.push_back((number, LetterOutcome::Arrived));
                        continue;
                    }
                };
                receiver.reports.push_back((letter.number, outcome));
            }
            Ok(())
        }
        .boxed()
    }

    fn forward<'a>(
        &'a self,
        node: &'a str,
        letters: Vec<PostedLetter>,
    ) -> BoxFuture<'a, Result<Vec<Option<Fault>>, Fault>> {
        let to = number_of(node);
        // The letters in the form in which they travel.
        let letters = serde_json::to_vec(&letters).unwrap();
        async move {
            let world = &self.world;
            let post = world.reach(to)?;
            let mut refused = Vec::new();
            for _ in 0..world.times() {
                let turn = world.nodes[to].in_order.lock().await;
                let place = world.nodes[to].place.lock().0;
                // A node takes letters only for agents that it has, as far as it knows.
                let is_here = place.is_some_and(|(node, _)| node == to);
                let gone = (!is_here).then(|| Fault::new(FaultCode::NotPlaced, "it is not here"));
                let letters = serde_json::from_slice(&letters).unwrap();
                let begun = post.begin(letters, gone.as_ref());
                drop(turn);
                refused = begun.finish().await;
            }
            world.answer(to, &post, refused)
        }
        .boxed()
    }

    fn trail<'a>(
        &'a self,
        node: &'a str,
        receiver: &'a str,
        letters: Vec<LetterMark>,
    ) -> BoxFuture<'a, Result<Trail, Fault>> {
        let to = number_of(node);
        async move {
            let post = self.world.reach(to)?;
            let _turn = self.world.nodes[to].in_order.lock().await;
            let trail = post.trail(receiver, &letters);
            self.world.answer(to, &post, trail)
        }
        .boxed()
    }
}

impl Sender {
    fn new(number: usize, node: usize) -> Self {
        Self {
            name: format!("sender-{number}"),
            node,
            origin: new_origin(),
            written: 0,
            waiting: Vec::new(),
        }
    }

    fn write(&mut self) {
        self.written += 1;
        let aid = Aid::new(format!("{}@factory", self.name)).unwrap();
        let message = AclMessage::new(Performative::Inform)
            .with_sender(aid)
            .with_content(format!("{} {}", self.origin, self.written));
        let mut bytes = Vec::new();
        bitefficient::encode(&message, &mut bytes).unwrap();
        self.waiting.push(PostedLetter {
            cover: Cover {
                origin: self.origin,
                sequence: self.written,
                hops: 0,
                again: false,
                receiver: RECEIVER.to_owned(),
                provenance: WaitingProvenance::SameProcess {
                    identity: format!("spiffe://factory/agent/{}", self.name),
                },
                posted: now(),
                expiry: now() + 3_600_000,
                valid_from: None,
                receipt: None,
                about: None,
            },
            message: Blob(bytes),
        });
    }

    /// Gives the waiting letters to the sender's node, if it can be reached.
    async fn give(&mut self, world: &Arc<World>, books: &mut Books) {
        let Ok(post) = world.reach(self.node) else {
            return;
        };
        let mut refused = Vec::new();
        for _ in 0..world.times() {
            refused = post.keep(self.waiting.clone()).await;
        }
        let Ok(refused) = world.answer(self.node, &post, refused) else {
            return;
        };
        assert!(refused.iter().all(Option::is_none), "{refused:?}");
        for letter in self.waiting.drain(..) {
            books
                .accepted
                .insert((letter.cover.origin, letter.cover.sequence));
        }
    }
}

async fn one_walk(seed: u64) {
    let count = 3 + (seed % 2) as usize;
    let world = World::new(seed, count);
    let mut books = Books::default();
    let mut senders: Vec<Sender> = (0..3).map(|n| Sender::new(n, world.any_node())).collect();
    world.open_receiver(world.any_node());
    world.is_lossy.store(true, Ordering::SeqCst);
    for _ in 0..120 {
        for node in 0..count {
            if world.below(2) == 0 {
                world.learn(node);
            }
        }
        let sender = &mut senders[world.below(3) as usize];
        match world.below(24) {
            0..=7 => {
                for _ in 0..=world.below(4) {
                    sender.write();
                }
                sender.give(&world, &mut books).await;
            }
            8 => *sender = Sender::new(0, sender.node),
            9..=14 => {
                let next = {
                    let mut process = world.process.lock();
                    process.as_mut().and_then(|receiver| {
                        let next = receiver.unread.pop_front()?;
                        receiver.known.insert(next.number, true);
                        receiver
                            .reports
                            .push_back((next.number, LetterOutcome::Taken));
                        Some(next)
                    })
                };
                if let Some(letter) = next {
                    books.take(&letter, seed);
                }
                world.report().await;
            }
            15 => {
                world.report().await;
            }
            16 | 17 => world.move_to(world.any_node()).await,
            18 => {
                *world.process.lock() = None;
                world.place(None);
                world.open_receiver(world.any_node());
            }
            19 => world.kill(world.any_node()).await,
            20 => {
                for node in 0..count {
                    if world.post(node).is_none() {
                        world.start(node, pace());
                    }
                }
            }
            _ => tokio::time::sleep(Duration::from_millis(world.below(5))).await,
        }
    }
    // At the end, nothing is lost any more.
    world.is_lossy.store(false, Ordering::SeqCst);
    for node in 0..count {
        if world.post(node).is_none() {
            world.start(node, pace());
        }
    }
    let settling = async {
        loop {
            for node in 0..count {
                world.learn(node);
            }
            for sender in &mut senders {
                sender.give(&world, &mut books).await;
            }
            let read = {
                let mut process = world.process.lock();
                let receiver = process.as_mut().unwrap();
                let read: Vec<_> = receiver.unread.drain(..).collect();
                for letter in &read {
                    receiver.known.insert(letter.number, true);
                    let taken = (letter.number, LetterOutcome::Taken);
                    receiver.reports.push_back(taken);
                }
                read
            };
            for letter in &read {
                books.take(letter, seed);
            }
            world.report().await;
            let waiting = (0..count).map(|node| world.post(node).unwrap().list(RECEIVER).1);
            if books.is_complete() && waiting.sum::<u64>() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let settled = tokio::time::timeout(LONG, settling).await;
    if settled.is_err() {
        let missing: Vec<_> = books.accepted.difference(&books.taken).collect();
        let waiting: Vec<_> = (0..count)
            .map(|node| world.post(node).unwrap().list(RECEIVER).1)
            .collect();
        panic!("seed {seed}: missing {missing:?}, waiting {waiting:?}");
    }
    for node in 0..count {
        world.kill(node).await;
    }
}

#[tokio::test]
async fn accepted_letters_are_taken_once_and_in_order_over_any_walk() {
    let mut seeds = seeds(48).peekable();
    while seeds.peek().is_some() {
        let together = seeds.by_ref().take(TOGETHER as usize).map(one_walk);
        futures_util::future::join_all(together).await;
    }
}
