//! The node as a keeper of channels' logs: requests from its processes, other nodes and the Master.

use std::time::Duration;

use super::shared::Shared;
use sealbus_control::ask::Ask;
use sealbus_control::channel_log::{KeepOutcome, LogAnswer, LogRequest, ask};
use sealbus_control::names::MASTER;
use sealbus_control::node::ask_node;
use sealbus_control::{AgentLocation, Fault, FaultCode};

/// How long another node may take to answer, in addition to its wait for events.
const ASKING: Duration = Duration::from_secs(5);
/// How long another node may take to say whether it knows a durable subscription.
const KNOWING: Duration = Duration::from_secs(2);

impl Shared {
    /// Answers a request from a process.
    pub(super) async fn channel_log_of(
        &self,
        process: &str,
        node: &str,
        request: LogRequest,
    ) -> Result<LogAnswer, Fault> {
        let placement = self.processes.placement(process)?;
        let is_placed = |agent: &str| self.is_placed(&placement, agent);
        let stranger = match &request {
            LogRequest::Keep { events } => events
                .iter()
                .map(|event| &event.publisher)
                .find(|publisher| !is_placed(publisher)),
            LogRequest::Since { agent, .. }
            | LogRequest::Settle { agent, .. }
            | LogRequest::Judge { agent, .. } => Some(agent).filter(|agent| !is_placed(agent)),
            LogRequest::Read { question } => {
                Some(&question.agent).filter(|agent| !is_placed(agent))
            }
            LogRequest::Record { messages } => messages
                .iter()
                .map(|message| &message.receiver)
                .find(|receiver| !is_placed(receiver)),
            LogRequest::List | LogRequest::Evidence { .. } => {
                return Err(Fault::new(
                    FaultCode::NotPermitted,
                    "what is kept is told to operators: see `sealbus channel list`",
                ));
            }
        };
        if let Some(agent) = stranger {
            let message = format!("{agent} is not placed in the process {process}");
            tracing::warn!(process, message, "a log of a channel was refused");
            return Err(Fault::new(FaultCode::NotPlaced, message));
        }
        match request {
            LogRequest::Since { agent, durable } => self.durable_since(agent, durable).await,
            LogRequest::Keep { .. } | LogRequest::Record { .. } | LogRequest::Judge { .. }
                if node != self.name =>
            {
                Err(Fault::new(
                    FaultCode::BadRequest,
                    format!(
                        "what agents of {} publish or receive is kept and judged there",
                        self.name
                    ),
                ))
            }
            request if node == self.name => {
                let answer = self.own_channel_log(process, request).await?;
                if let LogAnswer::Kept { outcomes } = &answer {
                    for outcome in outcomes {
                        if let KeepOutcome::Refused { fault } = outcome {
                            self.note_full(&placement.group, None, fault);
                        }
                    }
                }
                Ok(answer)
            }
            request => {
                let waits = match &request {
                    LogRequest::Read { question } => Duration::from_millis(question.wait),
                    _ => Duration::ZERO,
                };
                self.other_channel_log(node, request, waits.min(ASKING) + ASKING)
                    .await
            }
        }
    }

    /// Answers a request from another node or the Master.
    pub(super) async fn channel_log_for(
        &self,
        from: &str,
        request: LogRequest,
    ) -> Result<LogAnswer, Fault> {
        let may_ask = match &request {
            LogRequest::List | LogRequest::Evidence { .. } => from == MASTER,
            LogRequest::Keep { .. } | LogRequest::Record { .. } | LogRequest::Judge { .. } => false,
            LogRequest::Since { agent, .. } | LogRequest::Settle { agent, .. } => {
                self.is_node(from).await? && self.speaks_for(from, agent).await?
            }
            LogRequest::Read { question } => {
                self.is_node(from).await? && self.speaks_for(from, &question.agent).await?
            }
        };
        if !may_ask {
            tracing::warn!(from, "asks for a log of a channel and may not");
            return Err(Fault::new(
                FaultCode::NotPermitted,
                "only nodes read the logs of others, for agents of their own",
            ));
        }
        self.own_channel_log(from, request).await
    }

    /// Whether a node runs an agent, or ran it last, in the Master's words.
    async fn speaks_for(&self, node: &str, agent: &str) -> Result<bool, Fault> {
        let ran = self
            .former
            .lock()
            .get(agent)
            .is_some_and(|former| former == node);
        let (mut known, is_covered) = {
            let replica = self.replica.lock();
            (replica.locate(agent), replica.covers(agent))
        };
        if !ran && !is_covered && known == AgentLocation::Unknown {
            known = self.locate_by_master(agent).await?;
        }
        // From now on the node knows without the Master. A node that lies makes it remember nothing.
        if matches!(&known, AgentLocation::Process(contact) if contact.node == node) {
            self.follow(agent);
        }
        match known {
            _ if ran => Ok(true),
            AgentLocation::Process(contact) => Ok(contact.node == node),
            // The other node may know a place that this node has not heard of yet.
            AgentLocation::InTransit | AgentLocation::Unknown => {
                let unknown = format!("{} does not know where {agent} is", self.name);
                Err(Fault::new(FaultCode::Unavailable, unknown))
            }
        }
    }

    async fn own_channel_log(&self, asker: &str, request: LogRequest) -> Result<LogAnswer, Fault> {
        {
            let replica = self.replica.lock();
            if replica.revision() > 0 {
                self.channel_logs.obey(replica.rules());
            }
        }
        self.channel_logs.answer(asker, request).await
    }

    async fn other_channel_log(
        &self,
        node: &str,
        request: LogRequest,
        patience: Duration,
    ) -> Result<LogAnswer, Fault> {
        let asked = ask_node::ChannelLog { request };
        self.correspondent()?.ask(node, asked, patience).await
    }

    /// The age of a durable subscription, from any node that knows it.
    async fn durable_since(&self, agent: String, durable: String) -> Result<LogAnswer, Fault> {
        let nodes: Vec<String> = self.replica.lock().nodes().cloned().collect();
        let others: Vec<&String> = nodes.iter().filter(|node| **node != self.name).collect();
        let request = LogRequest::Since { agent, durable };
        let asked = others
            .iter()
            .map(|node| self.other_channel_log(node, request.clone(), KNOWING));
        let (own, others) = tokio::join!(
            self.own_channel_log(&self.name, request.clone()),
            futures_util::future::join_all(asked)
        );
        let others = others
            .into_iter()
            .filter_map(|other| ask::Since::take(other.ok()?).ok());
        let known = others.chain([ask::Since::take(own?)?]).flatten();
        Ok(known.min().into())
    }

    /// Whether an agent is a node's own. Only a node's own agent is at a node with its own name.
    pub(super) async fn is_node(&self, agent: &str) -> Result<bool, Fault> {
        Ok(match self.locate_by_master(agent).await? {
            AgentLocation::Process(contact) => contact.node == agent,
            _ => false,
        })
    }
}
