//! Nodes obey orders from proved senders alone, and the Master believes reports from proved nodes alone, at every
//! level. Strangers and agents try both at the levels where agents' messages prove nobody.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::support::{HERE, LONG, Operator, config, platform, platform_of};
use sealbus_bus::{
    BoxFuture, Bus, BusConfig, Location, Mailbox, Outbox, ProcessEndpoint, ResolveError, Resolver,
};
use sealbus_control::admin::{self, NodeState};
use sealbus_control::attachment::ask;
use sealbus_control::host::Host as _;
use sealbus_control::node::{Launch, MasterContact, MasterRequest, NodeRequest, ONTOLOGY};
use sealbus_control::{AgentLocation, Blob, ProcessContact};
use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_master::Authorities;
use sealbus_mesh::{MeshConfig, MeshEndpoint, MeshSecurity, ProcessSecurity};
use sealbus_process::Process;
use sealbus_process::attachment::Attachment;
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CLOCK_SKEW, Credential, Identity, IssuingAuthority, KeyPair, PlatformName, ProcessId,
    RootAuthority, SecurityLevel, SigningRequest, Timestamp, Trust, Validity,
};
use serde::Serialize;

/// Resolves every name to one process.
pub(crate) struct Only(pub(crate) ProcessEndpoint);

impl Resolver for Only {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>> {
        Box::pin(async move { Ok(Location::Process(self.0.clone())) })
    }
}

fn today() -> Validity {
    let day = Duration::from_secs(86_400);
    Validity::starting(Timestamp::from(SystemTime::now()), day)
}

/// An authority that only the stranger's own platform believes.
fn home_made() -> IssuingAuthority {
    let name = PlatformName::new("factory").unwrap();
    let root = RootAuthority::create(&name, today()).unwrap();
    root.create_authority("ca-1", today()).unwrap()
}

fn certified(authority: &IssuingAuthority, identity: Identity) -> Credential {
    let key = KeyPair::generate().unwrap();
    let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
    let grant = Grant::by_operator(identity, HERE);
    let issued = authority.issue(&grant, &request, today()).unwrap();
    Credential::new(key, issued.chain).unwrap()
}

/// A stranger's endpoint: the process `claimed`, with one agent. All its messages go to `target`.
struct Stranger {
    endpoint: MeshEndpoint,
    outbox: Outbox,
    _mailbox: Mailbox,
}

impl Stranger {
    async fn new(
        level: SecurityLevel,
        authority: &IssuingAuthority,
        roots: &[Blob],
        claimed: &Identity,
        agent: &str,
        target: &ProcessEndpoint,
    ) -> Self {
        let name = PlatformName::new("factory").unwrap();
        let runtime = tokio::runtime::Handle::current();
        let bus = Bus::new(BusConfig::new(name.clone()), runtime);
        let roots: Vec<_> = roots.iter().map(|root| root.0.as_slice().into()).collect();
        let security = || ProcessSecurity {
            credential: Arc::new(certified(authority, claimed.clone())),
            trust: Arc::new(Trust::new(name.clone(), &roots, CLOCK_SKEW).unwrap()),
        };
        let identity = Identity::from_agent_name(agent).unwrap();
        let (security, credential) = match level {
            SecurityLevel::None => (MeshSecurity::None, None),
            SecurityLevel::Tls => (MeshSecurity::Tls(security()), None),
            _ => (
                MeshSecurity::Auth(security()),
                Some(Arc::new(certified(authority, identity))),
            ),
        };
        let config = MeshConfig::new(claimed.clone(), (HERE, 0).into(), security);
        let endpoint = MeshEndpoint::bind(config, &bus).await.unwrap();
        bus.set_resolver(Arc::new(Only(target.clone())));
        let (outbox, mailbox) = bus.attach(agent, credential, None).unwrap();
        Self {
            endpoint,
            outbox,
            _mailbox: mailbox,
        }
    }
}

fn order(to: &str, request: &impl Serialize) -> AclMessage {
    AclMessage::new(Performative::Request)
        .with_receiver(Aid::new(to).unwrap())
        .with_ontology(ONTOLOGY)
        .with_reply_with("1")
        .with_content(serde_json::to_string(request).unwrap())
}

