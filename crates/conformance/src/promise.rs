//! The promises that a transport makes.

use std::fmt;

/// The promises of the bus over any transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TestedPromise {
    /// Messages from one agent to another, short and long, arrive in the order in which they were sent.
    Order,
    /// A message to several agents arrives at each of them, once.
    Receivers,
    /// Messages arrive once and in order even if connections break under way.
    Resume,
    /// A full mailbox holds back the agents that write to it.
    PushBack,
    /// A full mailbox holds back no other agents.
    PushBackAlone,
    /// Each message to a killed process arrived there, or comes back to its sender.
    Crash,
    /// Messages that wait unread in the mailboxes of a killed process come back to their senders.
    Unread,
    /// Messages follow an agent that moves, in order and once.
    Moving,
    /// A message to an absent agent comes back, with the reason.
    ComesBack,
    /// A message under another agent's name is refused. The refusal is noted with the name that tried.
    ForgedSender,
    /// After an agent's certificate is revoked, its messages are refused and noted.
    RevokedSender,
    /// A message of the largest size passes. A larger one is refused because of its size.
    SizeLimit,
    /// The buses of two processes reach each other. Frames arrive in order and once, from the writers that they name.
    Frames,
    /// A bus that takes no frames now holds back the writers of frames, but no agent's messages.
    FramesPushBack,
    /// Frames arrive once and in order even if connections break under way.
    FramesResume,
    /// Events reach every consumer in every process, once and in order.
    Events,
    /// They do though connections break under way.
    EventsResume,
    /// A message on a channel reaches the one agent that it names.
    Directed,
    /// A request to all agents brings all answers, and names the agents that did not answer.
    Request,
    /// Nothing is handed out before it is valid.
    ValidFrom,
    /// An event is not handed out from its expiry on, wherever it waited.
    Expiry,
    /// A subscription gets the events that fulfil its filter. An invalid filter is refused.
    Filter,
    /// A slow subscription drops events by its policy, is counted, and holds up no other.
    SlowSubscription,
    /// A subscription that pushes back holds back the publisher.
    EventsPushBack,
    /// Each event reaches one member of a group of subscriptions, and another one if that member leaves before it has
    /// handled the event. Other subscriptions get every event.
    Group,
    /// An event of a group reaches another member if the process of the first is killed.
    GroupCrash,
    /// A publisher without the right is refused, also where the event arrives.
    Rights,
    /// A quality of service that cannot be given is refused by name.
    RefusedByName,
    /// A late subscriber reads persistent channels from a time, a count or a number on.
    Replay,
    /// A late subscriber, or a question, gets the last event of each key.
    LastPerKey,
    /// A durable subscription goes on where it stopped.
    Durable,
    /// An acknowledged event is not lost when every node that keeps it ends.
    Acknowledged,
    /// No more events are kept than configured, and removed events are counted.
    Retention,
}

impl TestedPromise {
    /// The promises about logs, which come last in the table.
    pub const OF_LOGS: [Self; 5] = [
        Self::Replay,
        Self::LastPerKey,
        Self::Durable,
        Self::Acknowledged,
        Self::Retention,
    ];

    /// The promises of transports, in the order of the table.
    pub const ALL: [Self; 28] = [
        Self::Order,
        Self::Receivers,
        Self::Resume,
        Self::PushBack,
        Self::PushBackAlone,
        Self::Crash,
        Self::Unread,
        Self::Moving,
        Self::ComesBack,
        Self::ForgedSender,
        Self::RevokedSender,
        Self::SizeLimit,
        Self::Frames,
        Self::FramesPushBack,
        Self::FramesResume,
        Self::Events,
        Self::EventsResume,
        Self::Directed,
        Self::Request,
        Self::ValidFrom,
        Self::Expiry,
        Self::Filter,
        Self::SlowSubscription,
        Self::EventsPushBack,
        Self::Group,
        Self::GroupCrash,
        Self::Rights,
        Self::RefusedByName,
    ];

