//! How many certificates one process gets for one subject, and one node for itself.

use std::collections::HashMap;
use std::time::Duration;

use sealbus_control::{Fault, FaultCode};
use sealbus_seal::Timestamp;

/// Requests of a process for one subject that are taken in a row.
const IN_A_ROW: u64 = 32;
/// Further requests that are taken in the lifetime of a certificate. Renewing takes two or three.
const IN_A_LIFETIME: u64 = 60;
/// The limit of a node that comes back. A node that takes long to start comes back each 3 s meanwhile, and one that is not
/// reached over the bus does so even faster.
const OF_NODE: Limit = Limit {
    in_a_row: 1024,
    each: 300_000,
};
/// This takes the place of the process in the shares of nodes. It is the id of no process.
const NODE: &str = "node";

/// The requests of each process for each subject. The Master decides how many processes there are, but a process
/// could ask without end. So could a node.
#[derive(Default)]
pub(crate) struct Shares {
    used: HashMap<(String, String), Share>,
}

/// The size of a share.
#[derive(Clone, Copy)]
struct Limit {
    /// Requests that are taken in a row.
    in_a_row: u64,
    /// Milliseconds until one more is taken.
    each: u64,
}

#[derive(Clone, Copy)]
struct Share {
    /// When the share is whole again, in Unix milliseconds.
    whole_at: u64,
    /// Whether the latest request was refused.
    is_refused: bool,
}

/// A share is used up.
#[derive(Debug)]
pub(crate) struct UsedUp {
    pub(crate) fault: Fault,
    /// Whether the request before was taken.
    pub(crate) is_first: bool,
}

/// A refusal: when the next request is taken, and whether the request before was taken.
struct TooSoon {
    seconds: u64,
    is_first: bool,
}

impl Share {
    /// The time until a request is taken, in milliseconds. If the clock was ahead for a while, the
    /// wait is at most that of a used-up share: nobody waits until the clock is that far again.
    fn wait(&mut self, limit: Limit, now: u64) -> u64 {
        let all = limit.each.saturating_mul(limit.in_a_row);
        self.whole_at = self.whole_at.min(now.saturating_add(all));
        self.whole_at
            .saturating_sub(now)
            .saturating_sub(all.saturating_sub(limit.each))
    }
}

impl Shares {
    /// Takes one request from the share of this process and subject.
    pub(crate) fn take(
        &mut self,
        process: &str,
        subject: &str,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(), UsedUp> {
        let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let limit = Limit {
            in_a_row: IN_A_ROW,
            each: (lifetime / IN_A_LIFETIME).max(1),
        };
        let taken = self.take_one((process.to_owned(), subject.to_owned()), limit, now);
        taken.map_err(|TooSoon { seconds, is_first }| {
            let message = format!(
                "{subject} asked for {IN_A_ROW} certificates in a row: it gets another in {seconds} s"
            );
            let fault = Fault::new(FaultCode::Full, message)
                .advise("a certificate is renewed at half of its life, not more often");
            UsedUp { fault, is_first }
        })
    }

    /// Takes one request from the share of this node.
    ///
    /// # Errors
    /// [`FaultCode::Unavailable`], so that the node waits.
    pub(crate) fn take_of_node(&mut self, node: &str, now: Timestamp) -> Result<(), Fault> {
        let taken = self.take_one(key_of(node), OF_NODE, now);
        taken.map_err(|refused| must_wait(node, refused.seconds))
    }

    /// Checks whether a request would be taken from the share of this node.
    ///
    /// # Errors
    /// As [`take_of_node`](Self::take_of_node).
    pub(crate) fn check_node(&mut self, node: &str, now: Timestamp) -> Result<(), Fault> {
        let share = self.used.get_mut(&key_of(node));
        match share.map_or(0, |share| share.wait(OF_NODE, milliseconds(now))) {
            0 => Ok(()),
            wait => Err(must_wait(node, wait.div_ceil(1000))),
        }
    }

    fn take_one(
        &mut self,
        key: (String, String),
        limit: Limit,
        now: Timestamp,
    ) -> Result<(), TooSoon> {
        let now = milliseconds(now);
        let whole = Share {
            whole_at: now,
            is_refused: false,
        };
        let share = self.used.entry(key).or_insert(whole);
        let wait = share.wait(limit, now);
        let is_first = !std::mem::replace(&mut share.is_refused, wait > 0);
        if wait > 0 {
            let seconds = wait.div_ceil(1000);
            return Err(TooSoon { seconds, is_first });
        }
        share.whole_at = share.whole_at.max(now).saturating_add(limit.each);
        Ok(())
    }

    /// Forgets the shares that are whole.
    pub(crate) fn prune(&mut self, now: Timestamp) {
        let now = milliseconds(now);
        self.used.retain(|_, share| share.whole_at > now);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.used.is_empty()
    }
}

fn key_of(node: &str) -> (String, String) {
    (NODE.to_owned(), node.to_owned())
}

fn must_wait(node: &str, seconds: u64) -> Fault {
    let most = OF_NODE.in_a_row;
    let message = format!(
        "{node} asked for {most} certificates of its own in a row: it gets another in {seconds} s"
    );
    Fault::new(FaultCode::Unavailable, message)
        .advise("see the node's log: it comes back again and again")
}

fn milliseconds(time: Timestamp) -> u64 {
    time.as_unix_seconds().saturating_mul(1000)
}
