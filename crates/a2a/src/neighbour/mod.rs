//! Agents of others as agents of the platform: their cards, and the tasks that they get.
//!
//! | question | place |
//! |---|---|
//! | What does a card say, and may it be believed? | [`card`], free of I/O |
//! | Who signed it? | [`signature`], free of I/O |
//! | What does an answer say? | [`answer`], [`fault`], free of I/O |
//! | What is new in it? | [`task`], free of I/O |
//! | Who asks it, and by what token? | `asker` |
//! | How is the other side asked? | `remote`; `stream` reads what it says |
//! | What becomes of a request of our agents? | `work` |
//! | What becomes of a conversation with an agent that speaks ACL? | `tunnel` |
//! | Which agents stand for them? | `serving` |

pub mod answer;
mod asker;
pub mod card;
mod error;
pub mod fault;
mod remote;
mod serving;
pub mod signature;
mod stream;
pub mod task;
mod tunnel;
mod work;

pub use serving::serve;
