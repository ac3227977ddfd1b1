//! Certificates for the processes of nodes, which vouch for them.

use std::sync::Arc;

use sealbus_ca::{Renewal, Request, Unstored};
use sealbus_control::authority::{AuthorityAnswer, IssuedChain};
use sealbus_control::clock::timestamp;
use sealbus_control::statement::{Signed, Vouching};
use sealbus_control::text::excerpt;
use sealbus_control::turns::Turn;
use sealbus_control::{Fault, FaultCode, Subject, UnixMillis};
use sealbus_seal::{CertificateChain, Identity, IdentityError, ProcessId};
use tokio::sync::Semaphore;

use super::desk::{Desk, DeskHandle};
use super::desk_shares::within;
use super::state::not_a_member;
use super::vouching::{PlacementsOf, check_process};

/// Characters of a refusal's message that repeats the text of a node.
const LONGEST_MESSAGE: usize = 1024;

/// Certifies, at the desk within the node's `share`. On a broker, allows the process to log in before it gets its certificate. A node that gets a certificate is
/// a member. A refusal is about the node's process, and says nothing about the node.
pub(crate) async fn certified(
    desk: &DeskHandle,
    turn: &Turn,
    share: Arc<Semaphore>,
    from: String,
    voucher: Signed,
) -> Result<AuthorityAnswer, Fault> {
    let certifying = move |desk: &mut Desk, now| {
        // This precedes the check of signatures, because a check costs more than sending a signature.
        if !desk.state.nodes().contains_key(&from) {
            return Err(not_a_member(&from));
        }
        let (chain, act) = certify_vouched(desk, &voucher, now)?;
        Ok(((chain, desk.broker.clone()), act))
    };
    // The broker is not waited for within the share: it holds up no certificates of agents.
    let ((chain, broker), _) = within(share, desk.run_or_keep(certifying)).await?;
    turn.is_members();
    if let Some(broker) = broker {
        broker.admit_certified(&chain.chain).await?;
    }
    Ok(chain.into())
}

fn is_away() -> Fault {
    let message = "etcd does not answer: nothing is certified for the first time until it is back";
    Fault::new(FaultCode::Unavailable, message)
}

/// Certifies for a process of a node. While the store does not answer, only certificates that the process holds are
/// renewed, and the caller must keep the returned act.
pub(crate) fn certify_vouched(
    desk: &mut Desk,
    voucher: &Signed,
    now: UnixMillis,
) -> Result<(IssuedChain, Option<Unstored>), Fault> {
    // A node that is not believed now may be believed later, so this says nothing about the process for which it
    // vouches.
    let (node, vouching) = voucher
        .open::<Vouching>(desk.ca.trust(), now)
        .map_err(|error| {
            let advice = "the process tries again: its node gets another certificate when the node comes back";
            error.fault(FaultCode::Unavailable, advice)
        })?;
    let name = node
        .identity()
        .node_name()
        .map(ToString::to_string)
        .unwrap_or_default();
    let process = vouching.process.as_str();
    // A name that is not legal makes no event.
    let illegal = |error: IdentityError| {
        let message = excerpt(&error.to_string(), LONGEST_MESSAGE);
        Fault::new(FaultCode::IllegalName, message)
    };
    let id: ProcessId = process.parse().map_err(illegal)?;
    let wanted = match &vouching.subject {
        Subject::Agent { name } => desk.agent(name)?,
        Subject::Process => Identity::process(&desk.name, &name, id).map_err(illegal)?,
    };
    let refused = |desk: &mut Desk, fault: Fault| {
        // A program that was revoked, and its node, may ask without end.
        if let Some(left_out) = desk.log.admit(name.clone()) {
            let subject = match &vouching.subject {
                Subject::Agent { name } => name.clone(),
                Subject::Process => format!("process {process}"),
            };
            tracing::warn!(
                target: "sealbus::certification",
                agent = %subject, node = %name, left_out, %fault, "refused"
            );
            let what = format!("refused: {}", fault.message);
            desk.ca
                .events()
                .enter(0, &subject, Some(&name), None, what, timestamp(now));
        }
        fault
    };
    if let Err(fault) = check_process(&desk.state, &name, process, &vouching.subject) {
        return Err(refused(desk, fault));
    }
    desk.state.started(process, None);
    let request = Request {
        node: &node,
        wanted: &wanted,
        process: Some(process),
        request: &vouching.request.0,
    };
    let placements = PlacementsOf {
        state: &desk.state,
        process,
    };
    let (chain, act) = match desk.away {
        false => (
            desk.ca.certify(&request, &placements, timestamp(now))?,
            None,
        ),
        true => {
            desk.check_level()?;
            let held = &vouching.held.as_ref().ok_or_else(is_away)?.0;
            let held = CertificateChain::decode(held)
                .map_err(|error| Fault::new(FaultCode::BadRequest, error.to_string()))?;
            let renewal = Renewal {
                request,
                held: &held,
            };
            let (chain, act) = desk.ca.renew(&renewal, timestamp(now))?;
            (chain, Some(act))
        }
    };
    Ok((IssuedChain::from(&chain), act))
}
