//! The demo's Rust agents. They are programs of their own, written like any user's programs.

use std::collections::HashMap;
use std::time::Duration;

use sealbus::directory::ServiceDescription;
use sealbus::{AclMessage, Agent, AgentResult, Context, Message, Performative, agent, run};
use tokio::time::{MissedTickBehavior, interval};

use super::conversation::{Account, Question, RECEIVER, Received, SENDER, Sent, Task, nanoseconds};
use crate::arguments::{DemoAgent, DemoRole};
use crate::error::CliError;

/// `sealbus demo-agent sender|receiver`, started by the demo's manifest.
pub(crate) fn serve(demo_agent: &DemoAgent) -> Result<(), CliError> {
    let ended = match demo_agent.role {
        DemoRole::Sender => run([agent("sender", Sender)]),
        DemoRole::Receiver => run([agent("receiver", Receiver::default())]),
    };
    ended.map_err(|error| CliError::Failed {
        message: error.to_string(),
        help: None,
    })
}

struct Sender;

impl Agent for Sender {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        register(context, SENDER).await
    }

    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        if message.performative != Performative::Request {
            return Ok(());
        }
        let task: Task = serde_json::from_str(message.text()?)?;
        let service = ServiceDescription::new(task.service.clone(), RECEIVER);
        let found = context.df().search(service).await?;
        let receiver = found
            .into_iter()
            .find_map(|entry| entry.name)
            .ok_or("the DF knows no such receiver")?;
        let inform = AclMessage::new(Performative::Inform)
            .with_receiver(receiver)
            .with_conversation_id(task.conversation.clone());
        let mut pace = interval(Duration::from_micros(task.interval_us.max(1)));
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut sent = Sent {
            sent: 0,
            began: nanoseconds(),
        };
        for _ in 0..task.count {
            pace.tick().await;
            context
                .send(inform.clone().with_content(nanoseconds().to_string()))
                .await?;
            sent.sent += 1;
        }
        context
            .reply(
                &message,
                Performative::Inform,
                serde_json::to_string(&sent)?,
            )
            .await?;
        Ok(())
    }
}

#[derive(Default)]
struct Receiver {
    accounts: HashMap<String, Account>,
}

impl Agent for Receiver {
    async fn setup(&mut self, context: &mut Context) -> AgentResult {
        register(context, RECEIVER).await
    }

    async fn on_message(&mut self, context: &mut Context, message: Message) -> AgentResult {
        match message.performative {
            Performative::Inform => {
                let now = nanoseconds();
                let conversation = message.conversation_id.as_ref().and_then(|id| id.as_str());
                let account = self
                    .accounts
                    .entry(conversation.unwrap_or_default().to_owned())
                    .or_default();
                account.count(message.text()?, now);
            }
            Performative::QueryRef => {
                let question: Question = serde_json::from_str(message.text()?)?;
                let nothing = Received::default();
                let received = self
                    .accounts
                    .get(&question.conversation)
                    .map_or(&nothing, Account::received);
                context
                    .reply(
                        &message,
                        Performative::Inform,
                        serde_json::to_string(received)?,
                    )
                    .await?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Registers this agent's one service under the agent's name.
async fn register(context: &mut Context, service_type: &str) -> AgentResult {
    let service = ServiceDescription::new(context.name().to_owned(), service_type);
    context.df().register([service]).await?;
    Ok(())
}
