//! An agent's conversations that have ended but still take late messages.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The most conversations of an agent that have ended but still take late messages. The oldest goes first.
const LINGERING: usize = 256;

/// An agent's conversations that have ended but still take late messages. Each ends when its sender is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lingering(Arc<Mutex<VecDeque<oneshot::Sender<()>>>>);

impl Lingering {
    /// Enters a conversation. The returned receiver tells when the conversation must end.
    pub(crate) fn enter(&self) -> oneshot::Receiver<()> {
        let (stays, ends) = oneshot::channel();
        let mut all = self.0.lock();
        all.retain(|it| !it.is_closed());
        all.push_back(stays);
        if all.len() > LINGERING {
            all.pop_front();
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_conversations_linger() {
        let lingering = Lingering::default();
        let mut ends: Vec<_> = (0..=LINGERING).map(|_| lingering.enter()).collect();
        let is_over = |ends: &mut oneshot::Receiver<()>| {
            matches!(ends.try_recv(), Err(oneshot::error::TryRecvError::Closed))
        };
        assert!(is_over(&mut ends[0]) && !is_over(&mut ends[1]));
        // Conversations that ended by themselves take no room.
        ends.truncate(10);
        let _more: Vec<_> = (0..100).map(|_| lingering.enter()).collect();
        assert!(!is_over(&mut ends[1]));
    }
}
