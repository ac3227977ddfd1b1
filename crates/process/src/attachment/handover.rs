//! The handover of frozen agents to the node. It goes in parts, because a state may be larger than a frame.
//!
//! The node may have a part although its answer was lost. Once the node has the last part, the agents may live
//! elsewhere, so only the node can let them go on here. The process therefore asks until the node answers, and again on
//! each new connection, because the node may have said that the move failed while there was none.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::again::again;
use sealbus_control::attachment::{FrozenPart, ask};
use sealbus_control::host::Command;
use sealbus_control::rpc::RpcCaller;
use sealbus_control::{Blob, Fault, FaultCode, FrozenAgent};

/// The size of a part in bytes, before base64.
const PART: usize = 256 * 1024;

/// How long the node may take to store a part.
const PATIENCE: Duration = Duration::from_secs(15);

/// The longest pause before the node is asked again.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The connection to the node; `None` while it is lost.
type Node = watch::Receiver<Option<RpcCaller>>;

/// Part `index` of `bytes`; `None` beyond the end.
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

/// Freezes the process, and hands the frozen agents to the node. Returns when the agents go on here. If they do not, it
/// returns only when the node is gone for good.
pub(super) async fn freeze_and_hand_over(
    freeze: u64,
    commands: mpsc::Sender<Command>,
    mut node: Node,
) {
    let (answer, frozen) = oneshot::channel();
    let frozen = match commands.send(Command::Freeze { answer }).await {
        Ok(()) => frozen
            .await
            .unwrap_or_else(|_| Err("the process cannot be moved".to_owned())),
        Err(_) => Err("the process is leaving".to_owned()),
    };
    let told = match frozen {
        Ok(agents) => hand_over(agents, freeze, &mut node).await,
        Err(reason) => say_not_frozen(reason, &node).await,
    };
    if let Err(fault) = told {
        tracing::warn!(%fault, "what was frozen could not be handed over; the agents go on here");
        let _ = commands.send(Command::Thaw).await;
    }
}

async fn say_not_frozen(reason: String, node: &Node) -> Result<(), Fault> {
    // A node that lost the connection has given up the freeze.
    let Some(caller) = node.borrow().clone() else {
        return Ok(());
    };
    let told = caller.ask(ask::NotFrozen { reason }, PATIENCE).await;
    told.map(|_| ())
}

/// Hands over the agents. A fault means that they go on here. Otherwise this returns when the node is gone for good.
async fn hand_over(agents: Vec<FrozenAgent>, freeze: u64, node: &mut Node) -> Result<(), Fault> {
    let bytes = serde_json::to_vec(&agents).map_err(Fault::internal)?;
    drop(agents);
    let mut last = None;
    for part in (0..).map_while(|index| part_of(&bytes, index)) {
        let part = ask::Frozen { freeze, part };
        store(&part, node).await?;
        last = Some(part);
    }
    drop(bytes);
    if let Some(last) = last {
        while node.changed().await.is_ok() {
            store(&last, node).await?;
        }
    }
    Ok(())
}

/// Sends a part to the node until the node has answered, or is gone for good.
async fn store(part: &ask::Frozen, node: &Node) -> Result<(), Fault> {
    let is_silent = |fault: &Fault| fault.code != FaultCode::BadRequest;
    again(LONGEST_PAUSE, is_silent, || async {
        let mut node = node.clone();
        let present = node.wait_for(Option::is_some).await;
        let Some(caller) = present.ok().and_then(|caller| caller.clone()) else {
            return Ok(());
        };
        caller.ask(part.clone(), PATIENCE).await
    })
    .await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::task::JoinHandle;

    use super::*;
    use sealbus_control::attachment::{AttachmentAnswer, AttachmentRequest};
    use sealbus_control::rpc::{self, Answer, ConnectionClosed, Incoming, LONGEST_FRAME};

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

    const FREEZE: u64 = 7;

    /// A connection, with the node's end of it.
    struct Connection {
        process: RpcCaller,
        asked: mpsc::Receiver<Incoming>,
        _node: RpcCaller,
        driving: JoinHandle<ConnectionClosed>,
    }

    impl Connection {
        fn open() -> Self {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let (process, _notices, drive) = rpc::open(ours, LONGEST_FRAME);
            tokio::spawn(drive);
            let (node, asked, drive) = rpc::open(theirs, LONGEST_FRAME);
            Self {
                process,
                asked,
                _node: node,
                driving: tokio::spawn(drive),
            }
        }

        /// The next part that the process sends.
        async fn part(&mut self) -> (FrozenPart, Answer) {
            let Some(Incoming::Call { body, answer }) = self.asked.recv().await else {
                panic!("a part comes");
            };
            match Incoming::parse(&body).unwrap() {
                AttachmentRequest::Frozen { freeze, part } => {
                    assert_eq!(freeze, FREEZE);
                    (part, answer)
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The handover of an agent whose state has this many bytes.
    async fn handing_over(
        state: usize,
        connection: &Connection,
    ) -> (watch::Sender<Option<RpcCaller>>, mpsc::Receiver<Command>) {
        let (commands, mut told) = mpsc::channel(8);
        let (way, node) = watch::channel(Some(connection.process.clone()));
        tokio::spawn(freeze_and_hand_over(FREEZE, commands, node));
        let Some(Command::Freeze { answer }) = told.recv().await else {
            panic!("the process is frozen first");
        };
        let agent = FrozenAgent {
            agent: "a".to_owned(),
            state: Blob(vec![1; state]),
            mailbox: Vec::new(),
        };
        answer.send(Ok(vec![agent])).unwrap();
        (way, told)
    }

    #[tokio::test]
    async fn what_may_have_been_handed_over_goes_on_by_the_nodes_word_alone() {
        let mut first = Connection::open();
        let (way, mut told) = handing_over(PART, &first).await;
        for is_answered in [false, true] {
            let (part, answer) = first.part().await;
            assert_eq!((part.index, part.more), (0, true));
            match is_answered {
                false => drop(answer),
                true => answer.send(Ok(AttachmentAnswer::Done)).await,
            }
        }
        let (last, _lost) = first.part().await;
        assert_eq!((last.index, last.more), (1, false));
        first.driving.abort();
        way.send_replace(None);
        for _ in 0..2 {
            let mut next = Connection::open();
            way.send_replace(Some(next.process.clone()));
            let (again, answer) = next.part().await;
            assert_eq!(again, last);
            answer.send(Ok(AttachmentAnswer::Done)).await;
            way.send_replace(None);
        }
        assert!(told.try_recv().is_err(), "nothing thaws them");

        let mut next = Connection::open();
        way.send_replace(Some(next.process.clone()));
        let (_, answer) = next.part().await;
        let given_up = Fault::new(FaultCode::BadRequest, "the move was given up");
        answer.send(Err::<AttachmentAnswer, _>(given_up)).await;
        assert!(matches!(told.recv().await, Some(Command::Thaw)));
        assert!(told.recv().await.is_none());
    }

    /// The process then ends, and with it the agents at rest.
    #[tokio::test]
    async fn nothing_goes_on_when_the_node_is_gone_for_good() {
        let mut first = Connection::open();
        let (way, mut told) = handing_over(0, &first).await;
        let (last, _lost) = first.part().await;
        assert!(!last.more);
        first.driving.abort();
        way.send_replace(None);
        drop(way);
        assert!(told.recv().await.is_none());
    }
}
