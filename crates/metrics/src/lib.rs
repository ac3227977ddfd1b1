//! The numbers of a Master and of a node in the format of OpenMetrics, for Prometheus.
//!
//! [`ALL`] is the list of metrics, with their names, labels and meanings. A [`Sample`] holds their values at one moment;
//! [`Sample::text`] writes them. [`serve`] takes a new sample for each request. This crate counts nothing itself:
//! `sealbus top` and `sealbus status` show the same values.

mod list;
mod page;
mod sample;
mod server;
mod traffic;

pub use list::*;
pub use page::page;
pub use sample::Sample;
pub use server::{listen, serve};
pub use traffic::{MOST_AGENTS, MOST_CHANNELS, MOST_PROCESSES};
