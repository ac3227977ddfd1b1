//! The interaction protocols, both roles, between agents.

use std::time::{Duration, UNIX_EPOCH};

use sealbus::acl::DateTime;
use sealbus::directory::{ServiceDescription, Template};
use sealbus::protocol::{Participation, ProtocolError};
use sealbus::testing::TestBed;
use sealbus::{
    Agent, AgentResult, Context, HandlerError, Message, Performative, Refuse, Supervision, agent,
    agents, run_agents,
};

use super::{LONG, Notes, act, number_of, peers, price, run_by_the_clock};

/// How long a wait takes in which somebody stays silent on purpose.
const SHORT: Duration = Duration::from_millis(300);

/// Bids its number, except that 3 refuses, 4 stays silent, and 5 fails when it is to work.
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
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let service = ServiceDescription::new("bids", "bidder");
        context.df().register([service]).await?;
        Ok(())
    }

    async fn on_message(&mut self, context: &mut Context, call: Message) -> AgentResult {
        if self.number == 3 {
            return Err(Refuse::new("busy").into());
        }
        let sale = context.participate(&call)?;
        tokio::spawn(bid(sale, self.number, self.notes.clone()));
        Ok(())
    }
}

async fn bid(mut sale: Participation, number: u32, notes: Notes) -> AgentResult {
    if number != 4 {
        sale.answer(Performative::Propose, number.to_string())
            .await?;
    }
    while let Some(word) = sale.next().await? {
        notes.add(format!("{number}: {}", word.performative));
        match (&word.performative, number) {
            (Performative::AcceptProposal, 5) => {
                sale.answer(Performative::Failure, "it broke").await?;
            }
            (Performative::AcceptProposal, _) => {
                sale.answer(Performative::Inform, format!("made by {number}"))
                    .await?;
            }
            (Performative::Cfp, _) => {
                sale.answer(Performative::Propose, (number * 10).to_string())
                    .await?;
            }
            (Performative::Cancel, _) => {
                sale.answer_cancel(Performative::Inform, "stopped").await?;
            }
            _ => {}
        }
    }
    Ok(())
}

#[tokio::test]
async fn late_proposals_go_to_who_wants_them() {
    /// Bids when told to.
    struct Slow(Option<Message>);
    impl Agent for Slow {
        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            match (message.performative.clone(), &self.0) {
                (Performative::Cfp, _) => self.0 = Some(message),
                (Performative::Request, Some(call)) => {
                    context.reply(call, Performative::Propose, "7").await?;
                }
                _ => {}
            }
            Ok(())
        }
    }
    struct Buyer(Notes);
    impl Agent for Buyer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let slow = peers(context, "slow", 2);
            let mut net = context.contract_net("boxes", slow.clone(), SHORT).await?;
            assert_eq!(net.silent(), slow);
            let notes = self.0.clone();
            net.set_late(move |_, message| {
                let notes = notes.clone();
                async move {
                    notes.add(format!(
                        "{} says {}",
                        message.sender_name(),
                        message.text()?
                    ));
                    Ok(())
                }
            });
            let bid =
                |to: &sealbus::Aid| act(Performative::Request, "bid").with_receiver(to.clone());
            context.send(bid(&slow[0])).await?;
            drop(net);
            self.0.has(1).await;
            context.send(bid(&slow[1])).await?;
            self.0.has(2).await;
            context.stop_all();
            Ok(())
        }

        async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
            panic!("{message} belongs to the contract net");
        }
    }
    let notes = Notes::default();
    run_agents([
        agents("slow", 2, |_| Slow(None)),
        agent("buyer", Buyer(notes.clone())),
    ])
    .await
    .unwrap();
    assert_eq!(notes.all(), ["slow-1@home says 7", "slow-2@home says 7"]);
}

