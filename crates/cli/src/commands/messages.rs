//! `mailbox`, `send`, `df search`, `df register`, `df deregister`: messages to agents and to the directory facilitator.

use sealbus::{AclMessage, Performative};
use sealbus_bus::{Delivery, milliseconds};
use sealbus_control::admin::{Page, SendMessage, SilentNode, ask};
use sealbus_fipa::Aid;
use serde_json::json;

use super::member::Member;
use super::{content, instant};
use crate::arguments::{DfDeregister, DfRegister, DfSearch, Mailbox, Send};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::{Output, table};

/// `sealbus mailbox AGENT`
pub(crate) async fn mailbox(
    connection: &mut Connection,
    mailbox: &Mailbox,
    output: Output,
) -> Result<(), CliError> {
    let request = ask::Mailbox {
        agent: mailbox.agent.clone(),
    };
    let waiting = connection.ask(request).await?;
    output.show(&waiting, || {
        let mut table = table(&[
            "FROM",
            "SENT",
            "PERFORMATIVE",
            "BYTES",
            "VALID FROM",
            "EXPIRES",
            "NODE",
            "STATE",
        ]);
        for letter in &waiting.letters {
            table.add_row([
                letter.sender.clone(),
                instant(letter.posted),
                letter.performative.clone(),
                letter.size.to_string(),
                letter.valid_from.map_or_else(|| "-".to_owned(), instant),
                instant(letter.expiry),
                letter.node.clone(),
                if letter.delivered { "unread" } else { "waits" }.to_owned(),
            ]);
        }
        let mut text = table.trim_fmt();
        let more = waiting.total.saturating_sub(waiting.letters.len() as u64);
        if more > 0 {
            text.push_str(&format!("\nand {more} more"));
        }
        for SilentNode { node, why } in &waiting.silent {
            text.push_str(&format!(
                "\nthe messages that wait on {node} are not known: {why}"
            ));
        }
        text
    });
    Ok(())
}

/// `sealbus send RECEIVER CONTENT`
pub(crate) async fn send(
    connection: &mut Connection,
    send: &Send,
    output: Output,
) -> Result<(), CliError> {
    let content = content(&send.content)?;
    if send.persistent {
        return send_persistent(connection, send, content, output).await;
    }
    let wait = send.timeout.map_or(0, |time| milliseconds(time.0));
    let message = SendMessage {
        performative: send.performative.clone(),
        receivers: vec![send.receiver.clone()],
        content,
        language: send.language.clone(),
        ontology: send.ontology.clone(),
        protocol: send.protocol.clone(),
        wait,
    };
    let waiting = output.waiting(&format!("waiting for {}", send.receiver));
    let replies = connection.ask(ask::Send { message }).await?;
    waiting.finish_and_clear();
    if wait > 0 && replies.is_empty() {
        return Err(CliError::Failed {
            message: format!("{} did not answer in time", send.receiver),
            help: Some(
                "wait longer with --timeout, or see what it does with `sealbus logs`".to_owned(),
            ),
        });
    }
    output.show(
        &json!({ "receiver": send.receiver, "replies": replies }),
        || {
            if replies.is_empty() {
                format!("sent to {}", send.receiver)
            } else {
                replies.join("\n")
            }
        },
    );
    Ok(())
}

/// `sealbus send RECEIVER CONTENT --persistent`: an agent of the command's own sends, because a node keeps messages for
/// agents that it has certified.
async fn send_persistent(
    connection: &mut Connection,
    send: &Send,
    content: String,
    output: Output,
) -> Result<(), CliError> {
    let member = Member::join(connection, "send").await?;
    let sender = member
        .during(async |member| {
            let failed = |message: String| CliError::Failed {
                message,
                help: Some("`sealbus mailbox AGENT` shows what waits for an agent".to_owned()),
            };
            let receiver = member.full_name(&send.receiver);
            let receiver = Aid::new(receiver).map_err(|error| CliError::Usage {
                message: error.to_string(),
                help: "name an agent, such as seller-1: `sealbus ps` lists them".to_owned(),
            })?;
            let mut message = AclMessage::new(Performative::from(send.performative.as_str()))
                .with_receiver(receiver)
                .with_content(content);
            if let Some(language) = &send.language {
                message = message.with_language(language.clone());
            }
            if let Some(ontology) = &send.ontology {
                message = message.with_ontology(ontology.clone());
            }
            if let Some(protocol) = &send.protocol {
                message = message.with_protocol(protocol.clone());
            }
            let sent = member.outbox().send_with(message, Delivery::persistent());
            sent.await.map_err(|error| failed(error.to_string()))?;
            Ok(member.name())
        })
        .await?;
    output.show(
        &json!({ "receiver": send.receiver, "sender": sender, "persistent": true }),
        || {
            format!(
                "kept for {} until it has it; the sender is {sender}",
                send.receiver
            )
        },
    );
    Ok(())
}

/// `sealbus df search`
pub(crate) async fn search(
    connection: &mut Connection,
    search: &DfSearch,
    output: Output,
) -> Result<(), CliError> {
    let request = ask::DfSearch {
        service_type: search.service_type.clone(),
        service_name: search.service_name.clone(),
        page: Page::default(),
    };
    let services = connection.list(request).await?;
    output.show(&services, || {
        let mut table = table(&["AGENT", "TYPE", "NAME"]);
        for service in &services {
            table.add_row([
                service.agent.clone(),
                service.service_type.clone().unwrap_or_default(),
                service.name.clone().unwrap_or_default(),
            ]);
        }
        table.trim_fmt()
    });
    Ok(())
}

/// `sealbus df register AGENT`
pub(crate) async fn register(
    connection: &mut Connection,
    register: &DfRegister,
    output: Output,
) -> Result<(), CliError> {
    let request = ask::DfRegister {
        agent: register.agent.clone(),
        service_type: register.service_type.clone(),
        service_name: register.service_name.clone(),
        lease: register.lifetime.map(|time| time.0.as_secs().max(1)),
    };
    connection.ask(request).await?;
    output.show(
        &json!({ "agent": register.agent, "service": register.service_name }),
        || {
            format!(
                "{} offers {} ({})",
                register.agent, register.service_name, register.service_type
            )
        },
    );
    Ok(())
}

/// `sealbus df deregister AGENT`
pub(crate) async fn deregister(
    connection: &mut Connection,
    deregister: &DfDeregister,
    output: Output,
) -> Result<(), CliError> {
    let request = ask::DfDeregister {
        agent: deregister.agent.clone(),
        service_name: deregister.service_name.clone(),
    };
    connection.ask(request).await?;
    output.show(
        &json!({ "agent": deregister.agent, "service": deregister.service_name }),
        || match &deregister.service_name {
            Some(service) => format!("{} no longer offers {service}", deregister.agent),
            None => format!("{} no longer offers anything", deregister.agent),
        },
    );
    Ok(())
}
