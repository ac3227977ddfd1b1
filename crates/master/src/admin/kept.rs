//! The waiting messages, channels and logs that nodes keep.

use std::time::Duration;

use super::{Admin, local};
use crate::listing::nodes;
use crate::registry::Origin;
use sealbus_control::admin::{AdminAnswer, SilentNode};
use sealbus_control::channel_log::{LogAnswer, LogRequest};
use sealbus_control::node::{LogPosition, NodeAnswer, NodeRequest};
use sealbus_control::{Fault, FaultCode};

/// Size of a piece of a log.
const LOG_PIECE: u32 = 64 * 1024;
/// How long a node may take to read a piece.
pub(super) const READING: Duration = Duration::from_secs(10);

impl Admin {
    /// The answers of all nodes, each with its name.
    pub(super) async fn ask_all_nodes(
        &self,
        request: &NodeRequest,
    ) -> Result<Vec<(String, Result<NodeAnswer, Fault>)>, Fault> {
        let nodes = self.desk.run(|desk, _| Ok(nodes(desk))).await?;
        let asked = nodes.into_iter().map(|node| async move {
            let answer = match node.state.absence() {
                None => self.system.master.ask(&node.name, request, READING).await,
                Some(why) => Err(Fault::new(FaultCode::Unavailable, why)),
            };
            (node.name, answer)
        });
        Ok(futures_util::future::join_all(asked).await)
    }

    pub(super) async fn mailbox(&self, agent: &str) -> Result<AdminAnswer, Fault> {
        let agent = local(agent);
        let (mut letters, mut total, mut silent) = (Vec::new(), 0, Vec::new());
        for (node, answer) in self.ask_all_nodes(&NodeRequest::Mailbox { agent }).await? {
            match answer.and_then(NodeAnswer::mailbox) {
                Ok((more, there)) => {
                    letters.extend(more);
                    total += there;
                }
                Err(fault) => silent.push(silent_node(node, fault)),
            }
        }
        Ok(AdminAnswer::Mailbox {
            letters,
            total,
            silent,
        })
    }

    pub(super) async fn channel_logs(&self) -> Result<AdminAnswer, Fault> {
        let request = NodeRequest::ChannelLog {
            request: LogRequest::List,
        };
        let (mut logs, mut silent) = (Vec::new(), Vec::new());
        for (node, answer) in self.ask_all_nodes(&request).await? {
            let listed = answer.and_then(NodeAnswer::channel_log);
            match listed.and_then(LogAnswer::list) {
                Ok(more) => logs.extend(more),
                Err(fault) => silent.push(silent_node(node, fault)),
            }
        }
        logs.sort_by(|one, two| (&one.channel, &one.node).cmp(&(&two.channel, &two.node)));
        Ok(AdminAnswer::ChannelLogs { logs, silent })
    }

    pub(super) async fn log(&self, agent: &str, from: LogPosition) -> Result<AdminAnswer, Fault> {
        let agent = local(agent);
        let (log, node) = self
            .desk
            .run(move |desk, _| {
                let (name, group) = desk.state.group_of(&agent).ok_or_else(|| {
                    Fault::new(FaultCode::Unknown, format!("there is no agent {agent}"))
                })?;
                if !matches!(group.origin, Origin::Program { .. }) {
                    let message =
                        format!("the platform did not start {agent} and keeps no log of it");
                    return Err(Fault::new(FaultCode::Unknown, message));
                }
                let node = group.last_node.clone().ok_or_else(|| {
                    Fault::new(FaultCode::Unknown, format!("{agent} was never started"))
                })?;
                let known = desk.state.nodes().get(&node);
                if let Some(why) = known.and_then(|known| known.state.absence()) {
                    let message =
                        format!("the log of {agent} is on {node}, where it ran last: {why}");
                    return Err(Fault::new(FaultCode::Unavailable, message)
                        .advise("start that node again, or read its log on its machine"));
                }
                Ok((name.to_owned(), node))
            })
            .await?;
        let request = NodeRequest::Log {
            log,
            from,
            limit: LOG_PIECE,
        };
        let answer: NodeAnswer = self.system.master.ask(&node, &request, READING).await?;
        let (text, next) = answer.log()?;
        Ok(AdminAnswer::Log { text, next })
    }
}

fn silent_node(node: String, fault: Fault) -> SilentNode {
    SilentNode {
        node,
        why: fault.message,
    }
}
