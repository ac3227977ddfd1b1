//! Watches the broker for the Master. While the broker carries no messages, no node is given up for its silence.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::broker::Broker;
use super::desk::DeskHandle;
use sealbus_control::clock::now;

/// How often the Master checks whether a node is silent.
const LOOK: Duration = Duration::from_secs(1);
/// How long the broker may take to report its state.
const ANSWER: Duration = Duration::from_secs(5);

/// Tells the desk when the broker is away, is back, or was seen to work, until the Master ends. `receives` says whether
/// the Master itself receives messages from the broker.
pub(super) async fn watch(
    broker: Arc<Broker>,
    desk: DeskHandle,
    mut receives: watch::Receiver<bool>,
) {
    let mut was_away = false;
    let begun = desk.run(|desk, now| {
        desk.state.nodes_speak_by_broker(now);
        Ok(())
    });
    if begun.await.is_err() {
        return;
    }
    loop {
        let asked = now();
        let mut is_away = !*receives.borrow_and_update();
        if !is_away {
            let Ok(is_any_silent) = desk
                .run(|desk, now| Ok(desk.state.is_any_silent(now)))
                .await
            else {
                return;
            };
            if !is_any_silent && !was_away {
                tokio::select! {
                    changed = receives.changed() => if changed.is_err() { return },
                    () = sleep(LOOK) => {}
                }
                continue;
            }
            // A connection may be open to a broker that hangs, or whose queues have no majority.
            let works = timeout(ANSWER, broker.carries()).await.unwrap_or(false);
            is_away = !works || !*receives.borrow();
        }
        let noting = desk.run(move |desk, now| {
            Ok(match is_away {
                true => desk.state.broker_is_away(),
                false => desk.state.broker_worked(asked, now),
            })
        });
        match noting.await {
            Err(_) => return,
            Ok(true) if is_away => tracing::warn!(
                "the broker carries no messages: until it does, no node is given up for its silence"
            ),
            Ok(true) => tracing::info!("the broker carries messages again"),
            Ok(false) => {}
        }
        was_away = is_away;
        tokio::select! {
            changed = receives.changed() => if changed.is_err() { return },
            () = sleep(LOOK) => {}
        }
    }
}
