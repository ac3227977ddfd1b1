//! A limit on the log lines that strangers can cause.

use std::time::{Duration, Instant};

/// Lines in one span of time.
const LINES: u32 = 20;
/// The span.
const SPAN: Duration = Duration::from_secs(10);

/// Counts lines of one kind, and decides which are still written.
#[derive(Debug, Default)]
pub(super) struct Lines {
    since: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// Whether another line is written now. If so, returns how many were left out before it.
    pub(super) fn next(&mut self, now: Instant) -> Option<u64> {
        let is_over = self
            .since
            .is_none_or(|since| now.duration_since(since) >= SPAN);
        if is_over {
            self.since = Some(now);
            self.written = 0;
        }
        if self.written >= LINES {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_instead_of_written() {
        let mut lines = Lines::default();
        let start = Instant::now();
        let written = (0..1000).filter(|_| lines.next(start).is_some());
        assert_eq!(written.count(), LINES as usize);
        assert_eq!(lines.next(start + SPAN), Some(1000 - u64::from(LINES)));
        assert_eq!(lines.next(start + SPAN), Some(0));
    }
}