/// An order to start a program that leaves `trace`.
fn start(trace: &Path) -> NodeRequest {
    let launch = serde_json::json!({
        "process": ProcessId::random().unwrap().to_string(),
        "group": "evil",
        "agents": ["evil"],
        "command": ["/usr/bin/touch", trace],
        "environment": {},
    });
    let launch: Launch = serde_json::from_value(launch).unwrap();
    NodeRequest::Start { launch }
}

/// The endpoint to which the mesh connects for a process.
fn endpoint(contact: &ProcessContact) -> ProcessEndpoint {
    let platform = PlatformName::new("factory").unwrap();
    let process = contact.process.parse().unwrap();
    ProcessEndpoint {
        identity: Identity::process(&platform, &contact.node, process).unwrap(),
        address: contact.address,
    }
}

/// The place of an agent, which every attached process may ask for.
async fn whereabouts(attachment: &Attachment, agent: &str) -> ProcessEndpoint {
    let name = agent.to_owned();
    match attachment.ask(ask::Resolve { agent: name }).await.unwrap() {
        AgentLocation::Process(contact) => endpoint(&contact),
        other => panic!("{agent}: {other:?}"),
    }
}

async fn refused(operator: &Operator) -> u64 {
    operator.ask(admin::ask::Status).await.unwrap().refusals
}

/// Waits until operators see more than `before` refusals, or until `is_obeyed`.
async fn until_refused(operator: &Operator, before: u64, is_obeyed: impl Fn() -> bool) {
    let waiting = async {
        while refused(operator).await <= before && !is_obeyed() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, waiting)
        .await
        .expect("a refusal is shown");
}

#[tokio::test]
async fn nodes_obey_the_proved_master_alone_and_it_hears_proved_nodes_alone() {
    let levels = [SecurityLevel::None, SecurityLevel::Tls, SecurityLevel::Auth];
    for level in levels {
        let folder = tempfile::tempdir().unwrap();
        let (_master, operator, one, _two) = platform(folder.path(), level).await;
        assert_eq!(one.name(), "node-1");
        let ticket = operator.ticket("mallory", Some("node-1")).await;
        let attachment = Attachment::join(&ticket).await.unwrap();
        let node = whereabouts(&attachment, "node-1").await;
        let two = whereabouts(&attachment, "node-2").await;
        let platform = attachment.membership().platform.clone();
        let (roots, master) = (platform.roots, endpoint(&platform.control));
        let process = Process::open(Arc::new(attachment), None).await.unwrap();
        let mallory = process.agent("mallory").await.unwrap();

        let trace = folder.path().join("trace");
        for way in levels {
            // A stranger writes to a node in the Master's name.
            let before = refused(&operator).await;
            let (claimed, own) = (&master.identity, home_made());
            let stranger = Stranger::new(way, &own, &roots, claimed, "master@factory", &node).await;
            let start = order("node-1@factory", &start(&trace));
            stranger.outbox.send(start).await.unwrap();
            until_refused(&operator, before, || trace.exists()).await;
            assert!(!trace.exists(), "at {level} a stranger at {way} is obeyed");
            stranger.endpoint.shut_down(Duration::ZERO).await;

            // A stranger writes to the Master in a node's name.
            let before = refused(&operator).await;
            let claimed = &two.identity;
            let stranger =
                Stranger::new(way, &own, &roots, claimed, "node-2@factory", &master).await;
            let left = order("master@factory", &MasterRequest::Left);
            stranger.outbox.send(left).await.unwrap();
            until_refused(&operator, before, || false).await;
            stranger.endpoint.shut_down(Duration::ZERO).await;
            let nodes = operator.nodes().await;
            let alive = nodes.iter().filter(|it| it.state == NodeState::Alive);
            assert_eq!(alive.count(), 2, "at {level} a stranger at {way} is heard");
        }

        // An agent writes in its own name.
        let before = refused(&operator).await;
        let start = order("node-1@factory", &start(&trace));
        mallory.send(start).await.unwrap();
        if level.authenticates() {
            let mut mallory = mallory;
            let answer = tokio::time::timeout(LONG, mallory.receive()).await.unwrap();
            let answer = answer.unwrap().into_message();
            assert_eq!(answer.performative, Performative::Failure);
        } else {
            until_refused(&operator, before, || trace.exists()).await;
        }
        assert!(!trace.exists(), "at {level} an agent is obeyed");
        process.close().await;
    }
}

