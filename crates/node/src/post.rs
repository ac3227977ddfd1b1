//! The node as a keeper of messages: requests from its processes and other nodes, and the ways of its letters.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sealbus_bus::RefusalReason;
use tokio::sync::MutexGuard;

use super::shared::Shared;
use sealbus_control::attachment::AttachmentNotice;
use sealbus_control::clock::now;
use sealbus_control::names::AMS;
use sealbus_control::node::ask_node;
use sealbus_control::post::{
    AboutLetter, DeliveredLetter, LetterMark, LetterOutcome, PostedLetter, Trail,
};
use sealbus_control::text::excerpt;
use sealbus_control::{AgentLocation, Fault, FaultCode, WaitingProvenance};
use sealbus_fipa::{Limits, Performative, bitefficient};
use sealbus_keeping::post::{MOST_POSTED, Ways, Whereabouts, origin_of};

/// How long another node may take until letters are on its disk.
const FORWARDING: Duration = Duration::from_secs(15);
/// How long another node may take to say which of an agent's letters it has.
const FOLLOWING: Duration = Duration::from_secs(5);
/// The most characters of a provenance in a fault.
const LONGEST_STATED: usize = 512;

/// The ways of a node's letters.
pub(crate) struct NodeWays(pub(crate) Arc<Shared>);

impl Ways for NodeWays {
    fn whereabouts(&self, agent: &str) -> Whereabouts {
        let shared = &self.0;
        let (known, is_covered) = {
            let replica = shared.replica.lock();
            (replica.locate(agent), replica.covers(agent))
        };
        // A letter goes only where the Master says, because the node there can read it.
        if !is_covered {
            shared.follow(agent);
        }
        match known {
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
    ) -> BoxFuture<'a, Result<Vec<Option<Fault>>, Fault>> {
        async move {
            let posted = ask_node::Post { letters };
            let correspondent = self.0.correspondent()?;
            correspondent.ask(node, posted, FORWARDING).await
        }
        .boxed()
    }

    fn trail<'a>(
        &'a self,
        node: &'a str,
        receiver: &'a str,
        letters: Vec<LetterMark>,
    ) -> BoxFuture<'a, Result<Trail, Fault>> {
        async move {
            let receiver = receiver.to_owned();
            let trail = ask_node::Trail { receiver, letters };
            let correspondent = self.0.correspondent()?;
            correspondent.ask(node, trail, FOLLOWING).await
        }
        .boxed()
    }
}

impl Shared {
    /// Keeps letters that a process's agents send.
    pub(super) async fn post_of(
        &self,
        process: &str,
        letters: Vec<PostedLetter>,
    ) -> Result<Vec<Option<Fault>>, Fault> {
        let placement = self.processes.placement(process)?;
        if letters.len() > MOST_POSTED {
            return Err(Fault::new(
                FaultCode::BadRequest,
                format!("at most {MOST_POSTED} persistent messages are taken at once"),
            ));
        }
        let here = format!("@{}", self.platform.read().name);
        let ams = format!("{AMS}{here}");
        let (mut notices, mut bytes) = (0, 0);
        let mut is_its_own = |letter: &PostedLetter| {
            let (WaitingProvenance::SameProcess { identity }
            | WaitingProvenance::Signed { identity, .. }) = &letter.cover.provenance
            else {
                notices += 1;
                bytes += letter.message.0.len();
                return is_late_notice(letter, &ams) && placement.has(&letter.cover.receiver);
            };
            let identity: Option<sealbus_seal::Identity> = identity.parse().ok();
            let name = identity.and_then(|identity| identity.agent_name());
            let agent = name.as_deref().and_then(|it| it.strip_suffix(&*here));
            agent.is_some_and(|agent| self.is_placed(&placement, agent))
        };
        if let Some(letter) = letters.iter().find(|letter| !is_its_own(letter)) {
            let fault = not_its_own(process, &letter.cover.provenance);
            self.log_refusal(process, &fault.message);
            return Err(fault);
        }
        self.check_origin(process, &letters)?;
        if notices > 0 {
            let taken = self.processes.brings_notices(process, notices, bytes);
            taken.inspect_err(|fault| self.log_refusal(process, &fault.message))?;
        }
        let letters = letters.into_iter().map(|mut letter| {
            // The process numbers its letters, and must not use up the numbers of another one.
            letter.cover.origin = origin_of(process, letter.cover.origin);
            // Only the node itself writes notices about kept letters.
            let is_notice = letter.cover.provenance == WaitingProvenance::Platform;
            letter.cover.about = is_notice.then(|| about_no_letter(&letter.cover.receiver));
            letter.cover.receipt = letter.cover.receipt.filter(|_| !is_notice);
            letter.cover.hops = 0;
            letter.cover.again = false;
            // A sender must not escape a revocation through its own clock.
            letter.cover.posted = letter.cover.posted.min(now());
            letter
        });
        let letters: Vec<PostedLetter> = letters.collect();
        let platform = self.platform.read().name.clone();
        let receivers: Vec<String> = letters
            .iter()
            .map(|letter| format!("{}@{platform}", letter.cover.receiver))
            .collect();
        let refused = self.post.keep(letters).await;
        for (receiver, fault) in receivers.iter().zip(&refused) {
            if let Some(fault) = fault {
                self.note_full(&placement.group, Some(receiver), fault);
            }
        }
        Ok(refused)
    }

