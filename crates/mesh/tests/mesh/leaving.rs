//! Agents that leave with events under way.

use std::time::Duration;

use sealbus_channels::{Channels, Qos};
use sealbus_seal::SecurityLevel;

use crate::channels::{on, path, say, text, two_processes, until_known};
use crate::support::soon;

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
    // Bob has one, and asks for no other. The rest would be lost with Alice.
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
