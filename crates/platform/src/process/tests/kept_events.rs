//! Persistent channels through everything but the network: the bus of a process, its way to its node, and the node's logs on a
//! real disk, while requests and answers are lost, processes and nodes are killed, and tails of files are torn.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use sealbus_acl::Expression;
use sealbus_bus::channel::{
    ChannelPath, ChannelPattern, Moment, Qos, ReceivedEvent, Subscription, SubscriptionOptions,
};
use sealbus_bus::schedule::{Random, seeds};
use sealbus_bus::{Mailbox, Outbox};
use sealbus_journal::{Journal, JournalConfig, Retention};

use super::*;
use crate::channel_log::ChannelLogs;
use crate::control::channel_log::KeptLog;
use crate::process::channel_log::NodeLogs;

/// A guard against waiting for ever.
pub(super) const LONG: Duration = Duration::from_secs(120);
pub(super) const NODE: &str = "node-1";

/// A node that can be killed.
pub(super) struct Node {
    folder: PathBuf,
    running: Mutex<Option<(Journal, Arc<ChannelLogs>)>>,
    chance: Mutex<Random>,
    /// Loses requests and answers.
    is_lossy: AtomicBool,
    /// A test damages its files.
    is_damaged: AtomicBool,
    pub(super) retention: Mutex<Option<(ChannelPath, Retention)>>,
}

impl Node {
    pub(super) fn start(folder: &Path, seed: u64) -> Arc<Self> {
        let node = Arc::new(Self {
            folder: folder.to_owned(),
            running: Mutex::default(),
            chance: Mutex::new(Random(seed)),
            is_lossy: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
            retention: Mutex::default(),
        });
        node.come_back();
        node
    }

    fn below(&self, limit: u64) -> u64 {
        self.chance.lock().below(limit)
    }

    fn come_back(&self) {
        let (journal, report) = Journal::open(&self.folder, JournalConfig::default()).unwrap();
        assert!(report.damaged.is_empty() || self.is_damaged.load(Ordering::SeqCst));
        let platform = PlatformName::new("factory").unwrap();
        let logs = ChannelLogs::open(journal.clone(), &report, NODE, platform, 1 << 20).unwrap();
        logs.obey(&Rules::default());
        if let Some((channel, retention)) = &*self.retention.lock() {
            logs.retain(channel, *retention).unwrap();
        }
        *self.running.lock() = Some((journal, Arc::new(logs)));
    }

    fn logs(&self) -> Option<Arc<ChannelLogs>> {
        self.running.lock().as_ref().map(|(_, logs)| logs.clone())
    }

    /// Kills the node, tears what it was writing, and starts it again.
    pub(super) async fn fall(&self) {
        let running = self.running.lock().take();
        let closing = move || {
            if let Some((journal, _)) = running {
                journal.close();
            }
        };
        tokio::task::spawn_blocking(closing).await.unwrap();
        if self.below(2) == 0 {
            self.tear();
        }
        self.come_back();
    }

    /// Stops the node, does something to the files of one channel, oldest first, and starts it again.
    pub(super) async fn fall_and(&self, channel: &str, change: impl FnOnce(&[PathBuf])) {
        self.is_damaged.store(true, Ordering::SeqCst);
        let running = self.running.lock().take();
        let closing = move || {
            if let Some((journal, _)) = running {
                journal.close();
            }
        };
        tokio::task::spawn_blocking(closing).await.unwrap();
        let sorted = |folder: &Path| {
            let entries = std::fs::read_dir(folder).unwrap();
            let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            paths
        };
        let ending = channel.replace('/', "_");
        let mut folders = sorted(&self.folder).into_iter();
        let folder = folders.find(|path| path.to_string_lossy().ends_with(&ending));
        change(&sorted(&folder.unwrap()));
        self.come_back();
    }

    pub(super) async fn list(&self) -> Vec<KeptLog> {
        match self.logs().unwrap().answer(LogRequest::List).await.unwrap() {
            LogAnswer::List { logs } => logs,
            _ => panic!("no list"),
        }
    }

    /// What was being written when the machine stopped: a part of a record.
    fn tear(&self) {
        use std::io::Write;
        for stream in std::fs::read_dir(&self.folder).unwrap() {
            let stream = stream.unwrap().path();
            if !stream.is_dir() {
                continue;
            }
            let files = std::fs::read_dir(stream).unwrap();
            let newest = files.map(|file| file.unwrap().path()).max().unwrap();
            let mut file = std::fs::File::options().append(true).open(newest).unwrap();
            let length = 1 + self.below(60) as usize;
            file.write_all(&vec![b'S'; length]).unwrap();
        }
    }
}