#[tokio::test]
async fn a_contract_net_knows_of_every_bidder() {
    struct Buyer(Notes);
    impl Agent for Buyer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let mut bidders = peers(context, "bidder", 6);
            bidders.push(context.peer("nobody")?);
            let mut net = context.contract_net("boxes", bidders, SHORT * 10).await?;
            let mut bids: Vec<u32> = net.proposals().iter().map(price).collect();
            bids.sort_unstable();
            assert_eq!(bids, [1, 2, 5, 6]);
            assert_eq!(net.refused()[0].text()?, "busy");
            assert_eq!(net.silent(), [context.peer("bidder-4")?]);
            assert_eq!(net.undelivered(), [context.peer("nobody")?]);
            let of = |number| {
                net.proposals()
                    .iter()
                    .find(|it| price(it) == number)
                    .cloned()
            };
            let (good, bad) = (of(1).unwrap(), of(5).unwrap());
            let results = net.accept_all([&good, &bad], "go", LONG).await?;
            let [Ok(done), Err(ProtocolError::TurnedDown { reply })] = &results[..] else {
                panic!("{results:?}")
            };
            assert_eq!((done.text()?, reply.text()?), ("made by 1", "it broke"));
            drop(net);
            self.0.has(4).await;
            context.stop_all();
            Ok(())
        }

        async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
            panic!("{message} belongs to the contract net");
        }
    }
    let notes = Notes::default();
    run_by_the_clock([
        agents("bidder", 6, Bidder::of(&notes)),
        agent("buyer", Buyer(notes.clone())),
    ])
    .await;
    let heard = [
        "1: accept-proposal",
        "2: reject-proposal",
        "5: accept-proposal",
        "6: reject-proposal",
    ];
    assert_eq!(notes.sorted(), heard);
}

#[tokio::test]
async fn bidders_are_found_and_called_again() {
    struct Buyer(Notes);
    impl Agent for Buyer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let none = context
                .contract_net("boxes", Template::from("nothing"), LONG)
                .await;
            assert!(matches!(none, Err(ProtocolError::Nobody)), "{none:?}");
            while context.df().search("bidder").await?.len() < 2 {}
            let bidders = Template::from("bidder");
            let mut net = context
                .iterated_contract_net("boxes", bidders, LONG)
                .await?;
            let chosen: Vec<Message> = net.proposals().to_vec();
            let one = chosen
                .iter()
                .filter(|it| price(it) == 1)
                .cloned()
                .collect::<Vec<_>>();
            net.call_again(&one, "for less", LONG).await?;
            let [offer] = net.proposals() else {
                panic!("{:?}", net.proposals())
            };
            let offer = offer.clone();
            assert_eq!(price(&offer), 10);
            let done = net.accept(&offer, "go", LONG).await?;
            assert_eq!(done.text()?, "made by 1");
            self.0.has(3).await;
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agents("bidder", 2, Bidder::of(&notes)),
        agent("buyer", Buyer(notes.clone())),
    ])
    .await
    .unwrap();
    let heard = ["1: accept-proposal", "1: cfp", "2: reject-proposal"];
    assert_eq!(notes.sorted(), heard);
}

#[tokio::test]
async fn leaving_early_tells_those_who_still_think() {
    struct Buyer(Notes);
    impl Agent for Buyer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let bidders = vec![context.peer("bidder-4")?];
            let net = context.contract_net("boxes", bidders, LONG);
            assert!(tokio::time::timeout(SHORT, net).await.is_err());
            self.0.has(1).await;
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    run_agents([
        agents("bidder", 4, Bidder::of(&notes)),
        agent("buyer", Buyer(notes.clone())),
    ])
    .await
    .unwrap();
    assert_eq!(notes.sorted(), ["4: cancel"]);
}

/// Works for requesters: 1 does the work, 2 refuses, 3 fails, 4 agrees and never ends.
struct Worker {
    number: u32,
    notes: Notes,
}

impl Agent for Worker {
    async fn on_message(&mut self, context: &mut Context, ask: Message) -> AgentResult {
        let (number, notes) = (self.number, self.notes.clone());
        if number == 2 {
            return Err(Refuse::new("no").into());
        }
        let mut work = context.participate(&ask)?;
        work.answer(Performative::Agree, "soon").await?;
        tokio::spawn(async move {
            match number {
                1 => work.answer(Performative::Inform, "done").await?,
                // Dropping the work says `failure`.
                3 => drop(work),
                _ => {
                    while let Some(word) = work.next().await? {
                        notes.add(word.performative.to_string());
                    }
                }
            }
            AgentResult::Ok(())
        });
        Ok(())
    }
}

