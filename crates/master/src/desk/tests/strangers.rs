//! Requests of strangers.

use sealbus_control::Blob;
use sealbus_control::statement::{Signed, Vouching};
use sealbus_control::turns::Turns;

use super::nodes::joined;
use super::*;
use crate::certifying::certified;
use crate::desk_shares::DeskShares;

/// A stranger's bytes cost the stranger nothing, but a check of signatures costs the Master. So nobody checks the
/// signatures of a stranger, neither on its certificates nor on its statements.
#[tokio::test]
async fn the_signatures_of_a_stranger_are_not_looked_at() {
    let (desk, _outward, _news) = open(parts(), Arc::new(MemoryStore::new()));
    let node = joined(&desk).await;
    let vouching = Vouching {
        process: "p".to_owned(),
        subject: Subject::Process,
        request: Blob(Vec::new()),
        held: None,
        at: now(),
    };
    let right = Signed::sign(&vouching, &node).unwrap();
    // Its signature is that of another statement.
    let other = Signed::sign(
        &Vouching {
            at: now() + 1,
            ..vouching
        },
        &node,
    )
    .unwrap();
    let mut wrong = serde_json::to_value(&right).unwrap();
    wrong["signature"] = serde_json::to_value(&other).unwrap()["signature"].take();
    let wrong: Signed = serde_json::from_value(wrong).unwrap();
    for (from, text) in [
        ("node-1", "is not signed by"),
        ("stranger", "is not a node"),
    ] {
        let turn = Turns::default().take(from, 1).unwrap();
        let share = DeskShares::default().of(from);
        let fault = certified(&desk, &turn, share, from.to_owned(), wrong.clone())
            .await
            .unwrap_err();
        assert!(fault.message.contains(text), "{fault}");
    }
}
