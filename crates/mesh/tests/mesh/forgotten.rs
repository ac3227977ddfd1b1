//! Links that are forgotten to make room for others.

use std::time::Duration;

use sealbus_seal::SecurityLevel;

use crate::support::proxy::Proxy;
use crate::support::{Platform, Process, inform, soon};

/// Breaks the only connection between two processes when nothing is under way.
async fn part(here: &Process, there: &Process, proxy: &Proxy) {
    let pause = || tokio::time::sleep(Duration::from_millis(5));
    let link = |process: &Process| process.endpoint.links().remove(0);
    soon(async {
        while link(here).unacknowledged + link(there).unacknowledged > 0 {
            pause().await;
        }
        proxy.close();
        while link(here).is_connected || link(there).is_connected {
            pause().await;
        }
    })
    .await;
}

#[tokio::test]
async fn nothing_is_sent_over_a_link_that_was_forgotten() {
    let platform = Platform::new(SecurityLevel::Auth);
    let here = platform
        .process_with("node-1", |config| {
            config.links = 1;
            // One attempt must be enough.
            config.redial = (Duration::from_secs(3600), Duration::from_secs(3600));
        })
        .await;
    let near = platform.process("node-2").await;
    let far = platform.process("node-3").await;
    let to_near = Proxy::to(near.endpoint.local_address()).await;
    let to_far = Proxy::to(far.endpoint.local_address()).await;
    let (alice, mut alices) = platform.agent(&here, "alice@factory");
    let (_bob, mut bobs) = platform.agent_behind(&near, "bob@factory", to_near.address);
    let (_carol, mut carols) = platform.agent_behind(&far, "carol@factory", to_far.address);

    alice.send(inform("bob@factory", "1")).await.unwrap();
    soon(bobs.recv()).await.unwrap();
    part(&here, &near, &to_near).await;
    // There is room for one link.
    alice.send(inform("carol@factory", "2")).await.unwrap();
    soon(carols.recv()).await.unwrap();
    part(&here, &far, &to_far).await;
    to_near.open();
    alice.send(inform("bob@factory", "3")).await.unwrap();
    let heard = soon(bobs.recv()).await.unwrap().into_message();
    assert_eq!(heard.content_text(), Some("3"));
    assert!(alices.try_recv().is_none(), "a failure is reported");
}