/// The host of one process, until it is killed.
struct Link {
    membership: Membership,
    node: Arc<Node>,
    is_cut: AtomicBool,
}

impl Link {
    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    fn is_lost(&self) -> bool {
        let is_lossy = self.node.is_lossy.load(Ordering::SeqCst);
        self.is_cut.load(Ordering::SeqCst) || is_lossy && self.node.below(8) == 0
    }
}

impl Host for Link {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn certify(&self, _: Subject, _: Vec<u8>) -> BoxFuture<'_, Result<Vec<Vec<u8>>, Fault>> {
        Box::pin(async { Err(crate::host::no_logs()) })
    }

    fn announce(&self, _: SocketAddr) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<AgentLocation, Fault>> {
        Box::pin(async { Ok(AgentLocation::Unknown) })
    }

    fn report<'a>(&'a self, _: &'a str, _: AgentReport) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn refused(&self, _: Vec<RefusalRecord>) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn post(&self, _: Vec<PostedLetter>) -> BoxFuture<'_, Result<Vec<Option<Fault>>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn settle_letters<'a>(
        &'a self,
        _: &'a str,
        _: Vec<(u64, LetterOutcome)>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }

    fn channel_log<'a>(
        &'a self,
        node: &'a str,
        request: LogRequest,
    ) -> BoxFuture<'a, Result<LogAnswer, Fault>> {
        assert_eq!(node, NODE);
        Box::pin(async move {
            let lost = || Fault::new(FaultCode::Unavailable, "lost");
            // As it travels.
            let request = serde_json::to_string(&request).unwrap();
            let request = serde_json::from_str(&request).unwrap();
            if self.is_lost() {
                return Err(lost());
            }
            let logs = self.node.logs().ok_or_else(lost)?;
            let answer = logs.answer(request).await;
            // A node that is killed meanwhile answers nothing.
            let now = self.node.logs();
            let is_killed = !now.is_some_and(|now| Arc::ptr_eq(&now, &logs));
            if is_killed || self.is_lost() {
                return Err(lost());
            }
            answer
        })
    }

    fn inherit(&self) -> BoxFuture<'_, Result<Vec<FrozenAgent>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        None
    }
}

/// A process with one agent.
pub(super) struct Life {
    pub(super) bus: Bus,
    outbox: Outbox,
    _mailbox: Mailbox,
    link: Arc<Link>,
}

impl Life {
    pub(super) fn begin(agent: &str, node: &Arc<Node>) -> Self {
        let contact = ProcessContact {
            node: NODE.to_owned(),
            process: "1".to_owned(),
            address: SocketAddr::new(ADDRESS, 1),
        };
        let membership = Membership {
            platform: PlatformDescription {
                name: "factory".to_owned(),
                level: "auth".to_owned(),
                roots: Vec::new(),
                certificate_lifetime: 3600,
                max_message: 1 << 20,
                master: contact,
                transport: TransportDescription::Mesh,
            },
            node: NODE.to_owned(),
            process: "1".to_owned(),
            agents: vec![agent.to_owned()],
            address: ADDRESS,
            port: 0,
            deny_list: Blob::default(),
            inherits: false,
            processes: None,
            rules: Rules::default(),
            reachable: false,
        };
        let link = Arc::new(Link {
            membership,
            node: node.clone(),
            is_cut: AtomicBool::new(false),
        });
        let platform = PlatformName::new("factory").unwrap();
        let bus = Bus::new(BusConfig::new(platform), Handle::current());
        let logs = NodeLogs::start(link.clone(), bus.downgrade());
        assert!(bus.channels().set_logs(logs));
        let name = format!("{agent}@factory");
        let (outbox, mailbox) = bus.attach(&name, None, None).unwrap();
        Self {
            bus,
            outbox,
            _mailbox: mailbox,
            link,
        }
    }

    pub(super) async fn publish(&self, channel: &str, text: &str) -> Result<(), String> {
        let message = AclMessage::new(Performative::Inform).with_content(text);
        self.publish_as(channel, "persistent,ack=disk", message)
            .await
    }

    async fn publish_as(
        &self,
        channel: &str,
        qos: &str,
        message: AclMessage,
    ) -> Result<(), String> {
        let qos: Qos = qos.parse().unwrap();
        let channel = ChannelPath::new(channel).unwrap();
        let channels = self.bus.channels();
        let published = channels.publish(&self.outbox, &channel, &qos, message);
        let published = tokio::time::timeout(LONG, published).await.unwrap();
        published.map(|_| ()).map_err(|error| error.to_string())
    }

