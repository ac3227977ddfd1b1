//! The share of a node's letters that each sender may take up, so that no sender fills the disk for the others.

use std::collections::HashMap;

use parking_lot::Mutex;
use sealbus_control::WaitingProvenance;

/// The most bytes of waiting letters of one sender on a node.
pub(crate) const MOST_BYTES: u64 = 256 << 20;
/// The most agents for whom letters of one sender wait on a node.
pub(crate) const MOST_RECEIVERS: usize = 1000;

/// The letters that wait on a node, by sender.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<HashMap<String, Share>>);

/// The waiting letters of one sender.
#[derive(Debug, Default)]
struct Share {
    bytes: u64,
    /// The number of letters for each receiver.
    receivers: HashMap<String, usize>,
}

/// The sender that a letter counts for. Notices of the platform count for nobody.
pub(crate) fn sender_of(provenance: &WaitingProvenance) -> Option<&str> {
    match provenance {
        WaitingProvenance::SameProcess { identity }
        | WaitingProvenance::Proved { identity, .. }
        | WaitingProvenance::Signed { identity, .. } => Some(identity),
        WaitingProvenance::Claimed | WaitingProvenance::Platform | WaitingProvenance::Foreign => {
            None
        }
    }
}

impl Shares {
    /// The reason why no further letter of this size may be kept from a sender for a receiver; `None` if it may.
    pub(crate) fn refusal(&self, sender: &str, receiver: &str, size: u64) -> Option<String> {
        let shares = self.0.lock();
        let share = shares.get(sender)?;
        if share.bytes + size > MOST_BYTES {
            let most = MOST_BYTES >> 20;
            return Some(format!("{most} MiB of its messages wait there"));
        }
        let is_new = !share.receivers.contains_key(receiver);
        (is_new && share.receivers.len() >= MOST_RECEIVERS)
            .then(|| format!("its messages wait there for {MOST_RECEIVERS} agents"))
    }

    /// Counts a letter that waits.
    pub(crate) fn add(&self, provenance: &WaitingProvenance, receiver: &str, size: u64) {
        let Some(sender) = sender_of(provenance) else {
            return;
        };
        let mut shares = self.0.lock();
        let share = shares.entry(sender.to_owned()).or_default();
        share.bytes += size;
        *share.receivers.entry(receiver.to_owned()).or_default() += 1;
    }

    /// Removes a letter from the count.
    pub(crate) fn remove(&self, provenance: &WaitingProvenance, receiver: &str, size: u64) {
        let Some(sender) = sender_of(provenance) else {
            return;
        };
        let mut shares = self.0.lock();
        let Some(share) = shares.get_mut(sender) else {
            return;
        };
        share.bytes = share.bytes.saturating_sub(size);
        if let Some(letters) = share.receivers.get_mut(receiver) {
            *letters -= 1;
            if *letters == 0 {
                share.receivers.remove(receiver);
            }
        }
        if share.receivers.is_empty() {
            shares.remove(sender);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(sender: &str) -> WaitingProvenance {
        WaitingProvenance::SameProcess {
            identity: sender.to_owned(),
        }
    }

    #[test]
    fn a_sender_has_its_share_and_no_more() {
        let shares = Shares::default();
        shares.add(&from("mallory"), "a", MOST_BYTES);
        assert!(shares.refusal("mallory", "a", 1).is_some());
        assert_eq!(shares.refusal("bob", "a", 1), None);
        shares.remove(&from("mallory"), "a", MOST_BYTES);
        for number in 0..MOST_RECEIVERS {
            shares.add(&from("mallory"), &number.to_string(), 1);
        }
        assert!(shares.refusal("mallory", "another", 1).is_some());
        assert_eq!(shares.refusal("mallory", "7", 1), None);
        for number in 0..MOST_RECEIVERS {
            shares.remove(&from("mallory"), &number.to_string(), 1);
        }
        assert!(shares.0.lock().is_empty());
    }
}
