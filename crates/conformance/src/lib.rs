//! One suite for every transport: it tests the promises of the bus with real messages.
//!
//! A transport's tests say how to [open](Setting::open) a platform of several processes over it, and which promises it
//! cannot keep. Each [`TestedPromise`] is a case. Either the transport keeps the promise, or it does not claim the promise
//! and says so when asked. Any other outcome is a failure. The outcomes make a [`Column`] of the table in
//! `docs/transports.md`.
//!
//! ```text
//! sealbus_conformance::conformance_tests!(Mesh::at(SecurityLevel::Auth));
//! ```
//!
//! This macro makes a test of each promise, for a value that implements [`Setting`].
//!
//! Only a whole platform can promise that nodes keep events. The tests of the crate `sealbus-platform` run those cases
//! with [`run_kept`].

mod channels;
mod direct;
mod frames;
mod groups;
mod kept;
mod promise;
pub mod schedule;
mod table;

use std::fmt;
use std::time::Duration;

use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_seal::Identity;

use sealbus_bus::Acknowledgement;
use sealbus_bus::BoxFuture;
use sealbus_bus::Bus;
use sealbus_bus::Outbox;
use sealbus_bus::ReceivedMessage;
use sealbus_bus::{Mailbox, MailboxLimits};

pub use kept::{KeepingSetting, KeepingWorld, run_kept};
pub use promise::TestedPromise;
pub use table::{Column, StaleColumn, table};

/// A limit far above any real duration, so that no case depends on speed. A broker takes half a minute to notice that a
/// process is dead, and as long to give back its messages. On a heavily overloaded machine that was a minute.
const LONG: Duration = Duration::from_secs(600);
/// Processes of a platform that cases run on.
const PROCESSES: usize = 3;

/// A way to run several processes of one platform over a transport.
pub trait Setting: Send + Sync {
    /// The setting's name in the table, such as `mesh, auth`.
    fn name(&self) -> String;

    /// Opens that many processes, which reach each other. Called once for each case.
    fn open(&self, processes: usize) -> BoxFuture<'_, Box<dyn World>>;

    /// Why the transport cannot keep the promise, in a few words for the table; `None`: it keeps the promise.
    fn lacks(&self, promise: TestedPromise) -> Option<&'static str>;
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

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise is kept.
    Kept,
    /// The promise is not given, and the transport does not claim it; the reason in a few words.
    NotGiven(String),
}

