//! The exchange: it knows the subscriptions of this process and of other processes, and carries events, requests and
//! answers between them. It is a state machine without I/O and without a clock: incidents and the time go in, frames
//! and outcomes come out.
//!
//! **Epochs.** Two processes first tell each other the epochs in which they speak (*hello*). A process takes a higher epoch
//! when it is started again, and when it has given the other process up. The session of a frame shows whether it is from a
//! former epoch; such frames are ignored. In a new session, both processes announce their subscriptions again.
//!
//! **Reliability** between processes is the task of the transport: a frame arrives once and in order, or it comes back.
//! A frame that comes back is sent again before everything else. Frames are numbered in each session, and taken in the
//! order of their numbers. A frame that comes back after it has arrived is therefore taken once, and a frame that
//! overtakes one on its way back is taken after it. A process *acknowledges* the frames that it has taken, because no
//! transport knows that. Acknowledgements make room, for which publishers wait. A frame that is not acknowledged within
//! [`ExchangeConfig::absence`] is reported to its publisher, and the two processes begin a new session. Best-effort
//! events are sent once, and neither kept nor reported.
//!
//! **Unread events.** An acknowledged event still waits until its agent takes it. So the acknowledgement also names the
//! frame up to which agents have read all events. The publisher's process keeps the other events, within the same
//! limits. If the agent moves away, its process sends *absent* for each event that waited, and its *withdraw* names the
//! first frame that came too late. If the process is given up, all unread events count as lost. In both cases the
//! publishers get the events back.
//!
//! **Moves.** An agent that moves is in two processes for a while. It rests in the former one until the move is settled. As
//! soon as the new process has announced the same subscription, only the new one gets further events. Events that came to the
//! former process before that come back. Queue groups give the events of a member to another one themselves.
//!
//! **Announcements.** The platform tells processes whose agents use channels of each other. A process greets all others
//! when one of its agents publishes. Processes with subscriptions announce these to it, and later every new one. Two
//! processes say nothing to each other while neither publishes. A publisher waits until the platform has told its
//! process of the others, and until each of them has announced its subscriptions, so that an event reaches each of
//! them. If a process announces nothing within [`ExchangeConfig::introduction`], the publisher's error names that
//! process, and publishers wait no longer for it until it has announced its subscriptions, or greets after a long
//! pause. Best-effort events do not wait. Publishers do not wait for a process that was given up.
//!
//! **Flow.** A publisher waits while a process has more than [`ExchangeConfig::kept_bytes`] unacknowledged, while a
//! subscription that pushes back has no room, and while the process of such a subscription has given no more credit.
//! All other subscriptions take every event and follow their policy. Best-effort events wait for no other process: they
//! are lost if there is no room. A new session brings no more credit: unread events of the former ones count against it.
//!
//! **Groups.** Subscriptions of one group share its events. The publisher's process holds each event until a member has
//! handled it; see [`groups`].
//!
//! **Requests** name the subscriptions that are asked. Each subscription answers once, declines, or ends. So the
//! requester knows which agents did not answer, and does not wait for agents that cannot answer. Answers take no credit:
//! one that finds no room beside those that wait for the requester is refused, and its agent has not answered.
//!
//! **Rights** are checked where an event arrives, by the identity that its transport proved, and where a subscription
//! is announced. The publisher's process checks them, too, so that the publisher learns of a refusal early.

mod aftermath;
mod announcements;
mod arrival;
mod changes;
mod chosen;
mod collector;
mod config;
mod consumer;
mod counts;
mod delivery;
mod encoding;
mod filter_errors;
mod groups;
#[cfg(test)]
mod hostile;
mod judge;
mod known_filters;
mod leaving;
mod options;
mod peer;
mod peers;
mod processes;
mod publication;
mod publish;
mod receipt;
mod reports;
mod requests;
mod room;
mod row;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod scenes;
mod sealing;
mod sending;
mod sessions;
mod share;
mod sharing;
#[cfg(test)]
mod simulation;
mod stream;
mod subscriptions;
mod targets;
mod time;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sealbus_seal::Identity;

pub(crate) use aftermath::Aftermath;
use changes::Changes;
pub(crate) use collector::Collector;
pub(crate) use config::ExchangeConfig;
pub(crate) use consumer::Consumer;
use groups::Groups;
use judge::Judge;
pub use leaving::UndeliveredEvents;
pub use options::{Ended, SubscriptionOptions};
use peers::Peers;
pub(crate) use publication::{Attempt, Publication, SentRequest, Turn};
pub use publication::{PublishError, Reach};
pub(crate) use receipt::Receipt;
pub use reports::{ChannelReport, SubscriptionReport};
use requests::Asking;
use row::EventRow;
use sealing::LookUps;
pub use subscriptions::SubscribeError;
use targets::Channel;

use super::declared::DeclaredChannels;
use super::path::ChannelPath;
use super::pattern::{ChannelPattern, PatternIndex};
use super::permission::ChannelPermissions;
use super::queue::FlowReport;
use super::sealed::EventSealer;
use sealbus_bus::Gate;
use sealbus_bus::Moment;
use sealbus_bus::RefusalReason;
use sealbus_bus::UndeliverableReason;

