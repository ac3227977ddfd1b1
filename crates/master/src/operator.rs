//! The agent `operator@hap`, which sends in the operators' name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::{GATEWAY, Outbox, ReceivedMessage};
use sealbus_fipa::{AclMessage, Aid, Performative, string};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::directories::Directories;
use super::gateways;
use sealbus_control::admin::SendMessage;
use sealbus_control::correspondence::{Correspondent, Enquiry};
use sealbus_control::node::{ONTOLOGY, OperatorAnswer, OperatorRequest};
use sealbus_control::{Fault, FaultCode};
use sealbus_process::AgentHandle;

/// Most replies collected for one message.
const REPLIES: usize = 1000;
/// How long a message waits at least for room in the mailboxes of its receivers.
const SENDING: Duration = Duration::from_secs(10);

/// Sends in the operators' name, and gives each operator the replies to its own messages.
#[derive(Clone)]
pub(crate) struct Operator {
    outbox: Arc<Outbox>,
    correspondent: Correspondent,
    directories: Directories,
    waiting: Arc<Mutex<HashMap<String, mpsc::Sender<ReceivedMessage>>>>,
}

impl Operator {
    pub(crate) fn new(agent: &AgentHandle, directories: Directories) -> Self {
        Self {
            outbox: agent.outbox().clone(),
            correspondent: Correspondent::new(agent.outbox().clone()),
            directories,
            waiting: Arc::default(),
        }
    }

    /// Asks the gateways for their state.
    pub(crate) fn correspondent(&self) -> &Correspondent {
        &self.correspondent
    }

    /// Hands out replies, and answers the gateway. This runs for ever.
    pub(crate) async fn serve(self, mut agent: AgentHandle) {
        while let Some(received) = agent.receive().await {
            let message = received.message();
            let ontology = message.ontology();
            if ontology.is_some_and(|it| it.text().as_deref() == Some(ONTOLOGY)) {
                if let Some(enquiry) = self.correspondent.receive(received) {
                    self.answer(enquiry).await;
                }
                continue;
            }
            let conversation = message
                .conversation_id()
                .and_then(|id| id.text().map(|text| text.into_owned()));
            let waiting = conversation.and_then(|id| self.waiting.lock().get(&id).cloned());
            match waiting {
                // A collector with enough replies gets no more.
                Some(waiting) => drop(waiting.try_send(received)),
                None => tracing::debug!("a message to the operator that nobody waits for"),
            }
        }
    }

    async fn answer(&self, enquiry: Enquiry) {
        let (from, request, reply) = enquiry.open::<OperatorRequest>();
        let result = match request {
            Ok(OperatorRequest::GatewayRuns) if from == GATEWAY => {
                tokio::spawn(self.clone().describe_gateway());
                Ok(OperatorAnswer::Done)
            }
            Ok(_) => Err(Fault::new(
                FaultCode::NotPermitted,
                "only the gateway may ask that",
            )),
            Err(fault) => Err(fault),
        };
        reply.send(result).await;
    }

    /// Asks a gateway that has started for its addresses, and enters them in the AMS.
    async fn describe_gateway(self) {
        if let Some(addresses) = gateways::addresses(&self.correspondent).await {
            self.directories.gateway_is_at(addresses).await;
        }
    }

    /// Sends a message. With `wait`, returns the replies in FIPA's string encoding, as soon as every receiver has
    /// replied or the time is over.
    pub(crate) async fn send(&self, message: SendMessage) -> Result<Vec<String>, Fault> {
        let bad = |why: String| Fault::new(FaultCode::BadRequest, why);
        let platform = &self.outbox.bus().config().platform;
        let id = sealbus_seal::ProcessId::random()
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?
            .to_string();
        let mut acl = AclMessage::new(Performative::from(message.performative.as_str()))
            .with_content(message.content)
            .with_conversation_id(format!("c{id}"))
            .with_reply_with(format!("r{id}"));
        for receiver in &message.receivers {
            let name = if receiver.contains('@') {
                receiver.clone()
            } else {
                format!("{receiver}@{platform}")
            };
            let aid = Aid::new(name)
                .map_err(|error| Fault::new(FaultCode::IllegalName, error.to_string()))?;
            acl = acl.with_receiver(aid);
        }
        let wanted = acl.receivers.len();
        if let Some(language) = message.language {
            acl = acl.with_language(language);
        }
        if let Some(ontology) = message.ontology {
            acl = acl.with_ontology(ontology);
        }
        if let Some(protocol) = message.protocol {
            acl = acl.with_protocol(protocol);
        }
        let conversation = format!("c{id}");
        let (sender, mut replies) = mpsc::channel(REPLIES);
        self.waiting.lock().insert(conversation.clone(), sender);
        let forget = Forget {
            operator: self,
            conversation,
        };
        let wait = Duration::from_millis(message.wait);
        match tokio::time::timeout(wait.max(SENDING), self.outbox.send(acl)).await {
            Ok(sent) => sent.map_err(|error| bad(error.to_string()))?,
            Err(_) => {
                let message = "a receiver's mailbox is full: not all receivers got the message";
                return Err(Fault::new(FaultCode::Unavailable, message)
                    .advise("see `sealbus top` for agents that do not read their mail"));
            }
        }
        let deadline = Instant::now() + wait;
        let mut collected = Vec::new();
        while collected.len() < wanted && message.wait > 0 {
            let Ok(Some(reply)) = tokio::time::timeout_at(deadline, replies.recv()).await else {
                break;
            };
            let mut text = Vec::new();
            let readable = reply.into_message();
            // An agreement only announces the answer.
            if readable.performative != Performative::Agree {
                string::encode(&readable, &mut text).map_err(|error| bad(error.to_string()))?;
                collected.push(String::from_utf8_lossy(&text).into_owned());
            }
        }
        drop(forget);
        Ok(collected)
    }
}

struct Forget<'o> {
    operator: &'o Operator,
    conversation: String,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.operator.waiting.lock().remove(&self.conversation);
    }
}
