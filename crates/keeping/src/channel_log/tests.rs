#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_channels::frame::{Frame, Head, Stamp};
use sealbus_channels::{ChannelHeader, Mechanism, Moment, Qos};
use sealbus_control::Blob;
use sealbus_control::channel_log::{LogQuestion, LogStart};
use sealbus_fipa::{AclMessage, Content, Performative, bitefficient};
use sealbus_journal::JournalConfig;
use sealbus_seal::permission::{ChannelRule, ChannelUses};

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
    let mut frame = Vec::new();
    let stamp = Stamp::default();
    let head = Head::of(&header);
    let (evidence, body) = (&[][..], &body[..]);
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
