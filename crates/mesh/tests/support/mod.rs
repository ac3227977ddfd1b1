//! A platform in miniature: a certification authority, and processes with a bus and a mesh endpoint each, on loopback.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod proxy;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sealbus_bus::{
    BoxFuture, Bus, BusConfig, Location, Mailbox, Outbox, ProcessEndpoint, ResolveError, Resolver,
};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_mesh::{MeshConfig, MeshEndpoint, MeshSecurity, ProcessSecurity};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CLOCK_SKEW, CertificateChain, Credential, Identity, IssuingAuthority, KeyPair, PlatformName,
    ProcessId, RootAuthority, SecurityLevel, SigningRequest, Timestamp, Trust, Validity,
};
use sealbus_transparency::{Inclusion, MerkleLog};

pub const DAY: Duration = Duration::from_secs(86_400);

pub fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// A certification authority with the extras that tests need.
pub struct Authority {
    pub platform: PlatformName,
    pub root: RootAuthority,
    pub issuing: IssuingAuthority,
}

impl Authority {
    pub fn new(platform: &str) -> Self {
        let platform = PlatformName::new(platform).unwrap();
        let root = RootAuthority::create(&platform, Validity::starting(now(), DAY)).unwrap();
        let issuing = root
            .create_authority("ca-1", Validity::starting(now(), DAY))
            .unwrap();
        Self {
            platform,
            root,
            issuing,
        }
    }

    pub fn trust(&self) -> Arc<Trust> {
        let roots = [self.root.certificate().clone()];
        Arc::new(Trust::new(self.platform.clone(), &roots, CLOCK_SKEW).unwrap())
    }

    pub fn certify(&self, identity: Identity) -> Arc<Credential> {
        self.certify_for(identity, DAY)
    }

    pub fn certify_for(&self, identity: Identity, lifetime: Duration) -> Arc<Credential> {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let grant = Grant::by_operator(identity, [127, 0, 0, 1].into());
        let validity = Validity::starting(now(), lifetime);
        Arc::new(Credential::new(key, self.issue(&grant, &request, validity)).unwrap())
    }

    /// Certifies as a CA with a slow clock would.
    pub fn certify_until(&self, identity: Identity, not_after: Timestamp) -> Arc<Credential> {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let grant = Grant::by_operator(identity, [127, 0, 0, 1].into());
        let validity = Validity::starting(
            not_after.minus(Duration::from_secs(10)),
            Duration::from_secs(10),
        );
        Arc::new(Credential::new(key, self.issue(&grant, &request, validity)).unwrap())
    }

    /// Certifies an agent as an attacker does that holds the CA's key: no log has the certificate. It comes with this proof.
    pub fn secretly(&self, name: &str, proof: Option<&[u8]>) -> Arc<Credential> {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let identity = Identity::from_agent_name(name).unwrap();
        let grant = Grant::by_operator(identity, [127, 0, 0, 1].into());
        let validity = Validity::starting(now(), DAY);
        let chain = self
            .issuing
            .issue(&grant, &request, validity)
            .unwrap()
            .chain;
        let chain = match proof {
            Some(proof) => chain.with_inclusion(proof.to_vec()).unwrap(),
            None => chain,
        };
        Arc::new(Credential::new(key, chain).unwrap())
    }

    /// Issues a certificate and enters it into a log of its own.
    fn issue(
        &self,
        grant: &Grant,
        request: &SigningRequest,
        validity: Validity,
    ) -> CertificateChain {
        let issued = self.issuing.issue(grant, request, validity).unwrap();
        let log = MerkleLog::new();
        let (chain, _) = Inclusion::attach(issued, None, &log, &self.issuing, now()).unwrap();
        chain
    }

    pub fn agent(&self, name: &str) -> Arc<Credential> {
        self.certify(Identity::from_agent_name(name).unwrap())
    }
}

/// The places of agents, as a table.
#[derive(Default)]
pub struct Directory {
    places: Mutex<HashMap<String, Location>>,
}

impl Directory {
    pub fn put(&self, agent: &str, location: Location) {
        self.places.lock().insert(agent.to_owned(), location);
    }
}

impl Resolver for Directory {
    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        Box::pin(async move {
            Ok(self
                .places
                .lock()
                .get(agent)
                .cloned()
                .unwrap_or(Location::Unknown))
        })
    }
}

