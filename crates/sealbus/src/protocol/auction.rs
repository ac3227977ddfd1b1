//! Auctions, English and Dutch: an announcement, rounds of calls and bids, and the end.

use std::time::Duration;

use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_protocols::{Branch, DUTCH_AUCTION, ENGLISH_AUCTION, Initiator, Protocol, Stage, To};

use super::contract_net::reject_all;
use super::error::ProtocolError;
use super::exchange::{Exchange, saying};
use super::participants::Participants;
use crate::body::WrittenBody;
use crate::context::Voice;
use crate::message::Message;

impl Voice {
    /// Announces an auction at rising prices. The auctioneer calls [rounds](Auction::call) until nobody bids more, ends
    /// the auction, and [settles](Auction::settle) with the winner.
    pub async fn english_auction(
        &self,
        announcement: impl Into<WrittenBody>,
        bidders: impl Into<Participants>,
    ) -> Result<Auction, ProtocolError> {
        Auction::open(self, &ENGLISH_AUCTION, announcement.into(), bidders.into()).await
    }

    /// Announces an auction at falling prices. The auctioneer calls [rounds](Auction::call) until somebody bids, accepts
    /// the first bid, and goes on while there are goods.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use sealbus::{AgentResult, Context, directory::Template};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let mut auction = context.dutch_auction("tulips", Template::from("florist")).await?;
    /// for price in (10..=100).rev().step_by(10) {
    ///     if let Some(bid) = auction.call(price.to_string(), Duration::from_secs(1)).await?.first() {
    ///         auction.accept(bid, "sold").await?;
    ///         break;
    ///     }
    /// }
    /// auction.close("that was all").await?;
    /// # Ok(()) }
    /// ```
    pub async fn dutch_auction(
        &self,
        announcement: impl Into<WrittenBody>,
        bidders: impl Into<Participants>,
    ) -> Result<Auction, ProtocolError> {
        Auction::open(self, &DUTCH_AUCTION, announcement.into(), bidders.into()).await
    }
}

/// The auctioneer of an auction; see [`Voice::english_auction`] and [`Voice::dutch_auction`].
///
/// Dropping it before it is closed cancels the auction.
#[derive(Debug)]
pub struct Auction {
    exchange: Exchange,
    /// The author of the bid that was accepted last.
    leader: Option<Aid>,
}

impl Auction {
    async fn open(
        voice: &Voice,
        protocol: &'static Protocol,
        announcement: WrittenBody,
        bidders: Participants,
    ) -> Result<Auction, ProtocolError> {
        let opening = saying(Performative::Inform, announcement);
        let exchange = voice.initiate(protocol, bidders, opening).await?;
        Ok(Auction {
            exchange,
            leader: None,
        })
    }

    /// Calls for bids, for example at a price, and waits until every bidder has bid or `within` has passed. Returns the
    /// bids in the order in which they came, without the bids of bidders that have left since. Rejects the bids of the
    /// last round that were not accepted. A leader that has not bid against itself leads on. It is asked again once
    /// another bid is accepted.
    pub async fn call(
        &mut self,
        call: impl Into<WrittenBody>,
        within: Duration,
    ) -> Result<Vec<Message>, ProtocolError> {
        self.reject_rest().await?;
        let time = self.exchange.time().clone();
        let end = time.after(within);
        let call = time.with_deadline(saying(Performative::Cfp, call), within);
        let is_defending = |it: &Aid| {
            let branch = self.state().branch(it);
            branch.is_some_and(|it| it.outcome().is_none() && it.stage() == Stage::Defending)
        };
        let resting = self.leader.clone().filter(is_defending);
        let rests =
            |it: &Branch| (resting.as_ref()).is_some_and(|leader| leader.name == it.agent().name);
        let branches = self.state().branches().iter();
        let bidders = branches.filter(|it| it.outcome().is_none() && !rests(it));
        let asked: Vec<Aid> = bidders.map(|it| it.agent().clone()).collect();
        if asked.is_empty() && resting.is_some() {
            return Ok(Vec::new());
        }
        self.exchange.send(To::Agents(&asked), &call).await?;
        let awaits = |state: &Initiator| {
            let mut called = state.at(Stage::Called).chain(state.at(Stage::Defending));
            called.any(|it| !rests(it))
        };
        let is_over = |state: &Initiator| !awaits(state) || time.now() >= end;
        let mut bids = Vec::new();
        let each = |message: Message, _| {
            if message.performative == Performative::Propose {
                bids.push(message);
            }
        };
        self.exchange.until(is_over, each).await?;
        bids.retain(|bid| {
            let branch = bid.sender.as_ref().and_then(|it| self.state().branch(it));
            branch.is_some_and(|it| it.outcome().is_none())
        });
        Ok(bids)
    }

    /// Accepts a bid, and rejects the others of its round.
    ///
    /// # Errors
    /// [`ProtocolError::NotAllowed`] names the bidder if it has left. The other bids of the round then wait for a decision.
    pub async fn accept(
        &mut self,
        bid: &Message,
        body: impl Into<WrittenBody>,
    ) -> Result<(), ProtocolError> {
        let accept = saying(Performative::AcceptProposal, body);
        let chosen: Vec<Aid> = bid.sender.iter().cloned().collect();
        self.exchange.send(To::Agents(&chosen), &accept).await?;
        self.leader = chosen.into_iter().next();
        self.reject_rest().await
    }

    async fn reject_rest(&mut self) -> Result<(), ProtocolError> {
        let reject = AclMessage::new(Performative::RejectProposal);
        reject_all(&mut self.exchange, &reject).await
    }

    /// Tells all bidders that the auction is over, with the outcome.
    pub async fn close(&mut self, result: impl Into<WrittenBody>) -> Result<(), ProtocolError> {
        self.reject_rest().await?;
        let end = saying(Performative::Inform, result);
        self.exchange.send(To::All, &end).await
    }

    /// Asks the winner of a closed English auction to complete the deal, and waits for the answer.
    pub async fn settle(
        &mut self,
        winner: &Aid,
        request: impl Into<WrittenBody>,
        within: Duration,
    ) -> Result<Message, ProtocolError> {
        let request = saying(Performative::Request, request);
        self.exchange
            .send(To::Agents(std::slice::from_ref(winner)), &request)
            .await?;
        self.exchange.end_within(within);
        let is_done =
            |state: &Initiator| state.branch(winner).is_none_or(|it| it.outcome().is_some());
        let mut last = None;
        let each = |message: Message, _| {
            if message
                .sender
                .as_ref()
                .is_some_and(|it| it.name == winner.name)
            {
                last = Some(message);
            }
        };
        self.exchange.until(is_done, each).await?;
        self.exchange.result(winner, last)
    }

    /// The stage of the auction with each bidder.
    pub fn state(&self) -> &Initiator {
        self.exchange.state()
    }
}
