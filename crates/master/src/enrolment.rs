//! The Master's side of joining.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sealbus_ca::Unstored;
use sealbus_seal::token::{Purpose, Secret, TokenError};
use sealbus_seal::{Identity, Name, SigningRequest, Timestamp};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::authorities::certify_authority;
use crate::{Desk, DeskHandle, certify_vouched};
use sealbus_control::clock::timestamp;
use sealbus_control::enrolment::{CertifiedAuthority, EnrolmentAnswer, EnrolmentRequest, Joined};
use sealbus_control::names::node_name;
use sealbus_control::rpc::{self, Incoming, LONGEST_FRAME_UNKNOWN};
use sealbus_control::statement::Returning;
use sealbus_control::{Blob, Fault, FaultCode, NodeDescription, UnixMillis};
use sealbus_enrolment::{HTTP, LogServer, WaitingStranger};
use tokio_rustls::server::TlsStream;

/// How long a newcomer may take to send its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection that reads the issuance log may last. Readers are strangers for the whole time.
const READING: Duration = Duration::from_secs(25);
/// How far clocks may differ, in milliseconds. Certificates start a minute before they are made.
const CLOCKS_APART: UnixMillis = 60_000;

/// The service for strangers at the joining port.
#[derive(Clone)]
pub(crate) struct EnrolmentDoor {
    pub(crate) desk: DeskHandle,
    pub(crate) logs: LogServer,
    /// The state directory, which may have the root's key.
    pub(crate) directory: Arc<Path>,
}

impl EnrolmentDoor {
    /// Serves one stranger: a newcomer, or a reader of the issuance logs. A reader is never let in, so its connection
    /// ends earlier if others need the place.
    pub(crate) async fn serve(self, stream: TlsStream<TcpStream>, waiting: Arc<WaitingStranger>) {
        if stream.get_ref().1.alpn_protocol() == Some(HTTP) {
            let serving = self.logs.serve(stream, waiting.peer().ip());
            let _ = tokio::time::timeout(READING, serving).await;
        } else {
            serve(stream, waiting, self.desk, self.directory).await;
        }
    }
}

/// Serves one newcomer.
async fn serve<S>(stream: S, waiting: Arc<WaitingStranger>, desk: DeskHandle, directory: Arc<Path>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (_caller, mut incoming, drive) = rpc::open(stream, LONGEST_FRAME_UNKNOWN);
    let mut driving = JoinSet::new();
    driving.spawn(drive);
    while let Ok(Some(Incoming::Call { body, answer })) =
        tokio::time::timeout(PATIENCE, incoming.recv()).await
    {
        let result = match Incoming::parse::<EnrolmentRequest>(&body) {
            Ok(request) => {
                let directory = directory.clone();
                let comes_back = matches!(request, EnrolmentRequest::Return { .. });
                let enrolling =
                    desk.run_or_keep(move |desk, now| enrol(desk, request, &directory, now));
                match enrolling.await {
                    Ok((enrolled, _)) => admitted(&desk, enrolled).await,
                    // Nothing is lost, because the node asks again for this fault.
                    Err(fault) if comes_back && fault.code == FaultCode::Storage => {
                        Err(cannot_write(fault.message))
                    }
                    Err(fault) => Err(fault),
                }
            }
            Err(fault) => Err(fault),
        };
        let refusal = result.as_ref().err().map(ToString::to_string);
        answer.send(result).await;
        if let Some(why) = refusal {
            // Each guess costs the guesser a handshake.
            waiting.refused(&why);
            break;
        }
    }
    // The newcomer must read the answer before the connection ends.
    drop(incoming);
    let _ = tokio::time::timeout(PATIENCE, driving.join_next()).await;
}

