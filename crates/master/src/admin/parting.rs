//! The end of the operators' connections when their Master leads no longer. Each operator learns whether the request was
//! carried out, and where to ask.

use std::time::Duration;

use sealbus_control::admin::{AdminAnswer, AdminRequest};
use sealbus_control::rpc::Incoming;
use sealbus_control::{Fault, FaultCode};
use sealbus_store::Leadership;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::Admin;

/// The advice if it is not known which Master leads.
pub(crate) const ELSEWHERE: &str = "run the command on the machine of the Master that leads now";
/// How long connected operators may still ask, to learn that another Master leads.
const LAST_CALLS: Duration = Duration::from_millis(200);
/// How long a request waits to learn which Master leads now.
const HEARING: Duration = Duration::from_secs(2);

/// The end of the leadership, as operators learn of it.
pub(crate) struct Parting {
    advice: watch::Sender<Option<String>>,
    leadership: Option<Leadership>,
}

impl Parting {
    pub(crate) fn new(leadership: Option<Leadership>) -> Self {
        Self {
            advice: watch::Sender::new(None),
            leadership,
        }
    }

    /// Tells all operators where to ask, unless they have been told.
    pub(crate) fn begin(&self, advice: String) {
        self.advice.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert(advice);
            is_first
        });
    }

    /// Waits until the Master leads no longer. Returns the advice.
    pub(super) async fn advice(&self) -> String {
        let mut told = self.advice.subscribe();
        // The sender is here.
        let found = told.wait_for(Option::is_some).await;
        found.ok().and_then(|told| told.clone()).unwrap_or_default()
    }

    fn is_over(&self) -> bool {
        let leadership = self.leadership.as_ref();
        self.advice.borrow().is_some() || leadership.is_some_and(Leadership::has_ended)
    }
}

/// The fault of a request that was not begun.
fn not_leading(advice: String) -> Fault {
    let message = "this Master leads no longer, and did not begin the request";
    Fault::new(FaultCode::NotLeading, message).advise(advice)
}

/// The fault of a request that was begun.
fn unfinished(advice: &str) -> Fault {
    let message =
        "this Master leads no longer, and it is not known whether it carried out the request";
    let advice = format!("{advice}, and ask again only if it was not done");
    Fault::new(FaultCode::Unavailable, message).advise(advice)
}

/// Whether the store takes the whole change at once, or none of it.
fn is_one_change(request: &AdminRequest) -> bool {
    matches!(
        request,
        AdminRequest::Token { .. }
            | AdminRequest::Revoke { .. }
            | AdminRequest::RevokeAuthority { .. }
    )
}

impl Admin {
    /// Answers a request, or says what became of it because the Master leads no longer.
    pub(super) async fn answer_or_part(&self, request: AdminRequest) -> Result<AdminAnswer, Fault> {
        let (only_reads, is_one_change) = (request.only_reads(), is_one_change(&request));
        let answered = tokio::select! {
            biased;
            answered = self.answer(request) => Some(answered),
            _ = self.parting.advice() => None,
        };
        let refused = match answered {
            Some(Err(fault)) if self.parting.is_over() => Some(fault),
            Some(answered) => return answered,
            None => None,
        };
        // The store takes no change of a former leader.
        let is_refused = refused.is_some_and(|fault| fault.code == FaultCode::Unavailable);
        let advice = timeout(HEARING, self.parting.advice()).await;
        let advice = advice.unwrap_or_else(|_| ELSEWHERE.to_owned());
        Err(match only_reads || is_one_change && is_refused {
            true => not_leading(advice),
            false => unfinished(&advice),
        })
    }

    /// Refuses the requests of operators that do not know yet that another Master leads.
    pub(super) async fn refuse_last(&self, incoming: &mut mpsc::Receiver<Incoming>, advice: &str) {
        let refusing = async {
            while let Some(Incoming::Call { answer, .. }) = incoming.recv().await {
                let refused = Err::<AdminAnswer, _>(not_leading(advice.to_owned()));
                answer.send(refused).await;
            }
        };
        // Operators that ask nothing need no answer.
        let _ = timeout(LAST_CALLS, refusing).await;
    }
}
