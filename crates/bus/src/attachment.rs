//! Agents of this process: how they are attached to the bus, and how they leave it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealbus_seal::{Credential, Identity};
use thiserror::Error;

use crate::agent::{Certified, LocalAgent};
use crate::bus::Bus;
use crate::error::UndeliverableReason;
use crate::failure::failure_notice;
use crate::foreign::GATEWAY;
use crate::mailbox::{Closed, Mailbox, MailboxLimits, MailboxSender, RestingMailbox, mailbox};
use crate::message::{Provenance, ReceivedMessage};
use crate::outbox::Outbox;
use crate::transport::TransportError;

/// Why an agent was not attached.
#[derive(Clone, Debug, Error)]
pub enum AttachError {
    /// An agent of that name is already here.
    #[error(
        "an agent named {0} is attached to this process already: choose another name or detach it first"
    )]
    NameTaken(String),
    /// The name is not legal.
    #[error("{name} cannot be an agent of platform {platform}: {reason}")]
    IllegalName {
        /// The name.
        name: String,
        /// The platform of this bus.
        platform: String,
        /// The fault in it.
        reason: String,
    },
    /// The credential is for another agent, or unreadable.
    #[error("the credential given for agent {name} is for {certified}")]
    WrongCredential {
        /// The agent.
        name: String,
        /// The identity in the certificate.
        certified: String,
    },
    /// A transport refused the agent.
    #[error("agent {name} was not attached to the transport {transport}: {source}")]
    Transport {
        /// The agent.
        name: String,
        /// The transport.
        transport: &'static str,
        /// The reason.
        source: TransportError,
    },
}

impl Bus {
    /// Attaches an agent: from now on the agent can send, and messages to `name` come to the mailbox.
    ///
    /// `credential` proves the agent's name to other processes.
    ///
    /// # Errors
    /// [`AttachError`]; then nothing has changed.
    pub fn attach(
        &self,
        name: &str,
        credential: Option<Arc<Credential>>,
        limits: Option<MailboxLimits>,
    ) -> Result<(Outbox, Mailbox), AttachError> {
        self.attach_moved(name, credential, limits, Vec::new())
    }

