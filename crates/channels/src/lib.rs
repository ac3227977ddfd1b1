//! The AgentBus: channels by topic, for events, directed messages and questions to everyone.
//!
//! Agents seldom know each other; they know what they care about. A channel is a [path](ChannelPath) such as
//! `/dates/business`. On each channel there are three [mechanisms](Mechanism): an *event*, seen by every consumer; a
//! *message* to one named agent on the channel; and a *request* to everyone, whose answers all come back. Each carries an
//! ordinary ACL message, so that content, performative and the proved `:sender` mean what they mean everywhere, plus a
//! small [`ChannelHeader`].
//!
//! The model is the AgentBus of F. Kargl, T. Illmann and M. Weber, "Evaluation of Java Messaging Middleware as a Platform
//! for Software Agent Communication".
//!
//! Processes tell each other their subscriptions and send each other what is published in [frames](frame), which a
//! transport carries ([`ProcessDestination`](sealbus_bus::ProcessDestination)) and hands in
//! ([`Bus::take_frames`](sealbus_bus::Bus::take_frames)). [`Channels`] is the face of it for the agents of a process. All but that one does no I/O and reads no
//! clock: time comes in as a [`Moment`].

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

pub use address::{
    AddressError, AddressProblem, AddressScheme, ChannelAddress, ChannelOwner, MAX_ADDRESS_LENGTH,
};
pub use channels::{Answers, Channels, Replies, RequestOptions, Subscription};
pub use declared::DeclaredChannels;
pub use event::{ChannelHeader, EventParts, Logged, Mechanism, ReceivedEvent, RequestId};
pub use exchange::{
    ChannelReport, Ended, PublishError, Reach, SubscribeError, SubscriptionOptions,
    SubscriptionReport,
};
pub use filter::{
    ChannelFilter, EvaluationError, FilterError, FilterProblem, MAX_FILTER_COST, MAX_FILTER_DEPTH,
    MAX_FILTER_LENGTH, MAX_PATTERN_SIZE,
};
pub use flow::{FlowPolicy, QueueLimits, UnknownFlowPolicy};
pub use log::{
    ChannelLogs, DamagedLog, EventToKeep, LogCursor, LogPart, LogPlace, LogReading, LogRetention,
    LoggedEvent, NotRead,
};
pub use path::{
    ChannelPath, MAX_LEVEL_LENGTH, MAX_LEVELS, MAX_PATH_LENGTH, PathError, PathProblem,
};
pub use pattern::{ChannelPattern, PatternIndex};
pub use permission::{ChannelPermissionError, ChannelPermissions, MAX_CHANNEL_RULES};
pub use qos::{
    ChannelCapabilities, MAX_QOS_LENGTH, Persistence, Priority, Promise, Qos, QosError,
    QosOverride, QosProblem, Reliability, Time, UnavailableQos,
};
pub use queue::{FlowReport, Loss, Pushed, QueueCounters, QueueTerms, SubscriptionQueue};
pub use sealbus_bus::Moment;
