//! The node's alarm: where there are several Masters, it tells them all when it does not hear the one that leads. That one may
//! still reach the store, and would go on leading.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use sealbus_control::clock::now;
use sealbus_control::statement::{Alarm, Signed};
use sealbus_enrolment::raise_alarm;

/// How often the node looks, and repeats its alarm.
const LOOK: Duration = Duration::from_millis(500);
/// After so many looks without a word of the Master it is silent. Looks are counted, so that a node that was stopped itself
/// does not blame the Master.
const SILENT: u32 = 5;

/// Raises the alarm as long as there is cause.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut heard = shared.leaders.heard_at();
    let mut silent = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        silent = u32::saturating_add(silent, 1);
        if std::mem::replace(&mut heard, shared.leaders.heard_at()) != heard {
            silent = 0;
        }
        if silent < SILENT || !shared.leaders.are_several() {
            continue;
        }
        let credential = shared.credential.load_full();
        match Signed::sign(&Alarm { at: now() }, &credential) {
            Ok(alarm) => raise_alarm(&shared.leaders.enrolment().addresses, &alarm).await,
            Err(error) => tracing::error!(%error, "no alarm can be raised"),
        }
    }
}
