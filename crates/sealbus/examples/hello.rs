//! Two agents in one file, with nothing to install. They are certified, meet on an embedded platform and play a rally.
//!
//! Run it with `cargo run --example hello`.

#![warn(clippy::pedantic)]

use std::time::Duration;

use sealbus::{AclMessage, Agent, AgentResult, Context, Message, Performative, agent, run};

struct Ping;

impl Agent for Ping {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        let pong = context.peer("pong")?;
        for round in 1..=3 {
            let ball = AclMessage::new(Performative::QueryRef)
                .with_receiver(pong.clone())
                .with_content(format!("ping {round}"));
            let answer = context.request(ball, Duration::from_secs(10)).await?;
            println!("{} says: {}", answer.sender_name(), answer.text()?);
        }
        context.stop_all();
        Ok(())
    }
}

struct Pong;

impl Agent for Pong {
    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        let answer = message.text()?.replace("ping", "pong");
        context
            .reply(&message, Performative::Inform, answer)
            .await?;
        Ok(())
    }
}

fn main() -> Result<(), sealbus::RunError> {
    run([agent("ping", Ping), agent("pong", Pong)])
}
