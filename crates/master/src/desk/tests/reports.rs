//! Reports of a node that come together.

use sealbus_control::PlacedState;
use sealbus_control::attachment::AgentReport;
use sealbus_control::node::{MOST_REPORTS, MasterAnswer, MasterRequest};

use super::*;
use crate::system::hear;

#[tokio::test]
async fn each_of_several_reports_is_heard_in_its_order_or_refused_by_itself() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let join = |desk: &mut Desk, now| desk.state.join(Some("node-1"), description(), now);
    desk.run(join).await.unwrap();
    let process = expect(&desk, "guest").await.unwrap();
    let started = |pid| MasterRequest::Started {
        process: process.clone(),
        pid: Some(pid),
    };
    let reports = vec![
        started(1),
        MasterRequest::UsesChannels {
            process: "another".to_owned(),
        },
        started(2),
    ];
    let of = process.clone();
    let heard = desk.run(move |desk, now| {
        let answer = hear(desk, "node-1", MasterRequest::Reports { reports }, now)?;
        let (_, process) = desk.state.process(&of).unwrap();
        Ok((answer, process.pid))
    });
    let (answer, pid) = heard.await.unwrap();
    let MasterAnswer::Heard { refused } = answer else {
        panic!("{answer:?}");
    };
    assert!(
        matches!(&refused[..], [None, Some(fault), None] if fault.code == FaultCode::NotPlaced),
        "{refused:?}"
    );
    assert_eq!(pid, Some(2));

    // Nested reports, and too many, are refused whole.
    let nested = MasterRequest::Reports {
        reports: Vec::new(),
    };
    for reports in [vec![started(3); MOST_REPORTS + 1], vec![started(3), nested]] {
        let of = process.clone();
        let heard = desk.run(move |desk, now| {
            let fault = hear(desk, "node-1", MasterRequest::Reports { reports }, now).unwrap_err();
            Ok((fault.code, desk.state.process(&of).unwrap().1.pid))
        });
        assert_eq!(heard.await.unwrap(), (FaultCode::BadRequest, Some(2)));
    }
}

#[tokio::test]
async fn an_agent_that_reports_without_end_fills_no_memory_while_the_disk_is_full() {
    let disk = Arc::new(MemoryStore::new());
    let (desk, mut outward, _news) = open(parts(), disk.clone());
    let process = expect(&desk, "guest").await.unwrap();
    while outward.try_recv().is_ok() {}
    disk.set_full(true);
    for number in 0..3 * HELD {
        let process = process.clone();
        let state = match number % 2 {
            0 => PlacedState::Active,
            _ => PlacedState::Suspended,
        };
        let report = AgentReport::State { state };
        let reported = desk.run(move |desk, now| {
            desk.state.reported(&process, "guest", report, now);
            Ok(())
        });
        assert_eq!(reported.await.unwrap_err().code, FaultCode::Storage);
    }
    disk.set_full(false);
    desk.run(|_, _| Ok(())).await.unwrap();
    let mut changes = Vec::new();
    while let Ok(effect) = outward.try_recv() {
        if let Outward::WhitePages { state, .. } = effect {
            changes.push(state);
        }
    }
    assert!(changes.len() <= HELD, "{} changes", changes.len());
    assert_eq!(changes.last(), Some(&Some(PlacedState::Suspended)));
}
