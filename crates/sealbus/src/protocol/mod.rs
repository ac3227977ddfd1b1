//! The interaction protocols of FIPA as objects, both roles.
//!
//! | protocol | initiator | participant |
//! |---|---|---|
//! | Request, Request When, Query, Propose | [`Context::request`](crate::Context::request) for one agent, [`Context::ask_all`](crate::Context::ask_all) for many | [`Context::participate`](crate::Context::participate), or an answer in `on_message` |
//! | Contract Net | [`Context::contract_net`](crate::Context::contract_net) | `participate` |
//! | Iterated Contract Net | [`Context::iterated_contract_net`](crate::Context::iterated_contract_net) | `participate` |
//! | English and Dutch Auction | [`Context::english_auction`](crate::Context::english_auction), [`Context::dutch_auction`](crate::Context::dutch_auction) | `participate` |
//! | Subscribe, Brokering, Recruiting | [`Context::initiate`](crate::Context::initiate) | `participate` |
//!
//! Each object owns its conversation: no message of it goes anywhere else, whatever the agent awaits. It checks what comes
//! against the protocol, watches the deadlines, and hears of agents that could not be reached. Dropping it ends the
//! conversation in order. The rules are those of the crate `sealbus-protocols`.

mod asking;
mod auction;
mod clock;
mod contract_net;
mod error;
mod exchange;
mod participants;
mod participation;

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
