//! The node's alarm: where there are several Masters, it tells them all when it does not hear the one that leads. That one may
//! still reach the store, and would go on leading. The others tell the node in return what they denied.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::shared::Shared;
use sealbus_control::clock::now;
use sealbus_control::statement::{Alarm, Signed};
use sealbus_control::word::{Reply, Word};
use sealbus_enrolment::say;
use tokio::task::JoinSet;

/// How often the node looks, and repeats its alarm.
const LOOK: Duration = Duration::from_millis(500);
/// After so many looks without a word of the Master it is silent. Looks are counted, so that a node that was stopped itself
/// does not blame the Master.
const SILENT: u32 = 5;
/// How long one Master may take to reply.
const PATIENCE: Duration = Duration::from_secs(1);

/// Raises the alarm as long as there is cause: the Master that leads is silent, or knows itself that it may miss what others
/// deny.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut heard = shared.leaders.heard_at();
    let mut silent = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        silent = u32::saturating_add(silent, 1);
        if std::mem::replace(&mut heard, shared.leaders.heard_at()) != heard {
            silent = 0;
        }
        let is_needed = silent >= SILENT || shared.leaders.is_store_away();
        if !is_needed || !shared.leaders.are_several() {
            continue;
        }
        let credential = shared.credential.load_full();
        match Signed::sign(&Alarm { at: now() }, &credential) {
            Ok(alarm) => raise(&shared, alarm).await,
            Err(error) => tracing::error!(%error, "no alarm can be raised"),
        }
    }
}

async fn raise(shared: &Shared, statement: Signed) {
    // Masters send a node the whole list that knows no version of it.
    let known = match shared.lacks_denials_beside.swap(false, Ordering::Relaxed) {
        true => Vec::new(),
        false => {
            let lists = shared.trust.deny_lists();
            let known = lists.iter();
            known
                .map(|list| (list.authority().clone(), list.version()))
                .collect()
        }
    };
    let word = Arc::new(Word::Alarm { statement, known });
    let mut telling = JoinSet::new();
    for address in shared.leaders.enrolment().addresses {
        let word = word.clone();
        telling.spawn(async move { say(&address, &word, PATIENCE).await });
    }
    while let Some(told) = telling.join_next().await {
        // Masters that cannot be reached hear nothing.
        if let Ok(Ok(Reply::Noted {
            deny_list: Some(list),
        })) = told
        {
            shared.denied_beside(list).await;
        }
    }
}
