//! Sellers register their goods with the directory facilitator. A buyer finds them, asks for offers and takes the
//! cheapest. No agent knows another agent's name beforehand.
//!
//! Run it with `cargo run --example marketplace`.

#![warn(clippy::pedantic)]

use std::time::Duration;

use sealbus::directory::ServiceDescription;
use sealbus::{
    AclMessage, Agent, AgentResult, Context, Filter, Message, Performative, agent,
    new_conversation_id, run,
};

struct Seller {
    price: u32,
}

impl Agent for Seller {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let service = ServiceDescription::new("books by mail", "bookshop");
        context.df().register([service]).await?;
        Ok(())
    }

    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        match message.performative {
            Performative::Cfp => {
                context
                    .reply(&message, Performative::Propose, self.price.to_string())
                    .await?;
            }
            Performative::AcceptProposal => {
                println!(
                    "{} sold {:?} for {}",
                    context.name(),
                    message.text()?,
                    self.price
                );
                context
                    .reply(&message, Performative::Inform, "done")
                    .await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn teardown(&mut self, context: &mut Context) -> AgentResult {
        context.df().deregister().await?;
        Ok(())
    }
}

struct Buyer;

impl Agent for Buyer {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        // Sellers may come a little later than the buyer. The directory reports them when they come.
        let shops = context
            .df()
            .subscribe(ServiceDescription::of_type("bookshop"))
            .await?;
        let mut sellers = Vec::new();
        while sellers.len() < 3 {
            let news = shops.next().await?;
            sellers.extend(news.into_iter().filter_map(|entry| entry.name));
        }
        shops.cancel().await?;

        let sale = new_conversation_id();
        for seller in &sellers {
            let call = AclMessage::new(Performative::Cfp)
                .with_receiver(seller.clone())
                .with_conversation_id(sale.as_str())
                .with_content("Middlemarch");
            context.send(call).await?;
        }

        let proposals = Filter::performative(Performative::Propose) & Filter::conversation(sale);
        let mut best: Option<(u32, Message)> = None;
        for _ in &sellers {
            let offer = context
                .receive_within(proposals.clone(), Duration::from_secs(5))
                .await?;
            let price: u32 = offer.text()?.parse()?;
            println!("{} offers {price}", offer.sender_name());
            if best.as_ref().is_none_or(|(cheapest, _)| price < *cheapest) {
                best = Some((price, offer));
            }
        }
        let (_, offer) = best.ok_or("nobody sells books")?;
        let order = offer
            .create_reply(Performative::AcceptProposal)
            .with_content("Middlemarch");
        context.request(order, Duration::from_secs(5)).await?;
        context.stop_all();
        Ok(())
    }
}

fn main() -> Result<(), sealbus::RunError> {
    run([
        agent("seller-1", Seller { price: 12 }),
        agent("seller-2", Seller { price: 9 }),
        agent("seller-3", Seller { price: 15 }),
        agent("buyer", Buyer),
    ])
}
