//! Agents that talk fast and know who is talking.
//!
//! An agent is a value with hooks ([`Agent`]). A program names its agents and runs them ([`run`]):
//!
//! ```
//! use std::time::Duration;
//! use sealbus::{AclMessage, Agent, AgentResult, Context, Message, Performative, agent, run};
//!
//! struct Greeter;
//!
//! impl Agent for Greeter {
//!     async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
//!         context.reply(&message, Performative::Inform, format!("hello {}", message.sender_name())).await?;
//!         Ok(())
//!     }
//! }
//!
//! struct Guest;
//!
//! impl Agent for Guest {
//!     async fn setup(&mut self, context: &mut Context) -> AgentResult {
//!         let knock = AclMessage::new(Performative::Request).with_receiver(context.peer("greeter")?);
//!         let answer = context.request(knock, Duration::from_secs(5)).await?;
//!         println!("{}", answer.text()?);
//!         context.stop_all();
//!         Ok(())
//!     }
//! }
//!
//! run([agent("greeter", Greeter), agent("guest", Guest)])?;
//! # Ok::<(), sealbus::RunError>(())
//! ```
//!
//! # Where agents run
//!
//! The program above starts a platform inside itself: a Master, a Certification Authority, AMS and DF. Each agent makes
//! its own key and is certified before it sends its first message. No server is needed, and no configuration.
//!
//! The same program, unchanged, runs on a platform of many machines. The environment decides:
//!
//! | variable | who sets it | effect |
//! |---|---|---|
//! | `SEALBUS_ATTACH` | a node that starts the program | the program attaches to the node and runs the agents placed there |
//! | `SEALBUS_TICKET` | you, with a ticket from `sealbus ticket NAME` | the program joins the platform from outside |
//! | neither | | an embedded platform |
//! | `SEALBUS_LOG` | you | sets the log level or a filter, such as `info` or `sealbus=debug` |
//!
//! # Guarantees
//!
//! A message that [`Voice::send`] accepted is delivered once, and in order per sender and receiver. Otherwise the
//! sender gets a notice that it was not delivered, with the reason. A full mailbox holds back only the agents that
//! write to it. At level `auth`, the default, the sender proved its name with its certificate; [`Message::provenance`]
//! says how. The platform never delivers a message that fails a check.
//!
//! # Where to look
//!
//! | to … | see |
//! |---|---|
//! | send, receive, ask, answer | [`Context`], and [`acl`] for messages and their parts |
//! | say and read values of declared types | [`body`], [`Message::body`] |
//! | wait for some messages and leave others | [`Filter`] |
//! | keep the messages of one conversation apart from the rest | [`Voice::converse`], [`Conversation`] |
//! | call for proposals, hold an auction, ask many, subscribe | [`protocol`] |
//! | talk to all agents that care about a subject | [`Voice::channel`], [`Voice::subscribe`], [`Context::listen`], and [`channel`] |
//! | offer services and find them | [`Voice::df`], [`directory`] |
//! | offer typed functions as services, and ask for answers in parts | [`Context::offer`], [`Voice::ask`], [`tool`] |
//! | act by itself: each second, at a time, as a state machine | [`Context::begin`], [`behaviour`] |
//! | test agents, with a clock that the test moves | [`testing`] |
//! | prove to servers outside the platform which agent it is | [`Voice::workload_token`] |
//! | follow a request through agents, by OpenTelemetry | [`trace`] |
//! | move between nodes with state | [`Agent::save`], [`Agent::restore`] |
//! | drive agents without hooks, at full speed | [`Platform`], and [`process`] |
//! | talk to agents of other FIPA platforms | [`gateway`] |

pub mod acl;
mod agent;
pub mod behaviour;
pub mod body;
mod cast;
pub mod channel;
mod clock;
mod context;
mod conversation;
mod crew;
pub mod directory;
mod fault;
mod filter;
pub mod gateway;
mod handler;
mod labour;
mod life;
mod lingering;
mod message;
mod platform;
pub mod process;
pub mod protocol;
mod run;
mod supervision;
pub mod testing;
pub mod tool;
pub mod trace;
mod workload;

pub use agent::Agent;
pub use cast::CastError;
pub use clock::{Clock, Elapsed};
pub use context::{Context, ReceiveError, RequestError, Voice};
pub use conversation::{Conversation, ConverseError, Undelivered, new_conversation_id};
pub use crew::AgentEnd;
pub use filter::Filter;
pub use message::{ContentError, Message};
pub use platform::{Platform, PlatformError, WindowError, log_to_stderr};
pub use run::{AgentFailure, NamedAgents, RunError, Running, agent, agents, run, run_agents};
pub use supervision::{
    AgentResult, Failure, HandlerError, LEAVING_PARAMETER, NotUnderstood, Refuse, Supervision,
};
pub use workload::{WorkloadIssuer, WorkloadToken, WorkloadTokenError};

// The names of the layers below that nearly every agent needs.
pub use sealbus_bus::{
    Acknowledgement, ConversationOpen, Delegation, DelegationError, Delivery, Late, Provenance,
    SendError, TrySendError,
};
pub use sealbus_fipa::{AclMessage, Aid, Content, Performative};

// The pages' programs compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/bodies.md")]
    struct Bodies;
    #[doc = include_str!("../../../docs/conversations.md")]
    struct Conversations;
}
