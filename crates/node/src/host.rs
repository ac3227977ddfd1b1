//! The platform as the node's own process sees it.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::shared::Shared;
use sealbus_control::attachment::{AttachmentAnswer, AttachmentRequest};
use sealbus_control::authority::IssuedChain;
use sealbus_control::enrolment::ask;
use sealbus_control::host::{Command, Host, Membership, no_letters, no_logs, not_attached};
use sealbus_control::node::MasterRequest;
use sealbus_control::{AgentLocation, Fault, FaultCode, Subject};
use sealbus_enrolment::EnrolmentError;
use sealbus_seal::Name;

/// [`Host`] of the node's own process.
pub(crate) struct NodeHost {
    pub(crate) shared: Arc<Shared>,
    pub(crate) membership: Membership,
    pub(crate) announced: Mutex<Option<SocketAddr>>,
    pub(crate) commands: Mutex<Option<mpsc::Receiver<Command>>>,
}

impl NodeHost {
    async fn request_own_certificate(
        &self,
        subject: Subject,
        request: Vec<u8>,
    ) -> Result<IssuedChain, Fault> {
        let process = &self.membership.process;
        if self.shared.presence.borrow().is_some() {
            let result = self
                .shared
                .request_certificate(process, subject.clone(), request.clone())
                .await;
            match result {
                Err(fault) if fault.code == FaultCode::Unavailable => {}
                other => return other,
            }
        }
        // The process is not on the bus yet, or the CA cannot be reached through it.
        let voucher = self.shared.vouch(process, subject.clone(), request)?;
        let enrolment = self.shared.leaders.enrolment();
        let certified = enrolment.ask(ask::Certify { voucher }).await;
        let chain = certified.map_err(|error| match error {
            EnrolmentError::Refused(fault) => fault,
            error => Fault::new(FaultCode::Unavailable, error.to_string()),
        })?;
        self.shared.holds(process, subject, &chain);
        Ok(chain)
    }

    async fn carry_out(&self, request: AttachmentRequest) -> Result<AttachmentAnswer, Fault> {
        match request {
            AttachmentRequest::Certify { subject, request } => {
                return Ok(self
                    .request_own_certificate(subject, request.0)
                    .await?
                    .into());
            }
            AttachmentRequest::Announce { address } => *self.announced.lock() = Some(address),
            AttachmentRequest::Resolve { agent } => {
                // Requested names are remembered, and an agent cannot have this one.
                if Name::new("agent", &agent).is_err() {
                    return Ok(AgentLocation::Unknown.into());
                }
                self.shared.asked.lock().note(&agent);
                // The node speaks with the Master and with nodes, and answers those that ask it.
                return Ok(self.shared.locate_by_master(&agent).await?.into());
            }
            AttachmentRequest::EncryptionKey { agent } => {
                return Ok(self.shared.encryption_key(agent).await?.into());
            }
            AttachmentRequest::DenyList => return Ok(self.shared.deny_list().into()),
            AttachmentRequest::Refusals { records } => {
                let refusals = MasterRequest::Refusals { records };
                self.shared.reports.put_of_process(refusals)?;
            }
            // This process uses no channels.
            AttachmentRequest::UseChannels => {}
            AttachmentRequest::Nodes => return Ok(Vec::<String>::new().into()),
            // The heartbeat tells the Master that the node is there, and nobody seals messages to it.
            AttachmentRequest::Report { .. }
            | AttachmentRequest::Letters { .. }
            | AttachmentRequest::PublishKey { .. } => {}
            // The platform's own agents do not keep messages for others.
            AttachmentRequest::Post { letters } => {
                return Ok(vec![Some(no_letters()); letters.len()].into());
            }
            AttachmentRequest::ChannelLog { .. } => return Err(no_logs()),
            AttachmentRequest::Attach { .. }
            | AttachmentRequest::Frozen { .. }
            | AttachmentRequest::NotFrozen { .. }
            | AttachmentRequest::FormerKeys { .. }
            | AttachmentRequest::Inherit { .. } => return Err(not_attached()),
        }
        Ok(AttachmentAnswer::Done)
    }
}

impl Host for NodeHost {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn answer(&self, request: AttachmentRequest) -> BoxFuture<'_, Result<AttachmentAnswer, Fault>> {
        self.carry_out(request).boxed()
    }

    fn keeps_letters(&self) -> bool {
        false
    }

    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        self.commands.lock().take()
    }
}
