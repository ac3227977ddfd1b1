//! Auctions, subscriptions, and agents that speak for others.

use std::time::Duration;

use sealbus::protocol::{BROKERING, Outcome, RECRUITING, SUBSCRIBE, Stage, forward};
use sealbus::testing::TestBed;
use sealbus::{Agent, AgentResult, Context, Message, Performative, agent, agents, run_agents};

use super::{LONG, Notes, act, number_of, peers, price, run_by_the_clock};

/// How long a round takes in which somebody stays silent on purpose.
const ROUND: Duration = Duration::from_secs(2);

/// Bids as long as the price is within its means, which are ten times its number.
struct Collector {
    means: u32,
    notes: Notes,
}

impl Collector {
    fn of(notes: &Notes) -> impl FnMut(&str) -> Collector + use<> {
        let notes = notes.clone();
        move |name| Collector {
            means: number_of(name) * 10,
            notes: notes.clone(),
        }
    }
}

impl Agent for Collector {
    async fn on_message(&mut self, context: &mut Context, news: Message) -> AgentResult {
        let mut auction = context.participate(&news)?;
        let (means, notes) = (self.means, self.notes.clone());
        tokio::spawn(async move {
            while let Some(word) = auction.next().await? {
                match word.performative {
                    Performative::Cfp if price(&word) <= means => {
                        auction
                            .answer(Performative::Propose, means.to_string())
                            .await?;
                    }
                    Performative::Request => {
                        auction.answer(Performative::Inform, "paid").await?;
                    }
                    _ => {}
                }
            }
            notes.add(format!("{means}: {:?}", auction.outcome().unwrap()));
            AgentResult::Ok(())
        });
        Ok(())
    }
}

#[tokio::test]
async fn the_price_rises_until_nobody_bids_more() {
    struct Auctioneer(Notes);
    impl Agent for Auctioneer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let bidders = peers(context, "collector", 3);
            let mut auction = context.english_auction("a vase", bidders).await?;
            let mut leader = None;
            for price in [10, 20, 30, 40] {
                let bids = auction.call(price.to_string(), ROUND).await?;
                let Some(bid) = bids.iter().max_by_key(|bid| self::price(bid)) else {
                    break;
                };
                auction.accept(bid, "yours so far").await?;
                leader = bid.sender.clone();
            }
            auction.close("sold").await?;
            let leader = leader.unwrap();
            assert_eq!(leader, context.peer("collector-3")?);
            assert_eq!(auction.settle(&leader, "pay", LONG).await?.text()?, "paid");
            drop(auction);
            self.0.has(3).await;
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_by_the_clock([
        agents("collector", 3, Collector::of(&notes)),
        agent("auctioneer", Auctioneer(notes.clone())),
    ])
    .await;
    assert_eq!(notes.sorted(), ["10: Closed", "20: Closed", "30: Done"]);
}

#[tokio::test]
async fn a_leader_that_does_not_bid_against_itself_leads_on() {
    let bed = TestBed::open().await.unwrap();
    let notes = Notes::default();
    let mut collector = Collector::of(&notes);
    let house = bed.probe("house").await.unwrap();
    let mut bidders = Vec::new();
    for name in ["collector-0", "collector-1"] {
        bidders.push(bed.start(name, collector(name)).await.unwrap());
    }
    let winner = bidders[1].clone();
    let sale = async {
        let mut auction = house.english_auction("a vase", bidders).await.unwrap();
        let bids = auction.call("10", ROUND).await.unwrap();
        auction.accept(&bids[0], "yours so far").await.unwrap();
        for _ in 0..3 {
            let bids = auction.call("20", ROUND).await.unwrap();
            assert!(bids.is_empty(), "{bids:?}");
        }
        auction.close("sold").await.unwrap();
        auction.settle(&winner, "pay", LONG).await.unwrap()
    };
    let paid = bed.clock().run(sale).await;
    assert_eq!(paid.text().unwrap(), "paid");
    drop(house);
    bed.close().await.unwrap();
}

