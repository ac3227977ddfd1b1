//! How many certificates one process gets for one subject.

use std::collections::HashMap;
use std::time::Duration;

use sealbus_control::{Fault, FaultCode};
use sealbus_seal::Timestamp;

/// Requests of a process for one subject that are taken in a row.
const IN_A_ROW: u64 = 32;
/// Further requests that are taken in the lifetime of a certificate. Renewing takes two or three.
const IN_A_LIFETIME: u64 = 60;

/// The requests of each process for each subject. The Master decides how many processes there are, but a process
/// could ask without end.
#[derive(Default)]
pub(crate) struct Shares {
    used: HashMap<(String, String), Share>,
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
        let each = (lifetime / IN_A_LIFETIME).max(1);
        let now = milliseconds(now);
        let whole = Share {
            whole_at: now,
            is_refused: false,
        };
        let key = (process.to_owned(), subject.to_owned());
        let share = self.used.entry(key).or_insert(whole);
        let used = share.whole_at.saturating_sub(now);
        let most = each.saturating_mul(IN_A_ROW - 1);
        let is_first = !std::mem::replace(&mut share.is_refused, used > most);
        if used > most {
            let seconds = (used - most).div_ceil(1000);
            let message = format!(
                "{subject} asked for {IN_A_ROW} certificates in a row: it gets another in {seconds} s"
            );
            let fault = Fault::new(FaultCode::Full, message)
                .advise("a certificate is renewed at half of its life, not more often");
            return Err(UsedUp { fault, is_first });
        }
        share.whole_at = now.saturating_add(used).saturating_add(each);
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

fn milliseconds(time: Timestamp) -> u64 {
    time.as_unix_seconds().saturating_mul(1000)
}
