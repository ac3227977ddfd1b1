//! The admission of operators.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sealbus_bus::LogShares;
use sealbus_mesh::{Stranger, Strangers};
use sealbus_seal::token::Secret;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Admin;
use sealbus_control::admin::AdminRequest;
use sealbus_control::local::{Listener, Stream, is_of_this_user, process_of};
use sealbus_control::operators::{Entry, EntryAnswer, OperatorKey};
use sealbus_control::rpc::{self, Incoming, LONGEST_FRAME, LONGEST_FRAME_UNKNOWN};
use sealbus_control::traffic::Watch;
use sealbus_control::{Fault, FaultCode};
use sealbus_enrolment::most_strangers;
use sealbus_web::accept_until;

/// How long an operator may take to prove the key.
const ENTRY: Duration = Duration::from_secs(10);

/// The requests that an operator's connection may make, from the narrowest right on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    Read,
    /// Also the bodies of messages.
    Bodies,
    All,
}

impl Right {
    fn allows(self, request: &AdminRequest) -> Result<(), Fault> {
        match request {
            _ if self == Self::All || request.only_reads() => Ok(()),
            AdminRequest::Observe { .. } if self >= Self::Bodies => Ok(()),
            AdminRequest::Observe { .. } => {
                let message = "this connection may not read the bodies of messages";
                let advice = "start `sealbus window` or `sealbus sniff` with --bodies";
                Err(Fault::new(FaultCode::NotPermitted, message).advise(advice))
            }
            _ => {
                let message = "this connection was narrowed to reading";
                let advice = "change things with a command of its own";
                Err(Fault::new(FaultCode::NotPermitted, message).advise(advice))
            }
        }
    }
}

fn embedded() -> Fault {
    let message = "this platform lives in a program: it can be watched, and nothing else";
    Fault::new(FaultCode::NotPermitted, message)
        .advise("`sealbus up` runs a platform that operators change")
}

/// Notes in the Master's log which bodies an operator reads, from the first request to the end of the connection.
#[derive(Default)]
struct BodyReader(Option<Watch>);

impl BodyReader {
    fn asks(&mut self, watch: &Watch) {
        if watch.bodies && self.0.as_ref() != Some(watch) {
            tracing::info!(
                agents = ?watch.agents,
                conversation = watch.conversation,
                channel = watch.channel,
                "an operator reads the bodies of messages"
            );
            self.0 = Some(watch.clone());
        }
    }
}

impl Drop for BodyReader {
    fn drop(&mut self) {
        if self.0.is_some() {
            tracing::info!("the operator no longer reads the bodies of messages");
        }
    }
}

impl Admin {
    /// Accepts operators. Ends when all have left, after the Master has led.
    pub(crate) async fn accept(self: Arc<Self>, listener: Listener) {
        let parting = async {
            self.parting.advice().await;
        };
        let entrance = Arc::new(Entrance::default());
        let mut connections = accept_until(parting, &listener, usize::MAX, |stream, _, _| {
            let newcomer = entrance.came(&stream)?;
            let serving = self.clone().serve(stream, newcomer.clone());
            Some(newcomer.until_it_must_go(serving))
        })
        .await;
        while connections.join_next().await.is_some() {}
    }

    async fn serve(self: Arc<Self>, stream: Stream, newcomer: Arc<Newcomer>) {
        let (caller, mut incoming, drive) = rpc::open(stream, LONGEST_FRAME_UNKNOWN);
        let mut driving = JoinSet::new();
        driving.spawn(drive);
        if newcomer.is_operator(&self.key, &mut incoming).await {
            caller.allow_frames(LONGEST_FRAME);
            self.take_orders(&mut incoming).await;
        }
        // The operator must read the last answer before the connection ends.
        drop((caller, incoming));
        let _ = tokio::time::timeout(ENTRY, driving.join_next()).await;
    }

    async fn take_orders(self: Arc<Self>, incoming: &mut mpsc::Receiver<Incoming>) {
        let mut right = match self.is_embedded {
            true => Right::Read,
            false => Right::All,
        };
        let mut reader = BodyReader::default();
        loop {
            let ordered = tokio::select! {
                ordered = incoming.recv() => ordered,
                advice = self.parting.advice() => return self.refuse_last(incoming, &advice).await,
            };
            let Some(Incoming::Call { body, answer }) = ordered else {
                return;
            };
            let admin = self.clone();
            let asked = Incoming::parse::<AdminRequest>(&body).and_then(|request| {
                if let AdminRequest::Narrow { bodies } = &request {
                    right = right.min(match bodies {
                        true => Right::Bodies,
                        false => Right::Read,
                    });
                }
                match right.allows(&request) {
                    Err(_) if self.is_embedded => return Err(embedded()),
                    allowed => allowed?,
                }
                if let AdminRequest::Observe { watch: Some(watch) } = &request {
                    reader.asks(watch);
                }
                Ok(request)
            });
            tokio::spawn(async move {
                let result = match asked {
                    Ok(request) => admin.answer_or_part(request).await,
                    Err(fault) => Err(fault),
                };
                answer.send(result).await;
            });
        }
    }
}

/// The connections at a socket of operators on which nobody has proved the key yet. When there are too many, the oldest one of
/// the process with the most ends. So a program that runs as the Master's user keeps no operator out.
pub(crate) struct Entrance {
    strangers: Strangers<Option<i32>>,
    /// The shares of the log for connections that are not let in, by their processes.
    log: Mutex<LogShares>,
}

impl Default for Entrance {
    fn default() -> Self {
        Self {
            strangers: Strangers::new(most_strangers()),
            log: Mutex::default(),
        }
    }
}

/// A connection at a socket of operators.
pub(crate) struct Newcomer {
    entrance: Arc<Entrance>,
    process: Option<i32>,
    place: Stranger<Option<i32>>,
}

impl Entrance {
    /// Takes in a connection of this user or of root, and no other.
    pub(crate) fn came(self: &Arc<Self>, stream: &Stream) -> Option<Arc<Newcomer>> {
        let process = process_of(stream);
        if !is_of_this_user(stream) {
            self.not_let_in(process, "it is of another user");
            return None;
        }
        Some(Arc::new(Newcomer {
            entrance: self.clone(),
            process,
            place: self.strangers.came(process),
        }))
    }

    fn not_let_in(&self, process: Option<i32>, why: &str) {
        let source = format!("process {}", process.unwrap_or_default());
        if let Some(left_out) = self.log.lock().admit(source) {
            tracing::warn!(process, left_out, "an operator was not let in: {why}");
        }
    }
}

impl Newcomer {
    /// Serves the connection, until it must make room for another one.
    pub(crate) async fn until_it_must_go(self: Arc<Self>, serving: impl Future<Output = ()>) {
        tokio::select! {
            () = self.place.must_go() => {}
            () = serving => {}
        }
    }

    /// Has the other end prove the operators' key. An operator's connection makes no room for others.
    pub(crate) async fn is_operator(
        &self,
        key: &OperatorKey,
        incoming: &mut mpsc::Receiver<Incoming>,
    ) -> bool {
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
                    Ok(Entry::Prove { proof }) if key.is_proved(&challenge, &proof) => {
                        self.place.let_in();
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
                self.entrance.not_let_in(self.process, &refusal.message);
                answer.send(Err::<(), _>(refusal)).await;
                return false;
            }
            false
        };
        tokio::time::timeout(ENTRY, proving).await.unwrap_or(false)
    }
}
