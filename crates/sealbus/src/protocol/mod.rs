//! The interaction protocols of FIPA as objects, both roles.
//!
//! | protocol | initiator | participant |
//! |---|---|---|
//! | Request, Request When, Query, Propose | [`Voice::request`](crate::Voice::request) for one agent, [`Voice::ask_all`](crate::Voice::ask_all) for many | [`Voice::participate`](crate::Voice::participate), or an answer in `on_message` |
//! | Contract Net | [`Voice::contract_net`](crate::Voice::contract_net) | `participate` |
//! | Iterated Contract Net | [`Voice::iterated_contract_net`](crate::Voice::iterated_contract_net) | `participate` |
//! | English and Dutch Auction | [`Voice::english_auction`](crate::Voice::english_auction), [`Voice::dutch_auction`](crate::Voice::dutch_auction) | `participate` |
//! | Subscribe, Brokering, Recruiting | [`Voice::initiate`](crate::Voice::initiate) | `participate` |
//!
//! Each object owns its conversation: no message of it goes anywhere else, even if the agent awaits one like it. The
//! object checks arriving messages against the protocol, watches the deadlines, and hears of agents that could not be
//! reached. Dropping the object ends the conversation properly. The crate `sealbus-protocols` describes the rules.

mod asking;
mod auction;
mod backlog;
mod contract_net;
mod error;
mod exchange;
mod late;
mod participants;
mod participation;
mod timeline;

pub use asking::Answers;
pub use auction::Auction;
pub use contract_net::{ContractNet, IteratedContractNet};
pub use error::ProtocolError;
pub use exchange::Exchange;
pub use participants::Participants;
pub use participation::Participation;
pub use sealbus_protocols::{
    BROKERING, Branch, CONTRACT_NET, DUTCH_AUCTION, ENGLISH_AUCTION, ITERATED_CONTRACT_NET,
    Initiator, Outcome, PROPOSE, Participant, Protocol, QUERY, RECRUITING, REQUEST, REQUEST_WHEN,
    Refused, SUBSCRIBE, Stage, To, forward,
};
