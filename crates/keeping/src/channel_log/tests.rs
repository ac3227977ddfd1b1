#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_channels::frame::{Frame, Head, Stamp};
use sealbus_channels::{ChannelHeader, Mechanism, Moment, Persistence, Qos};
use sealbus_control::Blob;
use sealbus_control::channel_log::{KeepOutcome, LogQuestion, LogStart, PostedEvent};
use sealbus_fipa::{AclMessage, Aid, Content, Performative, bitefficient};
use sealbus_journal::JournalConfig;
use sealbus_seal::permission::{ChannelRule, ChannelUses};

use super::retention::MOST_OF_AGENT;
use super::*;

fn open(folder: &Path) -> KeptChannelLogs {
    let (journal, report) = Journal::open(folder, JournalConfig::default()).unwrap();
    let platform = PlatformName::new("factory").unwrap();
    KeptChannelLogs::open(journal, &report, "node-1", platform, 1 << 20).unwrap()
}

fn make(logs: &KeptChannelLogs, channel: &str, publisher: &str) -> Result<(), Fault> {
    let channel = ChannelPath::new(channel).unwrap();
    logs.log(&Obeyed::default(), &channel, publisher).map(drop)
}

#[test]
fn an_agent_begins_only_so_many_channels_of_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let logs = open(folder.path());
    for number in 0..MOST_LOGS_OF_AGENT {
        make(&logs, &format!("/flood/{number}"), "mallory").unwrap();
    }
    let fault = make(&logs, "/one/more", "mallory").unwrap_err();
    assert_eq!(fault.code, FaultCode::Full);
    assert!(
        fault.to_string().contains("mallory published first"),
        "{fault}"
    );
    // There is room for other agents, and on the channels that have logs already.
    make(&logs, "/news", "alice").unwrap();
    make(&logs, "/news", "mallory").unwrap();
    make(&logs, "/flood/0", "mallory").unwrap();
    logs.journal.close();
    let logs = open(folder.path());
    assert!(make(&logs, "/one/more", "mallory").is_err());
    make(&logs, "/one/more", "alice").unwrap();
}

#[test]
fn events_leave_a_reserve_of_the_disk_for_the_platform() {
    let folder = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(1 << 20));
    let mut logs = open(folder.path());
    logs.reserve = Reserve::with_free(&free);
    assert_eq!(
        make(&logs, "/news", "alice").unwrap_err().code,
        FaultCode::Full
    );
    free.store(1 << 30, Ordering::SeqCst);
    make(&logs, "/news", "alice").unwrap();
}

/// An event of so many KiB that an agent publishes on a channel.
fn event_of(kib: usize, publisher: &str, channel: &str, number: u64) -> PostedEvent {
    let sender = Aid::new(format!("{publisher}@factory")).unwrap();
    let message = AclMessage::new(Performative::Inform)
        .with_sender(sender)
        .with_content("x".repeat(kib << 10));
    let mut body = Vec::new();
    bitefficient::encode(&message, &mut body).unwrap();
    let channel = ChannelPath::new(channel).unwrap();
    let qos = Qos {
        persistence: Persistence::Persistent,
        ..Qos::default()
    };
    let header = ChannelHeader::new(Mechanism::Event, channel, qos, number, Moment::now());
    PostedEvent {
        publisher: publisher.to_owned(),
        frame: Blob(keep(Stamp { session: 1, number }, &header, &body)),
    }
}

/// Publishes so many events of 32 KiB on a channel.
async fn publish(logs: &Arc<KeptChannelLogs>, publisher: &str, channel: &str, count: u64) {
    let numbers: Vec<u64> = (1..=count).collect();
    for some in numbers.chunks(4) {
        let events = some.iter().map(|it| event_of(32, publisher, channel, *it));
        let events = events.collect();
        let answer = logs.answer(publisher, LogRequest::Keep { events }).await;
        let LogAnswer::Kept { outcomes } = answer.unwrap() else {
            panic!("they are kept");
        };
        let is_kept = |outcome: &KeepOutcome| matches!(outcome, KeepOutcome::Kept { .. });
        assert!(outcomes.iter().all(is_kept), "{outcomes:?}");
    }
}

