#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use sealbus_channels::frame::{Frame, Head, Stamp};
use sealbus_channels::{ChannelHeader, Mechanism, Moment, Qos};
use sealbus_control::Blob;
use sealbus_fipa::{AclMessage, Content, Performative, bitefficient};
use sealbus_journal::JournalConfig;

use super::*;

fn open(folder: &Path) -> ChannelLogs {
    let (journal, report) = Journal::open(folder, JournalConfig::default()).unwrap();
    let platform = PlatformName::new("factory").unwrap();
    ChannelLogs::open(journal, &report, "node-1", platform, 1 << 20).unwrap()
}

fn make(logs: &ChannelLogs, channel: &str, publisher: &str) -> Result<(), Fault> {
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
    // There is room for others, and on the channels that are there.
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

#[tokio::test]
async fn filters_are_judged_for_a_process_that_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Arc::new(open(folder.path()));
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
    // Without an event, only what is no filter is at fault.
    let verdicts = judge(&filters, None).await.unwrap();
    assert_eq!(
        verdicts.iter().map(|it| it.passes).collect::<Vec<_>>(),
        [true, true, true, false]
    );
    let fault: Fault = judge(&["true"], Some(Blob(frame[..9].to_vec())))
        .await
        .unwrap_err();
    assert_eq!(fault.code, FaultCode::BadRequest);
    let many = vec!["true"; judging::MOST_FILTERS + 1];
    assert_eq!(
        judge(&many, event()).await.unwrap_err().code,
        FaultCode::BadRequest
    );
}