/// A Master that lost the role, has its CA's key, and goes on giving orders. It is proved to be a Master as well as the next one is,
/// and no deny list names its process yet: only the terms tell them apart.
#[tokio::test]
async fn a_former_leader_that_goes_on_is_obeyed_in_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), SecurityLevel::Auth);
    // The node soon hears this Master no more, and must not count as lost.
    config.settings.patience.node = LONG;
    let (master, operator, one, _two) = platform_of(config, folder.path()).await;
    assert_eq!(one.name(), "node-1");
    let ticket = operator.ticket("buyer", Some("node-1")).await;
    let attachment = Attachment::join(&ticket).await.unwrap();
    let node = whereabouts(&attachment, "node-1").await;
    let roots = attachment.membership().platform.roots.clone();
    let process = Process::open(Arc::new(attachment), None).await.unwrap();
    let _buyer = process.agent("buyer").await.unwrap();

    let name = PlatformName::new("factory").unwrap();
    let now = Timestamp::from(SystemTime::now());
    let authorities = Authorities::keep(master.directory(), &name, None, now).unwrap();
    let authority = authorities.issuing;
    let claimed = Identity::process(&name, "master", ProcessId::random().unwrap()).unwrap();
    let (way, agent) = (SecurityLevel::Auth, "master@factory");
    let leader = Stranger::new(way, &authority, &roots, &claimed, agent, &node).await;
    let say = async |term: Option<&str>, request: &NodeRequest| {
        let mut order = order("node-1@factory", request);
        if let Some(term) = term {
            order = order.with_user_defined("X-term", term);
        }
        leader.outbox.send(order).await.unwrap();
    };
    let obeyed = async |trace: &Path| {
        let waiting = async {
            while !trace.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(LONG, waiting).await;
        waited.expect("the order of the Master that leads is carried out");
    };
    let next = Some("0.7");
    let first = folder.path().join("first");
    say(next, &start(&first)).await;
    obeyed(&first).await;

    // The Master of this platform never names a term, so it is a former one now.
    let refused = operator.ask(admin::ask::Ticket {
        agent: "seller".to_owned(),
        others: Vec::new(),
        node: Some("node-1".to_owned()),
        lifetime: 600,
    });
    let refused = refused.await.unwrap_err();
    assert!(refused.message.contains("leads in 0.7"), "{refused}");

    let mut denied = DenyList::new(authority.identity().clone());
    denied.raise_version(now.as_unix_seconds() * 2000);
    let denial = Denial {
        at: now,
        reason: Reason::ByOperator,
    };
    let whom = Identity::agent(&name, "buyer").unwrap();
    let later = now.plus(Duration::from_secs(3600));
    denied
        .deny_identity_before(whom, later, later, denial)
        .unwrap();
    let list = Blob(denied.sign(&authority).unwrap().whole());
    let trace = folder.path().join("trace");
    let orders = || {
        [
            start(&trace),
            NodeRequest::DenyList { list: list.clone() },
            NodeRequest::Masters {
                addresses: vec!["10.0.0.9:1".to_owned(), "10.0.0.9:2".to_owned()],
                at: MasterContact {
                    control: elsewhere(),
                    services: elsewhere(),
                },
            },
            NodeRequest::Stop {
                process: process.membership().process.clone(),
                grace: 0,
                reason: "superseded".to_owned(),
            },
            NodeRequest::Leave { grace: 0 },
        ]
    };
    for former in [Some("0.6"), Some("0.0"), Some("nonsense"), None] {
        for request in orders() {
            say(former, &request).await;
        }
        // The node has heard all before when it carries this out.
        let last = folder.path().join(format!("after-{former:?}"));
        say(next, &start(&last)).await;
        obeyed(&last).await;
        assert!(!trace.exists(), "{former:?}");
        // The node's agent was not denied, and not ended either.
        assert!(process.end().is_none(), "{former:?}");
    }
    let kept = std::fs::read_to_string(folder.path().join("one/node.json")).unwrap();
    assert!(!kept.contains("10.0.0.9"), "{kept}");
}

/// A place where nobody is.
fn elsewhere() -> ProcessContact {
    ProcessContact {
        node: "master".to_owned(),
        process: ProcessId::random().unwrap().to_string(),
        address: ([10, 0, 0, 9], 1).into(),
    }
}
