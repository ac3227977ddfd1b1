//! One suite for every transport: it tests the promises of the bus with real messages.
//!
//! A transport's tests say how to [open](Setting::open) a platform of several processes over it, and which promises it
//! cannot keep. Each [`Promise`] is then a case. Either the transport keeps the promise, or it does not claim the
//! promise and says so when asked. Any other outcome is a failure. The outcomes make a [`Column`] of the table in
//! `docs/transports.md`.
//!
//! ```text
//! sealbus_conformance::conformance_tests!(Mesh::at(SecurityLevel::Auth));
//! ```
//!
//! This macro makes a test of each promise, for a value that implements [`Setting`].
//!
//! The crate above promises that nodes keep events. Its tests run those cases with [`run_kept`].

mod channels;
mod direct;
mod frames;
mod kept;
pub mod schedule;
mod table;

use std::fmt;
use std::time::Duration;

use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_seal::Identity;

use sealbus_bus::BoxFuture;
use sealbus_bus::Bus;
use sealbus_bus::Outbox;
use sealbus_bus::ReceivedMessage;
use sealbus_bus::{Mailbox, MailboxLimits};

pub use kept::{KeepingSetting, KeepingWorld, run_kept};
pub use table::{Column, StaleColumn, table};

/// A limit far above any real duration, so that no case depends on speed. A broker takes half a minute to notice that a
/// process is dead, and as long to give back its messages. On a heavily overloaded machine that was a minute.
const LONG: Duration = Duration::from_secs(240);
/// Processes of a platform that cases run on.
const PROCESSES: usize = 3;

/// A way to run several processes of one platform over a transport.
pub trait Setting: Send + Sync {
    /// The setting's name in the table, such as `mesh, auth`.
    fn name(&self) -> String;

    /// Opens that many processes, which reach each other. Called once for each case.
    fn open(&self, processes: usize) -> BoxFuture<'_, Box<dyn World>>;

    /// Why the transport cannot keep the promise, in a few words for the table; `None`: it keeps the promise.
    fn lacks(&self, promise: Promise) -> Option<&'static str>;
}

/// Several processes of one platform. Dropping it ends them.
pub trait World: Send + Sync {
    /// The bus of a process.
    fn bus(&self, process: usize) -> &Bus;

    /// The identity of a process. Every bus was [told](Bus::process_joined) of the others.
    fn identity(&self, process: usize) -> Identity;

    /// Attaches an agent to a process so that all others find the agent.
    fn attach<'a>(
        &'a self,
        process: usize,
        name: &'a str,
        limits: Option<MailboxLimits>,
    ) -> BoxFuture<'a, (Outbox, Mailbox)>;

    /// Moves an agent whose mailbox was drained. From now on the others find the agent, with its unread messages, in
    /// process `to`.
    fn move_to<'a>(
        &'a self,
        from: usize,
        to: usize,
        name: &'a str,
        unread: Vec<ReceivedMessage>,
    ) -> BoxFuture<'a, (Outbox, Mailbox)>;

    /// Breaks all open connections, wherever their bytes are. New connections can be made.
    fn break_connections(&self);

    /// Ends a process as `kill -9` does: it sends nothing more, and the platform has not noticed.
    fn kill(&self, process: usize) -> BoxFuture<'_, ()>;

    /// Revokes the certificate of an agent, and tells all processes.
    fn revoke<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, ()>;
}

/// The promises of the bus, whatever carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Promise {
    /// Messages from one agent to another, short and long, arrive in the order in which they were sent.
    Order,
    /// A message to several agents arrives at each of them, once.
    Receivers,
    /// Messages arrive once and in order even if connections break under way.
    Resume,
    /// A full mailbox holds back those who write to it.
    PushBack,
    /// A full mailbox holds back no other agents.
    PushBackAlone,
    /// Each message to a killed process arrived, or comes back to its sender.
    Crash,
    /// Messages follow an agent that moves, in order and once.
    Moving,
    /// A message to an absent agent comes back, with the reason.
    ComesBack,
    /// A message under another agent's name is refused. The refusal is noted with the name that tried.
    ForgedSender,
    /// After an agent's certificate is revoked, its messages are refused and noted.
    RevokedSender,
    /// A message of the largest size passes. A larger one is refused because of its size.
    SizeLimit,
    /// The buses of two processes reach each other. Frames arrive in order and once, from the writers that they name.
    Frames,
    /// A bus that takes no frames now holds back the writers of frames, but no agent's messages.
    FramesPushBack,
    /// Frames arrive once and in order even if connections break under way.
    FramesResume,
    /// Events reach every consumer in every process, once and in order.
    Events,
    /// They do though connections break under way.
    EventsResume,
    /// A message on a channel reaches the one agent that it names.
    Directed,
    /// A request to all agents brings all answers, and names the agents that did not answer.
    Request,
    /// Nothing is handed out before it is valid.
    ValidFrom,
    /// An event is not handed out from its expiry on, wherever it waited.
    Expiry,
    /// A subscription gets the events that fulfil its filter. An invalid filter is refused.
    Filter,
    /// A slow subscription drops events by its policy, is counted, and holds up no other.
    SlowSubscription,
    /// A subscription that pushes back holds back the publisher.
    EventsPushBack,
    /// A publisher without the right is refused, also where the event arrives.
    Rights,
    /// A quality of service that cannot be given is refused by name.
    RefusedByName,
    /// A late subscriber reads persistent channels from a time, a count or a number on.
    Replay,
    /// A durable subscription goes on where it stopped.
    Durable,
    /// An acknowledged event is not lost when every node that keeps it ends.
    Acknowledged,
    /// No more events are kept than configured, and removed events are counted.
    Retention,
}

