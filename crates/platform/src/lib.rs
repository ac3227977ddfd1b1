//! The agent platform: Master, Remote Nodes, CA service, and what an agent process sees of them.
//!
//! A platform (`hap`) has one Master, which hosts the system agents `master`, `ams`, `df` and `ca`,
//! and Remote Nodes, each of which starts agent processes and vouches for them. Three conversations
//! hold it together, all typed in [`control`]: enrolment (a node or a program joins), attachment (an
//! agent process and its node), and node to Master, which travels as ACL messages over the bus.
//!
//! An agent process sees the platform only through [`host::Host`]; whether it is attached to a node
//! or runs an embedded platform makes no difference to it.

pub mod attachment;
pub mod ca_service;
mod channel_log;
pub mod control;
mod correspondence;
pub mod directory;
pub mod embedded;
pub mod enrolment;
pub mod gateway;
pub mod host;
pub mod management;
pub mod manifest;
pub mod master;
pub mod node;
mod node_journal;
pub mod placement;
mod post;
pub mod process;
pub mod registry;
pub mod rpc;
pub mod store;
