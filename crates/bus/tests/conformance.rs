//! The suite that all transports pass, inside one process.

#![allow(clippy::unwrap_used)]

use sealbus_bus::{
    BoxFuture, Bus, BusConfig, Location, Mailbox, MailboxLimits, Outbox, ReceivedMessage,
    ResolveError, Resolver,
};
use sealbus_conformance::{Setting, TestedPromise, World, table};
use sealbus_seal::{Identity, PlatformName, ProcessId};
use std::path::Path;
use std::sync::Arc;

/// All agents in one process. The bus hands over the message itself, and nothing carries it.
struct InProcess;

struct OneProcess {
    bus: Bus,
    identity: Identity,
}

struct Nowhere;

impl Resolver for Nowhere {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        Box::pin(std::future::ready(Ok(Location::Unknown)))
    }
}

impl Setting for InProcess {
    fn name(&self) -> String {
        "in-process".to_owned()
    }

    fn open(&self, _: usize) -> BoxFuture<'_, Box<dyn World>> {
        Box::pin(async {
            let platform = PlatformName::new("factory").unwrap();
            let id = ProcessId::random().unwrap();
            let identity = Identity::process(&platform, "node-1", id).unwrap();
            let bus = Bus::new(BusConfig::new(platform), tokio::runtime::Handle::current());
            bus.set_resolver(Arc::new(Nowhere));
            let world: Box<dyn World> = Box::new(OneProcess { bus, identity });
            world
        })
    }

    fn lacks(&self, promise: TestedPromise) -> Option<&'static str> {
        match promise {
            TestedPromise::Resume | TestedPromise::FramesResume | TestedPromise::EventsResume => {
                Some("there are no connections to break")
            }
            TestedPromise::Crash
            | TestedPromise::Unread
            | TestedPromise::GroupCrash
            | TestedPromise::Frames
            | TestedPromise::FramesPushBack => Some("there is no other process"),
            TestedPromise::ForgedSender => Some("the sender's own bus fills in its name"),
            TestedPromise::RevokedSender => Some("the process itself takes the agent off the bus"),
            _ => None,
        }
    }
}

impl World for OneProcess {
    fn bus(&self, _: usize) -> &Bus {
        &self.bus
    }

    fn identity(&self, _: usize) -> Identity {
        self.identity.clone()
    }

    fn attach<'a>(
        &'a self,
        _: usize,
        name: &'a str,
        limits: Option<MailboxLimits>,
    ) -> BoxFuture<'a, (Outbox, Mailbox)> {
        Box::pin(async move { self.bus.attach(name, None, limits).unwrap() })
    }

    fn move_to<'a>(
        &'a self,
        _: usize,
        _: usize,
        name: &'a str,
        unread: Vec<ReceivedMessage>,
    ) -> BoxFuture<'a, (Outbox, Mailbox)> {
        Box::pin(async move {
            self.bus.detach(name);
            self.bus.attach_moved(name, None, None, unread).unwrap()
        })
    }

    fn break_connections(&self) {}

    fn kill(&self, _: usize) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn revoke<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

sealbus_conformance::conformance_tests!(InProcess);

/// `docs/transports.md` holds the table of all columns; `SEALBUS_WRITE_TRANSPORTS=1` writes it there.
#[test]
fn the_table_in_the_documentation_is_current() {
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    let page = docs.join("transports.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- table -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of table -->").unwrap();
    let table = table(&docs.join("transports")).unwrap();
    let current = format!("{before}<!-- table -->\n{table}<!-- end of table -->{after}");
    if std::env::var_os("SEALBUS_WRITE_TRANSPORTS").is_some() {
        std::fs::write(&page, current).unwrap();
    } else {
        assert!(
            text == current,
            "docs/transports.md does not hold the table of docs/transports/: run this test with SEALBUS_WRITE_TRANSPORTS=1"
        );
    }
}
