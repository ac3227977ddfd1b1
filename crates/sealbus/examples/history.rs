//! A till writes its sales on a persistent channel. Each sale is on disk before any subscriber hears of it. A late
//! subscriber reads all sales, and a durable subscription goes on where it stopped.
//!
//! Run it with `cargo run -p sealbus --example history`. The sales last as long as the program. With a folder in
//! `SEALBUS_STATE` they are still there at the next run.

#![warn(clippy::pedantic)]

use sealbus::channel::{Channel, ChannelSubscription, Replay};
use sealbus::{AclMessage, Agent, AgentResult, Context, Performative, agent, run};

struct Shop;

/// Sells `count` pounds of tea, and prints where the log has the last sale.
async fn sell(sales: &Channel, count: u32) -> AgentResult {
    for _ in 0..count {
        let sale = AclMessage::new(Performative::Inform).with_content("a pound of tea");
        let reach = sales.publish(sale).await?;
        if let Some(place) = reach.kept {
            println!("sold: {} keeps it as #{}", place.node, place.number);
        }
    }
    Ok(())
}

/// Reads `count` sales.
async fn audit(who: &str, sales: &mut ChannelSubscription, count: u32) -> AgentResult {
    for _ in 0..count {
        if let Some(sale) = sales.next().await {
            println!("{who} reads #{}: {}", sale.header().number, sale.text()?);
        }
    }
    Ok(())
}

impl Agent for Shop {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let sales = context.channel("sealbus:persistent,ack=disk:///sales/tea/")?;
        sell(&sales, 3).await?;

        // The auditor was not there when the sales were made.
        let all = context.subscribe("/sales/**")?.since(Replay::From(1));
        audit("the auditor", &mut all.open()?, 3).await?;

        // The accountant goes home after the first sale, and misses nothing.
        let books = || context.subscribe("/sales/**").map(|it| it.durable("books"));
        let mut today = books()?.since(Replay::From(1)).open()?;
        audit("the accountant", &mut today, 1).await?;
        today.settle();
        drop(today);
        sell(&sales, 1).await?;
        audit("the accountant", &mut books()?.open()?, 3).await?;
        context.stop_all();
        Ok(())
    }
}

fn main() -> Result<(), sealbus::RunError> {
    run([agent("shop", Shop)])
}
