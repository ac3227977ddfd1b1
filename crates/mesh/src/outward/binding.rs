//! The agents of this process on the link: the senders, and the targets of the peer; their handles, and their proofs on
//! each connection.

use std::sync::Arc;

use sealbus_bus::{LocalAgent, RefusalReason, Rejected, UndeliverableReason};
use sealbus_seal::Credential;
use sealbus_seal::binding::BindingError;

use super::signing::Signing;
use super::{Bound, Outward};
use crate::frame::Frame;

impl Outward {
    /// The handle of an agent of this process, bound on the present connection.
    pub(super) fn bind(&mut self, agent: &Arc<LocalAgent>) -> Result<u32, Rejected> {
        let handle = match self.handles.get(&agent.number()) {
            Some(handle) => *handle,
            None => {
                let handle = match self.free_handles.pop() {
                    Some(handle) => handle,
                    None if self.bound.len() < self.agents => {
                        self.bound.push(None);
                        (self.bound.len() - 1) as u32
                    }
                    None => {
                        return Err(Rejected::Impossible(UndeliverableReason::Refused {
                            reason: RefusalReason::OverLimit,
                            explanation: format!(
                                "{} agents send over this link already",
                                self.agents
                            ),
                        }));
                    }
                };
                self.handles.insert(agent.number(), handle);
                if agent.mailbox().closed().is_some() {
                    self.departing.insert(agent.number());
                }
                self.bound[handle as usize] = Some(Bound {
                    agent: agent.clone(),
                    connection: 0,
                    credential: None,
                    queued: 0,
                    is_leaving: false,
                    signing: Signing::default(),
                });
                handle
            }
        };
        self.prove(handle)?;
        Ok(handle)
    }

    /// As [`bind`](Self::bind), for an agent that sends to this target. Mostly it is the agent that sent there before.
    pub(super) fn bind_for(
        &mut self,
        target: u32,
        agent: &Arc<LocalAgent>,
    ) -> Result<u32, Rejected> {
        let slot = self.targets.get(target as usize).and_then(Option::as_ref);
        if let Some((number, known, bindings)) = slot.map(|it| it.last_sender)
            && number == agent.number()
            && bindings == (self.connection, self.unbound)
        {
            return Ok(known);
        }
        let handle = self.bind(agent)?;
        let bindings = (self.connection, self.unbound);
        if let Some(Some(it)) = self.targets.get_mut(target as usize) {
            it.last_sender = (agent.number(), handle, bindings);
        }
        Ok(handle)
    }

    /// Ensures that the agent of `handle` is bound on the present connection.
    pub(super) fn prove(&mut self, handle: u32) -> Result<(), Rejected> {
        match self.bound.get(handle as usize) {
            Some(Some(bound)) if bound.connection != self.connection => self.prove_now(handle),
            _ => Ok(()),
        }
    }

    /// Ensures that the agent of `handle` is bound on the present connection with its present credential.
    pub(super) fn prove_now(&mut self, handle: u32) -> Result<(), Rejected> {
        let Some(Some(bound)) = self.bound.get_mut(handle as usize) else {
            return Ok(());
        };
        if self.connection == 0 {
            return Ok(());
        }
        if !self.level.authenticates() {
            let proof = bound.agent.name().as_bytes();
            Frame::Bind { handle, proof }.encode(0, &mut self.control);
            bound.connection = self.connection;
            return Ok(());
        }
        let credential = credential_of(&bound.agent);
        let outcome = credential.and_then(|credential| {
            let outcome = self.bind_with(handle, &credential);
            outcome.map_err(|error| error.to_string())
        });
        outcome.map_err(|explanation| {
            Rejected::Impossible(UndeliverableReason::Refused {
                reason: RefusalReason::NotProved,
                explanation,
            })
        })
    }

    /// Binds the agent of `handle` with a credential, unless it was bound last with this one on the present connection.
    pub(super) fn bind_with(
        &mut self,
        handle: u32,
        credential: &Arc<Credential>,
    ) -> Result<(), BindingError> {
        let (Some(Some(bound)), Some(proof)) = (self.bound.get_mut(handle as usize), &self.proof)
        else {
            return Ok(());
        };
        let last = bound.credential.as_ref();
        let last = last.filter(|_| bound.connection == self.connection);
        if last.is_some_and(|last| Arc::ptr_eq(last, credential)) {
            return Ok(());
        }
        // An agent that cannot prove itself is told with its next message.
        bound.connection = 0;
        let proof = &proof.bind(credential)?;
        Frame::Bind { handle, proof }.encode(0, &mut self.control);
        bound.connection = self.connection;
        bound.credential = Some(credential.clone());
        Ok(())
    }

