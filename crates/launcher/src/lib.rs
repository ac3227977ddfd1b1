//! Starts an agent's program sealed off from its node and from other programs.
//!
//! A node does not start a program itself. It starts the launcher, a fresh process with one thread, and writes it a
//! [`Plan`]. The launcher seals *itself* step by step, and then becomes the program (`exec`). If a step fails, the
//! program never runs, and the launcher reports the step and its error ([`NotIsolated`]).

mod command;
#[cfg(target_os = "linux")]
mod filter;
mod interpreter;
mod paths;
mod plan;
mod probe;
#[cfg(target_os = "linux")]
mod seal;
mod settings;
#[cfg(target_os = "linux")]
mod slot;
mod view;
mod way;

pub use command::{Launching, SUBCOMMAND, launch, run};
pub use plan::{IsolationStep, NotIsolated, Order, Plan};
pub use probe::{Probed, probe};
pub use settings::public_settings;