/// The numbers of kept and of all events of a channel, and the bytes of its log, once the journal has done its work.
async fn kept(logs: &KeptChannelLogs, channel: &str) -> (u64, u64, u64) {
    let log = logs.logs.lock()[channel].clone();
    log.stream.retain().unwrap().await.unwrap();
    let info = log.stream.info();
    (info.records, info.end - 1, info.bytes)
}

/// Otherwise its channels would fill the disk, each by itself within bounds, and others would find no room.
#[tokio::test]
async fn the_channels_that_one_agent_began_have_a_share_of_the_disk_and_others_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Arc::new(open(folder.path()));
    logs.obey(&rules());
    let given = ChannelPath::new("/given").unwrap();
    let much = Retention {
        bytes: Some(64 << 20),
        ..Retention::default()
    };
    logs.retain(&given, much).unwrap();
    publish(&logs, "alice", "/news", 4).await;
    publish(&logs, "bob", "/given", 64).await;
    let flood = || (0..MOST_LOGS_OF_AGENT).map(|number| format!("/flood/{number}"));
    for channel in flood() {
        publish(&logs, "mallory", &channel, 32).await;
    }
    let mut all = 0;
    for channel in flood() {
        let (records, last, bytes) = kept(&logs, &channel).await;
        assert!(records > 0 && last == 32, "{channel}: {records} of {last}");
        all += bytes;
    }
    // The logs may have grown since they were measured.
    assert!(all < MOST_OF_AGENT + MOST_OF_AGENT / 4, "{all}");
    // The retention of this channel is given, and the other agent has a share of its own.
    assert_eq!(kept(&logs, "/given").await.0, 64);
    assert_eq!(kept(&logs, "/news").await.0, 4);
    // After a restart of the node, logs that are long already are measured soon.
    logs.journal.close();
    let logs = open(folder.path());
    assert!(logs.shares.lock()["mallory"].grown > 0);
}

/// Publishes an event of so many KiB. Returns the reason why it is not kept, if it is not.
async fn refusal(logs: &Arc<KeptChannelLogs>, event: (usize, &str, &str, u64)) -> Option<Fault> {
    let (kib, publisher, channel, number) = event;
    let events = vec![event_of(kib, publisher, channel, number)];
    let answer = logs.answer(publisher, LogRequest::Keep { events }).await;
    let LogAnswer::Kept { mut outcomes } = answer.unwrap() else {
        panic!("no outcome");
    };
    match outcomes.remove(0) {
        KeepOutcome::Kept { .. } => None,
        KeepOutcome::Refused { fault } => Some(fault),
    }
}

/// A log keeps its last event, so long events on many channels would fill the disk.
#[tokio::test]
async fn long_events_that_cannot_be_cut_off_have_a_share_of_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Arc::new(open(folder.path()));
    logs.obey(&rules());
    // The channels exist before the long events come.
    for channel in ["/a", "/b", "/c"] {
        publish(&logs, "mallory", channel, 1).await;
    }
    assert_eq!(refusal(&logs, (900, "mallory", "/a", 2)).await, None);
    assert_eq!(refusal(&logs, (900, "mallory", "/b", 2)).await, None);
    let fault = refusal(&logs, (900, "mallory", "/c", 2)).await.unwrap();
    assert_eq!(fault.code, FaultCode::Full);
    assert!(
        fault.to_string().contains("mallory published first"),
        "{fault}"
    );
    // A short event has room, and so has one that takes the place of another one.
    assert_eq!(refusal(&logs, (32, "mallory", "/c", 3)).await, None);
    assert_eq!(refusal(&logs, (900, "mallory", "/a", 3)).await, None);
    // Nobody else is refused because of that.
    assert_eq!(refusal(&logs, (900, "alice", "/c", 1)).await, None);
    assert_eq!(refusal(&logs, (900, "alice", "/d", 1)).await, None);
}

