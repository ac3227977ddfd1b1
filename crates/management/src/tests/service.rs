//! AMS and DF as agents on a real bus.

use std::sync::Arc;

use futures_util::FutureExt;
use sealbus_bus::{Bus, BusConfig, Mailbox, MailboxLimits, Outbox, ReceivedMessage};
use sealbus_fipa::management::{
    AgentState, AmsAgentDescription, AmsFunction, DfAgentDescription, SearchConstraints,
    ServiceDescription,
};

use super::*;
use crate::client::{Answer, AnswerError, ask_ams, cancel, subscribe};
use sealbus_store::{MemoryStore, Store, WithCommits};
use tokio::sync::Notify;

/// A platform's bus with its AMS and DF.
struct Platform {
    bus: Bus,
    store: Arc<MemoryStore>,
    ams: DirectoryService<Ams>,
    df: DirectoryService<Df>,
}

impl Platform {
    async fn new() -> Self {
        let platform = sealbus_seal::PlatformName::new("factory").unwrap();
        let bus = Bus::new(BusConfig::new(platform), tokio::runtime::Handle::current());
        Self::on(bus, Arc::default()).await
    }

    /// Starts AMS and DF on the contents of the store.
    async fn on(bus: Bus, store: Arc<MemoryStore>) -> Self {
        let limits = DirectoryLimits::default();
        let ams = Ams::load(aid("ams@factory"), limits.clone(), &*store)
            .await
            .unwrap();
        let df = Df::load(aid("df@factory"), limits, &*store).await.unwrap();
        let (outbox, mailbox) = bus.attach("ams@factory", None, None).unwrap();
        let (ams, run) =
            DirectoryService::new(ams, mailbox, Arc::new(outbox), store.clone(), false);
        tokio::spawn(run);
        let (outbox, mailbox) = bus.attach("df@factory", None, None).unwrap();
        let (df, run) = DirectoryService::new(df, mailbox, Arc::new(outbox), store.clone(), false);
        tokio::spawn(run);
        Self {
            bus,
            store,
            ams,
            df,
        }
    }

    fn agent(&self, name: &str) -> Agent {
        let (outbox, mailbox) = self.bus.attach(name, None, None).unwrap();
        Agent { outbox, mailbox }
    }
}

struct Agent {
    outbox: Outbox,
    mailbox: Mailbox,
}

impl Agent {
    async fn receive(&mut self) -> AclMessage {
        let message: ReceivedMessage = self.mailbox.recv().await.unwrap();
        (*message.into_message()).clone()
    }

    async fn ask(&mut self, message: AclMessage) -> AclMessage {
        self.outbox
            .send(message.with_conversation_id("c"))
            .await
            .unwrap();
        self.receive().await
    }

    async fn ask_df(&mut self, function: DfFunction) -> AclMessage {
        self.ask(ask_df(&aid("df@factory"), &function)).await
    }
}

fn seller() -> DfAgentDescription {
    DfAgentDescription::of(aid("seller@factory"))
        .with_service(ServiceDescription::new("gears", "selling"))
}

fn wants_sellers() -> AclMessage {
    let template =
        DfAgentDescription::default().with_service(ServiceDescription::of_type("selling"));
    subscribe(&aid("df@factory"), template, SearchConstraints::all()).with_conversation_id("sub")
}

#[tokio::test]
async fn agents_find_each_other_over_the_bus_also_after_a_restart() {
    let platform = Platform::new().await;
    let mut seller_agent = platform.agent("seller@factory");
    let mut buyer = platform.agent("buyer@factory");
    buyer.outbox.send(wants_sellers()).await.unwrap();
    assert_eq!(Answer::read(&buyer.receive().await), Ok(Answer::Agreed));
    let done = seller_agent.ask_df(DfFunction::Register(seller())).await;
    assert!(Answer::read(&done).unwrap().is_done());
    assert_eq!(
        Answer::read(&buyer.receive().await)
            .unwrap()
            .news(DfAgentDescription::from_term),
        Ok(vec![seller()])
    );
    let refused = buyer.ask_df(DfFunction::Deregister(seller())).await;
    assert_eq!(
        Answer::read(&refused).unwrap_err().to_string(),
        "df@factory answered refuse: not authorised"
    );

    // The Master is started again: new agents on the old store.
    for name in ["ams@factory", "df@factory"] {
        platform.bus.detach(name);
    }
    let platform = Platform::on(platform.bus, platform.store).await;
    let search = DfFunction::Search(DfAgentDescription::default(), SearchConstraints::all());
    let found = buyer.ask_df(search).await;
    assert_eq!(
        Answer::read(&found)
            .unwrap()
            .found(DfAgentDescription::from_term),
        Ok(vec![seller()])
    );
    let done = seller_agent.ask_df(DfFunction::Deregister(seller())).await;
    assert!(Answer::read(&done).unwrap().is_done());
    let gone = DfAgentDescription::of(aid("seller@factory"));
    assert_eq!(
        Answer::read(&buyer.receive().await)
            .unwrap()
            .news(DfAgentDescription::from_term),
        Ok(vec![gone])
    );
    buyer.outbox.send(cancel(&wants_sellers())).await.unwrap();
    assert!(Answer::read(&buyer.receive().await).unwrap().is_done());
    assert_eq!(platform.df.read(Df::len).await, Some(0));
}