    pub(super) fn subscribe(
        &self,
        pattern: &str,
        change: impl FnOnce(&mut SubscriptionOptions),
    ) -> Subscription {
        let mut options = SubscriptionOptions::new(ChannelPattern::new(pattern).unwrap());
        change(&mut options);
        self.bus
            .channels()
            .subscribe(&self.outbox, options)
            .unwrap()
    }

    /// As `kill -9`: nothing it would say still is heard.
    pub(super) fn kill(self, subscription: Option<Subscription>) {
        self.link.cut();
        drop(subscription);
    }
}

pub(super) async fn next(subscription: &mut Subscription) -> ReceivedEvent {
    let event = tokio::time::timeout(LONG, subscription.recv()).await;
    event.unwrap().unwrap()
}

pub(super) fn text(event: &ReceivedEvent) -> String {
    let message = event.message.message();
    message.content_text().unwrap().into_owned()
}

pub(super) fn durable(name: &str) -> impl FnOnce(&mut SubscriptionOptions) {
    let name = name.to_owned();
    move |options| {
        options.durable = Some(name);
        options.replay = sealbus_bus::channel::frame::Replay::Resume;
    }
}

/// Publishes while it and its node are killed. Returns what was acknowledged.
async fn publish_all(node: Arc<Node>, name: &'static str, count: usize) -> Vec<String> {
    let mut life = Life::begin(name, &node);
    let mut acknowledged = Vec::new();
    for number in 0..count {
        let channel = if number % 3 == 0 { "/a/one" } else { "/a/two" };
        let text = format!("{name} {number}");
        if node.below(12) == 0 {
            // Killed while it waits for the acknowledgement: whether the event is kept nobody knows.
            let publishing = life.publish(channel, &text);
            let _ = tokio::time::timeout(Duration::from_micros(node.below(3000)), publishing).await;
            life.kill(None);
            life = Life::begin(name, &node);
            continue;
        }
        life.publish(channel, &text).await.unwrap();
        acknowledged.push(text);
        if node.below(15) == 0 {
            node.fall().await;
        }
    }
    acknowledged
}

async fn one_schedule(seed: u64) {
    const EVENTS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), seed);
    let mut reader = Life::begin("reader", &node);
    let mut subscription = reader.subscribe("/a/*", durable("all"));
    node.is_lossy.store(true, Ordering::SeqCst);
    let publishing = tokio::spawn({
        let node = node.clone();
        async move {
            let (one, two) = tokio::join!(
                publish_all(node.clone(), "anna", EVENTS),
                publish_all(node, "ben", EVENTS)
            );
            [one, two].concat()
        }
    });
    let mut publishing = Some(publishing);
    let mut wanted: HashSet<String> = HashSet::new();
    // By log and number what was there; and the sightings of each text.
    let mut places: HashMap<(ChannelPath, u64), String> = HashMap::new();
    let mut last: BTreeMap<(String, ChannelPath), usize> = BTreeMap::new();
    loop {
        if publishing.is_none()
            && wanted
                .iter()
                .all(|text| places.values().any(|it| it == text))
        {
            break;
        }
        let event = match &mut publishing {
            None => next(&mut subscription).await,
            Some(running) => tokio::select! {
                event = next(&mut subscription) => event,
                done = running => {
                    wanted.extend(done.unwrap());
                    publishing = None;
                    continue;
                }
            },
        };
        let text = text(&event);
        let logged = event.header.logged.clone().unwrap();
        assert_eq!(logged.missed, 0, "seed {seed}: {text}");
        let place = (event.header.channel.clone(), event.header.number);
        match places.get(&place) {
            Some(former) => {
                assert_eq!(*former, text, "seed {seed}");
                assert!(logged.again, "seed {seed}: {text} comes twice unmarked");
            }
            None => {
                let is_twice = places.values().any(|other| *other == text);
                assert!(!is_twice, "seed {seed}: {text} was kept twice");
                let (name, number) = text.split_once(' ').unwrap();
                let number = number.parse::<usize>().unwrap() + 1;
                let of = (name.to_owned(), place.0.clone());
                let former = last.insert(of, number).unwrap_or(0);
                assert!(former < number, "seed {seed}: {text} comes after {former}");
                places.insert(place, text);
            }
        }
        // In the end it is let alone: killed before it has told how far it has come, it would begin again and again.
        if publishing.is_some() && node.below(14) == 0 {
            reader.kill(Some(subscription));
            reader = Life::begin("reader", &node);
            subscription = reader.subscribe("/a/*", durable("all"));
        }
    }
}

