//! The contract of a broker's administration, for the Master.

use std::net::IpAddr;

use bytes::Bytes;
use sealbus_bus::BoxFuture;
use sealbus_seal::Identity;

use crate::client::BrokerFailure;
use crate::config::Login;
use crate::envelope::Queue;

/// A login of one agent or process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The agent or the process.
    pub identity: Identity,
    /// The address in its certificate.
    pub address: IpAddr,
}

/// The reason why a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Death {
    /// The receiving side refused the message.
    Refused,
    /// The message was not taken before its life ended.
    Expired,
    /// The message's receiver ended and left it unread.
    Left,
    /// Another reason, in the broker's own word.
    Other(String),
}

/// A message that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The agent that sent the message, by its whole name, or another user as the broker names it. `None` if the broker
    /// proves no user.
    pub from: Option<String>,
    /// The agent that the message was for, by its whole name; `None` if it was in no agent's queue.
    pub receiver: Option<String>,
    /// The reason.
    pub death: Death,
    /// The time, in seconds since the Unix epoch, if the broker reports it.
    pub at: Option<u64>,
    /// The payload. It should be the bit-efficient encoding of an ACL message.
    pub payload: Bytes,
}

/// A broker of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The broker's name.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// The broker is short of memory: the whole cluster takes no messages.
    pub memory_alarm: bool,
    /// The broker is short of disk: the whole cluster takes no messages.
    pub disk_alarm: bool,
}

/// Counts of the messages at the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    /// The number of messages in agents' queues, by the agents' whole names. Agents without messages are left out.
    pub agents: Vec<(String, u64)>,
    /// Dead letters kept.
    pub dead_letters: u64,
}

/// The answer to a request of the Master.
type Asked<'a, T> = BoxFuture<'a, Result<T, BrokerFailure>>;

/// The Master's administration of a broker. Every call may be repeated. A thing that is already there, or already gone,
/// is not a failure.
pub trait Administration: Send + Sync + 'static {
    /// Makes the parts that all agents share. At the levels at which agents do not prove their identity, they share a
    /// login.
    fn prepare<'a>(&'a self, shared: Option<&'a Login>) -> Asked<'a, ()>;

    /// Makes a queue. Messages or frames for its owner wait in it from now on, and in no other queue.
    fn open_queue<'a>(&'a self, queue: &'a Queue) -> Asked<'a, ()>;

    /// Lets an agent or a process log in with its certificate and with nothing else. The account may read its own
    /// queue. An agent may write to all agents, and a process to all processes. No other identity is admitted.
    fn admit<'a>(&'a self, account: &'a Account) -> Asked<'a, ()>;

    /// Bars this account from logging in, and closes its connections.
    fn dismiss<'a>(&'a self, account: &'a Account) -> Asked<'a, ()>;

    /// The accounts of agents and processes that may log in.
    fn accounts(&self) -> Asked<'_, Vec<Account>>;

    /// The queues of agents and processes.
    fn queues(&self) -> Asked<'_, Vec<Queue>>;

    /// Whether a connection reads a queue. The broker may notice late that a reader died. The reader's messages are in
    /// the queue again only then.
    fn is_read<'a>(&'a self, queue: &'a Queue) -> Asked<'a, bool>;

    /// The number of messages in a queue, including those that a reader holds; `None` if there is no such queue.
    fn depth<'a>(&'a self, queue: &'a Queue) -> Asked<'a, Option<u64>>;

    /// Removes a queue and its messages.
    fn remove_queue<'a>(&'a self, queue: &'a Queue) -> Asked<'a, ()>;

    /// Has the broker move some messages from the queue of an agent to the dead letters, and returns their number.
    fn bury<'a>(&'a self, queue: &'a Queue) -> Asked<'a, usize>;

    /// Takes some of the dead letters that were not taken yet. The broker may keep them until the next call. The Master
    /// therefore calls again when it has dealt with them. If it never does, another Master gets them again.
    fn take_dead(&self) -> Asked<'_, Vec<DeadLetter>>;

    /// The brokers of the cluster, by name.
    fn members(&self) -> Asked<'_, Vec<Member>>;

    /// Counts the messages at the broker.
    fn waiting(&self) -> Asked<'_, WaitingCounts>;
}
