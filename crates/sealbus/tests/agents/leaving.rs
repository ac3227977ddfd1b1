//! Bidders that leave after their bid.

use sealbus::acl::DateTime;
use sealbus::protocol::{Participation, ProtocolError, Stage};
use sealbus::{Agent, AgentResult, Context, Message, Performative, agent, agents, run_agents};

use super::{LONG, Notes, act, number_of, peers, price};

/// Bids its number. Bidder 1 then leaves, 2 bids when 1 has left, and 3 wants an answer at once.
struct Bidder {
    number: u32,
    notes: Notes,
}

impl Bidder {
    fn of(notes: &Notes) -> impl FnMut(&str) -> Bidder + use<> {
        let notes = notes.clone();
        move |name| Bidder {
            number: number_of(name),
            notes: notes.clone(),
        }
    }
}

impl Agent for Bidder {
    async fn on_message(&mut self, context: &mut Context, news: Message) -> AgentResult {
        let sale = context.participate(&news)?;
        tokio::spawn(bid(sale, news, self.number, self.notes.clone()));
        Ok(())
    }
}

async fn bid(mut sale: Participation, news: Message, number: u32, notes: Notes) -> AgentResult {
    let mut word = Some(news);
    while let Some(said) = word {
        match (&said.performative, number) {
            (Performative::Cfp, 1) => {
                sale.answer(Performative::Propose, "1").await?;
                sale.answer(Performative::NotUnderstood, "gone").await?;
                notes.add("left");
            }
            (Performative::Cfp, 3) => {
                let offer = act(Performative::Propose, "3");
                sale.send(offer.with_reply_by(DateTime::from_unix_ms(1)?))
                    .await?;
                notes.add("wants an answer");
            }
            (Performative::Cfp, _) => {
                notes.has(2).await;
                sale.answer(Performative::Propose, "2").await?;
            }
            (Performative::AcceptProposal, _) if sale.stage() == Stage::Ordered => {
                sale.answer(Performative::Inform, "done").await?;
            }
            _ => {}
        }
        word = sale.next().await?;
    }
    Ok(())
}

#[tokio::test]
async fn bidders_that_have_left_keep_nobody_from_the_next_round_and_the_order() {
    struct Buyer;
    impl Agent for Buyer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let bidders = peers(context, "bidder", 3);
            let mut net = context
                .iterated_contract_net("boxes", bidders, LONG)
                .await?;
            let mut bids: Vec<Message> = net.proposals().to_vec();
            bids.sort_by_key(price);
            let [left, _, expired] = &bids[..] else {
                panic!("{bids:?}")
            };
            net.call_again(&bids, "for less", LONG).await?;
            let [stays] = net.proposals() else {
                panic!("{:?}", net.proposals())
            };
            let stays = stays.clone();
            let results = net.accept_all([left, &stays, expired], "go", LONG).await?;
            let [
                Err(ProtocolError::TurnedDown { reply }),
                Ok(done),
                Err(ProtocolError::Expired(late)),
            ] = &results[..]
            else {
                panic!("{results:?}")
            };
            assert_eq!((reply.text()?, done.text()?), ("gone", "done"));
            assert_eq!(*late, context.peer("bidder-3")?.name);
            let again = net.accept_all([left], "go", LONG).await?;
            assert!(matches!(
                &again[..],
                [Err(ProtocolError::TurnedDown { .. })]
            ));
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agents("bidder", 3, Bidder::of(&notes)),
        agent("buyer", Buyer),
    ])
    .await
    .unwrap();
}

#[tokio::test]
async fn an_auction_goes_on_without_a_bidder_that_has_left() {
    struct Auctioneer;
    impl Agent for Auctioneer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let bidders = peers(context, "bidder", 2);
            let mut auction = context.english_auction("a vase", bidders).await?;
            let bids = auction.call("1", LONG).await?;
            let [bid] = &bids[..] else { panic!("{bids:?}") };
            auction.accept(bid, "yours so far").await?;
            auction.close("sold").await?;
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    notes.add("nobody else takes part");
    run_agents([
        agents("bidder", 2, Bidder::of(&notes)),
        agent("auctioneer", Auctioneer),
    ])
    .await
    .unwrap();
}
