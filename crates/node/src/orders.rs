//! The orders of the Master to the node's agent, and the requests of other nodes.

use std::sync::Arc;
use std::time::Duration;

use super::shared::{Leave, Shared};
use sealbus_control::clock::now;
use sealbus_control::correspondence::{Correspondent, Enquiry};
use sealbus_control::names::MASTER;
use sealbus_control::node::{LogText, NodeAnswer, NodeRequest, WaitingLetters};
use sealbus_control::turns::{Turn, Turns};
use sealbus_control::{Fault, FaultCode};
use sealbus_process::AgentHandle;

/// The largest piece of a log.
const LOG_PIECE: u32 = 256 * 1024;

/// Carries out the requests that come to the node's agent.
pub(super) async fn serve(
    mut agent: AgentHandle,
    correspondent: Correspondent,
    shared: Arc<Shared>,
) {
    let turns = Turns::knowing(MASTER);
    while let Some(received) = agent.receive().await {
        if let Some((enquiry, turn)) = correspondent.receive_in_turn(received, &turns) {
            tokio::spawn(answer(shared.clone(), enquiry, turn));
        }
    }
}

async fn answer(shared: Arc<Shared>, enquiry: Enquiry, turn: Turn) {
    let term = enquiry.term;
    let (from, request, reply) = enquiry.open::<NodeRequest>();
    let mut request = request;
    if from == MASTER {
        turn.is_members();
        request = request.and_then(|request| {
            let is_new = shared.leaders.obey(term)?;
            match &request {
                NodeRequest::Masters { at, .. }
                    if shared.turns_at_once() && at.control != shared.platform.read().control =>
                {
                    shared.leaders.leads_at(term, at.clone());
                }
                _ if is_new => shared.leaders.another_leads(),
                _ => {}
            }
            Ok(request)
        });
    }
    let result = match request {
        Ok(request) => carry_out(&shared, &from, request).await,
        Err(fault) => Err(fault),
    };
    if result.is_ok() {
        turn.is_members();
    }
    reply.send_in(&turn, result).await;
}

/// Carries out a request. Most of them are allowed only for the Master.
async fn carry_out(
    shared: &Arc<Shared>,
    from: &str,
    request: NodeRequest,
) -> Result<NodeAnswer, Fault> {
    match request {
        NodeRequest::FetchFrozen { process, index } => {
            return Ok(shared.processes.fetch(from, &process, index)?.into());
        }
        NodeRequest::FormerKeys { process, key } => {
            return Ok(shared.former_keys(from, &process, key).await?.into());
        }
        NodeRequest::Post { letters } => {
            return Ok(shared.carried_here(from, letters).await?.into());
        }
        NodeRequest::Trail { receiver, letters } => {
            let trail = shared.trail_of(from, &receiver, &letters).await?;
            return Ok(trail.into());
        }
        NodeRequest::Locate { agent } => {
            return Ok(shared.locate_for(from, &agent).await?.into());
        }
        NodeRequest::ChannelLog { request } => {
            return Ok(shared.channel_log_for(from, request).await?.into());
        }
        _ if from != MASTER => {
            shared.log_refusal(from, "it asks a node to do what only the Master may");
            let message = "only the Master may ask that";
            return Err(Fault::new(FaultCode::NotPermitted, message));
        }
        NodeRequest::Start { launch } => return Ok(shared.start(launch).await?.into()),
        NodeRequest::Expect {
            launch,
            ticket,
            expires,
        } => shared.expect(launch, ticket, expires).await,
        NodeRequest::Stop {
            process,
            grace,
            reason,
        } => shared.stop(&process, Duration::from_millis(grace), &reason),
        NodeRequest::Freeze {
            process,
            destination,
        } => return Ok(shared.freeze_process(&process, &destination).await?.into()),
        NodeRequest::Certificates { process, after } => {
            let part = shared.processes.certificates(&process, after.as_deref());
            return Ok(part?.into());
        }
        NodeRequest::Observe { watch } => return Ok(shared.observe(watch).await.into()),
        NodeRequest::Mailbox { agent } => {
            let (letters, total) = shared.post.list(&agent);
            return Ok(WaitingLetters { letters, total }.into());
        }
        NodeRequest::Cosign { request, authority } => {
            let (trust, credential) = (shared.trust.clone(), shared.credential.load_full());
            let judging = shared.witness.cosign(trust, credential, request, authority);
            return Ok(judging.await?.into());
        }
        NodeRequest::Thaw { process } => shared.thaw(&process).await?,
        NodeRequest::DenyList { list } => shared.deny_list_changed(list).await,
        NodeRequest::Masters { addresses, .. } => shared.masters_are_at(&addresses),
        NodeRequest::Directory { update } => {
            return Ok(shared.directory_told(update).await.into());
        }
        NodeRequest::Leave { grace } => {
            let grace = Duration::from_millis(grace);
            let is_masters = true;
            shared.leave(Leave { grace, is_masters });
        }
        NodeRequest::Log { log, from, limit } => {
            let limit = limit.min(LOG_PIECE);
            let read = shared.logs.read(&log, from, limit, now());
            let (text, next) = read.map_err(|error| {
                let message = format!("the log of {log} cannot be read: {error}");
                Fault::new(FaultCode::Storage, message)
            })?;
            return Ok(LogText { text, next }.into());
        }
    }
    Ok(NodeAnswer::Done)
}
