//! GIOP, the protocol between CORBA's object request brokers (CORBA 3.3 part 2), versions 1.0 to 1.2. No I/O.
//!
//! [`cdr`] reads and writes basic types in both byte orders. [`Assembler`] takes bytes as they arrive and returns whole
//! [`Message`]s, joined from fragments. [`Ior`] and [`ObjectAddress`] name objects. [`mts`] holds the types of the one
//! interface that agent platforms speak: FIPA's message transport over IIOP (FIPA00075).
//!
//! Every length from the wire has a limit, and readers take memory only for bytes that are there.

mod address;
mod address_error;
mod any;
mod assemble;
pub mod cdr;
mod codeset;
mod context;
mod exception;
mod header;
mod ior;
mod message;
pub mod mts;
mod reply;
mod request;

pub use address::ObjectAddress;
pub use address_error::ObjectAddressError;
pub use any::{Any, TypedValue};
pub use assemble::{AssembleError, Assembler, AssemblyLimits, Whole};
pub use codeset::{CodeSet, CodeSetComponent, CodeSets, TextError};
pub use context::{ServiceContext, TaggedData};
pub use exception::{Completed, SystemException};
pub use header::{HEADER_LENGTH, Header, Kind, Version};
pub use ior::{IiopProfile, Ior};
pub use message::{Body, Message, close_connection, message_error};
pub use reply::{LocateReply, LocateStatus, Reply, ReplyStatus};
pub use request::{CancelRequest, LocateRequest, Request, Response, Target};
