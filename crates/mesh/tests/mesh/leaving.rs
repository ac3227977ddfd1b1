//! Agents and processes that leave with events and messages under way.

use std::time::Duration;

use sealbus_bus::{Location, MailboxLimits, ProcessEndpoint};
use sealbus_channels::{Channels, Qos};
use sealbus_seal::SecurityLevel;

use crate::channels::{on, path, say, text, two_processes, until_known};
use crate::support::{inform, soon};

#[tokio::test]
async fn a_publisher_that_leaves_in_order_loses_no_event_of_a_group() {
    let (platform, here, there) = two_processes(SecurityLevel::Auth).await;
    let (alice, _a) = platform.agent(&here, "alice@factory");
    let (bob, _b) = platform.agent(&there, "bob@factory");
    let jobs = on("/jobs").grouped("workers");
    let mut jobs = Channels::of(&there.bus).subscribe(&bob, jobs).unwrap();
    until_known(&here, 1).await;
    let channels = Channels::of(&here.bus);
    let (channel, qos) = (path("/jobs"), Qos::default());
    for number in 0..5 {
        let publishing = channels.publish(&alice, &channel, &qos, say(number));
        soon(publishing).await.unwrap();
    }
    // Bob has one event, and asks for no other. The rest would be lost with Alice.
    soon(async {
        loop {
            let left = channels.undelivered("alice@factory");
            let told: Vec<_> = left.iter().map(ToString::to_string).collect();
            if told == ["4 events on /jobs for the group workers"] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let leaving = async {
        let limit = Duration::from_secs(600);
        let left = channels.until_delivered("alice@factory", limit).await;
        here.bus.detach("alice@factory");
        left
    };
    let taking = async {
        for number in 0..5 {
            let event = soon(jobs.recv()).await.unwrap();
            assert_eq!(text(&event), number.to_string());
        }
    };
    let (left, ()) = tokio::join!(leaving, taking);
    assert_eq!(left, []);
}

#[tokio::test]
async fn a_process_that_ends_waits_for_a_receiver_without_room() {
    let (platform, here, there) = two_processes(SecurityLevel::Auth).await;
    let (alice, _a) = platform.agent(&here, "alice@factory");
    let credential = Some(platform.authority.agent("bob@factory"));
    let small = MailboxLimits {
        messages: 100,
        bytes: 100_000,
    };
    let bob = there.bus.attach("bob@factory", credential, Some(small));
    let (_bob, mut bobs) = bob.unwrap();
    let place = Location::Process(ProcessEndpoint {
        identity: there.identity.clone(),
        address: there.endpoint.local_address(),
    });
    platform.directory.put("bob@factory", place);
    // The first message takes all of bob's room.
    alice
        .try_send(inform("bob@factory", "x".repeat(150_000)))
        .unwrap();
    alice.try_send(inform("bob@factory", "last")).unwrap();
    let is_first_acknowledged = || {
        let links = here.endpoint.links();
        bobs.len() == 1 && links.iter().all(|link| link.unacknowledged == 0)
    };
    soon(async {
        while !is_first_acknowledged() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let ending = here.endpoint.shut_down(Duration::from_secs(600));
    let reading = async {
        // The process has begun to end.
        tokio::time::sleep(Duration::from_millis(50)).await;
        soon(bobs.recv()).await.unwrap();
        let last = soon(bobs.recv()).await.unwrap().into_message();
        assert_eq!(last.content_text(), Some("last"));
    };
    soon(async { tokio::join!(ending, reading) }).await;
}
