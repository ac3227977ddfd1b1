//! Where an agent is.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use sealbus_seal::Identity;
use thiserror::Error;

/// A process of the platform that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessEndpoint {
    /// [`Identity::Process`]; at the levels that authenticate, the process proves it.
    pub identity: Identity,
    /// Where its mesh endpoint listens.
    pub address: SocketAddr,
}

/// Where an agent is, as far as the platform knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In another process.
    Process(ProcessEndpoint),
    /// On its way to another process, or about to be started: messages are kept until it has arrived.
    InTransit,
    /// There is no such agent.
    Unknown,
    /// It belongs to another platform, and this one has no gateway.
    NoGateway,
}

/// The platform could not say where an agent is.
#[derive(Clone, Debug, Error)]
#[error("cannot find out where {agent} is: {reason}")]
pub struct ResolveError {
    /// The agent's name.
    pub agent: String,
    /// The error and its remedy.
    pub reason: String,
}

/// A boxed future, for the calls that are never on a message's path.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Says where agents are. It is asked once for each agent spoken to, and again when the agent is no longer there.
///
/// Agents of the own process are known to the bus and never asked for. What changes is pushed:
/// [`Bus::location_changed`](crate::Bus::location_changed).
pub trait Resolver: Send + Sync {
    /// Looks up `agent` (a whole name, such as `seller-1@factory`).
    ///
    /// An error is taken for passing: the bus keeps the messages and asks again until its hold time is over.
    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>>;
}
