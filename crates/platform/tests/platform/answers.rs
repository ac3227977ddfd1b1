//! Answers on the control plane that cannot be given as asked: those that are too large, and those of a Master that leads no
//! longer.

use std::sync::Arc;

use crate::control_plane::Only;
use crate::support::{HERE, LONG, config, joined, platform, platform_of};
use crate::{first, hear};
use sealbus_bus::{Bus, BusConfig, Mailbox, Outbox};
use sealbus_control::FaultCode;
use sealbus_control::admin::{SendMessage, ask};
use sealbus_control::ask::Ask;
use sealbus_control::correspondence::Correspondent;
use sealbus_fipa::{AclMessage, Performative};
use sealbus_manifest::Manifest;
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
        let limit = format!("at most {LARGEST} bytes");
        assert!(fault.to_string().contains(&limit), "{fault}");
    }
}

/// The order to start a program holds its arguments, however short the agents' messages must be.
#[tokio::test]
async fn the_control_plane_carries_more_than_agents_may_say() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), SecurityLevel::Auth);
    config.settings.max_message = 64 << 10;
    let (_master, operator, _one, _two) = platform_of(config, folder.path()).await;
    let argument = "x".repeat(100_000);
    let text = format!(
        r#"
        [platform]
        name = "factory"
        max-message = "64 KiB"
        [[agent]]
        name = "once"
        command = ["sh", "-c", "echo hello", "{argument}"]
    "#
    );
    let manifest = Manifest::parse("platform.toml", &text, folder.path()).unwrap();
    operator.ask(first(manifest)).await.unwrap();
    operator
        .until("it has had its course", |agents| {
            agents.len() == 1 && agents[0].state.is_none()
        })
        .await;
    let from = sealbus_control::node::LogPosition::LastLines { lines: 50 };
    let agent = "once".to_owned();
    let log = operator.ask(ask::Log { agent, from }).await.unwrap();
    assert!(log.text.contains("hello"), "{}", log.text);
    // An agent may not say as much.
    let (_first, mut alice) = joined(&operator, "alice", "node-1").await;
    let (_second, bob) = joined(&operator, "bob", "node-2").await;
    let message = AclMessage::new(Performative::Inform)
        .with_receiver(bob.aid().clone())
        .with_content(argument);
    if alice.send(message).await.is_ok() {
        let told = hear(&mut alice).await;
        assert!(told.contains("65536"), "{told}");
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
