mod ams;
mod client;
mod df;
mod properties;
mod service;

use std::time::{Duration, SystemTime};

use sealbus_fipa::management::DfFunction;
use sealbus_fipa::{AclMessage, Aid, Performative};

use super::client::ask_df;
use super::*;
use sealbus_store::{MemoryStore, Store};

/// 1 January 2027 UTC.
const NOW_MS: u64 = 1_798_761_600_000;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(NOW_MS)
}

fn after(seconds: u64) -> SystemTime {
    now() + Duration::from_secs(seconds)
}

fn aid(name: &str) -> Aid {
    Aid::new(name).unwrap()
}

fn agent(name: &str) -> Requester {
    Requester::Agent(name.to_owned())
}

/// A request with this content, as another platform would write it.
fn request(from: &str, content: &str) -> AclMessage {
    AclMessage::new(Performative::Request)
        .with_sender(aid(from))
        .with_receiver(aid("df@factory"))
        .with_language("fipa-sl0")
        .with_ontology("FIPA-Agent-Management")
        .with_protocol("fipa-request")
        .with_conversation_id("c1")
        .with_reply_with("rw1")
        .with_content(content)
}

/// A request of an agent to the DF, made by this crate's own client.
fn asks(from: &str, function: &DfFunction) -> AclMessage {
    ask_df(&aid("df@factory"), function)
        .with_sender(aid(from))
        .with_conversation_id("c1")
}

/// Performative and content of each message.
fn told(messages: &[AclMessage]) -> Vec<(String, String)> {
    let told = messages.iter().map(|message| {
        let content = message.content_text().unwrap_or_default().to_owned();
        (message.performative.as_str().to_owned(), content)
    });
    told.collect()
}

fn one(messages: &[AclMessage]) -> (String, String) {
    let [message] = told(messages).try_into().unwrap();
    message
}

/// Runs a future of a store in memory, which is always ready.
fn ready<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).expect("a store in memory does not wait")
}

fn commit(store: &MemoryStore, batch: &Batch) {
    ready(store.commit(batch.clone())).unwrap();
}