impl Promise {
    /// The promises about logs, which come last in the table.
    pub const OF_LOGS: [Self; 4] = [
        Self::Replay,
        Self::Durable,
        Self::Acknowledged,
        Self::Retention,
    ];

    /// The promises of transports, in the order of the table.
    pub const ALL: [Self; 25] = [
        Self::Order,
        Self::Receivers,
        Self::Resume,
        Self::PushBack,
        Self::PushBackAlone,
        Self::Crash,
        Self::Moving,
        Self::ComesBack,
        Self::ForgedSender,
        Self::RevokedSender,
        Self::SizeLimit,
        Self::Frames,
        Self::FramesPushBack,
        Self::FramesResume,
        Self::Events,
        Self::EventsResume,
        Self::Directed,
        Self::Request,
        Self::ValidFrom,
        Self::Expiry,
        Self::Filter,
        Self::SlowSubscription,
        Self::EventsPushBack,
        Self::Rights,
        Self::RefusedByName,
    ];

    /// The promise's name: the name of its test, and its name in the files of outcomes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Receivers => "receivers",
            Self::Resume => "resume",
            Self::PushBack => "push-back",
            Self::PushBackAlone => "push-back-alone",
            Self::Crash => "crash",
            Self::Moving => "moving",
            Self::ComesBack => "comes-back",
            Self::ForgedSender => "forged-sender",
            Self::RevokedSender => "revoked-sender",
            Self::SizeLimit => "size-limit",
            Self::Frames => "frames",
            Self::FramesPushBack => "frames-push-back",
            Self::FramesResume => "frames-resume",
            Self::Events => "events",
            Self::EventsResume => "events-resume",
            Self::Directed => "directed",
            Self::Request => "request",
            Self::ValidFrom => "valid-from",
            Self::Expiry => "expiry",
            Self::Filter => "filter",
            Self::SlowSubscription => "slow-subscription",
            Self::EventsPushBack => "events-push-back",
            Self::Rights => "rights",
            Self::RefusedByName => "refused-by-name",
            Self::Replay => "replay",
            Self::Durable => "durable",
            Self::Acknowledged => "acknowledged",
            Self::Retention => "retention",
        }
    }

    /// Its kind, for the table.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Order => "messages arrive in the order they were sent, short and long",
            Self::Receivers => "a message to many receivers arrives exactly once at each",
            Self::Resume => "messages arrive once and in order even if connections break",
            Self::PushBack => "a full mailbox holds back the agents that write to it",
            Self::PushBackAlone => "a full mailbox holds back no other agent",
            Self::Crash => "messages that a killed process did not take come back",
            Self::Moving => "messages follow an agent that moves",
            Self::ComesBack => "a message that cannot be delivered comes back with the reason",
            Self::ForgedSender => "a message under another agent's name is refused",
            Self::RevokedSender => "a revoked agent is refused at once",
            Self::SizeLimit => "the largest message passes, and a larger one is refused by name",
            Self::Frames => "frames between the buses of two processes arrive once and in order",
            Self::FramesPushBack => "frames: a busy bus holds back no mailbox",
            Self::FramesResume => "frames: they arrive once and in order even if connections break",
            Self::Events => "channels: events reach every consumer, once and in order",
            Self::EventsResume => {
                "channels: events reach every consumer, once and in order, even if connections break"
            }
            Self::Directed => "channels: a message on a channel reaches the agent it names alone",
            Self::Request => {
                "channels: a request brings all answers and names the agents that did not answer"
            }
            Self::ValidFrom => "channels: nothing is handed out before it is valid",
            Self::Expiry => "channels: nothing is handed out after its expiry",
            Self::Filter => "channels: filters hold, and wrong ones are refused",
            Self::SlowSubscription => {
                "channels: a slow subscription drops by its policy and holds up no other"
            }
            Self::EventsPushBack => {
                "channels: a slow subscription with push-back holds back the publisher"
            }
            Self::Rights => "channels: an agent without the right to publish is refused",
            Self::RefusedByName => "channels: a QoS that cannot be given is refused by name",
            Self::Replay => {
                "persistent channels: late joiners read from a time, a count or a number on"
            }
            Self::Durable => {
                "persistent channels: durable subscriptions continue where they stopped"
            }
            Self::Acknowledged => {
                "persistent channels: acknowledged events outlive every process that keeps them"
            }
            Self::Retention => {
                "persistent channels: no more is kept than the limit, and gaps are counted"
            }
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise is kept.
    Kept,
    /// The promise is not given, and the transport does not claim it; the reason in a few words.
    NotGiven(String),
}

