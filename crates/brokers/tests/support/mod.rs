//! The shared parts of the brokers' tests: a certifying authority, agents, and platforms in miniature.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

#[cfg(feature = "rabbitmq")]
mod cluster;
pub mod memory;
#[cfg(feature = "rabbitmq")]
pub mod platform;
pub mod processes;
#[cfg(feature = "rabbitmq")]
pub mod way;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealbus_brokers::BrokerEndpoint;
use sealbus_bus::{
    BoxFuture, Bus, Location, Mailbox, Outbox, ProcessEndpoint, ReceivedMessage, ResolveError,
    Resolver,
};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CLOCK_SKEW, Credential, Identity, IssuingAuthority, KeyPair, PlatformName, ProcessId,
    RootAuthority, SigningRequest, Timestamp, Trust, Validity,
};
use sealbus_transparency::{Inclusion, MerkleLog};

/// Longer than any step takes on a loaded machine. A test waits for it only if it fails.
pub const PATIENCE: Duration = Duration::from_secs(300);
pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub const DAY: Duration = Duration::from_secs(86_400);

/// Certifies the agents and the processes of the platform `factory`.
pub struct Authority {
    pub name: PlatformName,
    pub root: RootAuthority,
    pub issuing: IssuingAuthority,
}

impl Authority {
    pub fn new() -> Self {
        let name = PlatformName::new("factory").unwrap();
        let now = Timestamp::from(SystemTime::now());
        let root = RootAuthority::create(&name, Validity::starting(now, DAY)).unwrap();
        let issuing = root
            .create_authority("ca-1", Validity::starting(now, DAY))
            .unwrap();
        Self {
            name,
            root,
            issuing,
        }
    }

    pub fn trust(&self) -> Arc<Trust> {
        let roots = [self.root.certificate().clone()];
        Arc::new(Trust::new(self.name.clone(), &roots, CLOCK_SKEW).unwrap())
    }

    pub fn certify(&self, identity: Identity) -> Arc<Credential> {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let grant = Grant::by_operator(identity, LOOPBACK);
        let now = Timestamp::from(SystemTime::now());
        let issued = self
            .issuing
            .issue(&grant, &request, Validity::starting(now, DAY))
            .unwrap();
        let log = MerkleLog::new();
        let (chain, _) = Inclusion::attach(issued, None, &log, &self.issuing, now).unwrap();
        Arc::new(Credential::new(key, chain).unwrap())
    }

    /// A process of the platform, with a number of its own.
    pub fn process(&self, node: &str) -> Identity {
        Identity::process(&self.name, node, ProcessId::random().unwrap()).unwrap()
    }
}

/// Every agent is in another process.
pub struct Elsewhere(pub PlatformName);

impl Resolver for Elsewhere {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        Box::pin(async {
            let identity = Identity::process(&self.0, "node-1", ProcessId::random().unwrap());
            Ok(Location::Process(ProcessEndpoint {
                identity: identity.unwrap(),
                address: SocketAddr::new(LOOPBACK, 1),
            }))
        })
    }
}

/// An agent in a process of its own.
pub struct Agent {
    pub bus: Bus,
    pub endpoint: BrokerEndpoint,
    pub outbox: Outbox,
    pub mailbox: Mailbox,
    pub credential: Arc<Credential>,
}

impl Agent {
    pub async fn send(&self, to: &str, content: &str) {
        self.outbox.send(message(to, content)).await.unwrap();
    }

    pub async fn receive(&mut self) -> ReceivedMessage {
        receive(&mut self.mailbox).await
    }

    pub async fn receive_text(&mut self) -> String {
        text(self.receive().await)
    }
}

pub async fn receive(mailbox: &mut Mailbox) -> ReceivedMessage {
    tokio::time::timeout(PATIENCE, mailbox.recv())
        .await
        .expect("no message came")
        .expect("the mailbox was closed")
}

pub fn text(received: ReceivedMessage) -> String {
    let message = received.into_message();
    message.content_text().unwrap_or_default().to_owned()
}

/// Waits until `look` finds what it looks for.
pub async fn wait_for(what: &str, mut look: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + 2 * PATIENCE;
    while !look().await {
        assert!(
            std::time::Instant::now() < deadline,
            "waited in vain for {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn message(to: &str, content: &str) -> AclMessage {
    let mut message = AclMessage::new(Performative::Inform);
    message.receivers.push(Aid::new(to).unwrap());
    message.content = Some(content.into());
    message
}
