//! Tests of what the link of a process remembers of other processes and their agents.

use std::sync::atomic::AtomicUsize;
use std::time::SystemTime;

use sealbus_bus::{Acknowledgement, BoxFuture, Bus, BusConfig};
use sealbus_seal::{PlatformName, ProcessId};
use tokio::runtime::Handle;

use super::*;
use crate::client::{BrokerFailure, Client, Receiving, Sending};
use crate::config::{BrokerConfig, BrokerSecurity, Login};
use crate::proofs::tests::certified;

const DAY: Duration = Duration::from_secs(86_400);

/// There is no broker.
struct Nowhere;

impl Client for Nowhere {
    fn name(&self) -> &'static str {
        "nowhere"
    }

    fn acknowledgement(&self) -> Option<Acknowledgement> {
        None
    }

    fn identity_of(&self, _: &str) -> Option<Identity> {
        None
    }

    fn open_sending<'a>(
        &'a self,
        _: &'a str,
        _: &'a Owner,
    ) -> BoxFuture<'a, Result<Box<dyn Sending>, BrokerFailure>> {
        Box::pin(std::future::pending())
    }

    fn open_receiving<'a>(
        &'a self,
        _: &'a str,
        _: &'a Owner,
        _: u16,
    ) -> BoxFuture<'a, Result<Box<dyn Receiving>, BrokerFailure>> {
        Box::pin(std::future::pending())
    }
}

fn process(platform: &PlatformName, number: usize) -> Identity {
    let number = ProcessId::from_bytes((number as u128).to_be_bytes());
    Identity::process(platform, "node-1", number).unwrap()
}

/// The link of the process 0.
fn link(platform: &PlatformName) -> Arc<ProcessLink> {
    let bus = Bus::new(BusConfig::new(platform.clone()), Handle::current());
    let security = BrokerSecurity::None(Login {
        user: "agents".to_owned(),
        password: "shared by all".to_owned(),
    });
    let broker = Broker {
        config: BrokerConfig::new(platform.clone(), Vec::new(), security),
        client: Arc::new(Nowhere),
        bus: bus.downgrade(),
        next_address: AtomicUsize::new(0),
        runtime: Handle::current(),
    };
    ProcessLink::new(process(platform, 0), None, Arc::new(broker), 1).unwrap()
}

#[tokio::test]
async fn processes_that_a_sender_claims_to_be_fill_no_memory() {
    let platform = PlatformName::new("factory").unwrap();
    let link = link(&platform);
    let used = link.way(&process(&platform, 1)).unwrap();
    for number in 2..3 * PROCESSES {
        assert!(link.way(&process(&platform, number)).is_some());
    }
    assert!(link.ways.lock().len() <= PROCESSES);
    assert!(link.receivers.lock().len() <= PROCESSES);
    let again = link.way(&process(&platform, 1)).unwrap();
    assert!(Arc::ptr_eq(&used, &again));
}

#[tokio::test]
async fn agents_of_a_process_are_forgotten_when_their_certificates_have_ended() {
    let platform = PlatformName::new("factory").unwrap();
    let link = link(&platform);
    let (credential, trust) = certified(&platform, "a@factory");
    let now = Timestamp::from(SystemTime::now());
    let verified = trust.verify(credential.chain(), now).unwrap();
    let process = Arc::new(process(&platform, 1));
    let prove = |number: usize, now: Timestamp| {
        let author = format!("agent-{number}@factory").into();
        link.proved(&process, &author, verified.clone(), &trust, now);
    };
    let known = || link.authors.lock()[&process].by_name.len();
    for number in 0..3 * AGENTS {
        prove(number, now);
    }
    assert_eq!(known(), 3 * AGENTS);
    assert!(link.proof_of(&process, "agent-0@factory").is_some());
    let later = now.plus(2 * DAY);
    for number in 3 * AGENTS..6 * AGENTS {
        prove(number, later);
        assert!(known() <= 4 * AGENTS);
    }
    assert!(known() <= AGENTS);
    assert!(link.proof_of(&process, "agent-0@factory").is_none());
}