/// A case failed: what happened, and what should have.
#[derive(Clone, Debug)]
pub struct Failure(String);

impl Failure {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Outcome = Result<(), Failure>;

/// Runs one case.
///
/// # Errors
/// [`Failure`]: the promise is broken, or the transport claims what it cannot do.
pub async fn run(setting: &dyn Setting, promise: Promise) -> Result<Verdict, Failure> {
    let case = async {
        let world = setting.open(PROCESSES).await;
        if let Some(why) = setting.lacks(promise) {
            not_claimed(&*world, promise)?;
            return Ok(Verdict::NotGiven(why.to_owned()));
        }
        match promise {
            Promise::Order => direct::order(&*world).await,
            Promise::Receivers => direct::receivers(&*world).await,
            Promise::Resume => direct::resume(&*world).await,
            Promise::PushBack => direct::push_back(&*world).await,
            Promise::PushBackAlone => direct::push_back_alone(&*world).await,
            Promise::Crash => direct::crash(&*world).await,
            Promise::Moving => direct::moving(&*world).await,
            Promise::ComesBack => direct::comes_back(&*world).await,
            Promise::ForgedSender => direct::forged_sender(&*world).await,
            Promise::RevokedSender => direct::revoked_sender(&*world).await,
            Promise::SizeLimit => direct::size_limit(&*world).await,
            Promise::Frames => frames::in_order(&*world, false).await,
            Promise::FramesPushBack => frames::push_back(&*world).await,
            Promise::FramesResume => frames::in_order(&*world, true).await,
            Promise::Events => channels::events(&*world, false).await,
            Promise::EventsResume => channels::events(&*world, true).await,
            Promise::Directed => channels::directed(&*world).await,
            Promise::Request => channels::request(&*world).await,
            Promise::ValidFrom => channels::valid_from(&*world).await,
            Promise::Expiry => channels::expiry(&*world).await,
            Promise::Filter => channels::filter(&*world).await,
            Promise::SlowSubscription => channels::slow_subscription(&*world).await,
            Promise::EventsPushBack => channels::push_back(&*world).await,
            Promise::Rights => channels::rights(&*world).await,
            Promise::RefusedByName => channels::refused_by_name(&*world).await,
            Promise::Replay | Promise::Durable | Promise::Acknowledged | Promise::Retention => {
                Err(Failure::new("logs are tried by `run_kept`"))
            }
        }?;
        Ok(Verdict::Kept)
    };
    let outcome = tokio::time::timeout(3 * LONG, case)
        .await
        .unwrap_or_else(|_| Err(Failure::new("nothing happened for minutes")));
    outcome.map_err(|failure| {
        Failure::new(format!(
            "{} does not keep the promise `{promise}`: {failure}",
            setting.name()
        ))
    })
}

/// Checks that a transport which cannot keep a promise does not claim it.
fn not_claimed(world: &dyn World, promise: Promise) -> Outcome {
    let Some(transport) = world.bus(0).transport() else {
        return Ok(());
    };
    let capabilities = transport.capabilities();
    let is_claimed = match promise {
        Promise::Resume | Promise::FramesResume | Promise::EventsResume => capabilities.resumes,
        Promise::PushBack | Promise::PushBackAlone | Promise::FramesPushBack => {
            capabilities.pushes_back
        }
        // The level says so.
        Promise::RevokedSender | Promise::ForgedSender => false,
        // Channels need frames. A transport without frames says so when a channel is asked for.
        Promise::Frames
        | Promise::Events
        | Promise::Directed
        | Promise::Request
        | Promise::ValidFrom
        | Promise::Expiry
        | Promise::Filter
        | Promise::SlowSubscription
        | Promise::EventsPushBack
        | Promise::Rights
        | Promise::RefusedByName => frames::are_offered(world),
        Promise::Order
        | Promise::Receivers
        | Promise::Crash
        | Promise::Moving
        | Promise::ComesBack
        | Promise::SizeLimit
        | Promise::Replay
        | Promise::Durable
        | Promise::Acknowledged
        | Promise::Retention => {
            return Err(Failure::new(
                "every transport has to give that: it cannot be left out",
            ));
        }
    };
    if is_claimed {
        return Err(Failure::new(
            "the transport claims it, and its tests say that it cannot",
        ));
    }
    Ok(())
}

// ---- what the cases have in common ----

/// Waits for something that has to happen.
async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(LONG, happens)
        .await
        .map_err(|_| Failure::new(format!("{what} did not happen within minutes")))
}