#[tokio::test]
async fn many_are_asked_at_once() {
    struct Asker(Notes);
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let mut asked = peers(context, "worker", 4);
            asked.push(context.peer("nobody")?);
            let question = act(Performative::Request, "work");
            let answers = context.ask_all(asked, question, SHORT * 10).await?;
            let names = |all: &[Message]| {
                all.iter()
                    .map(|it| number_of(it.sender.as_ref().unwrap().local_name()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(names(&answers.done), [1]);
            assert_eq!(names(&answers.refused), [2]);
            assert_eq!(names(&answers.failed), [3]);
            assert_eq!(answers.silent, [context.peer("worker-4")?]);
            assert_eq!(answers.undelivered, [context.peer("nobody")?]);
            let no_opening = act(Performative::Agree, "work");
            let refused = context
                .ask_all(context.peer("worker-1")?, no_opening, LONG)
                .await;
            assert!(
                matches!(refused, Err(ProtocolError::NotOpening { .. })),
                "{refused:?}"
            );
            self.0.has(1).await;
            context.stop_all();
            Ok(())
        }
    }
    let notes = Notes::default();
    let of = notes.clone();
    run_by_the_clock([
        agents("worker", 4, move |name| Worker {
            number: number_of(name),
            notes: of.clone(),
        }),
        agent("asker", Asker(notes.clone())),
    ])
    .await;
    assert_eq!(notes.sorted(), ["cancel"]);
}

#[tokio::test]
async fn an_offer_is_accepted_or_rejected() {
    struct Judge;
    impl Agent for Judge {
        async fn on_message(&mut self, context: &mut Context, offer: Message) -> AgentResult {
            let act = match offer.text()? {
                "good" => Performative::AcceptProposal,
                _ => Performative::RejectProposal,
            };
            Ok(context.participate(&offer)?.answer(act, "so be it").await?)
        }
    }
    struct Asker;
    impl Agent for Asker {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            for (offer, accepted) in [("good", 1), ("bad", 0)] {
                let offer = act(Performative::Propose, offer);
                let answers = context.ask_all(context.peer("judge")?, offer, LONG).await?;
                assert_eq!(
                    (answers.done.len(), answers.refused.len()),
                    (accepted, 1 - accepted)
                );
            }
            // A message that opens no protocol is not understood.
            let chat = act(Performative::Inform, "hello").with_receiver(context.peer("judge")?);
            let reply = context.request(chat, LONG).await?;
            assert_eq!(reply.performative, Performative::NotUnderstood);
            context.stop_all();
            Ok(())
        }
    }
    run_agents([agent("judge", Judge), agent("asker", Asker)])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_proposal_that_comes_after_the_end_is_rejected() {
    struct Slow {
        call: Option<Message>,
        notes: Notes,
    }
    impl Agent for Slow {
        async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
            match (&message.performative, self.call.take()) {
                (Performative::Cfp, _) => self.call = Some(message),
                // The buyer has left its contract net.
                (Performative::Inform, Some(call)) => {
                    let proposal = call.create_reply(Performative::Propose);
                    context.send(proposal.with_content("7")).await?;
                }
                (word, _) => {
                    self.notes.add(word.to_string());
                    context.stop_all();
                }
            }
            Ok(())
        }
    }
    struct Buyer;
    impl Agent for Buyer {
        async fn setup(&mut self, context: &mut Context) -> AgentResult {
            let slow = context.peer("slow")?;
            let net = context.contract_net("tea", slow.clone(), SHORT).await?;
            assert_eq!(net.silent(), std::slice::from_ref(&slow));
            drop(net);
            let left = act(Performative::Inform, "left").with_receiver(slow);
            context.send(left).await?;
            Ok(())
        }

        async fn on_message(&mut self, _: &mut Context, message: Message) -> AgentResult {
            Err(format!("{message} fell through").into())
        }

        fn supervise(&mut self, _: &sealbus::HandlerError) -> sealbus::Supervision {
            sealbus::Supervision::End
        }
    }
    let notes = Notes::default();
    let slow = Slow {
        call: None,
        notes: notes.clone(),
    };
    let agents = [agent("slow", slow), agent("buyer", Buyer)];
    tokio::time::timeout(LONG, run_agents(agents))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(notes.all(), ["reject-proposal"]);
}

#[tokio::test]
async fn a_call_whose_time_is_over_is_no_fault_of_the_agent() {
    struct Seller;
    impl Agent for Seller {
        async fn on_message(&mut self, context: &mut Context, call: Message) -> AgentResult {
            let mut sale = context.participate(&call)?;
            Ok(sale.answer(Performative::Propose, "7").await?)
        }

        fn supervise(&mut self, _: &HandlerError) -> Supervision {
            Supervision::End
        }
    }
    let bed = TestBed::open().await.unwrap();
    bed.start("seller", Seller).await.unwrap();
    let mut buyer = bed.probe("buyer").await.unwrap();
    for (reply_by, answer) in [
        (bed.time() - LONG, Performative::Failure),
        (bed.time() + LONG, Performative::Propose),
    ] {
        let reply_by = reply_by.duration_since(UNIX_EPOCH).unwrap().as_millis();
        let reply_by = DateTime::from_unix_ms(i64::try_from(reply_by).unwrap()).unwrap();
        let call = act(Performative::Cfp, "boxes").with_receiver(buyer.peer("seller").unwrap());
        buyer.send(call.with_reply_by(reply_by)).await.unwrap();
        buyer.expect(answer).await;
    }
    bed.close().await.unwrap();
}
