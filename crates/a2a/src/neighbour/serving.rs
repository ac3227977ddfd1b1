//! The process of the neighbours: an agent stands for each, and one tells operators of them all.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealbus::acl::AclMessageRef;
use sealbus::acl::sl::Term;
use sealbus::directory::ServiceDescription;
use sealbus::tool::Tool;
use sealbus::{
    Agent, AgentResult, Context, Filter, NamedAgents, Performative, Platform, RunError, Voice,
    agent,
};
use sealbus_callers::tell;
use sealbus_control::neighbours::{
    NeighbourStatus, NeighboursAnswer, NeighboursRequest, NeighboursStatus,
};
use sealbus_manifest::NEIGHBOURS_AGENT;
use sealbus_manifest::neighbours::NeighbourEntry;
use tokio::task::JoinSet;

use super::card::{Card, Skill};
use super::remote::{Remote, SetupError};
use super::{tunnel, work};
use crate::catalogue::PROTOCOL;

/// Pause before a card is read again.
const REFRESH: Duration = Duration::from_secs(300);
/// The pause after a card that could not be read, at first and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Conversations with a neighbour at a time. Further ones wait in its mailbox.
const CONCURRENCY: usize = 100;
/// Bytes of an entry in the DF.
const ROOM: usize = 48_000;

/// Why neighbours are not reached.
#[derive(Debug, thiserror::Error)]
pub enum NeighbourError {
    /// A neighbour cannot be asked at all.
    #[error("the neighbour {name} cannot be asked: {source}")]
    Setup {
        /// The neighbour.
        name: String,
        /// The cause.
        source: SetupError,
    },
    /// The agents did not run.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Lets an agent stand for each neighbour until the program is told to stop. The platform must have placed the agents with
/// their names and the agent `neighbours` in this process, or be an embedded one.
///
/// # Errors
/// If a neighbour cannot be asked at all, or the agents do not run.
pub async fn serve(
    platform: &Platform,
    neighbours: BTreeMap<String, NeighbourEntry>,
) -> Result<(), NeighbourError> {
    let mut agents: Vec<NamedAgents> = Vec::new();
    let mut all = Vec::new();
    for (name, entry) in neighbours {
        let remote = Remote::new(&entry).map_err(|source| NeighbourError::Setup {
            name: name.clone(),
            source,
        })?;
        let neighbour = Arc::new(Neighbour {
            name: name.clone(),
            url: entry.url,
            remote: Arc::new(remote),
            counts: Counts::default(),
        });
        all.push(neighbour.clone());
        let looking = JoinSet::new();
        agents.push(agent(&name, StandIn { neighbour, looking }).unless_revoked());
    }
    agents.push(agent(NEIGHBOURS_AGENT, Teller(all)));
    Ok(platform.run(agents).await?)
}

struct Neighbour {
    name: String,
    url: String,
    remote: Arc<Remote>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    open: AtomicU64,
    failed: AtomicU64,
}

/// A conversation that is counted until it ends.
struct Counted<'a>(&'a Counts);

impl<'a> Counted<'a> {
    fn new(counts: &'a Counts) -> Self {
        counts.asked.fetch_add(1, Ordering::Relaxed);
        counts.open.fetch_add(1, Ordering::Relaxed);
        Self(counts)
    }