#[tokio::test]
async fn the_master_keeps_the_white_pages() {
    let platform = Platform::new().await;
    let follow = |state| {
        platform
            .ams
            .change(move |ams| ams.follow(&aid("a@factory"), state))
    };
    follow(Some(AgentState::Active)).await.unwrap();
    let mut asking = platform.agent("b@factory");
    let all = AmsFunction::Search(AmsAgentDescription::default(), SearchConstraints::all());
    let found = asking.ask(ask_ams(&aid("ams@factory"), &all)).await;
    let agents = Answer::read(&found)
        .unwrap()
        .found(AmsAgentDescription::from_term)
        .unwrap();
    assert_eq!(agents[0].state, Some(AgentState::Active));
    follow(None).await.unwrap();
    assert_eq!(platform.ams.read(Ams::len).await, Some(0));
    let impossible = platform
        .ams
        .change(|ams| ams.place(AmsAgentDescription::default()));
    assert!(matches!(impossible.await, Err(ChangeError::TurnedDown(_))));
}

#[tokio::test]
async fn nothing_is_done_that_the_store_does_not_keep() {
    let platform = Platform::new().await;
    let mut seller_agent = platform.agent("seller@factory");
    platform.store.set_full(true);
    let failed = seller_agent.ask_df(DfFunction::Register(seller())).await;
    match Answer::read(&failed) {
        Err(AnswerError::TurnedDown {
            performative,
            exception,
            ..
        }) => {
            assert_eq!(performative, "failure");
            assert!(
                exception.to_string().contains("no space left"),
                "{exception}"
            );
        }
        other => panic!("{other:?}"),
    }
    let change = platform
        .ams
        .change(|ams| ams.follow(&aid("a@factory"), Some(AgentState::Active)));
    assert!(matches!(change.await, Err(ChangeError::NotKept(_))));
    assert_eq!(platform.ams.read(Ams::len).await, Some(0));
    // Searches need no store.
    let search = DfFunction::Search(DfAgentDescription::default(), SearchConstraints::all());
    let found = seller_agent.ask_df(search).await;
    assert_eq!(
        Answer::read(&found)
            .unwrap()
            .found(DfAgentDescription::from_term),
        Ok(Vec::new())
    );
    platform.store.set_full(false);
    let done = seller_agent.ask_df(DfFunction::Register(seller())).await;
    assert!(Answer::read(&done).unwrap().is_done());
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_keeps_nobody_waiting() {
    let platform = Platform::new().await;
    let narrow = MailboxLimits {
        messages: 2,
        bytes: 1 << 20,
    };
    let (outbox, mailbox) = platform
        .bus
        .attach("sleeper@factory", None, Some(narrow))
        .unwrap();
    let mut sleeper = Agent { outbox, mailbox };
    sleeper.outbox.send(wants_sellers()).await.unwrap();
    let mut seller_agent = platform.agent("seller@factory");
    let done = seller_agent.ask_df(DfFunction::Register(seller())).await;
    assert!(Answer::read(&done).unwrap().is_done());
    for cost in 0..20 {
        let mut changed = seller();
        changed.services[0] = ServiceDescription::new("gears", "selling")
            .with_property("cost", sealbus_fipa::sl::Term::Integer(cost));
        let done = seller_agent.ask_df(DfFunction::Modify(changed)).await;
        assert!(Answer::read(&done).unwrap().is_done());
    }
    // When the receiver wakes up, everything is there and in order.
    assert_eq!(Answer::read(&sleeper.receive().await), Ok(Answer::Agreed));
    assert_eq!(
        Answer::read(&sleeper.receive().await)
            .unwrap()
            .news(DfAgentDescription::from_term),
        Ok(vec![seller()])
    );
    for cost in 0..20 {
        let told = sleeper.receive().await;
        let told = Answer::read(&told)
            .unwrap()
            .news(DfAgentDescription::from_term)
            .unwrap();
        let cost = sealbus_fipa::sl::Term::Integer(cost);
        assert_eq!(told[0].services[0].properties[0].value, Some(cost));
    }
}

#[tokio::test]
async fn leases_end_by_themselves() {
    let platform = Platform::new().await;
    let mut seller_agent = platform.agent("seller@factory");
    let mut buyer = platform.agent("buyer@factory");
    buyer.outbox.send(wants_sellers()).await.unwrap();
    assert_eq!(Answer::read(&buyer.receive().await), Ok(Answer::Agreed));
    let mut short = seller();
    short.lease_time = Some("+00000000T000000050".parse().unwrap());
    let done = seller_agent.ask_df(DfFunction::Register(short)).await;
    assert!(
        Answer::read(&done)
            .unwrap()
            .granted()
            .unwrap()
            .lease_time
            .is_some()
    );
    let came = buyer.receive().await;
    assert_eq!(
        Answer::read(&came)
            .unwrap()
            .news(DfAgentDescription::from_term)
            .unwrap()
            .len(),
        1
    );
    let gone = DfAgentDescription::of(aid("seller@factory"));
    assert_eq!(
        Answer::read(&buyer.receive().await)
            .unwrap()
            .news(DfAgentDescription::from_term),
        Ok(vec![gone])
    );
}

#[tokio::test]
async fn a_subscriber_that_has_gone_is_forgotten() {
    let platform = Platform::new().await;
    let mut buyer = platform.agent("buyer@factory");
    buyer.outbox.send(wants_sellers()).await.unwrap();
    assert_eq!(Answer::read(&buyer.receive().await), Ok(Answer::Agreed));
    platform.bus.detach("buyer@factory");
    let mut seller_agent = platform.agent("seller@factory");
    let subscriptions = async || {
        platform
            .store
            .scan("df/subscription/", None, 9)
            .await
            .unwrap()
            .len()
    };
    assert_eq!(subscriptions().await, 1);
    let mut function = DfFunction::Register(seller());
    // The notice that the notification was not delivered comes back through the mailbox.
    while subscriptions().await > 0 {
        let done = seller_agent.ask_df(function).await;
        assert!(Answer::read(&done).unwrap().is_done());
        function = DfFunction::Modify(seller());
    }
}

#[tokio::test]
async fn a_directory_that_ends_answers_what_it_has_begun_and_takes_nothing_more() {
    for is_answered in [true, false] {
        let (has_begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begun, end) = (has_begun.clone(), may_end.clone());
        let store = Arc::new(WithCommits::new(move |store, batch| {
            let (begun, end) = (begun.clone(), end.clone());
            let committing = async move {
                begun.notify_one();
                end.notified().await;
                store.commit(batch).await
            };
            committing.boxed()
        }));
        let platform = sealbus_seal::PlatformName::new("factory").unwrap();
        let bus = Bus::new(BusConfig::new(platform), tokio::runtime::Handle::current());
        let limits = DirectoryLimits::default();
        let df = Df::load(aid("df@factory"), limits, &*store).await.unwrap();
        let (outbox, mailbox) = bus.attach("df@factory", None, None).unwrap();
        let (df, run) = DirectoryService::new(df, mailbox, Arc::new(outbox), store.clone(), false);
        tokio::spawn(run);
        let (outbox, mailbox) = bus.attach("seller@factory", None, None).unwrap();
        let mut seller_agent = Agent { outbox, mailbox };
        let register = ask_df(&aid("df@factory"), &DfFunction::Register(seller()));
        let send = async |conversation: &str| {
            let request = register.clone().with_conversation_id(conversation);
            seller_agent.outbox.send(request).await.unwrap();
        };
        send("begun").await;
        has_begun.notified().await;
        send("waits").await;
        let ending = async {
            let finishing = df.finish();
            tokio::pin!(finishing);
            assert!(finishing.as_mut().now_or_never().is_none());
            if is_answered {
                may_end.notify_one();
            }
            finishing.await;
        };
        ending.await;
        let answer = seller_agent.receive().await;
        assert_eq!(answer.conversation_id, Some("begun".into()));
        match Answer::read(&answer) {
            Ok(answer) => assert!(is_answered && answer.is_done()),
            Err(AnswerError::TurnedDown { exception, .. }) => {
                let exception = exception.to_string();
                assert!(
                    !is_answered && exception.contains("ask again"),
                    "{exception}"
                );
            }
            other => panic!("{other:?}"),
        }
        let back = seller_agent.receive().await;
        assert_eq!(back.conversation_id, Some("waits".into()));
        assert!(matches!(
            Answer::read(&back),
            Err(AnswerError::Undelivered { .. })
        ));
    }
}