/// Looks until there is something.
async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    soon(what, async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
}

/// Breaks all connections again and again while `going_on` lasts.
async fn while_breaking(world: &dyn World, going_on: impl Future<Output = Outcome>) -> Outcome {
    let breaking = async {
        // Pauses without a pattern make connections break in every state.
        let mut state = 12_345_u64;
        loop {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            tokio::time::sleep(Duration::from_micros((state >> 33) & 0x7fff)).await;
            world.break_connections();
        }
    };
    tokio::select! {
        outcome = going_on => outcome,
        () = breaking => Ok(()),
    }
}

fn check(is_so: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    if is_so {
        Ok(())
    } else {
        Err(Failure::new(otherwise()))
    }
}

fn inform(receiver: &str, content: impl ToString) -> Result<AclMessage, Failure> {
    Ok(AclMessage::new(Performative::Inform)
        .with_receiver(Aid::new(receiver)?)
        .with_content(content.to_string()))
}

/// The next message of a mailbox.
async fn next(mailbox: &mut Mailbox) -> Result<ReceivedMessage, Failure> {
    soon("a message", mailbox.recv())
        .await?
        .ok_or_else(|| Failure::new("the mailbox was closed"))
}

/// The number at the beginning of a message's content, unless the message is a failure notice.
fn number(message: &ReceivedMessage) -> Result<u64, Failure> {
    let message = message.message();
    let content = message.content_text().unwrap_or_default();
    if message.performative() == Performative::Failure {
        return Err(Failure::new(format!("a message came back: {content}")));
    }
    content
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| Failure::new(format!("a message with the content {content:?}")))
}

/// A content that begins with a number. The content is mostly short, and sometimes long.
fn content(number: u64) -> String {
    let filler = match number % 500 {
        250 => 200_000,
        400 => 1_100_000,
        _ => number as usize % 300,
    };
    format!("{number} {}", "x".repeat(filler))
}

/// The whole name of an agent on the platform of `world`.
fn name(world: &dyn World, local: &str) -> String {
    format!("{local}@{}", world.bus(0).config().platform)
}

/// Makes a test of each [`Promise`] for the [`Setting`] that the expression gives.
#[macro_export]
macro_rules! conformance_tests {
    ($setting:expr) => {
        $crate::conformance_tests! { $setting;
            order Order, receivers Receivers, resume Resume, push_back PushBack,
            push_back_alone PushBackAlone, crash Crash, moving Moving, comes_back ComesBack,
            forged_sender ForgedSender, revoked_sender RevokedSender, size_limit SizeLimit,
            frames Frames, frames_push_back FramesPushBack, frames_resume FramesResume,
            events Events, events_resume EventsResume, directed Directed, request Request,
            valid_from ValidFrom, expiry Expiry, filter Filter,
            slow_subscription SlowSubscription, events_push_back EventsPushBack,
            rights Rights, refused_by_name RefusedByName
        }
    };
    ($setting:expr; $($name:ident $promise:ident),*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let setting = $setting;
                let promise = $crate::Promise::$promise;
                match $crate::run(&setting, promise).await {
                    Ok(verdict) => {
                        let columns = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/transports");
                        let column = $crate::Column::of(&setting);
                        if let Err(stale) = column.check(columns.as_ref(), promise, &verdict) {
                            panic!("{stale}");
                        }
                    }
                    Err(failure) => panic!("{failure}"),
                }
            }
        )*

        #[test]
        fn every_promise_has_its_test() {
            let tested = [$($crate::Promise::$promise),*];
            assert_eq!(tested, $crate::Promise::ALL);
        }
    };
}
