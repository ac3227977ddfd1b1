//! The gateway to other platforms, as an agent of this platform. A process runs the agent `gateway`, or an embedded
//! platform has it beside its own agents.
//!
//! Under a manifest the gateway is a process of its own, which a node starts, watches and vouches for like any other.
//! So the code that reads bytes from the open network shares no memory with the CA's keys.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{GATEWAY, Provenance, ReceivedMessage, is_foreign};
use sealbus_gateways::{Gateway as Doors, GatewayConfig, GatewayPolicy, OpenGatewayError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use sealbus_control::correspondence::{Correspondent, Enquiry};
use sealbus_control::names::OPERATOR;
use sealbus_control::node::{GatewayAnswer, GatewayRequest, GatewayStatus, ask_operator};
use sealbus_control::{Fault, FaultCode, Rules};
use sealbus_process::{AgentHandle, OpenAgentError, Process};

/// How long the Master may take to hear that the gateway runs.
const HEARING: Duration = Duration::from_secs(5);
/// Pause before it is told again.
const PAUSE: Duration = Duration::from_secs(2);
/// How long closing waits for messages in transit.
const LAST_MESSAGES: Duration = Duration::from_secs(3);

/// The reason why a gateway was not opened.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The gateway's agent could not be opened.
    #[error(transparent)]
    Agent(#[from] OpenAgentError),
    /// An interface of the gateway could not be opened.
    #[error(transparent)]
    Open(#[from] OpenGatewayError),
}

/// The gateway. It stays open as long as this value lives.
pub struct Gateway {
    doors: Arc<Doors>,
    serving: JoinHandle<()>,
}

struct Shared {
    doors: Arc<Doors>,
    /// The rules of its configuration. The operators' rules are added to them.
    own: GatewayPolicy,
    /// The rules that the platform tells its processes, those of the operators among them. They come by the control plane, so
    /// they are the operators' own at every level.
    rules: watch::Receiver<Rules>,
    /// Those of the operators that are in force.
    operators: GatewayPolicy,
}

impl Gateway {
    /// Opens the platform's gateway in this process.
    ///
    /// # Errors
    /// [`GatewayError`]. After an error nothing is open.
    pub async fn open(process: &Process, config: GatewayConfig) -> Result<Self, GatewayError> {
        let agent = process.open_agent(GATEWAY).await?;
        let own = config.policy();
        let doors = Arc::new(Doors::open(config, agent.outbox().clone()).await?);
        let shared = Shared {
            doors: doors.clone(),
            own,
            rules: process.rules(),
            operators: GatewayPolicy::default(),
        };
        let serving = tokio::spawn(shared.serve(agent, process.clone()));
        Ok(Self { doors, serving })
    }

    /// The addresses at which other platforms reach the gateway.
    pub fn addresses(&self) -> &[String] {
        self.doors.addresses()
    }

    /// The gateway's interfaces, HTTP and IIOP.
    pub fn doors(&self) -> &Arc<Doors> {
        &self.doors
    }

    /// Closes the gateway after the messages in transit were taken, or after a few seconds.
    pub async fn close(self) {
        self.doors.close(LAST_MESSAGES).await;
        self.serving.abort();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shared {
    async fn serve(mut self, mut agent: AgentHandle, process: Process) {
        self.obey_operators();
        let asking = Correspondent::new(agent.outbox().clone());
        let mut telling = Box::pin(tell_that_it_runs(asking.clone()));
        let mut is_told = false;
        let wishes = agent.wishes();
        let mut leaves = Box::pin(async {
            wishes.stop_wished().await;
            // When all agents must leave, the others may still have messages for other platforms. The owner of the
            // gateway closes it after they have left.
            if process.is_stopping() {
                std::future::pending::<()>().await;
            }
        });
        loop {
            tokio::select! {
                received = agent.receive() => match received {
                    Some(received) => self.hear(received, &asking).await,
                    None => return,
                },
                () = &mut telling, if !is_told => is_told = true,
                Ok(()) = self.rules.changed() => self.obey_operators(),
                () = &mut leaves => {
                    self.doors.close(LAST_MESSAGES).await;
                    return;
                }
            }
        }
    }

    async fn hear(&self, received: ReceivedMessage, asking: &Correspondent) {
        let platform = &asking.outbox().bus().config().platform;
        let is_for_outside = matches!(received.provenance(), Provenance::Platform)
            && received
                .message()
                .receivers()
                .next()
                .is_some_and(|it| is_foreign(it.name(), platform));
        if is_for_outside {
            self.doors.notice(received).await;
            return;
        }
        if let Some(enquiry) = asking.receive(received) {
            self.answer(enquiry).await;
        }
    }

    async fn answer(&self, enquiry: Enquiry) {
        let (from, request, reply) = enquiry.open::<GatewayRequest>();
        let result = match request {
            Ok(_) if from != OPERATOR => Err(Fault::new(
                FaultCode::NotPermitted,
                "the gateway obeys the platform's operators only",
            )),
            Ok(GatewayRequest::Status) => Ok(GatewayAnswer::from(GatewayStatus {
                addresses: self.doors.addresses().to_vec(),
                own: self.own.clone(),
                operators: self.operators.clone(),
                counters: self.doors.counters(),
            })),
            Err(fault) => Err(fault),
        };
        reply.send(result).await;
    }

    /// Puts the operators' present rules in force.
    fn obey_operators(&mut self) {
        let operators = self.rules.borrow_and_update().gateway.clone();
        if operators == self.operators {
            return;
        }
        let mut policy = self.own.clone();
        policy.rules.extend(operators.rules.iter().cloned());
        match self.doors.set_policy(policy) {
            Ok(()) => self.operators = operators,
            Err(error) => {
                tracing::error!(%error, "the operators' rules for the gateway are not in force");
            }
        }
    }
}

/// Tells the Master that the gateway runs, until it has heard it: the AMS names the gateway's addresses.
async fn tell_that_it_runs(asking: Correspondent) {
    while let Err(error) = asking
        .ask(OPERATOR, ask_operator::GatewayRuns, HEARING)
        .await
    {
        tracing::info!(%error, "the Master has not heard yet that the gateway runs");
        tokio::time::sleep(PAUSE).await;
    }
}
