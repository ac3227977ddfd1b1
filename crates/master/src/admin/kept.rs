//! The waiting messages, channels and logs that nodes keep.

use std::time::Duration;

use super::{Admin, local};
use crate::desk::Desk;
use crate::registry::GroupOrigin;
use sealbus_control::admin::{ChannelLogsReport, MailboxReport, SilentNode};
use sealbus_control::ask::Ask;
use sealbus_control::channel_log::{LogRequest, ask};
use sealbus_control::evidence::{EvidencePage, EvidencePages, EvidenceQuestion};
use sealbus_control::node::{LogPosition, LogText, ask_node};
use sealbus_control::{Blob, Fault, FaultCode};

/// Size of a piece of a log.
const LOG_PIECE: u32 = 64 * 1024;
/// How long a node may take to read a piece.
pub(super) const READING: Duration = Duration::from_secs(10);

impl Admin {
    /// The results of `take` for the answers of all nodes, each with the node's name, and the nodes that did not answer.
    pub(super) async fn ask_all_nodes<A: Ask + Clone, T>(
        &self,
        ask: A,
        take: fn(A::Answer) -> Result<T, Fault>,
    ) -> Result<(Vec<(String, T)>, Vec<SilentNode>), Fault> {
        let nodes = |desk: &mut Desk, _| {
            let nodes = desk.state.nodes().iter();
            Ok(nodes
                .map(|(name, node)| (name.clone(), node.state))
                .collect::<Vec<_>>())
        };
        let nodes = self.desk.run(nodes).await?;
        let asked = nodes.into_iter().map(|(node, state)| {
            let ask = ask.clone();
            async move {
                let answer = match state.absence() {
                    None => self.system.master.ask(&node, ask, READING).await,
                    Some(why) => Err(Fault::new(FaultCode::Unavailable, why)),
                };
                (node, answer.and_then(take))
            }
        });
        let (mut taken, mut silent) = (Vec::new(), Vec::new());
        for (node, answer) in futures_util::future::join_all(asked).await {
            match answer {
                Ok(answer) => taken.push((node, answer)),
                Err(Fault { message: why, .. }) => silent.push(SilentNode { node, why }),
            }
        }
        Ok((taken, silent))
    }

    pub(super) async fn mailbox(&self, agent: &str) -> Result<MailboxReport, Fault> {
        let agent = local(agent);
        let (answers, silent) = self.ask_all_nodes(ask_node::Mailbox { agent }, Ok).await?;
        Ok(MailboxReport {
            total: answers.iter().map(|(_, answer)| answer.total).sum(),
            letters: answers.into_iter().flat_map(|(_, it)| it.letters).collect(),
            silent,
        })
    }

    pub(super) async fn channel_logs(&self) -> Result<ChannelLogsReport, Fault> {
        let request = LogRequest::List;
        let asked = ask_node::ChannelLog { request };
        let (logs, silent) = self.ask_all_nodes(asked, ask::List::take).await?;
        let mut logs: Vec<_> = logs.into_iter().flat_map(|(_, logs)| logs).collect();
        logs.sort_by(|one, two| (&one.channel, &one.node).cmp(&(&two.channel, &two.node)));
        Ok(ChannelLogsReport { logs, silent })
    }

    pub(super) async fn evidence(
        &self,
        question: EvidenceQuestion,
    ) -> Result<EvidencePages, Fault> {
        let request = LogRequest::Evidence { question };
        let asked = ask_node::ChannelLog { request };
        let (pages, silent) = self.ask_all_nodes(asked, ask::Evidence::take).await?;
        let deny_list = self.desk.run(|desk, _| Ok(desk.ca.deny_list_since(0)));
        // No node answers for another one, whose messages would then be passed over.
        let named = |(node, page)| EvidencePage { node, ..page };
        Ok(EvidencePages {
            pages: pages.into_iter().map(named).collect(),
            silent,
            deny_list: Blob(deny_list.await?),
        })
    }

    pub(super) async fn log(&self, agent: &str, from: LogPosition) -> Result<LogText, Fault> {
        let agent = local(agent);
        let (log, node) = self
            .desk
            .run(move |desk, _| {
                let (name, group) = desk.state.group_of(&agent).ok_or_else(|| {
                    Fault::new(FaultCode::Unknown, format!("there is no agent {agent}"))
                })?;
                if !matches!(group.origin, GroupOrigin::Program { .. }) {
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
        let piece = ask_node::Log {
            log,
            from,
            limit: LOG_PIECE,
        };
        self.system.master.ask(&node, piece, READING).await
    }
}