    /// Shows the new credential of an agent, which may be a sender and a receiver.
    pub(crate) fn renew(&mut self, agent: &LocalAgent) {
        if let Some(handle) = self.handles.get(&agent.number()).copied() {
            let _ = self.prove_now(handle);
        }
        if let Some(target) = self.hosted_as.get(&agent.number()).copied() {
            self.prove_hosted(target);
        }
    }

    /// Notes that an agent of this process has left.
    pub(crate) fn unbind(&mut self, agent: &LocalAgent) {
        self.unbind_number(agent.number());
    }

    /// Whether agents must be unbound in the task's next turn.
    pub(crate) fn has_departing(&self) -> bool {
        !self.departing.is_empty()
    }

    /// Unbinds agents that had already left when they were bound. Nothing else frees their handles.
    pub(super) fn unbind_departing(&mut self) {
        for number in std::mem::take(&mut self.departing) {
            self.unbind_number(number);
        }
    }

    fn unbind_number(&mut self, number: u64) {
        if let Some(handle) = self.handles.remove(&number) {
            self.unbound += 1;
            if let Some(Some(bound)) = self.bound.get_mut(handle as usize) {
                bound.is_leaving = true;
            }
            self.unbind_if_done(handle);
        }
    }

    /// Reports that an agent sends nothing more, once the messages that it sent before it left are gone.
    fn unbind_if_done(&mut self, handle: u32) {
        if let Some(Some(bound)) = self.bound.get(handle as usize)
            && bound.is_leaving
            && bound.queued == 0
        {
            self.sign(handle);
            self.session.append(&Frame::Unbind { handle });
            // When that frame is acknowledged, the handle is free.
            self.leaving.push_back((self.session.next(), handle));
        }
    }

    /// Notes that a message of the agent waits in a target's queue.
    pub(super) fn note_queued(&mut self, sender: u32) {
        if let Some(Some(bound)) = self.bound.get_mut(sender as usize) {
            bound.queued += 1;
        }
    }

    /// Notes that a message of the agent no longer waits.
    pub(super) fn note_unqueued(&mut self, sender: u32) {
        if let Some(Some(bound)) = self.bound.get_mut(sender as usize) {
            bound.queued -= 1;
            self.unbind_if_done(sender);
        }
    }

    /// The agent of this process that sends under this handle. It may have left.
    pub(super) fn agent_of(&self, sender: u32) -> Option<&Arc<LocalAgent>> {
        Some(&self.bound.get(sender as usize)?.as_ref()?.agent)
    }

    pub(super) fn name_of(&self, sender: u32) -> Option<Arc<str>> {
        Some(self.agent_of(sender)?.name().clone())
    }

    /// Accepts an agent of this process, or its bus (`None`), as the peer's target. Proves the target and lets messages
    /// come.
    pub(crate) fn accept_target(
        &mut self,
        target: u32,
        agent: Option<Arc<LocalAgent>>,
        limit: u64,
    ) {
        if let Some(agent) = agent {
            self.hosted_as.insert(agent.number(), target);
            self.hosted.insert(target, agent);
            self.prove_hosted(target);
        }
        self.session.append(&Frame::Accept { target, limit });
    }

    pub(super) fn prove_hosted(&mut self, target: u32) {
        if let Some(agent) = self.hosted.get(&target)
            && let Some(proof) = &self.proof
            // Without a proof the peer sends nothing, and logs why.
            && let Ok(credential) = credential_of(agent)
            && let Ok(proof) = proof.bind(&credential)
        {
            Frame::Prove {
                target,
                proof: &proof,
            }
            .encode(0, &mut self.control);
        }
    }

    /// The agent behind this target has left.
    pub(crate) fn hosted_left(&mut self, target: u32) {
        self.forget_hosted(target);
        self.departed.insert(target);
    }

    pub(crate) fn forget_hosted(&mut self, target: u32) {
        if let Some(agent) = self.hosted.remove(&target)
            && self.hosted_as.get(&agent.number()) == Some(&target)
        {
            self.hosted_as.remove(&agent.number());
        }
        self.departed.remove(&target);
    }

    /// Whether the peer waits for the outcome of messages to agents that have left.
    pub(crate) fn owes_outcomes(&self) -> bool {
        !self.departed.is_empty()
    }
}

fn credential_of(agent: &LocalAgent) -> Result<Arc<Credential>, String> {
    agent.credential().ok_or_else(|| {
        format!(
            "agent {} has no certificate to prove its name with",
            agent.name()
        )
    })
}
