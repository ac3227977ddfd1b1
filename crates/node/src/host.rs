//! The platform as the node's own process sees it.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::shared::Shared;
use sealbus_control::attachment::AgentReport;
use sealbus_control::channel_log::{LogAnswer, LogRequest};
use sealbus_control::enrolment::ask;
use sealbus_control::host::{Command, Host, Membership, no_letters, no_logs};
use sealbus_control::node::MasterRequest;
use sealbus_control::post::{LetterOutcome, PostedLetter};
use sealbus_control::{AgentLocation, Blob, Fault, FaultCode, FrozenAgent, RefusalRecord, Subject};
use sealbus_enrolment::{Enrolment, EnrolmentError};

/// [`Host`] of the node's own process.
pub(crate) struct NodeHost {
    pub(crate) shared: Arc<Shared>,
    pub(crate) enrolment: Enrolment,
    pub(crate) membership: Membership,
    pub(crate) announced: Mutex<Option<SocketAddr>>,
    pub(crate) commands: Mutex<Option<mpsc::Receiver<Command>>>,
}

impl NodeHost {
    async fn certify_itself(&self, subject: Subject, request: Vec<u8>) -> Result<Vec<Blob>, Fault> {
        let process = &self.membership.process;
        if self.shared.presence.borrow().is_some() {
            let result = self
                .shared
                .certify(process, subject.clone(), request.clone())
                .await;
            match result {
                Err(fault) if fault.code == FaultCode::Unavailable => {}
                other => return other,
            }
        }
        // The process is not on the bus yet, or the CA cannot be reached that way.
        let voucher = self.shared.vouch(process, subject, request)?;
        let certified = self.enrolment.ask(ask::Certify { voucher }).await;
        certified.map_err(|error| match error {
            EnrolmentError::Refused(fault) => fault,
            error => Fault::new(FaultCode::Unavailable, error.to_string()),
        })
    }
}

impl Host for NodeHost {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn certify(
        &self,
        subject: Subject,
        request: Vec<u8>,
    ) -> BoxFuture<'_, Result<Vec<Vec<u8>>, Fault>> {
        async move {
            let chain = self.certify_itself(subject, request).await?;
            Ok(chain.into_iter().map(|der| der.0).collect())
        }
        .boxed()
    }

    fn announce(&self, address: SocketAddr) -> BoxFuture<'_, Result<(), Fault>> {
        *self.announced.lock() = Some(address);
        std::future::ready(Ok(())).boxed()
    }

    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<AgentLocation, Fault>> {
        self.shared.asked.lock().insert(agent.to_owned());
        self.shared.locate(agent).boxed()
    }

    fn report<'a>(
        &'a self,
        _agent: &'a str,
        _report: AgentReport,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        // The heartbeat tells the Master that the node is there.
        std::future::ready(Ok(())).boxed()
    }

    fn refused(&self, records: Vec<RefusalRecord>) -> BoxFuture<'_, Result<(), Fault>> {
        let reported = self
            .shared
            .reports
            .put_of_process(MasterRequest::Refusals { records });
        std::future::ready(reported).boxed()
    }

    fn keeps_letters(&self) -> bool {
        false
    }

    fn post(&self, letters: Vec<PostedLetter>) -> BoxFuture<'_, Result<Vec<Option<Fault>>, Fault>> {
        // The platform's own agents keep no messages for others.
        std::future::ready(Ok(vec![Some(no_letters()); letters.len()])).boxed()
    }

    fn settle_letters<'a>(
        &'a self,
        _agent: &'a str,
        _outcomes: Vec<(u64, LetterOutcome)>,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        std::future::ready(Ok(())).boxed()
    }

    fn channel_log<'a>(
        &'a self,
        _node: &'a str,
        _request: LogRequest,
    ) -> BoxFuture<'a, Result<LogAnswer, Fault>> {
        std::future::ready(Err(no_logs())).boxed()
    }

    fn inherit(&self) -> BoxFuture<'_, Result<Vec<FrozenAgent>, Fault>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn commands(&self) -> Option<mpsc::Receiver<Command>> {
        self.commands.lock().take()
    }
}