    /// The promise's name: the name of its test, and its name in the files of outcomes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Receivers => "receivers",
            Self::Resume => "resume",
            Self::PushBack => "push-back",
            Self::PushBackAlone => "push-back-alone",
            Self::Crash => "crash",
            Self::Unread => "unread",
            Self::Moving => "moving",
            Self::ComesBack => "comes-back",
            Self::ForgedSender => "forged-sender",
            Self::RevokedSender => "revoked-sender",
            Self::SizeLimit => "size-limit",
            Self::Frames => "frames",
            Self::FramesPushBack => "frames-push-back",
            Self::FramesResume => "frames-resume",
            Self::Events => "events",
            Self::EventsResume => "events-resume",
            Self::Directed => "directed",
            Self::Request => "request",
            Self::ValidFrom => "valid-from",
            Self::Expiry => "expiry",
            Self::Filter => "filter",
            Self::SlowSubscription => "slow-subscription",
            Self::EventsPushBack => "events-push-back",
            Self::Group => "group",
            Self::GroupCrash => "group-crash",
            Self::Rights => "rights",
            Self::RefusedByName => "refused-by-name",
            Self::Replay => "replay",
            Self::LastPerKey => "last-per-key",
            Self::Durable => "durable",
            Self::Acknowledged => "acknowledged",
            Self::Retention => "retention",
        }
    }

    /// Its kind, for the table.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Order => "messages arrive in the order they were sent, short and long",
            Self::Receivers => "a message to many receivers arrives exactly once at each",
            Self::Resume => "messages arrive once and in order even if connections break",
            Self::PushBack => "a full mailbox holds back the agents that write to it",
            Self::PushBackAlone => "a full mailbox holds back no other agent",
            Self::Crash => "messages that did not reach a killed process come back",
            Self::Unread => {
                "messages that a killed process had and its agents did not read come back"
            }
            Self::Moving => "messages follow an agent that moves",
            Self::ComesBack => "a message that cannot be delivered comes back with the reason",
            Self::ForgedSender => "a message under another agent's name is refused",
            Self::RevokedSender => "a revoked agent is refused at once",
            Self::SizeLimit => "the largest message passes, and a larger one is refused by name",
            Self::Frames => "frames between the buses of two processes arrive once and in order",
            Self::FramesPushBack => "frames: a busy bus holds back no mailbox",
            Self::FramesResume => "frames: they arrive once and in order even if connections break",
            Self::Events => "channels: events reach every consumer, once and in order",
            Self::EventsResume => {
                "channels: events reach every consumer, once and in order, even if connections break"
            }
            Self::Directed => "channels: a message on a channel reaches the agent it names alone",
            Self::Request => {
                "channels: a request brings all answers and names the agents that did not answer"
            }
            Self::ValidFrom => "channels: nothing is handed out before it is valid",
            Self::Expiry => "channels: nothing is handed out after its expiry",
            Self::Filter => "channels: filters hold, and wrong ones are refused",
            Self::SlowSubscription => {
                "channels: a slow subscription drops by its policy and holds up no other"
            }
            Self::EventsPushBack => {
                "channels: a slow subscription with push-back holds back the publisher"
            }
            Self::Group => {
                "channels: one member of a group gets an event, and another one if it leaves before"
            }
            Self::GroupCrash => {
                "channels: another member of a group gets the events that a killed process has not handled"
            }
            Self::Rights => "channels: an agent without the right to publish is refused",
            Self::RefusedByName => "channels: a QoS that cannot be given is refused by name",
            Self::Replay => {
                "persistent channels: late joiners read from a time, a count or a number on"
            }
            Self::LastPerKey => "persistent channels: late joiners get the last event of each key",
            Self::Durable => {
                "persistent channels: durable subscriptions continue where they stopped"
            }
            Self::Acknowledged => {
                "persistent channels: acknowledged events outlive every process that keeps them"
            }
            Self::Retention => {
                "persistent channels: no more is kept than the limit, and gaps are counted"
            }
        }
    }
}

impl fmt::Display for TestedPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
