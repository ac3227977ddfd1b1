//! The node as a keeper of messages: what its processes and other nodes ask of it, and the ways its letters go.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::shared::Shared;
use sealbus_control::attachment::AttachmentNotice;
use sealbus_control::clock::now;
use sealbus_control::node::{NodeAnswer, NodeRequest};
use sealbus_control::post::{DeliveredLetter, LetterOutcome, PostedLetter};
use sealbus_control::{AgentLocation, Fault, FaultCode, WaitingProvenance};
use sealbus_keeping::post::{Forwarded, MOST_POSTED, Ways, Whereabouts};

/// How long another node may take to have letters on its disk.
const FORWARDING: Duration = Duration::from_secs(15);

/// The ways of a node's letters.
pub(crate) struct NodeWays(pub(crate) Arc<Shared>);

impl Ways for NodeWays {
    fn whereabouts(&self, agent: &str) -> Whereabouts {
        let shared = &self.0;
        match shared.replica.lock().locate(agent) {
            AgentLocation::Process(contact) if contact.node == shared.name => {
                let connection = shared.processes.connection(&contact.process);
                match connection {
                    Some((number, _)) => Whereabouts::Here(contact.process, number),
                    None => Whereabouts::Away,
                }
            }
            AgentLocation::Process(contact) => Whereabouts::There(contact.node),
            AgentLocation::InTransit | AgentLocation::Unknown => Whereabouts::Away,
        }
    }

    fn deliver<'a>(
        &'a self,
        agent: &'a str,
        letters: Vec<DeliveredLetter>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        async move {
            let gone = || Fault::new(FaultCode::Unavailable, format!("{agent} is not here now"));
            let Whereabouts::Here(process, _) = self.whereabouts(agent) else {
                return Err(gone());
            };
            let (_, caller) = self.0.processes.connection(&process).ok_or_else(gone)?;
            let agent = agent.to_owned();
            caller
                .notify(&AttachmentNotice::Letters { agent, letters })
                .await
        }
        .boxed()
    }

    fn forward<'a>(
        &'a self,
        node: &'a str,
        letters: Vec<PostedLetter>,
    ) -> BoxFuture<'a, Result<Forwarded, Fault>> {
        async move {
            let count = letters.len();
            let request = NodeRequest::Post { letters };
            let correspondent = self.0.correspondent()?;
            match correspondent.ask(node, &request, FORWARDING).await? {
                NodeAnswer::Posted { refused } if refused.len() == count => {
                    Ok(Forwarded::Kept(refused))
                }
                NodeAnswer::Elsewhere => Ok(Forwarded::Elsewhere),
                _ => Err(Fault::other_answer()),
            }
        }
        .boxed()
    }
}

impl Shared {
    /// Keeps letters of agents of a process.
    pub(super) async fn post_of(
        &self,
        process: &str,
        letters: Vec<PostedLetter>,
    ) -> Result<Vec<Option<Fault>>, Fault> {
        let launch = self.processes.launch(process)?;
        if letters.len() > MOST_POSTED {
            return Err(Fault::new(
                FaultCode::BadRequest,
                format!("at most {MOST_POSTED} letters are taken at once"),
            ));
        }
        let is_its_own = |letter: &PostedLetter| {
            let WaitingProvenance::SameProcess { identity } = &letter.cover.provenance else {
                return false;
            };
            let identity: Result<sealbus_seal::Identity, _> = identity.parse();
            let name = |agent: &String| format!("{agent}@{}", self.platform.read().name);
            identity.is_ok_and(|identity| {
                launch
                    .agents
                    .iter()
                    .any(|agent| identity.is_agent_named(&name(agent)))
            })
        };
        if let Some(letter) = letters.iter().find(|letter| !is_its_own(letter)) {
            let message = format!(
                "the process {process} posts for {:?}, who is not placed in it",
                letter.cover.provenance
            );
            tracing::warn!(process, message, "letters were refused");
            return Err(Fault::new(FaultCode::NotPermitted, message));
        }
        let letters = letters.into_iter().map(|mut letter| {
            // Notices are the node's own.
            letter.cover.about = None;
            // Nobody escapes a revocation by a clock of his own.
            letter.cover.posted = letter.cover.posted.min(now());
            letter
        });
        Ok(self.post.keep(letters.collect()).await)
    }

    /// Takes note of what came of letters in a process.
    pub(super) async fn letters_settled(
        &self,
        process: &str,
        agent: &str,
        outcomes: Vec<(u64, LetterOutcome)>,
    ) -> Result<(), Fault> {
        let launch = self.processes.launch(process)?;
        if !launch.agents.iter().any(|placed| placed == agent) {
            return Err(Fault::new(
                FaultCode::NotPlaced,
                format!("{agent} is not placed in the process {process}"),
            ));
        }
        self.post.settle(agent, outcomes).await
    }

    /// Keeps letters that another node carries here.
    pub(super) async fn carried_here(
        &self,
        from: &str,
        letters: Vec<PostedLetter>,
    ) -> Result<NodeAnswer, Fault> {
        if !self.is_node(from).await? {
            tracing::warn!(from, "carries letters to a node and is none itself");
            return Err(Fault::new(
                FaultCode::NotPermitted,
                "only nodes carry letters for others",
            ));
        }
        let Some(first) = letters.first() else {
            return Ok(NodeAnswer::Posted {
                refused: Vec::new(),
            });
        };
        let receiver = &first.cover.receiver;
        if letters
            .iter()
            .any(|letter| letter.cover.receiver != *receiver)
        {
            return Err(Fault::new(
                FaultCode::BadRequest,
                "letters for several agents are carried one agent at a time",
            ));
        }
        let is_elsewhere = match self.replica.lock().locate(receiver) {
            AgentLocation::Process(contact) => contact.node != self.name,
            _ => false,
        };
        if is_elsewhere && !self.post.has_letters_for(receiver) {
            return Ok(NodeAnswer::Elsewhere);
        }
        let refused = self.post.keep(letters).await;
        Ok(NodeAnswer::Posted { refused })
    }
}