    /// Checks that a process numbers its letters under one origin as long as it runs. Each further origin would take
    /// room in the mailboxes, which would then forget letters that they had from others.
    fn check_origin(&self, process: &str, letters: &[PostedLetter]) -> Result<(), Fault> {
        let stated = || letters.iter().map(|letter| letter.cover.origin);
        let Some(first) = stated().next() else {
            return Ok(());
        };
        let own = self
            .processes
            .with(process, |entry| *entry.origin.get_or_insert(first))?;
        if stated().all(|origin| origin == own) {
            return Ok(());
        }
        let message = format!(
            "the process {process} numbers its persistent messages under more than one origin"
        );
        self.log_refusal(process, &message);
        let advice = "choose one origin when the process starts, and keep it";
        Err(Fault::new(FaultCode::BadRequest, message).advise(advice))
    }

    /// Logs for the operator that something was not kept for a process because there is no room.
    pub(super) fn note_full(&self, group: &str, receiver: Option<&str>, fault: &Fault) {
        if fault.code != FaultCode::Full {
            return;
        }
        if let Ok(correspondent) = self.correspondent() {
            let (bus, reason) = (correspondent.outbox().bus(), RefusalReason::OverLimit);
            bus.refused(group, None, receiver, reason, fault.message.clone());
        }
    }

    /// Notes what became of letters in a process.
    pub(super) async fn letters_settled(
        &self,
        process: &str,
        agent: &str,
        outcomes: Vec<(u64, LetterOutcome)>,
    ) -> Result<(), Fault> {
        let placement = self.processes.placement(process)?;
        if !self.is_placed(&placement, agent) {
            return Err(Fault::new(
                FaultCode::NotPlaced,
                format!("{agent} is not placed in the process {process}"),
            ));
        }
        self.post.settle(process, agent, outcomes).await
    }

