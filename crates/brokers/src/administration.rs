//! The contract of a broker's administration, which the Master asks.

use std::net::IpAddr;

use bytes::Bytes;
use sealbus_bus::BoxFuture;
use sealbus_seal::Identity;

use crate::client::BrokerFailure;
use crate::config::Login;
use crate::envelope::Receiver;

/// A login of one agent or process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The agent or the process.
    pub identity: Identity,
    /// The address in its certificate.
    pub address: IpAddr,
}

/// Why a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Death {
    /// The receiving side refused it.
    Refused,
    /// It was not taken before its life ended.
    Expired,
    /// Its receiver ended and left it unread.
    Left,
    /// Another reason, in the broker's own word.
    Other(String),
}

/// A message that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The agent that sent it, by its whole name, or another user in the broker's words; `None` if the broker proves none.
    pub from: Option<String>,
    /// The agent it was for, by its whole name; `None` if it was in no agent's queue.
    pub receiver: Option<String>,
    /// Why.
    pub death: Death,
    /// When, in seconds since the Unix epoch, if the broker says so.
    pub at: Option<u64>,
    /// The payload: the bit-efficient encoding of an ACL message, as far as it is one.
    pub payload: Bytes,
}

/// A broker of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// It is short of memory: the whole cluster takes no messages.
    pub memory_alarm: bool,
    /// It is short of disk: the whole cluster takes no messages.
    pub disk_alarm: bool,
}

/// Counts of the messages at the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Messages in the queues of agents, by the agents' whole names; agents without any are left out.
    pub agents: Vec<(String, u64)>,
    /// Dead letters kept.
    pub dead_letters: u64,
}

/// The answer to what the Master asked.
type Asked<'a, T> = BoxFuture<'a, Result<T, BrokerFailure>>;

/// A broker as the Master administers it. Every call may be repeated: what is there already, or gone already, is no
/// failure.
pub trait Administration: Send + Sync + 'static {
    /// Makes what all agents share. At the levels at which agents do not prove who they are, they share a login.
    fn prepare<'a>(&'a self, shared: Option<&'a Login>) -> Asked<'a, ()>;

    /// Makes a queue, in which messages or frames wait from now on.
    fn open_queue<'a>(&'a self, queue: &'a Receiver) -> Asked<'a, ()>;

    /// Lets an agent or a process log in with its certificate and with nothing else. It may read its own queue; an agent may
    /// write to all agents, and a process to all processes. Anybody else is not admitted.
    fn admit<'a>(&'a self, account: &'a Account) -> Asked<'a, ()>;

    /// Lets nobody log in by this account any more, and closes its connections.
    fn dismiss<'a>(&'a self, account: &'a Account) -> Asked<'a, ()>;

    /// The accounts of agents and processes that may log in.
    fn accounts(&self) -> Asked<'_, Vec<Account>>;

    /// The queues of agents and processes.
    fn queues(&self) -> Asked<'_, Vec<Receiver>>;

    /// Whether a connection reads a queue. The broker may notice late that a reader died; what the reader held is in the
    /// queue again then, and no sooner.
    fn is_read<'a>(&'a self, queue: &'a Receiver) -> Asked<'a, bool>;

    /// How many messages a queue holds, those that a reader holds included; `None` if there is no such queue.
    fn depth<'a>(&'a self, queue: &'a Receiver) -> Asked<'a, Option<u64>>;

    /// Removes a queue and what is in it.
    fn remove_queue<'a>(&'a self, queue: &'a Receiver) -> Asked<'a, ()>;

    /// Moves some messages from the queue of an agent that has ended to the dead letters, and says how many.
    fn bury<'a>(&'a self, agent: &'a str) -> Asked<'a, usize>;

    /// Takes some of the dead letters that were not taken yet.
    fn take_dead(&self) -> Asked<'_, Vec<DeadLetter>>;

    /// The brokers of the cluster, by name.
    fn members(&self) -> Asked<'_, Vec<Member>>;

    /// Counts the messages at the broker.
    fn waiting(&self) -> Asked<'_, Waiting>;
}
