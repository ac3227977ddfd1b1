//! The AgentBus: channels by topic, for events, messages to one agent, and questions to everyone.
//!
//! An agent seldom knows the other agents, but it knows its interests. A channel is a [path](ChannelPath) such as
//! `/dates/business`. Each channel has three [mechanisms](Mechanism): an *event*, which every consumer gets; a
//! *message* to one named agent on the channel; and a *request* to all agents, which returns all answers. Each
//! mechanism carries an ordinary ACL message, so that content, performative and the proved `:sender` have their usual
//! meaning. A small [`ChannelHeader`] goes with the message.
//!
//! The model is the AgentBus of F. Kargl, T. Illmann and M. Weber, "Evaluation of Java Messaging Middleware as a
//! Platform for Software Agent Communication".
//!
//! Processes tell each other their subscriptions and send each other published messages in [frames](frame). A transport
//! carries the frames ([`ProcessDestination`](sealbus_bus::ProcessDestination)) and hands them in
//! ([`Bus::take_frames`](sealbus_bus::Bus::take_frames)). [`Channels`] is the interface for the agents of a process.
//! The other parts do no I/O and read no clock: they get the time as a [`Moment`].

mod address;
mod channels;
mod declared;
mod event;
pub(crate) mod exchange;
mod filter;
mod flow;
pub mod frame;
mod log;
mod path;
mod pattern;
mod permission;
mod qos;
mod queue;
mod sealed;

pub use address::{
    AddressError, AddressProblem, AddressScheme, ChannelAddress, ChannelOwner, LONGEST_ADDRESS,
};
pub use channels::{
    Answers, ChannelRegistrar, Channels, LastError, LastEvents, Replies, RequestOptions,
    Subscription,
};
pub use declared::DeclaredChannels;
pub use event::{ChannelHeader, EventParts, Logged, Mechanism, ReceivedEvent, RequestId};
pub use exchange::{
    ChannelReport, Ended, PublishError, Reach, SubscribeError, SubscriptionOptions,
    SubscriptionReport, UndeliveredEvents,
};
pub use filter::{
    ChannelFilter, DEEPEST_FILTER, EvaluationError, EventKey, FilterError, FilterProblem,
    HIGHEST_COST, LARGEST_PATTERN, LONGEST_FILTER, LONGEST_KEY,
};
pub use flow::{FlowPolicy, QueueLimits, UnknownFlowPolicy};
pub use log::{
    ChannelLogs, DamagedLog, EventToKeep, LogCursor, LogPart, LogPlace, LogReading, LogRetention,
    LoggedEvent, NotRead, Replay,
};
pub use path::{ChannelPath, LONGEST_LEVEL, LONGEST_PATH, MOST_LEVELS, PathError, PathProblem};
pub use pattern::{ChannelPattern, PatternIndex};
pub use permission::{ChannelPermissionError, ChannelPermissions, MOST_CHANNEL_RULES};
pub use qos::{
    ChannelCapabilities, LONGEST_QOS, Persistence, Priority, Promise, Qos, QosError, QosOverride,
    QosProblem, Reliability, Time, UnavailableQos,
};
pub use queue::{FlowReport, Loss, Pushed, QueueCounters, QueueTerms, SubscriptionQueue};
pub use sealbus_bus::{Downgrade, Moment};
pub use sealed::{
    EventSealer, EventToSeal, GROUP_NAME, GroupChange, GroupName, Inside, LeftOut, Needs,
    OpenedPart, PartKind, Reader, SealedEvent, SealedPart, Unsealed,
};