/// A failed case: the observed outcome, and the right one.
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
/// [`Failure`]: the promise is broken, or the transport claims a promise that it cannot keep.
pub async fn run(setting: &dyn Setting, promise: TestedPromise) -> Result<Verdict, Failure> {
    let case = async {
        let world = setting.open(PROCESSES).await;
        if let Some(why) = setting.lacks(promise) {
            not_claimed(&*world, promise)?;
            return Ok(Verdict::NotGiven(why.to_owned()));
        }
        match promise {
            TestedPromise::Order => direct::order(&*world).await,
            TestedPromise::Receivers => direct::receivers(&*world).await,
            TestedPromise::Resume => direct::resume(&*world).await,
            TestedPromise::PushBack => direct::push_back(&*world).await,
            TestedPromise::PushBackAlone => direct::push_back_alone(&*world).await,
            TestedPromise::Crash => direct::crash(&*world).await,
            TestedPromise::Unread => direct::unread(&*world).await,
            TestedPromise::Moving => direct::moving(&*world).await,
            TestedPromise::ComesBack => direct::comes_back(&*world).await,
            TestedPromise::ForgedSender => direct::forged_sender(&*world).await,
            TestedPromise::RevokedSender => direct::revoked_sender(&*world).await,
            TestedPromise::SizeLimit => direct::size_limit(&*world).await,
            TestedPromise::Frames => frames::in_order(&*world, false).await,
            TestedPromise::FramesPushBack => frames::push_back(&*world).await,
            TestedPromise::FramesResume => frames::in_order(&*world, true).await,
            TestedPromise::Events => channels::events(&*world, false).await,
            TestedPromise::EventsResume => channels::events(&*world, true).await,
            TestedPromise::Directed => channels::directed(&*world).await,
            TestedPromise::Request => channels::request(&*world).await,
            TestedPromise::ValidFrom => channels::valid_from(&*world).await,
            TestedPromise::Expiry => channels::expiry(&*world).await,
            TestedPromise::Filter => channels::filter(&*world).await,
            TestedPromise::SlowSubscription => channels::slow_subscription(&*world).await,
            TestedPromise::EventsPushBack => channels::push_back(&*world).await,
            TestedPromise::Group => groups::group(&*world).await,
            TestedPromise::GroupCrash => groups::crash(&*world).await,
            TestedPromise::Rights => channels::rights(&*world).await,
            TestedPromise::RefusedByName => channels::refused_by_name(&*world).await,
            TestedPromise::Replay
            | TestedPromise::LastPerKey
            | TestedPromise::Durable
            | TestedPromise::Acknowledged
            | TestedPromise::Retention => Err(Failure::new("logs are tried by `run_kept`")),
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
fn not_claimed(world: &dyn World, promise: TestedPromise) -> Outcome {
    let Some(transport) = world.bus(0).transport() else {
        return Ok(());
    };
    let capabilities = transport.capabilities();
    let is_claimed = match promise {
        TestedPromise::Resume | TestedPromise::FramesResume => capabilities.resumes,
        TestedPromise::EventsResume => capabilities.resumes && !world.bus(0).signs(),
        TestedPromise::PushBack | TestedPromise::PushBackAlone | TestedPromise::FramesPushBack => {
            capabilities.pushes_back
        }
        TestedPromise::Unread => {
            capabilities.acknowledgement > Some(Acknowledgement::ReceiverProcess)
        }
        // The level says so.
        TestedPromise::RevokedSender | TestedPromise::ForgedSender => false,
        // Channels need frames. A transport without frames says so when a channel is asked for. Where agents sign, their
        // AgentBus says that it does not.
        TestedPromise::Frames
        | TestedPromise::Events
        | TestedPromise::Directed
        | TestedPromise::Request
        | TestedPromise::ValidFrom
        | TestedPromise::Expiry
        | TestedPromise::Filter
        | TestedPromise::SlowSubscription
        | TestedPromise::EventsPushBack
        | TestedPromise::Group
        | TestedPromise::GroupCrash
        | TestedPromise::Rights
        | TestedPromise::RefusedByName => frames::are_offered(world) && !world.bus(0).signs(),
        TestedPromise::Order
        | TestedPromise::Receivers
        | TestedPromise::Crash
        | TestedPromise::Moving
        | TestedPromise::ComesBack
        | TestedPromise::SizeLimit
        | TestedPromise::Replay
        | TestedPromise::LastPerKey
        | TestedPromise::Durable
        | TestedPromise::Acknowledged
        | TestedPromise::Retention => {
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

// ---- the common part of the cases ----

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
        // Pauses without a pattern make connections break in every state. They become longer, because on a busy machine
        // no connection may be made within the first ones.
        let mut random = schedule::Random(12_345);
        for longest in 15.. {
            for _ in 0..64 {
                let pause = random.below(1 << longest);
                tokio::time::sleep(Duration::from_micros(pause)).await;
                world.break_connections();
            }
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

/// Makes a test of each [`TestedPromise`] for the [`Setting`] that the expression gives.
#[macro_export]
macro_rules! conformance_tests {
    ($setting:expr) => {
        $crate::conformance_tests! { $setting;
            order Order, receivers Receivers, resume Resume, push_back PushBack,
            push_back_alone PushBackAlone, crash Crash, unread Unread, moving Moving,
            comes_back ComesBack, forged_sender ForgedSender, revoked_sender RevokedSender,
            size_limit SizeLimit, frames Frames, frames_push_back FramesPushBack, frames_resume FramesResume,
            events Events, events_resume EventsResume, directed Directed, request Request,
            valid_from ValidFrom, expiry Expiry, filter Filter,
            slow_subscription SlowSubscription, events_push_back EventsPushBack,
            group Group, group_crash GroupCrash, rights Rights, refused_by_name RefusedByName
        }
    };
    ($setting:expr; $($name:ident $promise:ident),*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let setting = $setting;
                let promise = $crate::TestedPromise::$promise;
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
            let tested = [$($crate::TestedPromise::$promise),*];
            assert_eq!(tested, $crate::TestedPromise::ALL);
        }
    };
}
