//! Answers on the control plane that cannot be given as asked: those that are too large, and those of a Master that leads no
//! longer.

use std::sync::Arc;

use crate::control_plane::Only;
use crate::support::{HERE, LONG, joined, platform};
use sealbus_bus::{Bus, BusConfig, Mailbox, Outbox};
use sealbus_control::FaultCode;
use sealbus_control::admin::{SendMessage, ask};
use sealbus_control::ask::Ask;
use sealbus_control::correspondence::Correspondent;
use sealbus_mesh::{MeshConfig, MeshEndpoint, MeshSecurity};
use sealbus_seal::{Identity, PlatformName, ProcessId, SecurityLevel};

const LARGEST: usize = 100_000;

/// Asks for a text of that length.
struct Long(usize);

impl From<Long> for String {
    fn from(long: Long) -> Self {
        // The request is as long as the answer.
        "?".repeat(long.0)
    }
}

impl Ask for Long {
    type Requests = String;
    type Answers = String;
    type Answer = String;
}

/// An agent in a process of its own.
async fn alone(agent: &str) -> (Bus, MeshEndpoint, Outbox, Mailbox) {
    let name = PlatformName::new("factory").unwrap();
    let identity = Identity::process(&name, "node-1", ProcessId::random().unwrap()).unwrap();
    let bus = Bus::new(BusConfig::new(name), tokio::runtime::Handle::current());
    let mut config = MeshConfig::new(identity, (HERE, 0).into(), MeshSecurity::None);
    config.largest_message = LARGEST;
    let endpoint = MeshEndpoint::bind(config, &bus).await.unwrap();
    let (outbox, mailbox) = bus.attach(agent, None, None).unwrap();
    (bus, endpoint, outbox, mailbox)
}

#[tokio::test]
async fn what_is_too_large_for_a_message_is_a_fault_that_the_asker_reads() {
    let (asking, asker_at, asker, mut replies) = alone("asker@factory").await;
    let (telling, teller_at, teller, mut requests) = alone("teller@factory").await;
    asking.set_resolver(Arc::new(Only(teller_at.process())));
    telling.set_resolver(Arc::new(Only(asker_at.process())));
    let asker = Correspondent::new(Arc::new(asker));
    let teller = Correspondent::new(Arc::new(teller));
    let factor = 10;
    tokio::spawn(async move {
        while let Some(received) = requests.recv().await {
            if let Some(enquiry) = teller.receive(received) {
                let (_, request, reply) = enquiry.open::<String>();
                reply
                    .send(request.map(|text| "x".repeat(text.len() * factor)))
                    .await;
            }
        }
    });
    let hearing = asker.clone();
    tokio::spawn(async move {
        while let Some(received) = replies.recv().await {
            hearing.receive(received);
        }
    });
    for length in [10, LARGEST / 20, LARGEST / 10 - 200] {
        let told = asker.ask("teller", Long(length), LONG).await.unwrap();
        assert_eq!(told.len(), length * factor);
    }
    // The answers that are too large, and then the request itself.
    for length in [LARGEST / 10, LARGEST / 2, LARGEST] {
        let fault = asker.ask("teller", Long(length), LONG).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::TooLarge, "{length}: {fault}");
        assert!(fault.to_string().contains("max-message"), "{fault}");
    }
}

#[tokio::test]
async fn operators_read_that_their_master_leads_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let (master, operator, _one, _two) = platform(folder.path(), SecurityLevel::Auth).await;
    // The agent never answers.
    let (_process, mut mute) = joined(&operator, "mute", "node-1").await;
    let receivers = vec![mute.aid().name.to_string()];
    let message = SendMessage {
        performative: "request".to_owned(),
        receivers,
        content: "anybody there?".to_owned(),
        language: None,
        ontology: None,
        protocol: None,
        wait: LONG.as_millis() as u64,
    };
    let waiting = operator.ask(ask::Send { message });
    let leaving = async {
        mute.receive().await.unwrap();
        master.abandon().await;
    };
    let (answered, ()) = tokio::join!(waiting, leaving);
    let fault = answered.unwrap_err();
    assert_eq!(fault.code, FaultCode::Unavailable);
    let said = fault.to_string();
    assert!(said.contains("leads no longer"), "{said}");
    assert!(said.contains("ask again only if it was not done"), "{said}");
}