    /// Attaches an agent that has moved here from another process. The messages it had not read there come first in its
    /// mailbox.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_moved(
        &self,
        name: &str,
        credential: Option<Arc<Credential>>,
        limits: Option<MailboxLimits>,
        unread: Vec<ReceivedMessage>,
    ) -> Result<(Outbox, Mailbox), AttachError> {
        self.check_name(name)?;
        if let Some(credential) = &credential {
            check_credential(name, credential)?;
        }
        let ends = mailbox(limits.unwrap_or(self.inner.config.mailbox));
        for message in unread {
            // No other task knows the mailbox yet, so it is open.
            let _ = ends.0.push_accepted(message);
        }
        self.attach_certified(name, credential.map(Certified::new), ends)
    }

    fn attach_certified(
        &self,
        name: &str,
        certified: Option<Arc<Certified>>,
        (sender, reader): (MailboxSender, Mailbox),
    ) -> Result<(Outbox, Mailbox), AttachError> {
        let (bus, receiver) = (self.downgrade(), Arc::<str>::from(name));
        sender.set_tap(self.inner.tap.clone(), receiver.clone());
        sender.on_unread(Box::new(move |messages| {
            if let Some(bus) = bus.upgrade() {
                bus.never_read(&receiver, &messages);
            }
        }));
        let agent = Arc::new(LocalAgent::new(
            name,
            sender,
            certified,
            self.inner.batch_key.clone(),
        ));
        {
            let mut agents = self.inner.agents.write();
            if agents.contains_key(name) {
                return Err(AttachError::NameTaken(name.to_owned()));
            }
            agents.insert(agent.name().clone(), agent.clone());
        }
        if let Some(transport) = self.inner.transport.get()
            && let Err(source) = transport.attach(&agent)
        {
            self.inner.agents.write().remove(name);
            return Err(AttachError::Transport {
                name: name.to_owned(),
                transport: transport.name(),
                source,
            });
        }
        self.arrived(name);
        Ok((Outbox::new(self.clone(), agent), reader))
    }

    /// Tells senders that `receiver` has ended without reading their messages: the senders of this process, and the
    /// senders elsewhere whose messages came here with the agent. The agent itself answers the latter, because no
    /// process that knows which messages it sent carried them here.
    fn never_read(&self, receiver: &str, messages: &[ReceivedMessage]) {
        let gateway = format!("{GATEWAY}@{}", self.inner.config.platform);
        let reason = UndeliverableReason::ReceiverGone;
        let agent = self.agent(receiver);
        for message in messages {
            let view = message.message();
            let sender = match message.provenance() {
                Provenance::Foreign(_) => Some(&*gateway),
                _ => view.sender().map(|sender| sender.name()),
            };
            let Some(sender) = sender else { continue };
            let came_along = match message.provenance() {
                Provenance::Foreign(_) | Provenance::SameProcess => false,
                _ => self.agent(sender).is_none(),
            };
            match &agent {
                Some(agent) if came_along => {
                    let answer = failure_notice(&agent.aid(), &view, receiver, &reason);
                    if let Some(answer) = answer {
                        Outbox::new(self.clone(), agent.clone()).last_words(answer, sender);
                    }
                }
                _ => self.notify_sender(sender, &view, receiver, &reason),
            }
        }
    }

    fn check_name(&self, name: &str) -> Result<(), AttachError> {
        let platform = &self.inner.config.platform;
        let illegal = |reason: String| AttachError::IllegalName {
            name: name.chars().take(100).collect(),
            platform: platform.to_string(),
            reason,
        };
        match Identity::from_agent_name(name) {
            Ok(identity) if identity.platform() == platform => Ok(()),
            Ok(identity) => Err(illegal(format!(
                "it belongs to platform {}",
                identity.platform()
            ))),
            Err(error) => Err(illegal(error.to_string())),
        }
    }

    /// Gives an agent a new credential, for example after its certificate was renewed. Open connections show the new
    /// credential at once.
    ///
    /// # Errors
    /// [`AttachError`] if the credential is for another agent.
    pub fn set_credential(
        &self,
        name: &str,
        credential: Arc<Credential>,
    ) -> Result<(), AttachError> {
        check_credential(name, &credential)?;
        if let Some(agent) = self.agent(name) {
            agent.set_credential(credential);
            if let Some(transport) = self.inner.transport.get() {
                transport.credential_changed(&agent);
            }
        }
        Ok(())
    }

    /// Takes an agent out of this process. Its reader keeps the messages still in its mailbox. Later messages go back
    /// to their senders, or follow the agent if its mailbox was [drained](Mailbox::drain) first.
    pub fn detach(&self, name: &str) {
        self.take_off(name, true);
    }

    /// Gives an agent a new mailbox with the messages of its former one, after a move that failed. Its conversations
    /// and subscriptions go on.
    ///
    /// # Errors
    /// As [`attach`](Self::attach); then the messages go back to their senders.
    pub fn attach_again(
        &self,
        name: &str,
        resting: RestingMailbox,
    ) -> Result<(Outbox, Mailbox), AttachError> {
        let certified = self.agent(name).and_then(|agent| agent.certified());
        self.take_off(name, false);
        let ends = mailbox(self.inner.config.mailbox);
        ends.0.resume(resting);
        self.attach_certified(name, certified, ends)
    }

    /// Removes an agent from this process: it leaves, or is attached again.
    fn take_off(&self, name: &str, leaves: bool) {
        let Some(agent) = self.inner.agents.write().remove(name) else {
            return;
        };
        agent.mailbox().close(Closed::Gone);
        for stand_in in self.stand_ins_of(name) {
            self.retire_stand_in(stand_in.name());
        }
        self.inner
            .stand_ins
            .write()
            .take_if(|stand_ins| stand_ins.is_of(name));
        self.forget_way_to(&agent);
        if leaves && let Some(inlet) = self.inner.inlet.get() {
            inlet.agent_left(name);
        }
        self.inner
            .accepted_before
            .fetch_add(agent.sent(), Ordering::Relaxed);
        self.inner
            .received_before
            .fetch_add(agent.mailbox().counts().received, Ordering::Relaxed);
        if let Some(transport) = self.inner.transport.get() {
            transport.detach(&agent);
        }
    }
}

fn check_credential(name: &str, credential: &Credential) -> Result<(), AttachError> {
    let wrong = |certified: String| AttachError::WrongCredential {
        name: name.to_owned(),
        certified,
    };
    let certificate = credential
        .certificate()
        .map_err(|error| wrong(error.to_string()))?;
    if certificate.identity().is_agent_named(name) {
        Ok(())
    } else {
        Err(wrong(certificate.identity().to_string()))
    }
}
