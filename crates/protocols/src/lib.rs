//! The interaction protocols of FIPA, both roles, as state machines without I/O.
//!
//! An [`Initiator`] has a branch for each participant, a [`Participant`] has one. Both take arriving messages and the
//! time, and return the messages to send. The program owns the conversation-id, the content, the decisions and the clock:
//!
//! 1. [`Initiator::open`] and [`Participant::open`] start a conversation.
//! 2. `receive` takes each message of the conversation. The program reads the content of the message, which the
//!    conversation does not keep. The branch tells the [`Stage`] and, at the end, the [`Outcome`].
//! 3. `send` completes the program's message, if the protocol allows its act.
//! 4. `deadline` is the moment for `advance`: `reply-by` passed, or the end that `end_by` sets.
//!
//! | protocol | document | opens with | the usual course |
//! |---|---|---|---|
//! | [`REQUEST`] | SC00026 | `request` | `agree`, `inform` |
//! | [`QUERY`] | SC00027 | `query-if`, `query-ref` | `agree`, `inform` |
//! | [`REQUEST_WHEN`] | SC00028 | `request-when` | `agree`, `inform` |
//! | [`CONTRACT_NET`] | SC00029 | `cfp` | `propose`, `accept-proposal`, `inform` |
//! | [`ITERATED_CONTRACT_NET`] | SC00030 | `cfp` | as contract net, with further rounds of `cfp` and `propose` |
//! | [`ENGLISH_AUCTION`] | XC00031 | `inform` | rounds of `cfp`, `propose`, `accept-proposal`; `inform`; `request`, `inform` |
//! | [`DUTCH_AUCTION`] | XC00032 | `inform` | rounds of `cfp`; `propose`, `accept-proposal`; `inform` |
//! | [`BROKERING`] | SC00033 | `proxy` | `agree`, `inform` for each answer |
//! | [`RECRUITING`] | SC00034 | `proxy` | `agree`; the recruits answer |
//! | [`SUBSCRIBE`] | SC00035 | `subscribe` | `agree`, `inform` for each change, `cancel` |
//! | [`PROPOSE`] | SC00036 | `propose` | `accept-proposal` or `reject-proposal` |
//!
//! # Example: contract net
//!
//! ```
//! use sealbus_fipa::{AclMessage, Aid, Performative};
//! use sealbus_protocols::{CONTRACT_NET, Initiator, Outcome, Participant, Stage, To};
//!
//! let (buyer, seller) = (Aid::new("buyer@factory")?, Aid::new("seller@factory")?);
//! let mut now = 0;
//! let call = AclMessage::new(Performative::Cfp).with_content("ten boxes");
//! let (mut net, messages) = Initiator::open(&CONTRACT_NET, "sale-7", [seller.clone()], &call, now)?;
//! net.end_by(60_000);
//!
//! // The platform delivers each message and sets its sender.
//! let call = messages[0].clone().with_sender(buyer.clone());
//! let mut contractor = Participant::open(&CONTRACT_NET, &call, now)?;
//! let offer = AclMessage::new(Performative::Propose).with_content("for 12 euros");
//! let offer = contractor.send(&offer, now)?.with_sender(seller.clone());
//!
//! net.receive(&offer, now)?;
//! // Every proposal is in.
//! assert_eq!(net.at(Stage::Called).count(), 0);
//! let accept = AclMessage::new(Performative::AcceptProposal);
//! let orders = net.send(To::Agents(&[seller.clone()]), &accept, now)?;
//! contractor.receive(&orders[0].clone().with_sender(buyer), now)?;
//!
//! now = 60_000;
//! assert_eq!(net.deadline(), Some(now));
//! // The seller gets a cancel, because it may still work.
//! assert_eq!(net.advance(now)[0].performative, Performative::Cancel);
//! let silent = net.silent().next().ok_or("nobody")?;
//! assert_eq!((silent.stage(), silent.outcome()), (Stage::Ordered, Some(Outcome::TimedOut)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rules for all protocols
//!
//! - `reply-by` is the deadline for the next answer alone. A silent participant ends with [`Outcome::TimedOut`], and
//!   gets a notice of that. In an auction, the deadline only ends the round.
//! - `cancel` by the initiator and `not-understood` by either side are possible at every stage.
//! - A message of another conversation, protocol or agent is refused by name ([`Reason`]). The same holds for a message
//!   that comes after the end, a second time, out of order, or in answer to an earlier round. A refused message changes
//!   nothing and is counted. There is one exception: an act that the protocol does not have gets the answer
//!   `not-understood`, and ends the branch.
//! - A proposal that comes too late is answered with `reject-proposal`.
//! - The sender's name assigns a message to its branch, so the caller must know that the name is true.
//! - A notice of the platform that a message was not delivered is no message of the conversation: pass it to
//!   [`Initiator::undeliverable`].

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod branch;
mod conversation;
mod error;
mod initiator;
mod participant;
mod protocol;
mod standard;

pub use branch::{Branch, Received};
pub use error::{ActError, Reason, Refused};
pub use initiator::{Initiator, To};
pub use participant::Participant;
pub use protocol::{Outcome, Protocol, Role, Stage};
pub use standard::{
    BROKERING, CONTRACT_NET, DUTCH_AUCTION, ENGLISH_AUCTION, ITERATED_CONTRACT_NET, PROPOSE, QUERY,
    RECRUITING, REQUEST, REQUEST_WHEN, SUBSCRIBE, forward,
};

/// The examples of the README, which are tested as those of the documentation are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
