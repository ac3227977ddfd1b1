//! Callers from outside the platform, over HTTP: the shared part of the gateways for the Model Context Protocol and
//! A2A.
//!
//! Each caller is an agent of the platform, with its own certificate, mailbox and rights, in the gateway's process. A
//! gateway implements [`Service`], and [`serve`] runs it.
//!
//! | question | place |
//! |---|---|
//! | Which caller is it? | `keys`, [`token`], `guest` |
//! | Who issues tokens, and who learns of it? | `issuer`, `resource` |
//! | Against which keys do others check the platform's own tokens? | `published` |
//! | May it come from there? | `places` |
//! | What holds back a hostile one? | `door`, `connection` |
//! | Which tools do agents offer? | [`tools`], [`schema`] |
//! | What does an agent say? | [`said`] |
//! | Who answered, and in which trace? | [`about`], [`trace`] |

mod asking;
mod body;
mod caller;
mod connection;
mod counted;
mod door;
mod entry;
mod guest;
mod issuer;
mod keys;
mod places;
mod published;
mod replies;
mod resource;
pub mod said;
pub mod schema;
mod serving;
mod shown;
pub mod token;
pub mod tools;

pub use asking::{BadInput, ask};
pub use body::LONGEST_BODY;
pub use caller::{Caller, CallerAgent};
pub use connection::{Answer, text_answer, typed_answer};
pub use door::Service;
pub use keys::{NoRandomness, new_key};
pub use replies::{about, trace};
pub use sealbus_control::LogShares;
pub use serving::{OpenedGateway, ServeError, follow, follow_news, open, serve, tell};
pub use shown::shown;

/// The check of the place from which a request comes, for the fuzz target.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::places::base_for;
}
