//! Contract Net, plain and iterated: call for proposals, accept some of them, and get the results.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sealbus_fipa::{AclMessage, Aid, Performative};
use sealbus_protocols::{
    ActError, CONTRACT_NET, ITERATED_CONTRACT_NET, Initiator, Outcome, Protocol, Stage, To,
};

use super::error::ProtocolError;
use super::exchange::{Exchange, saying};
use super::participants::Participants;
use super::timeline::Timeline;
use crate::body::WrittenBody;
use crate::context::Voice;
use crate::message::Message;
use crate::supervision::AgentResult;

impl Voice {
    /// Calls for proposals, and waits until every bidder has answered or `within` has passed.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use sealbus::{AgentResult, Context, directory::Template};
    /// # async fn hook(context: &mut Context) -> AgentResult {
    /// let bidders = Template::from("bidder");
    /// let mut net = context.contract_net("ten boxes", bidders, Duration::from_secs(5)).await?;
    /// let price = |offer: &&sealbus::Message| offer.text().unwrap_or("9999").parse().unwrap_or(9999);
    /// if let Some(best) = net.proposals().iter().min_by_key(price).cloned() {
    ///     let done = net.accept(&best, "go", Duration::from_secs(60)).await?;
    /// }
    /// # Ok(()) } // Leaving rejects the rest.
    /// ```
    pub async fn contract_net(
        &self,
        call: impl Into<WrittenBody>,
        bidders: impl Into<Participants>,
        within: Duration,
    ) -> Result<ContractNet, ProtocolError> {
        ContractNet::open(self, &CONTRACT_NET, call.into(), bidders.into(), within).await
    }

    /// Like [`contract_net`](Self::contract_net), with [further rounds](IteratedContractNet::call_again).
    pub async fn iterated_contract_net(
        &self,
        call: impl Into<WrittenBody>,
        bidders: impl Into<Participants>,
        within: Duration,
    ) -> Result<IteratedContractNet, ProtocolError> {
        let protocol = &ITERATED_CONTRACT_NET;
        let net = ContractNet::open(self, protocol, call.into(), bidders.into(), within).await?;
        Ok(IteratedContractNet(net))
    }
}

/// The proposals of a contract net; see [`Voice::contract_net`].
///
/// Dropping it rejects the proposals that were not accepted, and sends a `cancel` to accepted bidders that have not
/// finished.
#[derive(Debug)]
pub struct ContractNet {
    exchange: Exchange,
    proposals: Vec<Message>,
    refused: Vec<Message>,
}

impl ContractNet {
    async fn open(
        voice: &Voice,
        protocol: &'static Protocol,
        call: WrittenBody,
        bidders: Participants,
        within: Duration,
    ) -> Result<ContractNet, ProtocolError> {
        let call = saying(Performative::Cfp, call);
        let time = Timeline::new(&voice.clock);
        let call = time.with_deadline(call, within);
        let bidders = bidders.find(voice).await?;
        let exchange = Exchange::open(voice.clone(), protocol, bidders, call, time)?;
        let mut net = ContractNet {
            exchange,
            proposals: Vec::new(),
            refused: Vec::new(),
        };
        net.collect().await?;
        Ok(net)
    }

    async fn collect(&mut self) -> Result<(), ProtocolError> {
        let is_complete = |state: &Initiator| state.at(Stage::Called).next().is_none();
        let (proposals, refused) = (&mut self.proposals, &mut self.refused);
        let each = |message: Message, _| match message.performative {
            Performative::Propose => proposals.push(message),
            _ => refused.push(message),
        };
        self.exchange.until(is_complete, each).await
    }

    /// Gives the messages that come after the conversation with their sender has ended to this handler; see
    /// [`Exchange::set_late`].
    pub fn set_late<F, W>(&mut self, handler: F)
    where
        F: Fn(Voice, Message) -> W + Send + Sync + 'static,
        W: Future<Output = AgentResult> + Send + 'static,
    {
        self.exchange.set_late(handler);
    }

    /// The proposals, in the order in which they came.
    pub fn proposals(&self) -> &[Message] {
        &self.proposals
    }

    /// The messages of bidders that refused or did not understand.
    pub fn refused(&self) -> &[Message] {
        &self.refused
    }

    /// The bidders that did not answer in time.
    pub fn silent(&self) -> Vec<Aid> {
        self.exchange
            .state()
            .silent()
            .map(|it| it.agent().clone())
            .collect()
    }

    /// The bidders that the platform could not deliver the call to.
    pub fn undelivered(&self) -> Vec<Aid> {
        let branches = self.exchange.state().branches().iter();
        let lost = branches.filter(|it| it.outcome() == Some(Outcome::Undeliverable));
        lost.map(|it| it.agent().clone()).collect()
    }