/// On a broker, allows a node to log in before it learns that it has joined, and its process before it is certified.
async fn admitted(desk: &DeskHandle, answer: EnrolmentAnswer) -> Result<EnrolmentAnswer, Fault> {
    if let Some(broker) = desk.run(|desk, _| Ok(desk.broker.clone())).await? {
        match &answer {
            EnrolmentAnswer::Joined(joined) => {
                let name = joined.name.clone();
                broker
                    .admit_to(desk, &name, std::slice::from_ref(&name))
                    .await?;
            }
            EnrolmentAnswer::Certified(issued) => broker.admit_certified(&issued.chain).await?,
            EnrolmentAnswer::Authority(_) => {}
        }
    }
    Ok(answer)
}

/// The fault on which a node waits, and asks again.
fn cannot_write(why: String) -> Fault {
    Fault::new(FaultCode::Unavailable, why)
        .advise("the node tries again: nobody joins or comes back before the Master can write")
}

/// Nobody joins or comes back while etcd does not answer, because that could not be stored.
fn check_store(desk: &Desk) -> Result<(), Fault> {
    match desk.away {
        false => Ok(()),
        true => Err(cannot_write("etcd does not answer".to_owned())),
    }
}

pub(crate) fn enrol(
    desk: &mut Desk,
    request: EnrolmentRequest,
    directory: &Path,
    now: UnixMillis,
) -> Result<(EnrolmentAnswer, Option<Unstored>), Fault> {
    let answer = match request {
        EnrolmentRequest::Join {
            secret,
            name,
            now: theirs,
            node,
            request,
        } => {
            check_clocks(theirs, now)?;
            check_store(desk)?;
            join(desk, &secret, name, node, &request.0, now)?
        }
        EnrolmentRequest::Return { statement } => {
            let (identity, returning) =
                statement
                    .open::<Returning>(desk.ca.trust(), now)
                    .map_err(|error| {
                        let advice = "join the node with a new token: sealbus token";
                        error.fault(FaultCode::NotPermitted, advice)
                    })?;
            let Identity::Node { name, .. } = identity.identity() else {
                return Err(Fault::new(
                    FaultCode::NotPermitted,
                    format!("{} is not a node", identity.identity()),
                ));
            };
            let name = name.to_string();
            if let Err(fault) = check_store(desk) {
                // The node is there, and must not be given up meanwhile.
                desk.state.heard(&name, now);
                return Err(fault);
            }
            let Returning { node, request, .. } = returning;
            let process = desk.state.come_back(&name, node.clone(), now)?;
            joined(desk, name, process, &node, &request.0, now)?
        }
        EnrolmentRequest::Certify { voucher } => {
            let (chain, act) = certify_vouched(desk, &voucher, now)?;
            return Ok((chain.into(), act));
        }
        EnrolmentRequest::JoinAsMaster {
            secret,
            request,
            now: theirs,
        } => {
            check_clocks(theirs, now)?;
            check_store(desk)?;
            join_as_master(desk, &secret, &request.0, directory, now)?
        }
    };
    Ok((answer, None))
}

/// Certifies the CA of a further Master under the root, whose key must be here.
fn join_as_master(
    desk: &mut Desk,
    secret: &str,
    request: &[u8],
    directory: &Path,
    now: UnixMillis,
) -> Result<EnrolmentAnswer, Fault> {
    let invalid = |error: &dyn std::error::Error| {
        Fault::new(FaultCode::InvalidSecret, error.to_string())
            .advise("make a new token: sealbus token --master")
    };
    let bad = |error: &dyn std::error::Error| Fault::new(FaultCode::BadRequest, error.to_string());
    let secret: Secret = secret
        .parse()
        .map_err(|error: TokenError| invalid(&error))?;
    let time = timestamp(now);
    desk.tokens
        .check(Purpose::Master, &secret, None, time)
        .map_err(|error| invalid(&error))?;
    let parsed = SigningRequest::parse(request).map_err(|error| bad(&error))?;
    let certified = certify_authority(directory, request, time);
    let Some((chain, root)) = certified.map_err(|error| bad(&error))? else {
        let message = "the root's key is not in the state directory of the Master that leads";
        return Err(Fault::new(FaultCode::NotPermitted, message).advise(
            "certify the new Master where the root's key is: `sealbus ca request` there, `sealbus ca certify` here",
        ));
    };
    let name = parsed.authority_name();
    let legal = Name::new("authority's", &name).map_err(|error| bad(&error))?;
    desk.tokens
        .redeem(Purpose::Master, &secret, &legal, time)
        .map_err(|error| invalid(&error))?;
    desk.ca.note_authority(chain.leaf(), time)?;
    let what = "certified under the root, for a further Master".to_owned();
    let subject = format!("authority {name}");
    desk.ca.events().enter(0, &subject, None, None, what, time);
    tracing::warn!(authority = %name, "a further Master has a CA of this platform");
    let chain = chain.to_certificates().into_iter();
    Ok(Box::new(CertifiedAuthority {
        root: Blob(root),
        chain: chain.map(|der| Blob(der.to_vec())).collect(),
    })
    .into())
}

