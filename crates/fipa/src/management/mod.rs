//! The `fipa-agent-management` ontology (FIPA00023): the requests to AMS and DF, and their answers.
//!
//! Each object of the ontology is a struct that reads itself from an SL term and writes itself as one. [`DfFunction`]
//! and [`AmsFunction`] are the possible requests. [`Exception`] lists the reasons to turn a request down.
//! [`DfAgentDescription::matches`] and the other `matches` methods decide a search.
//!
//! ```
//! use sealbus_fipa::management::{DfAgentDescription, DfFunction, ServiceDescription};
//! use sealbus_fipa::{Aid, sl};
//!
//! let seller = DfAgentDescription::of(Aid::new("seller@factory")?)
//!     .with_service(ServiceDescription::new("gears", "selling"));
//! let register = DfFunction::Register(seller.clone());
//! let df = Aid::new("df@factory")?;
//! let content = sl::Content::of(register.action(&df)).to_bytes();
//! assert_eq!(
//!     String::from_utf8(content)?,
//!     "((action (agent-identifier :name df@factory) (register (df-agent-description \
//!      :name (agent-identifier :name seller@factory) \
//!      :services (set (service-description :name gears :type selling))))))"
//! );
//! let wanted = DfAgentDescription::default().with_service(ServiceDescription::of_type("selling"));
//! assert!(seller.matches(&wanted));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! Readers accept the forms that other platforms write: arguments by name or by position, sets in place of sequences
//! and the reverse, any letter case of frame and slot names, and American spellings. Agent identifiers keep slots whose
//! names begin with `X-`. Other objects ignore them.

mod agent_identifier;
mod ams;
mod answer;
mod df;
mod exception;
mod frame;
mod function;
mod matching;
pub mod subscription;

#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
mod tests;

pub use ams::{AgentState, AmsAgentDescription, ApDescription, ApService};
pub use answer::results;
pub use df::{DfAgentDescription, Property, SearchConstraints, ServiceDescription};
pub use exception::Exception;
pub use function::{AmsFunction, DfFunction};

/// The value of `:ontology` in messages to and from AMS and DF. Compare it in any letter case.
pub const ONTOLOGY: &str = "fipa-agent-management";
