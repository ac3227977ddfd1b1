//! Resolvers: they know where agents are.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use sealbus_seal::Identity;
use thiserror::Error;

/// A process of the platform that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessEndpoint {
    /// The process's name, always [`Identity::Process`]. At the levels that authenticate, the process proves it.
    pub identity: Identity,
    /// The address at which the process's mesh endpoint listens.
    pub address: SocketAddr,
}

/// The place of an agent, as far as the platform knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In another process.
    Process(ProcessEndpoint),
    /// On its way to another process, or about to be started. Messages are kept until the agent has arrived.
    InTransit,
    /// There is no such agent.
    Unknown,
    /// The agent belongs to another platform, and this platform has no gateway.
    NoGateway,
}

/// The platform could not say where an agent is.
#[derive(Clone, Debug, Error)]
#[error("cannot find out where {agent} is: {reason}")]
pub struct ResolveError {
    /// The agent's name.
    pub agent: String,
    /// The reason and the remedy.
    pub reason: String,
}

/// A boxed future, for calls that are not on the path of a message.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tells where agents are. The bus asks once for each agent that receives messages, and again when the agent is no
/// longer there.
///
/// The bus knows the agents of its own process and never asks for them. Changes are pushed:
/// [`Bus::location_changed`](crate::Bus::location_changed).
pub trait Resolver: Send + Sync {
    /// Looks up `agent` (a whole name, such as `seller-1@factory`).
    ///
    /// The bus takes an error as temporary: it keeps the messages and asks again until its hold time is over.
    fn resolve<'a>(&'a self, agent: &'a str) -> BoxFuture<'a, Result<Location, ResolveError>>;
}