    /// Accepts a proposal, and waits for its result for at most `within`.
    ///
    /// # Errors
    /// [`ProtocolError::TurnedDown`] if the bidder fails or has left, [`ProtocolError::Silent`] if it says nothing in time,
    /// [`ProtocolError::Expired`] if the time that its proposal gave is over.
    pub async fn accept(
        &mut self,
        proposal: &Message,
        body: impl Into<WrittenBody>,
        within: Duration,
    ) -> Result<Message, ProtocolError> {
        let mut results = self.accept_all([proposal], body, within).await?;
        results.pop().unwrap_or(Err(ProtocolError::Nobody))
    }

    /// Accepts several proposals, and waits until each has a result or `within` has passed. The results are in the order of
    /// the proposals. A bidder that has left since its proposal has an error as its result, and the others are accepted.
    pub async fn accept_all<'m>(
        &mut self,
        proposals: impl IntoIterator<Item = &'m Message>,
        body: impl Into<WrittenBody>,
        within: Duration,
    ) -> Result<Vec<Result<Message, ProtocolError>>, ProtocolError> {
        let accept = saying(Performative::AcceptProposal, body);
        let accept = self.exchange.time().with_deadline(accept, within);
        let chosen: Vec<Aid> = proposals
            .into_iter()
            .filter_map(|proposal| proposal.sender.clone())
            .collect();
        let accepted = match self.exchange.send_to_open(&chosen, &accept) {
            // All have left, as the results say.
            Err(ProtocolError::NotAllowed(ActError::Nobody { .. })) => Vec::new(),
            accepted => accepted?,
        };
        let has_ended = |state: &Initiator, agent: &Aid| {
            state.branch(agent).is_none_or(|it| it.outcome().is_some())
        };
        let is_done = |state: &Initiator| chosen.iter().all(|agent| has_ended(state, agent));
        let mut last = Vec::new();
        self.exchange
            .until(is_done, |message, _| last.push(message))
            .await?;
        let result = |agent: &Aid| {
            let from = |it: &&Message| it.sender.as_ref().is_some_and(|it| it.name == agent.name);
            let last = self.refused.iter().chain(&last).rfind(from).cloned();
            match self.exchange.result(agent, last) {
                Err(ProtocolError::Silent(agent))
                    if !accepted.iter().any(|it| it.name == agent) =>
                {
                    Err(ProtocolError::Expired(agent))
                }
                result => result,
            }
        };
        Ok(chosen.iter().map(result).collect())
    }

    /// Rejects the proposals that were not accepted, without waiting for the end.
    pub async fn reject_rest(
        &mut self,
        reason: impl Into<WrittenBody>,
    ) -> Result<(), ProtocolError> {
        let reject = saying(Performative::RejectProposal, reason);
        reject_all(&mut self.exchange, &reject).await
    }

    /// The stage of the net with each bidder.
    pub fn state(&self) -> &Initiator {
        self.exchange.state()
    }
}

/// Rejects all proposals that are still undecided.
pub(super) async fn reject_all(
    exchange: &mut Exchange,
    reject: &AclMessage,
) -> Result<(), ProtocolError> {
    match exchange.send(To::Stage(Stage::Proposed), reject).await {
        Err(ProtocolError::NotAllowed(ActError::Nobody { .. })) => Ok(()),
        sent => sent,
    }
}

/// The proposals of an iterated contract net; see [`Voice::iterated_contract_net`].
#[derive(Debug)]
pub struct IteratedContractNet(ContractNet);

impl IteratedContractNet {
    /// Calls the authors of these proposals again, on other terms, and rejects the other proposals. Then
    /// [`proposals`](ContractNet::proposals) returns the new proposals. Authors that have left are not called.
    pub async fn call_again(
        &mut self,
        authors: &[Message],
        call: impl Into<WrittenBody>,
        within: Duration,
    ) -> Result<(), ProtocolError> {
        let net = &mut self.0;
        let chosen: Vec<Aid> = authors.iter().filter_map(|it| it.sender.clone()).collect();
        let call = saying(Performative::Cfp, call);
        let call = net.exchange.time().with_deadline(call, within);
        net.exchange.send_to_open(&chosen, &call)?;
        reject_all(
            &mut net.exchange,
            &AclMessage::new(Performative::RejectProposal),
        )
        .await?;
        net.proposals.clear();
        net.collect().await
    }
}

impl Deref for IteratedContractNet {
    type Target = ContractNet;

    fn deref(&self) -> &ContractNet {
        &self.0
    }
}

impl DerefMut for IteratedContractNet {
    fn deref_mut(&mut self) -> &mut ContractNet {
        &mut self.0
    }
}
