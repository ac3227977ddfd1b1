//! Asking and answering, with the cases that go wrong. A refusal is an answer. A missing agent, and an agent that does
//! not answer, are errors that say so.
//!
//! Run it with `cargo run --example request`.

#![warn(clippy::pedantic)]

use std::time::Duration;

use sealbus::{
    AclMessage, Agent, AgentResult, Context, Message, Performative, RequestError, agent, run,
};

struct Clerk;

impl Agent for Clerk {
    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        match message.text()? {
            "open the door" => {
                context
                    .reply(&message, Performative::Inform, "it is open")
                    .await?;
            }
            "open the safe" => {
                context
                    .reply(&message, Performative::Refuse, "I am not allowed to")
                    .await?;
            }
            // Requests for anything else get no answer.
            _ => {}
        }
        Ok(())
    }
}

struct Visitor;

impl Visitor {
    async fn ask(&self, context: &mut Context, whom: &str, what: &str) -> AgentResult {
        let request = AclMessage::new(Performative::Request)
            .with_receiver(context.peer(whom)?)
            .with_content(what);
        match context.request(request, Duration::from_millis(500)).await {
            Ok(answer) => println!("{what}? {}: {}", answer.performative, answer.text()?),
            Err(RequestError::Undeliverable {
                receiver, reason, ..
            }) => println!("{what}? {receiver}: {reason}"),
            Err(error) => println!("{what}? {error}"),
        }
        Ok(())
    }
}

impl Agent for Visitor {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        self.ask(context, "clerk", "open the door").await?;
        self.ask(context, "clerk", "open the safe").await?;
        self.ask(context, "clerk", "sing").await?;
        self.ask(context, "janitor", "clean the stairs").await?;
        context.stop_all();
        Ok(())
    }
}

fn main() -> Result<(), sealbus::RunError> {
    run([agent("clerk", Clerk), agent("visitor", Visitor)])
}
