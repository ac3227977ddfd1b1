//! The shared part of all Rust drivers of the papers' benchmark.
//!
//! A driver is a program that plays the agents of one side of a scenario over one system. It reads [`Order`]s from its
//! standard input and writes [`Answer`]s to its standard output, each as a line of JSON. Drivers in other languages use
//! the same protocol, which bench/README.md describes.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod clock;
mod histogram;
mod order;
mod payload;
mod played;
mod schedule;
mod tally;
pub mod threads;

pub use clock::monotonic_ns;
pub use histogram::{Buckets, bucket_low, bucket_of};
pub use order::{Answer, Kind, Order, Prepare, Role, Scenario, Shape, Stamp, read_order, say};
pub use payload::{PAYLOAD_BYTES, Payload, ROUNDS, fill};
pub use played::{Part, Played};
pub use schedule::Schedule;
pub use tally::Tally;