/// Several processes of one platform, all in this process.
pub struct Platform {
    pub authority: Authority,
    pub level: SecurityLevel,
    pub directory: Arc<Directory>,
    /// The authority that the platform's processes trust, if not their own.
    pub trusted: Option<Arc<Trust>>,
}

/// One process.
pub struct Process {
    pub bus: Bus,
    pub endpoint: MeshEndpoint,
    pub identity: Identity,
    pub trust: Arc<Trust>,
}

impl Platform {
    pub fn new(level: SecurityLevel) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        Self {
            authority: Authority::new("factory"),
            level,
            directory: Arc::default(),
            trusted: None,
        }
    }

    pub async fn process(&self, node: &str) -> Process {
        self.process_with(node, |_| {}).await
    }

    pub async fn process_with(&self, node: &str, tune: impl FnOnce(&mut MeshConfig)) -> Process {
        let identity =
            Identity::process(&self.authority.platform, node, ProcessId::random().unwrap())
                .unwrap();
        self.process_as(identity, tune).await
    }

    pub async fn process_as(
        &self,
        identity: Identity,
        tune: impl FnOnce(&mut MeshConfig),
    ) -> Process {
        let trust = self
            .trusted
            .clone()
            .unwrap_or_else(|| self.authority.trust());
        let security = || ProcessSecurity {
            credential: self.authority.certify(identity.clone()),
            trust: trust.clone(),
        };
        let security = match self.level {
            SecurityLevel::None => MeshSecurity::None,
            SecurityLevel::Tls => MeshSecurity::Tls(security()),
            SecurityLevel::Signed => MeshSecurity::Signed(security()),
            _ => MeshSecurity::Auth(security()),
        };
        let mut config = BusConfig::new(self.authority.platform.clone());
        // A busy machine must not cause a process to be given up.
        config.hold_time = Duration::from_secs(120);
        let bus = Bus::new(config, tokio::runtime::Handle::current());
        let mut config = MeshConfig::new(
            identity.clone(),
            SocketAddr::from(([127, 0, 0, 1], 0)),
            security,
        );
        tune(&mut config);
        let endpoint = MeshEndpoint::bind(config, &bus).await.unwrap();
        bus.set_resolver(self.directory.clone());
        Process {
            bus,
            endpoint,
            identity,
            trust,
        }
    }

    /// Attaches an agent to a process, and enters its place in the directory.
    pub fn agent(&self, process: &Process, name: &str) -> (Outbox, Mailbox) {
        self.agent_behind(process, name, process.endpoint.local_address())
    }

    /// As [`agent`](Self::agent), but the directory has another address, such as that of a proxy.
    pub fn agent_behind(
        &self,
        process: &Process,
        name: &str,
        address: SocketAddr,
    ) -> (Outbox, Mailbox) {
        let credential = self
            .level
            .authenticates()
            .then(|| self.authority.agent(name));
        let agent = process.bus.attach(name, credential, None).unwrap();
        let endpoint = ProcessEndpoint {
            identity: process.identity.clone(),
            address,
        };
        self.directory.put(name, Location::Process(endpoint));
        agent
    }
}

pub fn inform(receiver: &str, content: impl ToString) -> AclMessage {
    AclMessage::new(Performative::Inform)
        .with_receiver(Aid::new(receiver).unwrap())
        .with_content(content.to_string())
}

/// Fails the test if the future takes unreasonably long, so that it does not hang for ever.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(180), future)
        .await
        .expect("nothing happened for a minute")
}

pub fn denial(at: Timestamp) -> sealbus_seal::denylist::Denial {
    sealbus_seal::denylist::Denial {
        at,
        reason: sealbus_seal::denylist::Reason::ByOperator,
    }
}

/// The hello of a process that speaks the protocol itself.
pub fn hello_of(process: &str) -> sealbus_mesh::frame::Hello<'_> {
    sealbus_mesh::frame::Hello {
        version: sealbus_mesh::frame::PROTOCOL_VERSION,
        level: 0,
        resumed: false,
        incarnation: [1; 16],
        session: [0; 16],
        given_up: [0; 16],
        received: 0,
        connection: 1,
        largest_message: 16 << 20,
        process,
        address: "127.0.0.1:1",
    }
}
