//! The entries of the AMS and the DF after starts and lost writes.

use std::net::{Ipv4Addr, SocketAddr};

use sealbus_bus::{Bus, BusConfig};
use sealbus_fipa::management::{SearchConstraints, ServiceDescription};
use sealbus_management::client::subscribe;
use sealbus_process::Process;
use sealbus_seal::PlatformName;
use sealbus_store::MemoryStore;
use tokio::runtime::Handle;

use super::*;
use crate::{Authorities, HostedProcess, OwnHost, PlatformSettings, SystemAgents};
use crate::{lay, timestamp_now};

fn aid(agent: &str) -> Aid {
    Aid::new(agent).unwrap()
}

/// Starts the system agents of a platform on the rows of the store.
async fn start(store: &Arc<MemoryStore>) -> (SystemAgents, DeskHandle) {
    let name = PlatformName::new("factory").unwrap();
    let settings = PlatformSettings::new(name.clone());
    let authorities = Authorities::fresh(&name, timestamp_now()).unwrap();
    let nowhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let laid = lay(&settings, authorities, store.clone(), None, nowhere).await;
    let foundation = laid.unwrap();
    let (desk, news) = (foundation.desk.clone(), foundation.news.clone());
    let adopted = OwnHost::adopt(desk.clone(), HostedProcess::system(None), news).await;
    let (host, _) = adopted.unwrap();
    let bus = Bus::new(BusConfig::new(name), Handle::current());
    let process = Process::open(host, Some(bus)).await.unwrap();
    let starting = SystemAgents::start(process.clone(), process, foundation, store.clone(), None);
    (starting.await.unwrap(), desk)
}

async fn in_df(directories: &Directories) -> Vec<String> {
    let all = DfAgentDescription::default();
    let (found, _) = directories.search(all, 0, usize::MAX).await.unwrap();
    let names = found.into_iter().map(|entry| entry.name.unwrap().name);
    names.collect()
}

#[tokio::test]
async fn agents_whose_end_was_not_told_are_removed_at_the_next_start() {
    let store = Arc::new(MemoryStore::new());
    let limits = DirectoryLimits::default();
    let mut ams = Ams::new(aid("ams@factory"), limits.clone());
    let mut df = Df::new(aid("df@factory"), limits);
    let ghost = aid("ghost@factory");
    let entered = ams.follow(&ghost, Some(AgentState::Active)).unwrap();
    store.commit(entered.batch).await.unwrap();
    for agent in ["ghost@factory", "operator@factory", "ghost@elsewhere"] {
        let entry = DfAgentDescription::of(aid(agent));
        let entered = df.place(&entry, SystemTime::now()).unwrap();
        store.commit(entered.batch).await.unwrap();
    }
    let nothing = ServiceDescription::of_type("nothing");
    let template = DfAgentDescription::default().with_service(nothing);
    let request = subscribe(&aid("df@factory"), template, SearchConstraints::all())
        .with_sender(aid("listener@factory"))
        .with_conversation_id("s1");
    let listener = Requester::Agent("listener@factory".to_owned());
    let subscribed = df.handle(&request, &listener, SystemTime::now());
    assert!(!subscribed.batch.is_empty());
    store.commit(subscribed.batch).await.unwrap();

    let (system, desk) = start(&store).await;
    let (told, followed) = oneshot::channel();
    let telling = desk.run(move |desk, _| {
        desk.followers.push(told);
        Ok(())
    });
    telling.await.unwrap();
    followed.await.unwrap();
    let directories = &system.directories;
    assert_eq!(directories.ams_state(&ghost).await, None);
    let operator = aid("operator@factory");
    assert!(directories.ams_state(&operator).await.is_some());
    assert_eq!(
        in_df(directories).await,
        ["operator@factory", "ghost@elsewhere"]
    );
    let subscriptions = store.scan("df/subscription/", None, 9).await.unwrap();
    assert!(subscriptions.is_empty(), "{subscriptions:?}");
}

#[tokio::test]
async fn a_change_that_the_store_did_not_keep_is_entered_again_unless_a_later_one_came() {
    let store = Arc::new(MemoryStore::new());
    let (system, desk) = start(&store).await;
    let directories = system.directories.clone();
    let (life_changes, changes) = mpsc::unbounded_channel();
    tokio::spawn(directories.clone().follow(desk, BTreeSet::new(), changes));
    let change = |agent: &str, state| {
        let agent = agent.to_owned();
        let sent = life_changes.send(LifeChange::State { agent, state });
        assert!(sent.is_ok());
    };
    let followed = async || {
        let (told, followed) = oneshot::channel();
        assert!(life_changes.send(LifeChange::Followed(told)).is_ok());
        followed.await.unwrap();
    };
    let (ghost, reborn) = (aid("ghost@factory"), aid("reborn@factory"));
    let states = async || {
        let ghost = directories.ams_state(&ghost).await;
        (ghost, directories.ams_state(&reborn).await)
    };
    for agent in ["ghost", "reborn"] {
        change(agent, Some(PlacedState::Active));
    }
    let entry = DfAgentDescription::of(ghost.clone());
    let placing = directories
        .df
        .change(move |df| df.place(&entry, SystemTime::now()));
    placing.await.unwrap();
    followed().await;

    store.set_full(true);
    for agent in ["reborn", "ghost"] {
        change(agent, None);
    }
    followed().await;
    let active = Some(AgentState::Active);
    assert_eq!(states().await, (active, active));
    assert_eq!(in_df(&directories).await, ["ghost@factory"]);

    store.set_full(false);
    change("reborn", Some(PlacedState::Waiting));
    let removed = async {
        while states().await.0.is_some() || !in_df(&directories).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let removed = tokio::time::timeout(Duration::from_secs(120), removed).await;
    assert!(removed.is_ok(), "it was not entered again");
    followed().await;
    assert_eq!(states().await, (None, Some(AgentState::Waiting)));
}
