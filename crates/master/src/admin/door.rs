//! The admission of operators.

use std::sync::Arc;
use std::time::Duration;

use sealbus_seal::token::Secret;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Admin;
use sealbus_control::admin::AdminRequest;
use sealbus_control::operators::{Entry, EntryAnswer};
use sealbus_control::rpc::{self, Incoming, MAX_FRAME, MAX_FRAME_UNKNOWN};
use sealbus_control::{Fault, FaultCode};

/// How long an operator may take to prove the key.
const ENTRY: Duration = Duration::from_secs(10);

fn narrowed() -> Fault {
    let message = "this connection was narrowed to reading";
    Fault::new(FaultCode::NotPermitted, message).advise("change things with a command of its own")
}

fn embedded() -> Fault {
    let message = "this platform lives in a program: it can be watched, and nothing else";
    Fault::new(FaultCode::NotPermitted, message)
        .advise("`sealbus up` runs a platform that operators change")
}

impl Admin {
    /// Accepts operators for ever.
    pub(crate) async fn accept(self: Arc<Self>, listener: UnixListener) {
        // The connections end with this set.
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let ours = rustix::process::getuid().as_raw();
                    let theirs = stream.peer_cred().map(|peer| peer.uid());
                    if theirs.is_ok_and(|uid| uid == ours || uid == 0) {
                        connections.spawn(self.clone().serve(stream));
                    } else {
                        tracing::warn!("an operator of another user was not let in");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "an operator could not be let in");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: UnixStream) {
        let (caller, mut incoming, drive) = rpc::open(stream, MAX_FRAME_UNKNOWN);
        let mut driving = JoinSet::new();
        driving.spawn(drive);
        if !self.is_operator(&mut incoming).await {
            drop((caller, incoming));
            let _ = tokio::time::timeout(ENTRY, driving.join_next()).await;
            return;
        }
        caller.allow_frames(MAX_FRAME);
        let mut only_reads = self.is_embedded;
        while let Some(Incoming::Call { body, answer }) = incoming.recv().await {
            let admin = self.clone();
            let asked = Incoming::parse::<AdminRequest>(&body).and_then(|request| {
                only_reads |= matches!(request, AdminRequest::Narrow);
                match only_reads && !request.only_reads() {
                    false => Ok(request),
                    true if self.is_embedded => Err(embedded()),
                    true => Err(narrowed()),
                }
            });
            tokio::spawn(async move {
                let result = match asked {
                    Ok(request) => admin.answer(request).await,
                    Err(fault) => Err(fault),
                };
                answer.send(result).await;
            });
        }
    }

    /// Has the other end prove the operators' key.
    async fn is_operator(&self, incoming: &mut mpsc::Receiver<Incoming>) -> bool {
        let Ok(challenge) = Secret::random() else {
            return false;
        };
        let proving = async {
            while let Some(Incoming::Call { body, answer }) = incoming.recv().await {
                let refusal = match Incoming::parse(&body) {
                    Ok(Entry::Challenge) => {
                        let challenge = challenge.clone();
                        answer.send(Ok(EntryAnswer::from(challenge))).await;
                        continue;
                    }
                    Ok(Entry::Prove { proof }) if self.key.is_proved(&challenge, &proof) => {
                        answer.send(Ok(EntryAnswer::Welcome)).await;
                        return true;
                    }
                    Ok(Entry::Prove { .. }) => Fault::new(
                        FaultCode::NotPermitted,
                        "the operators' key is another one here",
                    ),
                    Err(_) => Fault::new(
                        FaultCode::NotPermitted,
                        "an operator proves the key in admin.key first",
                    ),
                };
                tracing::warn!(%refusal, "an operator was not let in");
                answer.send(Err::<(), _>(refusal)).await;
                return false;
            }
            false
        };
        tokio::time::timeout(ENTRY, proving).await.unwrap_or(false)
    }
}