#[tokio::test]
async fn acknowledged_events_outlive_everything_and_come_once_in_effect() {
    for seed in seeds(4) {
        one_schedule(seed).await;
    }
}

#[tokio::test]
async fn a_durable_subscription_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 1);
    let anna = Life::begin("anna", &node);
    let ben = Life::begin("ben", &node);
    anna.publish("/news", "before").await.unwrap();
    {
        let mut news = ben.subscribe("/news", durable("news"));
        // What is published at once after subscribing counts.
        for number in 0..4 {
            anna.publish("/news", &number.to_string()).await.unwrap();
        }
        for number in 0..3 {
            assert_eq!(text(&next(&mut news).await), number.to_string());
        }
        let twice = SubscriptionOptions {
            durable: Some("news".to_owned()),
            ..SubscriptionOptions::new(ChannelPattern::new("/news").unwrap())
        };
        let refused = ben.bus.channels().subscribe(&ben.outbox, twice);
        assert!(refused.unwrap_err().to_string().contains("already"));
    }
    ben.bus.channels().settled().await;
    node.fall().await;
    anna.publish("/news", "4").await.unwrap();
    // On a channel that there was not yet.
    let mut news = ben.subscribe("/news", durable("news"));
    for number in 3..5 {
        let event = next(&mut news).await;
        assert_eq!(text(&event), number.to_string());
        let logged = event.header.logged.clone().unwrap();
        assert_eq!((&*logged.node, logged.missed), (NODE, 0));
        assert!(event.provenance().is_trusted());
    }
    // Another durable subscription begins now, and others where they want.
    let mut late = ben.subscribe("/news", |options| {
        options.replay = sealbus_bus::channel::frame::Replay::Last(2);
    });
    let mut whole = ben.subscribe("/*", |options| {
        options.replay = sealbus_bus::channel::frame::Replay::From(1);
        options.filter = "content != '2'".to_owned();
    });
    assert_eq!(text(&next(&mut late).await), "3");
    assert_eq!(text(&next(&mut late).await), "4");
    for expected in ["before", "0", "1", "3", "4"] {
        assert_eq!(text(&next(&mut whole).await), expected);
    }
    anna.publish("/more", "new channel").await.unwrap();
    assert_eq!(text(&next(&mut whole).await), "new channel");
    // Who listens now gets an event as it is published, who reads the log from there, and nobody both.
    let mut live = anna.subscribe("/news", |_| {});
    anna.publish("/news", "5").await.unwrap();
    let event = next(&mut live).await;
    assert_eq!((event.header.number, &event.header.logged), (7, &None));
    anna.publish("/news", "6").await.unwrap();
    for number in ["5", "6"] {
        assert_eq!(text(&next(&mut late).await), number);
    }
    assert_eq!(text(&next(&mut live).await), "6");
    assert!(live.try_recv().is_none());
}

#[tokio::test]
async fn what_was_not_kept_long_enough_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 2);
    let channel = ChannelPath::new("/news").unwrap();
    let retention = Retention {
        count: Some(3),
        ..Retention::default()
    };
    *node.retention.lock() = Some((channel.clone(), retention));
    node.fall().await;
    let anna = Life::begin("anna", &node);
    let ben = Life::begin("ben", &node);
    {
        let mut news = ben.subscribe("/news", durable("news"));
        anna.publish("/news", "0").await.unwrap();
        assert_eq!(text(&next(&mut news).await), "0");
    }
    ben.bus.channels().settled().await;
    for number in 1..10 {
        anna.publish("/news", &number.to_string()).await.unwrap();
    }
    node.fall().await;
    let mut news = ben.subscribe("/news", durable("news"));
    let event = next(&mut news).await;
    assert_eq!(text(&event), "7");
    assert_eq!(event.header.logged.clone().unwrap().missed, 6);
    assert_eq!(
        next(&mut news).await.header.logged.clone().unwrap().missed,
        0
    );
    let logs = node.list().await;
    assert_eq!((logs[0].events, logs[0].first, logs[0].next), (3, 8, 11));
    assert_eq!(logs[0].durable.keys().collect::<Vec<_>>(), ["ben/news"]);
}

