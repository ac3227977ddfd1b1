//! Shops publish offers on channels and answer questions. A buyer hears the cheap offers, and asks everyone. No agent
//! knows another agent's name.
//!
//! Run it with `cargo run -p sealbus --example channels`.

#![warn(clippy::pedantic)]

use std::time::Duration;

use sealbus::acl::Expression;
use sealbus::channel::ChannelEvent;
use sealbus::{AclMessage, Agent, AgentResult, Context, Performative, agent, run};

struct Shop {
    price: i64,
}

impl Agent for Shop {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        context.listen(context.subscribe("/opening")?)?;
        context.listen(context.subscribe("/wanted/*")?.only_requests())?;
        let ready = context.channel("/ready")?;
        ready
            .send("buyer", AclMessage::new(Performative::Inform))
            .await?;
        Ok(())
    }

    async fn on_event(&mut self, context: &mut Context, _: ChannelEvent) -> AgentResult {
        let mut offer = AclMessage::new(Performative::Inform).with_content("a pound of tea");
        offer.user_defined = vec![("X-price".to_owned(), Expression::from(self.price))];
        context.channel("/offers/tea")?.publish(offer).await?;
        Ok(())
    }

    async fn on_question(&mut self, context: &mut Context, question: ChannelEvent) -> AgentResult {
        // The dearest shop is too proud to answer. The buyer learns that at once.
        if self.price < 10 {
            let price = format!("{} EUR", self.price);
            context
                .answer(&question, Performative::Propose, price)
                .await?;
        } else {
            context.decline(&question);
        }
        Ok(())
    }
}

struct Buyer;

impl Agent for Buyer {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let mut ready = context.subscribe("/ready")?.open()?;
        for (name, price) in [("shop-1", 7), ("shop-2", 9), ("shop-3", 12)] {
            context.spawn(name, Shop { price }).await?;
            ready.next().await;
        }

        // The filter is evaluated at the sender, so dear offers are not even sent.
        let cheap = context
            .subscribe("/offers/**")?
            .filter("properties.price < 10");
        let mut offers = cheap.open()?;
        let open = AclMessage::new(Performative::Inform).with_content("the market is open");
        context.channel("/opening")?.publish(open).await?;
        for _ in 0..2 {
            if let Some(offer) = offers.next().await {
                println!(
                    "{} on {}: {}",
                    offer.sender_name(),
                    offer.channel(),
                    offer.text()?
                );
            }
        }

        let wanted = context.channel("/wanted/tea")?;
        let call = AclMessage::new(Performative::Cfp).with_content("10 pounds");
        let mut replies = wanted.request(call, Duration::from_secs(5)).await?;
        while let Some(reply) = replies.next().await {
            println!("{} proposes {}", reply.sender_name(), reply.text()?);
        }
        println!("no answer from {}", replies.missing().join(", "));
        context.stop_all();
        Ok(())
    }
}

fn main() -> Result<(), sealbus::RunError> {
    run([agent("buyer", Buyer)])
}
