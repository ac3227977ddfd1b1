//! A node and processes that can be killed: the bus of a process, its way to its node, and the node's logs on a real disk.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use sealbus_bus::{BusConfig, Mailbox, Outbox};
use sealbus_channels::{
    ChannelPath, ChannelPattern, Channels, Qos, ReceivedEvent, Subscription, SubscriptionOptions,
};
use sealbus_conformance::schedule::Random;
use sealbus_journal::{Journal, JournalConfig, Retention};
use tokio::runtime::Handle;

use super::*;
use crate::channel_log::NodeLogs;
use sealbus_control::channel_log::{KeptLog, LogAnswer, LogRequest};
use sealbus_keeping::channel_log::KeptChannelLogs;

/// A guard against waiting for ever.
pub(super) const LONG: Duration = Duration::from_secs(120);
pub(super) const NODE: &str = "node-1";

/// A node that can be killed.
pub(super) struct Node {
    folder: PathBuf,
    running: Mutex<Option<(Journal, Arc<KeptChannelLogs>)>>,
    chance: Mutex<Random>,
    /// Whether requests and answers are lost.
    pub(super) is_lossy: AtomicBool,
    /// Whether a test damages the node's files.
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

    pub(super) fn below(&self, limit: u64) -> u64 {
        self.chance.lock().below(limit)
    }

    fn come_back(&self) {
        let (journal, report) = Journal::open(&self.folder, JournalConfig::default()).unwrap();
        assert!(report.damaged.is_empty() || self.is_damaged.load(Ordering::SeqCst));
        let platform = PlatformName::new("factory").unwrap();
        let logs =
            KeptChannelLogs::open(journal.clone(), &report, NODE, platform, 1 << 20).unwrap();
        logs.obey(&Rules::default());
        if let Some((channel, retention)) = &*self.retention.lock() {
            logs.retain(channel, *retention).unwrap();
        }
        *self.running.lock() = Some((journal, Arc::new(logs)));
    }

    pub(super) fn logs(&self) -> Option<Arc<KeptChannelLogs>> {
        self.running.lock().as_ref().map(|(_, logs)| logs.clone())
    }

    /// Kills the node, tears the record that it was writing, and starts it again.
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

    /// Stops the node, changes the files of one channel, oldest first, and starts it again.
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
        match self
            .logs()
            .unwrap()
            .answer("", LogRequest::List)
            .await
            .unwrap()
        {
            LogAnswer::List { logs } => logs,
            _ => panic!("no list"),
        }
    }

    /// Appends a part of a record, as if the machine had stopped while it was written.
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

    fn answer(&self, request: AttachmentRequest) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>> {
        let AttachmentRequest::ChannelLog { node, request } = request else {
            return Box::pin(async { Err(no_letters()) });
        };
        assert_eq!(node, NODE);
        Box::pin(async move {
            let lost = || Fault::new(FaultCode::Unavailable, "lost");
            // The request in the form in which it travels.
            let request = serde_json::to_string(&request).unwrap();
            let request = serde_json::from_str(&request).unwrap();
            if self.is_lost() {
                return Err(lost());
            }
            let logs = self.node.logs().ok_or_else(lost)?;
            let answer = logs.answer(&self.membership.process, request).await;
            // A node that is killed in the meantime answers nothing.
            let now = self.node.logs();
            let is_killed = !now.is_some_and(|now| Arc::ptr_eq(&now, &logs));
            if is_killed || self.is_lost() {
                return Err(lost());
            }
            Ok(answer?.into())
        })
    }

    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        None
    }
}

/// A process with one agent.
pub(super) struct Life {
    pub(super) bus: Bus,
    pub(super) outbox: Outbox,
    _mailbox: Mailbox,
    link: Arc<Link>,
    world: Arc<World>,
    trust: Arc<Trust>,
}

impl Life {
    pub(super) fn begin(agent: &str, node: &Arc<Node>) -> Self {
        let contact = ProcessContact {
            node: NODE.to_owned(),
            process: "1".to_owned(),
            address: SocketAddr::new(ADDRESS, 1),
        };
        static LIVES: AtomicUsize = AtomicUsize::new(1);
        let process = LIVES.fetch_add(1, Ordering::SeqCst);
        let membership = Membership {
            platform: PlatformDescription {
                name: "factory".to_owned(),
                level: "auth".to_owned(),
                roots: Vec::new(),
                certificate_lifetime: 3600,
                max_message: 1 << 20,
                master: contact.clone(),
                control: contact,
                transport: TransportDescription::Mesh,
            },
            node: NODE.to_owned(),
            process: process.to_string(),
            agents: vec![agent.to_owned()],
            address: ADDRESS,
            port: 0,
            deny_list: Blob::default(),
            inherits: false,
            all_use_channels: false,
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
        let world = World::new();
        let trust = world.trust();
        let logs = NodeLogs::start(
            link.clone(),
            bus.downgrade(),
            trust.clone(),
            SecurityLevel::Auth,
        );
        assert!(Channels::of(&bus).set_logs(logs));
        let name = format!("{agent}@factory");
        let (outbox, mailbox) = bus.attach(&name, None, None).unwrap();
        Self {
            bus,
            outbox,
            _mailbox: mailbox,
            link,
            world,
            trust,
        }
    }

    /// Hears that an operator revoked an agent at that time.
    pub(super) fn hear_of_revocation(&self, agent: &str, at: Timestamp) {
        let identity = Identity::agent(self.world.platform(), agent).unwrap();
        let denial = Denial {
            at,
            reason: Reason::ByOperator,
        };
        let (mut list, until) = (self.world.deny_list.lock(), at.plus(HOUR));
        list.deny_identity(identity, until, denial).unwrap();
        let signed = list.sign(&self.world.authority).unwrap().whole();
        self.trust.apply_deny_list(&signed, now()).unwrap();
    }

    pub(super) async fn publish(&self, channel: &str, text: &str) -> Result<(), String> {
        let message = AclMessage::new(Performative::Inform).with_content(text);
        self.publish_as(channel, "persistent,ack=disk", message)
            .await
    }

    pub(super) async fn publish_as(
        &self,
        channel: &str,
        qos: &str,
        message: AclMessage,
    ) -> Result<(), String> {
        let qos: Qos = qos.parse().unwrap();
        let channel = ChannelPath::new(channel).unwrap();
        let channels = Channels::of(&self.bus);
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
        Channels::of(&self.bus)
            .subscribe(&self.outbox, options)
            .unwrap()
    }

    /// Ends the process like `kill -9`: nothing that it would still send is heard.
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
        options.replay = sealbus_channels::Replay::Resume;
    }
}
