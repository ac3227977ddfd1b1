//! Agents of others as agents of the platform: their cards, and the tasks that they get.
//!
//! | question | place |
//! |---|---|
//! | What does a card say, and may it be believed? | [`card`], free of I/O |
//! | What does an answer say? | [`answer`], free of I/O |
//! | What is new in it? | [`task`], free of I/O |
//! | How is the other side asked? | `remote` |
//! | What becomes of a request of our agents? | `work` |
//! | Which agents stand for them? | `serving` |

pub mod answer;
pub mod card;
mod remote;
mod serving;
pub mod task;
mod work;

pub use serving::serve;
