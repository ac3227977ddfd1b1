//! The protocols of the standard, one file each. Both auctions share the rounds in `auction`.

mod auction;
mod brokering;
mod contract_net;
mod dutch_auction;
mod english_auction;
mod iterated_contract_net;
mod propose;
mod query;
mod recruiting;
mod request;
mod request_when;
#[cfg(test)]
mod sequence;
mod subscribe;

use sealbus_fipa::{AclMessage, Performative};

use crate::Protocol;

pub use brokering::BROKERING;
pub use contract_net::CONTRACT_NET;
pub use dutch_auction::DUTCH_AUCTION;
pub use english_auction::ENGLISH_AUCTION;
pub use iterated_contract_net::ITERATED_CONTRACT_NET;
pub use propose::PROPOSE;
pub use query::QUERY;
pub use recruiting::{RECRUITING, forward};
pub use request::REQUEST;
pub use request_when::REQUEST_WHEN;
pub use subscribe::SUBSCRIBE;

impl Protocol {
    /// All protocols of the standard. Where several open with the same act, the usual one comes first.
    pub const ALL: [&Self; 11] = [
        &REQUEST,
        &QUERY,
        &REQUEST_WHEN,
        &CONTRACT_NET,
        &ITERATED_CONTRACT_NET,
        &ENGLISH_AUCTION,
        &DUTCH_AUCTION,
        &BROKERING,
        &RECRUITING,
        &SUBSCRIBE,
        &PROPOSE,
    ];

    /// The protocol with this name, such as `fipa-request`.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL
            .into_iter()
            .find(|it| name.eq_ignore_ascii_case(it.name))
    }

    /// The protocol that `message` opens: the one it names, otherwise the usual one that opens with its act. An `inform`
    /// opens an auction only if it names one.
    pub fn opened_by(message: &AclMessage) -> Option<&'static Self> {
        Self::opened_with(&message.performative, message.protocol.as_deref())
    }

    /// As [`opened_by`](Self::opened_by), for a message with this act and this `protocol`.
    pub fn opened_with(act: &Performative, protocol: Option<&str>) -> Option<&'static Self> {
        let named = |it: &Self| match protocol {
            Some(name) => name.eq_ignore_ascii_case(it.name),
            None => *act != Performative::Inform,
        };
        Self::ALL
            .into_iter()
            .find(|it| it.opening.contains(act) && named(it))
    }
}
