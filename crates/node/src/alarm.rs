//! The node's alarm. If there are several Masters, the node tells all of them when it does not hear the leader, which
//! may still reach the store and would go on leading. In return, the others tell the node their denials.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::shared::Shared;
use sealbus_control::clock::now;
use sealbus_control::statement::{Alarm, Signed};
use sealbus_control::word::{Reply, Word};
use sealbus_enrolment::say;
use tokio::task::JoinSet;

/// How often the node checks, and repeats its alarm.
const LOOK: Duration = Duration::from_millis(500);
/// After so many checks without a word from the Master, it counts as silent. Checks are counted, so that a node that
/// was stopped itself does not blame the Master.
const SILENT: u32 = 5;
/// How long one Master may take to reply.
const PATIENCE: Duration = Duration::from_secs(1);

/// Raises the alarm as long as there is cause: the leading Master is silent, or reports that it may miss denials of
/// others.
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
    // Masters send the whole list to a node that knows no version of it.
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
        // Masters that cannot be reached are not told.
        if let Ok(Ok(Reply::Noted {
            deny_list: Some(list),
        })) = told
        {
            shared.denied_beside(list).await;
        }
    }
}
