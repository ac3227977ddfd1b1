//! An agent that can move to another node while others talk to it. `save` and `restore` carry its state.
//!
//! By itself (`cargo run --example counter`) the counter answers ten questions and stops. On a platform the same
//! program, started as `counter` and as `asker`, runs the agent that was placed in its process. Then
//! `sealbus move counter node-2` takes the counter to another node, and it counts on.

#![warn(clippy::pedantic)]

use std::time::Duration;

use sealbus::{AclMessage, Agent, AgentResult, Context, Message, Performative, agent, run};

struct Counter {
    count: u64,
}

impl Agent for Counter {
    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        self.count += 1;
        context
            .reply(&message, Performative::Inform, self.count.to_string())
            .await?;
        Ok(())
    }

    async fn save(&mut self, _: &mut Context) -> AgentResult<Vec<u8>> {
        Ok(self.count.to_be_bytes().to_vec())
    }

    async fn restore(&mut self, context: &mut Context, state: Vec<u8>) -> AgentResult {
        self.count = u64::from_be_bytes(state.as_slice().try_into()?);
        println!(
            "{} goes on from {} at another place",
            context.aid(),
            self.count
        );
        Ok(())
    }
}

struct Asker;

impl Agent for Asker {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        for _ in 0..10 {
            let question =
                AclMessage::new(Performative::QueryRef).with_receiver(context.peer("counter")?);
            let answer = context.request(question, Duration::from_secs(5)).await?;
            println!("{}", answer.text()?);
        }
        context.stop_all();
        Ok(())
    }
}

fn main() -> Result<(), sealbus::RunError> {
    run([
        agent("counter", Counter { count: 0 }),
        agent("asker", Asker),
    ])
}