#[tokio::test]
async fn the_price_falls_until_somebody_buys() {
    struct Auctioneer(Notes);
    impl Agent for Auctioneer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let bidders = peers(context, "collector", 3);
            let mut auction = context.dutch_auction("tulips", bidders).await?;
            let mut sold = None;
            for price in [50, 40, 30, 20] {
                if let [first, ..] = &auction.call(price.to_string(), ROUND).await?[..] {
                    auction.accept(first, "sold").await?;
                    sold = Some((price, first.sender_name().to_owned()));
                    break;
                }
            }
            assert_eq!(sold, Some((30, "collector-3@home".to_owned())));
            auction.close("that was all").await?;
            assert!(auction.state().has_ended());
            self.0.has(3).await;
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_by_the_clock([
        agents("collector", 3, Collector::of(&notes)),
        agent("auctioneer", Auctioneer(notes.clone())),
    ])
    .await;
    assert_eq!(notes.sorted(), ["10: Closed", "20: Closed", "30: Closed"]);
}

#[tokio::test]
async fn a_subscription_tells_until_it_is_cancelled() {
    struct Market(Notes);
    impl Agent for Market {
        async fn on_message(&mut self, context: &mut Context, wish: Message) -> AgentResult {
            let mut prices = context.participate(&wish)?;
            let notes = self.0.clone();
            tokio::spawn(async move {
                prices.answer(Performative::Agree, "").await?;
                for price in 1..=3 {
                    prices
                        .answer(Performative::Inform, price.to_string())
                        .await?;
                }
                let last = prices.next().await?.unwrap();
                assert_eq!(last.performative, Performative::Cancel);
                prices
                    .answer_cancel(Performative::Inform, "stopped")
                    .await?;
                notes.add(format!("{:?}", prices.outcome().unwrap()));
                AgentResult::Ok(())
            });
            Ok(())
        }
    }
    struct Reader(Notes);
    impl Agent for Reader {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let wish = act(Performative::Subscribe, "the price of tea");
            let mut prices = context
                .initiate(&SUBSCRIBE, context.peer("market")?, wish)
                .await?;
            let mut seen = Vec::new();
            while let Some(news) = prices.next().await? {
                seen.push(news.text()?.to_owned());
                if seen.len() == 4 {
                    prices.cancel(LONG).await?;
                }
            }
            assert_eq!(seen, ["", "1", "2", "3"]);
            let branch = &prices.state().branches()[0];
            assert_eq!(branch.outcome(), Some(Outcome::Cancelled));
            self.0.has(1).await;
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agent("market", Market(notes.clone())),
        agent("reader", Reader(notes.clone())),
    ])
    .await
    .unwrap();
    assert_eq!(notes.sorted(), ["Cancelled"]);
}

#[tokio::test]
async fn a_broker_asks_for_others_and_a_recruiter_sends_them() {
    struct Expert;
    impl Agent for Expert {
        async fn on_message(&mut self, context: &mut Context, question: Message) -> AgentResult {
            let mut answer = context.participate(&question)?;
            Ok(answer.answer(Performative::Inform, "42").await?)
        }
    }
    struct Agency;
    impl Agent for Agency {
        async fn on_message(&mut self, context: &mut Context, proxy: Message) -> AgentResult {
            let mut job = context.participate(&proxy)?;
            job.answer(Performative::Agree, "").await?;
            let expert = context.peer("expert")?;
            let question = act(Performative::QueryRef, "?").with_protocol("fipa-query");
            if proxy.protocol.as_deref() == Some(RECRUITING.name()) {
                let asker = proxy.sender.clone().unwrap();
                context
                    .send(forward(question, &proxy, [expert], asker))
                    .await?;
            } else {
                for answer in context.ask_all(expert, question, LONG).await?.done {
                    job.answer(Performative::Inform, answer.text()?).await?;
                }
            }
            job.conclude();
            Ok(())
        }
    }
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            for (protocol, answers) in [(&BROKERING, "agency@home"), (&RECRUITING, "expert@home")] {
                let proxy = act(Performative::Proxy, "whoever knows");
                let mut job = context
                    .initiate(protocol, context.peer("agency")?, proxy)
                    .await?;
                loop {
                    let word = job.next().await?.unwrap();
                    if word.performative == Performative::Agree {
                        continue;
                    }
                    assert_eq!((word.sender_name(), word.text()?), (answers, "42"));
                    break;
                }
                while job.state().at(Stage::Asked).next().is_some() {
                    job.next().await?;
                }
                job.conclude();
                assert_eq!(job.state().branches()[0].outcome(), Some(Outcome::Done));
            }
            context.stop_all();
            Ok(())
        }
    }
    run_agents([
        agent("expert", Expert),
        agent("agency", Agency),
        agent("asker", Asker),
    ])
    .await
    .unwrap();
}