/// The time, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The time since the exchange began, which never goes back.
    pub(crate) since_start: Duration,
    /// The time of the calendar, which other processes share.
    pub(crate) moment: Moment,
}

/// A notice for an agent or for the log.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// An agent's event did not reach its targets.
    Failed {
        publisher: Arc<str>,
        receiver: String,
        /// The ACL message.
        body: Bytes,
        reason: UndeliverableReason,
    },
    /// Something was refused.
    Refused {
        tried_by: String,
        proved: Option<String>,
        channel: Option<String>,
        reason: RefusalReason,
        explanation: String,
    },
    /// A subscription's policy has acted.
    Flow {
        agent: Arc<str>,
        pattern: ChannelPattern,
        report: FlowReport,
    },
    /// Events have passed a subscription by.
    Missed {
        agent: Arc<str>,
        pattern: ChannelPattern,
        /// The total so far.
        missed: u64,
    },
    /// A subscription's filter cannot be evaluated for a published message. This is reported once.
    FilterError {
        agent: Arc<str>,
        pattern: ChannelPattern,
        filter: String,
        problem: String,
    },
}

/// The exchange of a process.
pub(crate) struct Exchange {
    config: ExchangeConfig,
    rights: Arc<ChannelPermissions>,
    declared: Arc<DeclaredChannels>,
    judge: Judge,
    sealer: Option<Arc<dyn EventSealer>>,
    look_ups: LookUps,
    // Sorted, so that output does not depend on the order of a hash table.
    consumers: BTreeMap<u32, Arc<Consumer>>,
    /// Agents that rest, because they move.
    resting: HashSet<Arc<str>>,
    next_subscription: u32,
    here: PatternIndex<u32>,
    peers: Peers,
    indexes: HashMap<Identity, u32>,
    /// The process that the last frame came from.
    heard: Option<(Arc<Identity>, u32)>,
    /// The events that came last, if their subscriptions do not have them yet. Empty except while frames are taken.
    row: EventRow,
    next_peer: u32,
    there: PatternIndex<(u32, u32)>,
    groups: Groups,
    /// Whether events of groups are being given to members.
    is_serving: bool,
    channels: HashMap<ChannelPath, Channel>,
    /// The lowest number for new channels. Numbers of forgotten channels are not used again.
    lowest_number: u64,
    changes: Changes,
    asking: BTreeMap<u64, Asking>,
    next_request: u64,
    /// Subscriptions of this process that declined the request that is being made.
    declined_at_once: Vec<u32>,
    outcomes: Vec<Outcome>,
    /// A buffer for the message that is being published.
    encoded: Vec<u8>,
    ready: VecDeque<u32>,
    /// Whether an agent of this process has published. If so, this process wants the subscriptions of other processes.
    is_interested: bool,
    /// Whether the platform has told this process of the others whose agents use channels.
    is_acquainted: bool,
    /// The time until which publishers wait for the platform.
    acquainted_until: Option<Duration>,
    /// Whether publishers need not wait for any process: each has announced its subscriptions or is excused.
    all_announced: bool,
    /// The times until which publishers wait at the gates of subscriptions that push back.
    stalls: Vec<(Duration, Arc<Gate>)>,
    /// The gate at which publishers wait for the announcements of other processes.
    announcements: Arc<Gate>,
    /// When to search the queues for events that have expired or become valid.
    sweep_at: Option<Duration>,
    /// When to look at each process, soonest first.
    due: BTreeSet<(Duration, u32)>,
    alarm: Option<Duration>,
    is_alarm_sooner: bool,
    /// How many times a process was looked at because of the time.
    #[cfg(test)]
    looks: u64,
}

impl Exchange {
    pub(crate) fn new(config: ExchangeConfig) -> Self {
        Self {
            judge: Judge::new(config.largest_message),
            config,
            rights: Arc::default(),
            declared: Arc::default(),
            sealer: None,
            look_ups: LookUps::default(),
            consumers: BTreeMap::new(),
            resting: HashSet::new(),
            next_subscription: 1,
            here: PatternIndex::new(),
            peers: Peers::default(),
            indexes: HashMap::new(),
            heard: None,
            row: EventRow::default(),
            next_peer: 0,
            there: PatternIndex::new(),
            groups: Groups::default(),
            is_serving: false,
            channels: HashMap::new(),
            lowest_number: 0,
            changes: Changes::default(),
            asking: BTreeMap::new(),
            next_request: 1,
            declined_at_once: Vec::new(),
            outcomes: Vec::new(),
            encoded: Vec::new(),
            ready: VecDeque::new(),
            is_interested: false,
            is_acquainted: true,
            acquainted_until: None,
            all_announced: true,
            stalls: Vec::new(),
            announcements: Arc::default(),
            sweep_at: None,
            due: BTreeSet::new(),
            alarm: None,
            is_alarm_sooner: false,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Sets the permissions from now on.
    pub(crate) fn set_permissions(&mut self, rights: Arc<ChannelPermissions>) {
        self.rights = rights;
        self.changes.note_all();
    }

    /// Declares these channels from now on.
    pub(crate) fn declare(&mut self, channels: Arc<DeclaredChannels>) {
        self.declared = channels;
        self.changes.note_all();
    }

    pub(crate) fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }
}