    fn ended<T>(&self, outcome: AgentResult<T>) -> AgentResult<T> {
        if outcome.is_err() {
            self.0.failed.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The agent that stands for a neighbour.
struct StandIn {
    neighbour: Arc<Neighbour>,
    /// Ends with this value.
    looking: JoinSet<()>,
}

impl Agent for StandIn {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let (neighbour, voice) = (self.neighbour.clone(), context.voice());
        let relay = Tool::relay("a2a", move |request, parts| {
            let (neighbour, voice) = (neighbour.clone(), voice.clone());
            async move {
                let counted = Counted::new(&neighbour.counts);
                let remote = neighbour.remote.clone();
                counted.ended(work::serve(remote, voice, request, parts).await)
            }
        });
        let neighbour = self.neighbour.clone();
        let speaks_acl = move |_: &AclMessageRef<'_>| {
            let known = neighbour.remote.known();
            known.is_ok_and(|known| known.card.speaks_acl)
        };
        let speaks_acl = Filter::matching(speaks_acl);
        context.offer(relay.concurrency(CONCURRENCY).when(!speaks_acl.clone()));
        let conversations = context.handle().conversations();
        let neighbour = self.neighbour.clone();
        context.on(speaks_acl, CONCURRENCY, move |voice, opening| {
            let (neighbour, conversations) = (neighbour.clone(), conversations.clone());
            async move {
                let counted = Counted::new(&neighbour.counts);
                let remote = neighbour.remote.clone();
                counted.ended(tunnel::talk(remote, voice, conversations, opening).await)
            }
        });
        let neighbour = self.neighbour.clone();
        context.on(Performative::Cfp, CONCURRENCY, move |voice, call| {
            let neighbour = neighbour.clone();
            async move {
                let counted = Counted::new(&neighbour.counts);
                counted.ended(work::bid(neighbour.remote.clone(), voice, call).await)
            }
        });
        let looking = look(self.neighbour.clone(), context.voice());
        self.looking.spawn(looking);
        Ok(())
    }

    async fn teardown(&mut self, context: &mut Context) -> AgentResult {
        self.looking.abort_all();
        Ok(context.df().deregister().await?)
    }
}

/// Reads a neighbour's card again and again, and tells the DF of its skills.
async fn look(neighbour: Arc<Neighbour>, voice: Voice) {
    let (mut told, mut pause, mut trouble) = (None, PAUSE, String::new());
    let name = &neighbour.name;
    loop {
        let looked = neighbour.remote.look().await;
        let outcome = match &looked {
            Ok(known) if told.as_ref() == Some(&known.card) => Ok(()),
            Ok(known) => {
                let registered = voice.df().register(services(&known.card)).await;
                registered.map_err(|error| error.to_string()).map(|()| {
                    tracing::info!(neighbour = name, proof = %known.proof, "a neighbour's card was read");
                    told = Some(known.card.clone());
                })
            }
            Err(error) => {
                // Nobody shall be sent to a neighbour whose card is not believed.
                if told.is_some() && neighbour.remote.known().is_err() {
                    told = None;
                    let _ = voice.df().deregister().await;
                }
                Err(error.to_string())
            }
        };
        match outcome {
            Ok(()) => {
                trouble.clear();
                pause = PAUSE;
                tokio::time::sleep(REFRESH).await;
            }
            Err(error) => {
                if error != trouble {
                    tracing::warn!(
                        neighbour = name,
                        url = neighbour.url,
                        error,
                        "a neighbour is not reached; it is tried again"
                    );
                    trouble = error;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// The skills of a card as services: each takes a text, and answers in parts.
fn services(card: &Card) -> Vec<ServiceDescription> {
    let whole = [Skill {
        id: card.name.clone(),
        about: card.about.clone(),
        kind: String::new(),
    }];
    let skills: &[Skill] = match card.skills.is_empty() {
        true => &whole,
        false => &card.skills,
    };
    let mut room = ROOM;
    let mut services = Vec::new();
    for skill in skills {
        let size = 256 + 4 * skill.id.len() + skill.about.len() + skill.kind.len();
        if size > room {
            break;
        }
        room -= size;
        let mut service = ServiceDescription::new(skill.id.as_str(), skill.id.as_str());
        service.protocols.push(PROTOCOL.to_owned());
        service.ontologies.push(skill.id.clone());
        for (name, value) in [
            ("input", r#"{"type":"string"}"#),
            ("description", &skill.about),
            ("tag", &skill.kind),
            ("streams", "yes"),
        ] {
            if !value.is_empty() {
                service = service.with_property(name, Term::Text(value.to_owned().into()));
            }
        }
        services.push(service);
    }
    services
}

/// The agent that tells operators of the neighbours.
struct Teller(Vec<Arc<Neighbour>>);

impl Teller {
    fn status(&self) -> NeighboursStatus {
        let neighbours = self.0.iter().map(|neighbour| {
            let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let counts = &neighbour.counts;
            let mut status = NeighbourStatus {
                agent: neighbour.name.clone(),
                url: neighbour.url.clone(),
                asked: count(&counts.asked),
                open: count(&counts.open),
                failed: count(&counts.failed),
                ..NeighbourStatus::default()
            };
            match neighbour.remote.known() {
                Ok(known) => {
                    status.card = format!("{} {}", known.card.name, known.card.version);
                    status.proof.clone_from(&known.proof);
                    status.skills = known.card.skills.len() as u64;
                }
                Err(trouble) => status.trouble = Some(trouble),
            }
            status
        });
        NeighboursStatus {
            neighbours: neighbours.collect(),
        }
    }
}

impl Agent for Teller {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let wishes = context.handle().wishes();
        let status = |NeighboursRequest::Status| ready(NeighboursAnswer::from(self.status()));
        tokio::select! {
            biased;
            () = wishes.stop_wished() => {}
            () = tell(context, status) => {}
        }
        Ok(())
    }
}