fn question(durable: &str, positions: Option<&[(&str, u64)]>) -> LogQuestion {
    LogQuestion {
        agent: "mallory".to_owned(),
        pattern: "/**".to_owned(),
        filter: String::new(),
        durable: Some(durable.to_owned()),
        start: LogStart::Number { number: 1 },
        last_per: None,
        began: 1,
        resumes: false,
        positions: positions.map(|positions| {
            let positions = positions.iter();
            positions
                .map(|(channel, next)| ((*channel).to_owned(), *next))
                .collect()
        }),
        events: 10,
        bytes: 1000,
        wait: 0,
    }
}

async fn settle(
    logs: &Arc<KeptChannelLogs>,
    durable: &str,
    channels: &[&str],
) -> Result<(), Fault> {
    let cursors = channels.iter().map(|channel| ((*channel).to_owned(), 1));
    let request = LogRequest::Settle {
        agent: "mallory".to_owned(),
        durable: durable.to_owned(),
        cursors: cursors.collect(),
    };
    logs.answer("node-1", request).await.map(drop)
}

/// Everybody may read everything, except that mallory may not read what is below `/secret`.
fn rules() -> Rules {
    let denied = ChannelUses {
        agents: vec!["mallory".to_owned()],
        rights: vec![ChannelRight::Subscribe],
        on: vec!["/secret/**".to_owned()],
    };
    let mut rules = Rules::default();
    rules.permission.channel_rules = vec![ChannelRule::Deny(denied)];
    rules
}

#[tokio::test]
async fn names_that_were_never_subscribed_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Arc::new(open(folder.path()));
    logs.obey(&rules());
    make(&logs, "/news", "alice").unwrap();
    let news = logs.logs.lock()["/news"].clone();
    news.stream
        .append(sealbus_journal::NewRecord::default())
        .unwrap()
        .await
        .unwrap();
    for number in 0..100 {
        let name = format!("invented-{number}");
        let fault = settle(&logs, &name, &["/news"]).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Unknown);
        logs.read(question(&name, Some(&[("/news", 1)])))
            .await
            .unwrap();
    }
    assert!(news.stream.cursors().is_empty());
    assert!(news.given.lock().is_empty());
    // A subscription begins, and is remembered.
    logs.read(question("mine", None)).await.unwrap();
    logs.read(question("mine", Some(&[("/news", 1)])))
        .await
        .unwrap();
    assert_eq!(news.given.lock().get("mallory/mine"), Some(&2));
    settle(&logs, "mine", &["/news"]).await.unwrap();
    assert_eq!(news.stream.cursors().len(), 1);
    // It leaves no note in logs that its agent may not read.
    make(&logs, "/secret/plans", "alice").unwrap();
    settle(&logs, "mine", &["/secret/plans"]).await.unwrap();
    let secret = logs.logs.lock()["/secret/plans"].clone();
    assert!(secret.stream.cursors().is_empty());
}

#[tokio::test]
async fn an_agent_has_so_many_durable_subscriptions_on_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Arc::new(open(folder.path()));
    logs.obey(&rules());
    make(&logs, "/news", "alice").unwrap();
    let mut begun = 0;
    let fault = loop {
        match logs.read(question(&format!("name-{begun}"), None)).await {
            Ok(_) => begun += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.code, FaultCode::NotPermitted);
    assert_eq!(begun, reading::MOST_DURABLE);
    let news = logs.logs.lock()["/news"].clone();
    assert_eq!(news.stream.cursors().len(), begun);
    assert_eq!(news.given.lock().len(), begun);
    // Existing subscriptions go on.
    logs.read(question("name-0", None)).await.unwrap();
}

/// The event 3 on `/offers/tea`, in the form in which it is kept.
fn event_frame() -> Vec<u8> {
    let mut message = AclMessage::new(Performative::Inform);
    message.content = Some(Content::Text("tea".into()));
    let mut body = Vec::new();
    bitefficient::encode(&message, &mut body).unwrap();
    let channel = ChannelPath::new("/offers/tea").unwrap();
    let (published, qos) = (Moment::default(), Qos::default());
    let header = ChannelHeader::new(Mechanism::Event, channel, qos, 3, published);
    keep(Stamp::default(), &header, &body)
}

