//! The handover of frozen agents to the node, in parts, because a state may be larger than a frame.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use sealbus_control::attachment::{FrozenPart, ask};
use sealbus_control::host::Command;
use sealbus_control::rpc::Caller;
use sealbus_control::{Blob, Fault, FaultCode, FrozenAgent};

/// Size of a part in bytes, before base64.
const PART: usize = 256 * 1024;

/// How long the node may take to store a part.
const PATIENCE: Duration = Duration::from_secs(15);

/// Part `index` of `bytes`. Returns none beyond the end.
pub fn part_of(bytes: &[u8], index: u32) -> Option<FrozenPart> {
    let start = PART.checked_mul(index as usize)?;
    if start > bytes.len() || (start == bytes.len() && index > 0) {
        return None;
    }
    let end = bytes.len().min(start + PART);
    Some(FrozenPart {
        index,
        more: end < bytes.len(),
        bytes: Blob(bytes[start..end].to_vec()),
    })
}

/// Has the process frozen, and hands the frozen agents to the node.
pub(super) async fn freeze_and_hand_over(commands: mpsc::Sender<Command>, node: Caller) {
    let (answer, frozen) = oneshot::channel();
    let frozen = match commands.send(Command::Freeze { answer }).await {
        Ok(()) => frozen
            .await
            .unwrap_or_else(|_| Err("the process cannot be moved".to_owned())),
        Err(_) => Err("the process is leaving".to_owned()),
    };
    let told = match frozen {
        Ok(agents) => hand_over(&agents, &node).await,
        Err(reason) => {
            let told = node.ask(ask::NotFrozen { reason }, PATIENCE).await;
            told.map(|_| ())
        }
    };
    if let Err(fault) = told {
        tracing::warn!(%fault, "what was frozen could not be handed over; the agents go on here");
        let _ = commands.send(Command::Thaw).await;
    }
}

async fn hand_over(agents: &[FrozenAgent], node: &Caller) -> Result<(), Fault> {
    let bytes = serde_json::to_vec(agents)
        .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
    let mut index = 0;
    while let Some(part) = part_of(&bytes, index) {
        let more = part.more;
        node.ask(ask::Frozen { part }, PATIENCE).await?;
        if !more {
            break;
        }
        index += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_make_the_whole(length in 0_usize..(3 * PART + 2)) {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let mut whole = Vec::new();
            let mut index = 0;
            loop {
                let part = part_of(&bytes, index).expect("there is one more");
                whole.extend_from_slice(&part.bytes.0);
                index += 1;
                if !part.more {
                    break;
                }
            }
            prop_assert!(whole == bytes);
            prop_assert!(part_of(&bytes, index).is_none());
        }
    }
}
