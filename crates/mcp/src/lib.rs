//! The platform as a server of the Model Context Protocol (MCP, revisions 2025-03-26 to 2026-07-28): hosts of language
//! models use agents' tools.
//!
//! Each caller from outside is an agent of the platform, with its own certificate, mailbox and rights, in the gateway's
//! process. A call of a tool is a `request` in that agent's name, and ends with the agent's reply; a call that is given up
//! is a `cancel`. [`serve`] runs it over HTTP for many callers,
//! [`serve_stdio`] over standard input and output for one.
//!
//! | question | place |
//! |---|---|
//! | Which tools are there, under which names? | `catalogue`, `naming`, `schema`: free of I/O |
//! | What becomes of a call? | `call`, `own_tools` |
//! | Which caller is it? | `keys` |
//! | What holds back a hostile one? | `http` |

mod call;
mod caller;
mod catalogue;
mod feed;
mod http;
mod keys;
mod naming;
mod own_tools;
mod resources;
mod said;
mod schema;
mod server;
mod stdio;
mod traces;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use sealbus::body::JSON;
use sealbus::directory::{ServiceDescription, Template};
use sealbus::{Agent, AgentResult, Context, NamedAgents, Platform, RunError, Voice, agent};
use sealbus_control::correspondence::Correspondent;
use sealbus_control::mcp::{McpAnswer, McpRequest};
use sealbus_control::names::OPERATOR;
use sealbus_control::{Fault, FaultCode};
use sealbus_manifest::MCP_AGENT;
use sealbus_manifest::mcp::{KeyHash, McpEntry};
use tokio::sync::oneshot;

use caller::{Caller, CallerAgent};
use catalogue::Catalogue;
use http::Http;
use keys::Keys;
pub use keys::{NoRandomness, new_key};
use server::Desk;
pub use stdio::serve_stdio;

/// Pause before the DF is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Why callers are not served.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The address is in use, or not of this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The agents did not run.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Serves callers over HTTP until the program is told to stop. The platform must have placed the agents of
/// [`McpEntry::agents`] and the agent `mcp` in this process, or be an embedded one.
///
/// # Errors
/// [`McpError`]. After an error nothing is open.
pub async fn serve(platform: &Platform, entry: McpEntry) -> Result<(), McpError> {
    let refused = |source| McpError::Listen {
        address: entry.listen,
        source,
    };
    let listener = TcpListener::bind(entry.listen).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let mut agents: Vec<NamedAgents> = Vec::new();
    let mut open = |name: &str| {
        let (caller, known) = CallerAgent::new();
        agents.push(agent(name, caller));
        known
    };
    let known = entry.callers.iter();
    let callers = known.map(|it| (it.key, open(&it.name))).collect();
    let anonymous = entry.anonymous.as_deref().map(&mut open);
    let gateway = Gateway {
        entry,
        start: Some(Start {
            listener,
            callers,
            anonymous,
        }),
    };
    agents.push(agent(MCP_AGENT, gateway));
    Ok(platform.run(agents).await?)
}

type Known = oneshot::Receiver<Arc<Caller>>;

/// The gateway's own agent, which follows the DF and serves.
struct Gateway {
    entry: McpEntry,
    start: Option<Start>,
}

struct Start {
    listener: TcpListener,
    callers: Vec<(KeyHash, Known)>,
    anonymous: Option<Known>,
}

impl Agent for Gateway {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let Some(start) = self.start.take() else {
            return Ok(());
        };
        let wishes = context.handle().wishes();
        let voice = context.voice();
        let serving = async {
            let mut keys = Keys {
                callers: std::collections::HashMap::new(),
                anonymous: None,
            };
            for (key, known) in start.callers {
                keys.callers.insert(key, known.await?);
            }
            if let Some(known) = start.anonymous {
                keys.anonymous = Some(known.await?);
            }
            let desk = Arc::new(Desk::default());
            let listener = tokio::net::TcpListener::from_std(start.listener)?;
            let address = listener.local_addr()?;
            let http = Http::new(&self.entry, address, &desk, keys);
            tracing::info!(
                "hosts of language models reach this platform at http://{address}{}",
                http::PATH
            );
            tokio::select! {
                () = http.clone().accept(listener) => {}
                () = follow(&voice, &desk) => {}
                () = tell(context, &http) => {}
            }
            AgentResult::Ok(())
        };
        tokio::select! {
            biased;
            () = wishes.stop_wished() => Ok(()),
            served = serving => served,
        }
    }
}

/// Tells operators the gateway's state, until its mailbox is closed.
async fn tell(context: &mut Context, http: &Http) {
    let agent = context.handle();
    let asking = Correspondent::new(agent.outbox().clone());
    while let Some(received) = agent.receive().await {
        let Some(enquiry) = asking.receive(received) else {
            continue;
        };
        let (from, request, reply) = enquiry.open::<McpRequest>();
        let told = match request {
            Ok(McpRequest::Status) if from == OPERATOR => Ok(McpAnswer::from(http.status().await)),
            Ok(McpRequest::Status) => Err(Fault::new(
                FaultCode::NotPermitted,
                "the gateway answers the platform's operators only",
            )),
            Err(fault) => Err(fault),
        };
        reply.send(told).await;
    }
}

/// Keeps the catalogue as the DF tells, for ever.
async fn follow(voice: &Voice, desk: &Desk) {
    let mut service = ServiceDescription::default();
    service.protocols.push("fipa-request".to_owned());
    service.languages.push(JSON.to_owned());
    loop {
        let subscription = voice.df().subscribe(Template::from(service.clone())).await;
        *desk.catalogue.write() = Catalogue::default();
        let lost = match subscription {
            Ok(subscription) => loop {
                match subscription.next().await {
                    Ok(entries) => {
                        desk.catalogue.write().take(entries, voice.platform());
                        desk.changed.send_modify(|number| *number += 1);
                    }
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        tracing::warn!(error = %lost, "the DF tells of no tools now; it is asked again");
        tokio::time::sleep(PAUSE).await;
    }
}
