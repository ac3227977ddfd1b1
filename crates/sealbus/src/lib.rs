//! Agents that talk fast and know who is talking.
//!
//! An agent is a value with hooks ([`Agent`]); a program names its agents and runs them ([`run`]). That is all:
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
//! its own key and is certified before it says a word; no server is needed, and no configuration.
//!
//! The same program, unchanged, runs on a platform of many machines. What decides is the environment:
//!
//! | variable | who sets it | effect |
//! |---|---|---|
//! | `SEALBUS_ATTACH` | a node that starts the program | the program attaches to the node and runs the agents placed there |
//! | `SEALBUS_TICKET` | you, with what `sealbus ticket NAME` printed | the program joins the platform from outside |
//! | neither | | an embedded platform |
//! | `SEALBUS_LOG` | you | what is logged: a level or a filter, such as `info` or `sealbus=debug` |
//!
//! # What is promised
//!
//! A message that [`Context::send`] accepted is delivered once, and in order per sender and receiver, or the sender is
//! told that it was not and why. A full mailbox holds back those who write to it and nobody else. At level `auth`, the
//! default, the sender's name in a message was proved with its certificate; [`Message::provenance`] says how. What fails
//! a check is never delivered.
//!
//! # Finding the way about
//!
//! | to … | see |
//! |---|---|
//! | send, receive, ask, answer | [`Context`] |
//! | wait for some messages and leave others | [`Filter`] |
//! | talk to whoever cares about a subject | [`Context::channel`], [`Context::subscribe`], [`Context::listen`] |
//! | offer services and find them | [`Context::df`], [`directory`] |
//! | move between nodes with state | [`Agent::save`], [`Agent::restore`] |
//! | drive agents without hooks, at full speed | [`Platform`], [`AgentHandle`] |

mod agent;
mod cast;
mod channel;
mod context;
mod conversation;
mod crew;
pub mod directory;
mod filter;
mod message;
mod platform;
mod run;

pub use agent::{Agent, AgentResult};
pub use cast::{CastError, Part, Role, cast};
pub use channel::{
    Channel, ChannelAnswers, ChannelError, ChannelEvent, ChannelReplies, ChannelSubscription,
    Subscribing,
};
pub use context::{Context, ReceiveError, RequestError};
pub use conversation::{Expected, Undelivered, new_conversation_id};
pub use crew::{AgentEnd, HOOK_GRACE, TEARDOWN_LIMIT};
pub use directory::{DirectoryError, Template};
pub use filter::Filter;
pub use message::{ContentError, Message};
pub use platform::{
    ATTACH_VARIABLE, EMBEDDED_NAME, JoinError, LOG_VARIABLE, Platform, STATE_VARIABLE,
    TICKET_VARIABLE, log_to_stderr,
};
pub use run::{AgentFailure, NamedAgents, RunError, agent, agents, run, run_agents};

// What a program needs of the layers below, so that it need not name their crates.
pub use sealbus_bus::{
    Acknowledgement, Delivery, Lifetime, Mailbox, Outbox, Provenance, ReceivedMessage, SendError,
    TrySendError, UndeliverableReason,
};
pub use sealbus_channels::frame::Replay;
pub use sealbus_channels::{
    ChannelAddress, ChannelFilter, ChannelHeader, ChannelPath, ChannelPattern, DamagedLog,
    FilterError, FlowPolicy, LogPlace, LogRetention, Mechanism, Moment, PathError, Persistence,
    Priority, PublishError, Qos, QosError, QosOverride, QueueCounters, QueueLimits, Reach,
    Reliability, RequestOptions, SubscribeError, Time, UnavailableQos,
};
pub use sealbus_fipa::management::{
    AgentState, AmsAgentDescription, DfAgentDescription, Property, SearchConstraints,
    ServiceDescription,
};
pub use sealbus_fipa::{
    AclMessage, AclMessageRef, Aid, AidError, Content, DateTime, Expression, Performative, sl,
};
pub use sealbus_gateways::http::{
    GatewayCounters, GatewayPolicy, GatewayRule, HttpGatewayConfig, KnownPlatform,
};
pub use sealbus_platform::gateway::GatewayError;
pub use sealbus_process::{
    AgentHandle, AgentSender, CertificationError, OpenAgentError, OpenError, Parting, Process,
    ProcessEnd, Stopping, Thawed, Wish, Wishes,
};
pub use sealbus_seal::{Identity, SecurityLevel, VerifiedIdentity};
