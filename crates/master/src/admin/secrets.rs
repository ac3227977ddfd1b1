//! Join tokens for nodes, tickets for programs, and certificates for callers of gateways.

use std::time::Duration;

use sealbus_bus::GATEWAY;
use sealbus_manifest::callers::CallersEntry;
use sealbus_seal::token::{Purpose, Token};
use sealbus_seal::{Certificate, Name};
use tokio::sync::oneshot;

use super::Admin;
use super::kept::READING;
use crate::desk::Desk;
use sealbus_control::admin::{CertifiedCaller, IssuedSecret};
use sealbus_control::clock::timestamp;
use sealbus_control::names::node_name;
use sealbus_control::{Blob, Fault, FaultCode, UnixMillis};

/// Longest life of a token or ticket, in seconds.
const LONGEST_TOKEN: u64 = 30 * 86_400;
/// How long nodes may take to come back to a restarted Master. This includes the time in which the Master gives up the
/// others.
const COMING_BACK: Duration = Duration::from_secs(20);

impl Admin {
    pub(super) async fn token(
        &self,
        node: Option<String>,
        lifetime: u64,
        master: bool,
    ) -> Result<IssuedSecret, Fault> {
        let (root, address) = (self.root, self.enrolment.to_string());
        let lifetime = lifetime_of(lifetime)?;
        let purpose = match (master, &self.masters) {
            (false, _) => Purpose::Join,
            (true, Some(_)) => Purpose::Master,
            (true, None) => {
                let message = "this platform's state is in a file, so it has one Master";
                return Err(Fault::new(FaultCode::NotPermitted, message)
                    .advise("keep the state in etcd first: docs/operations.md"));
            }
        };
        self.desk
            .run(move |desk, now| {
                let name = node.map(|node| node_name(&node)).transpose()?;
                let addresses = match desk.masters.as_slice() {
                    [] => vec![address],
                    all => all.to_vec(),
                };
                let token = Token::new(purpose, desk.name.clone(), name, addresses, root)
                    .map_err(|error| internal(&error))?;
                desk.tokens
                    .enter(&token, lifetime, timestamp(now))
                    .map_err(|error| internal(&error))?;
                let expires = now + lifetime.as_millis() as UnixMillis;
                Ok(IssuedSecret {
                    token: token.to_string(),
                    expires,
                })
            })
            .await
    }

    pub(super) async fn ticket(
        &self,
        agent: String,
        others: Vec<String>,
        node: Option<String>,
        lifetime: u64,
    ) -> Result<IssuedSecret, Fault> {
        if agent == GATEWAY || others.iter().any(|other| other == GATEWAY) {
            let message = "the gateway is started by its platform, not with a ticket";
            return Err(Fault::new(FaultCode::IllegalName, message)
                .advise("add [gateway.http] to the manifest"));
        }
        let root = self.root;
        let lifetime = lifetime_of(lifetime)?;
        self.await_expected_nodes(&agent, node.as_deref()).await;
        let (answer, known) = self
            .desk
            .run(move |desk, now| {
                let name = legal("agent", &agent)?;
                let mut agents = vec![agent.clone()];
                for other in others {
                    legal("agent", &other)?;
                    if !agents.contains(&other) {
                        agents.push(other);
                    }
                }
                let (node, address) = desk.state.attachment_of(&agent, node.as_deref())?;
                let addresses = vec![address.to_string()];
                let token = Token::new(
                    Purpose::Ticket,
                    desk.name.clone(),
                    Some(name),
                    addresses,
                    root,
                )
                .map_err(|error| internal(&error))?;
                let expires = now + lifetime.as_millis() as UnixMillis;
                desk.state
                    .expect(agents, &node, token.secret().hash(), expires, now)?;
                let (sender, known) = oneshot::channel();
                desk.waiting.entry(agent).or_default().push(sender);
                Ok((
                    IssuedSecret {
                        token: token.to_string(),
                        expires,
                    },
                    known,
                ))
            })
            .await?;
        // The ticket is shown only once its node knows it.
        match tokio::time::timeout(READING, known).await {
            Ok(Ok(result)) => result.map(|_| answer),
            _ => Err(Fault::new(
                FaultCode::Unavailable,
                "the node does not answer",
            )),
        }
    }

    /// Waits for nodes that are expected back. They come back within seconds after a restart of the Master.
    pub(super) async fn await_expected_nodes(&self, agent: &str, wish: Option<&str>) {
        let (agent, wish) = (agent.to_owned(), wish.map(str::to_owned));
        let waiting = self.desk.wait_until(COMING_BACK, move |desk| {
            desk.state.attachment_of(&agent, wish.as_deref()).is_ok()
                || !desk.state.expects_node(wish.as_deref())
        });
        waiting.await;
    }
}

fn internal(error: &dyn std::error::Error) -> Fault {
    Fault::new(FaultCode::Internal, error.to_string())
}

impl Admin {
    /// Certifies a caller of a gateway by its own signing request, if the manifest says that the caller comes with a
    /// certificate.
    pub(super) async fn certify_caller(
        &self,
        name: String,
        request: Blob,
        lifetime: u64,
    ) -> Result<CertifiedCaller, Fault> {
        let lifetime = lifetime_of(lifetime)?;
        if !self.comes_with_a_certificate(&name).await {
            let message = format!("no caller of a gateway is {name} and comes with a certificate");
            return Err(Fault::new(FaultCode::Unknown, message).advise(
                "add `certificate = true` to its [[gateway.a2a.caller]] or [[gateway.mcp.caller]], and apply the manifest",
            ));
        }
        let certifying = move |desk: &mut Desk, now| {
            let identity = desk.agent(&name)?;
            let address = desk.platform.master.address.ip();
            let now = timestamp(now);
            let chain = desk
                .ca
                .certify_caller(identity, address, &request.0, lifetime, now)?;
            let ends = Certificate::parse(chain.leaf()).map_err(|error| internal(&error))?;
            let chain = chain.to_certificates().into_iter();
            Ok(CertifiedCaller {
                chain: chain.map(|der| Blob(der.to_vec())).collect(),
                expires: ends.not_after().as_unix_seconds() * 1000,
            })
        };
        self.desk.run(certifying).await
    }

    /// Whether the manifest has a caller of a gateway by that name that comes with a certificate.
    async fn comes_with_a_certificate(&self, name: &str) -> bool {
        let is_it = |door: &CallersEntry| {
            let mut callers = door.callers.iter();
            callers.any(|it| it.certificate && it.name == name)
        };
        let manifest = self.manifest.lock().await;
        let gateway = manifest.as_ref().and_then(|it| it.gateway.as_ref());
        gateway.is_some_and(|gateway| gateway.doors().any(|(_, door)| is_it(door)))
    }
}

fn legal(what: &'static str, name: &str) -> Result<Name, Fault> {
    Name::new(what, name).map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))
}

fn lifetime_of(seconds: u64) -> Result<Duration, Fault> {
    if (1..=LONGEST_TOKEN).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    let message = format!("a token cannot be good for {seconds} s");
    Err(Fault::new(FaultCode::BadRequest, message).advise("from 1 second to 30 days"))
}
