//! Groups for sealed channels, by Messaging Layer Security (MLS, RFC 9420): what a publisher says on a channel is read by
//! the agents that subscribe to it, and by nobody else.
//!
//! Each publisher has a [`Group`] of its own for each channel. It is the only one that changes the group, and the only one
//! that writes. Changes therefore need no service that puts them in order: they travel from the publisher to each member,
//! before the messages that need them.
//!
//! 1. A subscriber is an [`Invitee`]. It offers a key package, which is signed with its certified key, under the
//!    certificate that names it.
//! 2. The publisher checks the offer ([`Candidate::verify`]), and lets the agent join ([`Group::change`]).
//! 3. The subscriber becomes a [`Member`] by the Welcome. It follows each commit, and opens each message.
//!
//! A member that was removed reads nothing that was sealed later, and a new one reads nothing that was sealed before.
//!
//! This crate does no I/O and reads no clock.

mod credential;
mod crypto;
mod error;
mod group;
mod hpke;
mod limits;
mod member;
mod once;
mod packages;
mod primitives;
mod welcome;

pub use error::GroupError;
pub use group::{Candidate, Change, Group};
pub use limits::MOST_MEMBERS;
pub use member::{Invitee, Member};