/// The frame with which an event without evidence is kept.
fn keep(stamp: Stamp, header: &ChannelHeader, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let (head, evidence) = (Head::of(header), &[][..]);
    Frame::Keep {
        stamp,
        head,
        evidence,
        body,
    }
    .encode(&mut frame);
    frame
}

/// A filter that every event passes, at a cost below the limit.
fn costly_filter() -> String {
    let numbers: Vec<String> = (0..80).map(|it| it.to_string()).collect();
    let list = format!("[{}]", numbers.join(","));
    format!("{list}.all(a, {list}.all(b, a + b >= 0))")
}

#[tokio::test]
async fn a_reader_with_a_costly_filter_gets_its_events_in_several_answers() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Arc::new(open(folder.path()));
    logs.obey(&rules());
    make(&logs, "/offers/tea", "alice").unwrap();
    let offers = logs.logs.lock()["/offers/tea"].clone();
    let payload = bytes::Bytes::from(event_frame());
    for _ in 0..60 {
        let record = sealbus_journal::NewRecord {
            payload: payload.clone(),
            ..Default::default()
        };
        offers.stream.append(record).unwrap().await.unwrap();
    }
    let (mut next, mut answers) = (1, Vec::<usize>::new());
    while answers.iter().sum::<usize>() < 60 {
        let asked = LogQuestion {
            filter: costly_filter(),
            events: 1000,
            bytes: 1 << 20,
            ..question("tea", Some(&[("/offers/tea", next)]))
        };
        let LogAnswer::Read { pieces } = logs.read(asked).await.unwrap() else {
            panic!("no pieces");
        };
        next = pieces[0].next;
        answers.push(pieces[0].events.len());
        assert_eq!(pieces[0].filter_errors, 0);
    }
    let each = (reading::MOST_COST / 30_000) as usize;
    assert!(
        answers.iter().all(|it| (1..=each).contains(it)),
        "{answers:?}"
    );
}

#[tokio::test]
async fn filters_are_judged_for_a_process_that_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Arc::new(open(folder.path()));
    let frame = event_frame();
    let judge = async |filters: &[&str], event: Option<Blob>| {
        let filters = filters.iter().map(|text| (*text).to_owned()).collect();
        let agent = "usher".to_owned();
        let request = LogRequest::Judge {
            agent,
            filters,
            event,
        };
        match logs.answer("own", request).await? {
            LogAnswer::Judged { verdicts } => Ok(verdicts),
            other => panic!("{other:?}"),
        }
    };
    let event = || Some(Blob(frame.clone()));
    let filters = [
        "content == 'tea' && number == 3",
        "content == 'coffee'",
        "properties.price < 10",
        "content ==",
    ];
    let verdicts = judge(&filters, event()).await.unwrap();
    assert_eq!(
        verdicts.iter().map(|it| it.passes).collect::<Vec<_>>(),
        [true, false, false, false]
    );
    let problems: Vec<bool> = verdicts.iter().map(|it| it.problem.is_some()).collect();
    assert_eq!(problems, [false, false, true, true]);
    // Without an event, only texts that are not filters are refused.
    let verdicts = judge(&filters, None).await.unwrap();
    assert_eq!(
        verdicts.iter().map(|it| it.passes).collect::<Vec<_>>(),
        [true, true, true, false]
    );
    let fault: Fault = judge(&["true"], Some(Blob(frame[..9].to_vec())))
        .await
        .unwrap_err();
    assert_eq!(fault.code, FaultCode::BadRequest);
    // Filters that together cost too much are judged in several questions.
    let costly = costly_filter();
    let verdicts = judge(&[&*costly; judging::MOST_FILTERS], event())
        .await
        .unwrap();
    assert!(verdicts.iter().all(|it| it.passes));
    let most = (reading::MOST_COST / 30_000) as usize;
    assert!((1..=most).contains(&verdicts.len()), "{}", verdicts.len());
    let many = vec!["true"; judging::MOST_FILTERS + 1];
    assert_eq!(
        judge(&many, event()).await.unwrap_err().code,
        FaultCode::BadRequest
    );
}