    /// The turn of a node that carries letters here, or compares its letters. A node that is not known here yet gets
    /// none, and tries again: if it waited for the Master's answer, its letters would come in after later ones, or hold
    /// up those of others.
    async fn turn_of(&self, from: &str) -> Result<MutexGuard<'_, ()>, Fault> {
        if self.is_known_node(from) {
            return Ok(self.letters_in_order.lock().await);
        }
        if !self.is_node(from).await? {
            self.log_refusal(
                from,
                "it carries or seeks persistent messages and is no node",
            );
            return Err(only_nodes());
        }
        let message = format!("{} does not know the node {from} yet", self.name);
        Err(Fault::new(FaultCode::Unavailable, message).advise("try again in a moment"))
    }

    /// Keeps letters that another node carries here.
    pub(super) async fn carried_here(
        &self,
        from: &str,
        letters: Vec<PostedLetter>,
    ) -> Result<Vec<Option<Fault>>, Fault> {
        let turn = self.turn_of(from).await?;
        let Some(first) = letters.first() else {
            return Ok(Vec::new());
        };
        let receiver = &first.cover.receiver;
        if letters.len() > MOST_POSTED
            || letters
                .iter()
                .any(|letter| letter.cover.receiver != *receiver)
        {
            return Err(Fault::new(
                FaultCode::BadRequest,
                format!(
                    "persistent messages for several agents are carried one agent at a time, at most {MOST_POSTED}"
                ),
            ));
        }
        let ams = format!("ams@{}", self.platform.read().name);
        if let Some(problem) = letters.iter().find_map(|letter| unproved(letter, &ams)) {
            let why = format!("it carries a persistent message for {receiver}: {problem}");
            self.log_refusal(from, &why);
            return Err(Fault::new(FaultCode::NotPermitted, problem));
        }
        let elsewhere = match self.replica.lock().locate(receiver) {
            AgentLocation::Process(contact) if contact.node == self.name => None,
            AgentLocation::Process(contact) => Some(format!("but on {}", contact.node)),
            // The other node keeps the letters until both know more. Names that it invents get no mailbox here.
            AgentLocation::InTransit | AgentLocation::Unknown => {
                Some("as far as it knows".to_owned())
            }
        };
        let elsewhere = elsewhere.map(|place| {
            let gone = format!("{receiver} is not on {} {place}", self.name);
            Fault::new(FaultCode::NotPlaced, gone)
        });
        let begun = self.post.begin(letters, elsewhere.as_ref());
        drop(turn);
        Ok(begun.finish().await)
    }

    /// Compares letters that another node keeps for an agent with the letters here.
    pub(super) async fn trail_of(
        &self,
        from: &str,
        receiver: &str,
        letters: &[LetterMark],
    ) -> Result<Trail, Fault> {
        // All letters that were carried here before have come in.
        let _turn = self.turn_of(from).await?;
        if letters.len() > MOST_POSTED {
            let problem =
                format!("at most {MOST_POSTED} persistent messages are looked for at once");
            return Err(Fault::new(FaultCode::BadRequest, problem));
        }
        Ok(self.post.trail(receiver, letters))
    }
}

/// Why the stated provenance of a letter that a node carries cannot be true. A node proves the senders of the letters
/// that it takes in, so none is without proof, and only nodes write the notices of the platform.
fn unproved(letter: &PostedLetter, ams: &str) -> Option<String> {
    let cover = &letter.cover;
    match &cover.provenance {
        // Whether this agent wrote the message is checked where it is kept.
        WaitingProvenance::SameProcess { .. }
        | WaitingProvenance::Proved { .. }
        | WaitingProvenance::Signed { .. } => {
            let is_notice = cover.about.is_some();
            is_notice.then(|| "a notice of the platform is not from an agent".to_owned())
        }
        WaitingProvenance::Platform => {
            let written = written_by(letter, ams);
            let is_notice = matches!(written, Some(Performative::Failure | Performative::Inform));
            let is_notice = is_notice && cover.about.is_some();
            (!is_notice)
                .then(|| "it is no notice of the platform about a persistent message".to_owned())
        }
        WaitingProvenance::Claimed | WaitingProvenance::Foreign => {
            Some("its sender is not proved".to_owned())
        }
    }
}

/// The act of the message in a letter, if the message names this agent as its sender.
fn written_by(letter: &PostedLetter, agent: &str) -> Option<Performative> {
    let view = bitefficient::decode_ref(&letter.message.0, &Limits::default()).ok()?;
    let sender = view.sender()?;
    (sender.name() == agent).then(|| view.performative())
}

/// Whether a process may bring this letter for an agent that has left it: a notice, from the time when the agent was packed
/// already, that a message of the agent failed. Until then, the process itself gives the agent its notices.
fn is_late_notice(letter: &PostedLetter, ams: &str) -> bool {
    letter.cover.provenance == WaitingProvenance::Platform
        && written_by(letter, ams) == Some(Performative::Failure)
}

/// The mark of a notice to this agent about a message that no node has kept. No letter has its number, 0.
fn about_no_letter(receiver: &str) -> AboutLetter {
    AboutLetter {
        receiver: receiver.to_owned(),
        number: 0,
        failure: true,
    }
}

/// A process posts for an agent that is not placed in it. The process states this provenance.
fn not_its_own(process: &str, stated: &WaitingProvenance) -> Fault {
    let stated = excerpt(&format!("{stated:?}"), LONGEST_STATED);
    let message = format!("the process {process} posts for {stated}, who is not placed in it");
    Fault::new(FaultCode::NotPermitted, message)
}

fn only_nodes() -> Fault {
    Fault::new(
        FaultCode::NotPermitted,
        "only nodes carry persistent messages for others",
    )
}

#[cfg(test)]
mod tests;