/// A filter is evaluated where the log is; what it cannot be evaluated for is counted at the subscriber.
#[tokio::test]
async fn filters_that_cannot_be_evaluated_for_kept_events_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 5);
    let anna = Life::begin("anna", &node);
    let ben = Life::begin("ben", &node);
    let offer = |text: &str, price: Option<i64>| {
        let mut message = AclMessage::new(Performative::Inform).with_content(text);
        let price = price.map(|price| ("X-price".to_owned(), Expression::Number(price.into())));
        message.user_defined.extend(price);
        message
    };
    let publish = async |text: &str, price: Option<i64>| {
        let published = anna.publish_as("/offers", "persistent,ack=disk", offer(text, price));
        published.await.unwrap();
    };
    publish("without a price", None).await;
    publish("dear", Some(12)).await;
    publish("cheap", Some(7)).await;
    let mut offers = ben.subscribe("/offers", |options| {
        options.replay = sealbus_bus::channel::frame::Replay::From(1);
        options.filter = "properties.price < 10".to_owned();
    });
    assert_eq!(text(&next(&mut offers).await), "cheap");
    assert_eq!(offers.counts().2.filter_errors, 1);
    publish("nor has this", None).await;
    publish("cheap again", Some(1)).await;
    assert_eq!(text(&next(&mut offers).await), "cheap again");
    let counters = offers.counts().2;
    assert_eq!((counters.filter_errors, counters.handed_out), (2, 2));
    let reports = ben.bus.channels().subscriptions();
    assert_eq!(reports[0].filter_errors, 2);
}

/// Not before and not after its time, also if it waited in a log.
#[tokio::test]
async fn kept_events_are_read_in_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 6);
    let anna = Life::begin("anna", &node);
    let say = |text: &str| AclMessage::new(Performative::Inform).with_content(text);
    let qos = |more: &str| format!("persistent,ack=disk,{more}");
    // As long as nothing can be so slow that it is over.
    let soon = Moment::from(SystemTime::now() + Duration::from_secs(2));
    for (more, text) in [
        (format!("valid-from={soon}"), "later"),
        (format!("expiry={soon}"), "gone"),
        ("expiry=1h".to_owned(), "stays"),
    ] {
        let published = anna.publish_as("/news", &qos(&more), say(text)).await;
        // On a slow machine it has expired before it is on the disk.
        assert!(published.is_ok() || text == "gone", "{published:?}");
    }
    node.fall().await;
    let ben = Life::begin("ben", &node);
    while Moment::from(SystemTime::now()) < soon {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut news = ben.subscribe("/news", |options| {
        options.replay = sealbus_bus::channel::frame::Replay::From(1);
    });
    let mut seen = [text(&next(&mut news).await), text(&next(&mut news).await)];
    seen.sort();
    assert_eq!(seen, ["later", "stays"]);
    // Who reads it before its time gets it then.
    let from = Moment::from(SystemTime::now() + Duration::from_secs(2));
    let later = qos(&format!("valid-from={from}"));
    anna.publish_as("/news", &later, say("at its time"))
        .await
        .unwrap();
    anna.publish("/news", "at once").await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let text = text(&next(&mut news).await);
        assert!(text == "at once" || Moment::from(SystemTime::now()) >= from);
        seen.push(text);
    }
    seen.sort();
    assert_eq!(seen, ["at its time", "at once"]);
}

#[tokio::test]
async fn a_node_keeps_only_what_it_may() {
    use crate::control::channel_log::{KeepOutcome, PostedEvent};
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(folder.path(), 3);
    let event = |publisher: &str, frame: Vec<u8>| PostedEvent {
        publisher: publisher.to_owned(),
        frame: Blob(frame),
    };
    let events = vec![
        event("anna", b"nonsense".to_vec()),
        event("anna", Vec::new()),
    ];
    let logs = node.logs().unwrap();
    let kept = logs.answer(LogRequest::Keep { events });
    let LogAnswer::Kept { outcomes } = kept.await.unwrap() else {
        panic!("no outcomes");
    };
    for outcome in outcomes {
        let KeepOutcome::Refused { fault } = outcome else {
            panic!("nonsense was kept");
        };
        assert_eq!(fault.code, FaultCode::BadRequest);
    }
    let many = vec![event("anna", Vec::new()); crate::channel_log::MOST_EVENTS + 1];
    let refused = logs.answer(LogRequest::Keep { events: many });
    assert_eq!(refused.await.unwrap_err().code, FaultCode::BadRequest);
    let question = serde_json::json!({
        "log": "read",
        "question": {
            "agent": "ben", "pattern": "/**", "filter": "price <", "start": {"from": "now"},
            "began": 0, "events": 1, "bytes": 1, "wait": 0
        }
    });
    let question = serde_json::from_value(question).unwrap();
    let refused = logs.answer(question).await.unwrap_err();
    assert_eq!(refused.code, FaultCode::BadRequest);
}