fn check_clocks(theirs: UnixMillis, ours: UnixMillis) -> Result<(), Fault> {
    if theirs.abs_diff(ours) <= CLOCKS_APART {
        return Ok(());
    }
    let clock = |millis: UnixMillis| Timestamp::from_unix_seconds(millis / 1000);
    let message = format!(
        "the node's clock says {} and the Master's {}: its certificates would not be valid",
        clock(theirs),
        clock(ours)
    );
    Err(Fault::new(FaultCode::ClockSkew, message)
        .advise("set the clock that is wrong, with NTP for instance, and join again"))
}

fn join(
    desk: &mut Desk,
    secret: &str,
    name: Option<String>,
    node: NodeDescription,
    request: &[u8],
    now: UnixMillis,
) -> Result<EnrolmentAnswer, Fault> {
    let invalid = |error: &dyn std::error::Error| {
        Fault::new(FaultCode::InvalidSecret, error.to_string())
            .advise("make a new token: sealbus token")
    };
    let secret: Secret = secret
        .parse()
        .map_err(|error: TokenError| invalid(&error))?;
    // The name is taken first, so that no token is spent on a name that is not available.
    let time = timestamp(now);
    let wish = name.or_else(|| desk.tokens.name_of(&secret));
    let legal = wish.as_deref().map(node_name).transpose()?;
    desk.tokens
        .check(Purpose::Join, &secret, legal.as_ref(), time)
        .map_err(|e| invalid(&e))?;
    if let Some(name) = &wish {
        desk.ca.check_node(name, time)?;
    }
    let (name, process) = desk.state.join(wish.as_deref(), node.clone(), now)?;
    let legal = node_name(&name)?;
    if desk.state.was_restored() {
        // The backup may lack a node of this name, or the name was given up. Two machines must never be one node.
        let (earlier, said) = (desk.node(&name)?, "the name was given to a new machine");
        desk.ca.revoke_unknown(earlier, said, time)?;
        // The new certificate begins after all certificates that the list in force denies.
        desk.ca
            .publish(time)
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
    }
    desk.tokens
        .redeem(Purpose::Join, &secret, &legal, time)
        .map_err(|error| invalid(&error))?;
    joined(desk, name, process, &node, request, now)
}

fn joined(
    desk: &mut Desk,
    name: String,
    process: String,
    node: &NodeDescription,
    request: &[u8],
    now: UnixMillis,
) -> Result<EnrolmentAnswer, Fault> {
    // A node that joined when the name was still allowed is not certified under it again.
    node_name(&name)?;
    let identity = desk.node(&name)?;
    let time = timestamp(now);
    let chain = desk
        .ca
        .certify_node(identity, node.address, request, time)?;
    tracing::info!(node = %name, address = %node.address, "joined");
    let joined = Joined {
        name,
        process,
        platform: desk.platform.clone(),
        chain: chain
            .to_certificates()
            .into_iter()
            .map(|der| Blob(der.to_vec()))
            .collect(),
        deny_list: Blob(desk.ca.deny_list_since(0)),
        term: desk.term,
        masters: desk.masters.clone(),
    };
    Ok(Box::new(joined).into())
}
