//! A buyer calls twenty bidders for proposals and takes the cheapest. Some bidders refuse, one says nothing, and one name
//! belongs to nobody. Leaving the contract net rejects the rest.
//!
//! Run it with `cargo run --example contract_net`.

#![warn(clippy::pedantic)]

use std::time::Duration;

use sealbus::{
    Agent, AgentResult, Context, Message, Performative, Refuse, Voice, agent, agents, run,
};

struct Bidder {
    number: u32,
}

impl Agent for Bidder {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let number = self.number;
        context.on(Performative::Cfp, 8, move |voice, call| {
            bid(voice, call, number)
        });
        Ok(())
    }
}

async fn bid(voice: Voice, call: Message, number: u32) -> AgentResult {
    if number % 10 == 3 {
        return Err(Refuse::new("busy").into());
    }
    let mut sale = voice.participate(&call)?;
    // Some bidders take too long to decide.
    if number % 10 != 4 {
        let price = 100 + number * 7 % 20;
        sale.answer(Performative::Propose, price.to_string())
            .await?;
    }
    while let Some(decision) = sale.next().await? {
        if decision.performative == Performative::AcceptProposal {
            sale.answer(Performative::Inform, "ten boxes").await?;
        }
    }
    Ok(())
}

struct Buyer;

impl Agent for Buyer {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let mut bidders = Vec::new();
        for number in 1..=20 {
            bidders.push(context.peer(&format!("bidder-{number}"))?);
        }
        bidders.push(context.peer("nobody")?);

        let mut net = context
            .contract_net("ten boxes", bidders, Duration::from_secs(10))
            .await?;
        let (offers, refused) = (net.proposals().len(), net.refused().len());
        let (silent, lost) = (net.silent().len(), net.undelivered().len());
        println!("{offers} proposals, {refused} refused, {silent} silent, {lost} not delivered");

        let price = |offer: &&Message| {
            offer
                .text()
                .map_or(u32::MAX, |it| it.parse().unwrap_or(u32::MAX))
        };
        if let Some(best) = net.proposals().iter().min_by_key(price).cloned() {
            let result = net.accept(&best, "go", Duration::from_secs(10)).await?;
            println!(
                "{} sells {} for {}",
                best.sender_name(),
                result.text()?,
                best.text()?
            );
        }
        context.stop_all();
        Ok(())
    }
}

fn main() -> Result<(), sealbus::RunError> {
    let bidders = agents("bidder", 20, |name| {
        let number = name
            .rsplit('-')
            .next()
            .and_then(|number| number.parse().ok());
        Bidder {
            number: number.unwrap_or(0),
        }
    });
    run([bidders, agent("buyer", Buyer)])
}
