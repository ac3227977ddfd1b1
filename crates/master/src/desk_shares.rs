//! Each sender's share of the desk's time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::Semaphore;

/// Most requests of one sender that are at the desk at the same time. The sender's other requests wait, and those of other
/// senders come before them.
const AT_DESK: usize = 64;
/// At this number of senders, and later at twice the number that was left, senders that ask nothing are forgotten.
const FEW: usize = 256;

/// The shares of the senders whose requests are at work.
#[derive(Default)]
pub(crate) struct DeskShares {
    shares: HashMap<String, Weak<Semaphore>>,
    full: usize,
}

impl DeskShares {
    /// The share of a sender. Each of its requests takes one permit of it as long as it is at the desk.
    pub(crate) fn of(&mut self, sender: &str) -> Arc<Semaphore> {
        if let Some(share) = self.shares.get(sender).and_then(Weak::upgrade) {
            return share;
        }
        if self.shares.len() >= self.full.max(FEW) {
            self.shares.retain(|_, share| share.strong_count() > 0);
            self.full = self.shares.len().saturating_mul(2);
        }
        let share = Arc::new(Semaphore::new(AT_DESK));
        let kept = Arc::downgrade(&share);
        self.shares.insert(sender.to_owned(), kept);
        share
    }
}

/// Does `work` at the desk within its sender's share. It begins when the share has a permit left.
pub(crate) async fn within<T>(share: Arc<Semaphore>, work: impl Future<Output = T>) -> T {
    // Nobody closes the semaphore.
    let _at_desk = share.acquire_owned().await;
    work.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_asks_without_end_waits_for_itself_alone() {
        let mut shares = DeskShares::default();
        let asked: Vec<_> = (0..1000).map(|_| shares.of("mallory")).collect();
        let asked = asked.into_iter();
        let at_desk: Vec<_> = asked.filter_map(|it| it.try_acquire_owned().ok()).collect();
        assert_eq!(at_desk.len(), AT_DESK);
        assert!(shares.of("node-1").try_acquire_owned().is_ok());
        // Others come and go, and its share stays as long as it is in use.
        for number in 0..10 * FEW {
            drop(shares.of(&format!("node-{number}")));
        }
        assert!(shares.shares.len() <= 2 * FEW);
        assert!(shares.of("mallory").try_acquire_owned().is_err());
        drop(at_desk);
        assert!(shares.of("mallory").try_acquire_owned().is_ok());
    }
}
