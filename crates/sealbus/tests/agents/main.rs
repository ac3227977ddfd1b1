//! Agents of one program on an embedded platform.
#![allow(clippy::unwrap_used)]

mod auctions;
mod behaviours;
mod bounds;
mod channels;
mod conversations;
mod directory;
mod handlers;
mod hooks;
mod leaving;
mod moving;
mod protocols;
mod relays;
mod test_beds;
mod tools;
mod workload;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sealbus::testing::TestBed;
use sealbus::{AclMessage, Aid, Context, Message, NamedAgents, Performative};

/// Much longer than anything takes, so that no test depends on speed.
const LONG: Duration = Duration::from_secs(120);

/// The notes of agents, to read when the agents are gone.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn sorted(&self) -> Vec<String> {
        let mut notes = self.all();
        notes.sort();
        notes
    }

    async fn has(&self, count: usize) {
        while self.0.lock().unwrap().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn act(performative: Performative, content: &str) -> AclMessage {
    AclMessage::new(performative).with_content(content)
}

/// The number at the end of an agent's name.
fn number_of(name: &str) -> u32 {
    name.rsplit('-').next().unwrap().parse().unwrap()
}

fn price(offer: &Message) -> u32 {
    offer.text().unwrap().parse().unwrap()
}

fn peers(context: &Context, kind: &str, count: u32) -> Vec<Aid> {
    (1..=count)
        .map(|number| context.peer(&format!("{kind}-{number}")).unwrap())
        .collect()
}

/// Runs agents by a clock that moves only when they are at rest, so that nobody is too slow for a limit.
async fn run_by_the_clock(agents: impl IntoIterator<Item = NamedAgents>) {
    let bed = TestBed::open().await.unwrap();
    let running = bed.platform().run(agents);
    bed.clock().run(running).await.unwrap();
    bed.close().await.unwrap();
}
