//! The one rule by which a writer's allowance grows again as its reader takes messages.

/// A writer's allowance in all, and the progress of its reader.
///
/// The limit only rises. A new limit is announced once the reader has taken half a window since the last announcement.
/// Announcements are thus frequent enough that a writer never stalls, and rare enough to cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowCredit {
    taken: u64,
    announced: u64,
}

impl WindowCredit {
    /// An allowance that begins with `limit` bytes.
    pub const fn new(limit: u64) -> Self {
        Self {
            taken: 0,
            announced: limit,
        }
    }

    /// The last limit that was announced.
    pub const fn announced(&self) -> u64 {
        self.announced
    }

    /// The limit as it stands for a window of `size` bytes, if it exceeds the announced limit. It then counts as
    /// announced.
    pub fn announce(&mut self, size: u64) -> Option<u64> {
        let limit = self.taken.saturating_add(size);
        (limit > self.announced).then(|| {
            self.announced = limit;
            limit
        })
    }

    /// The reader has taken `cost` bytes. Returns the limit to announce, if an announcement is due: the bytes taken so
    /// far plus a window of `size` bytes. `size` may differ from call to call.
    pub fn take(&mut self, cost: u64, size: u64) -> Option<u64> {
        self.taken = self.taken.saturating_add(cost);
        let limit = self.taken.saturating_add(size);
        if limit.saturating_sub(self.announced) < size / 2 {
            return None;
        }
        self.announced = limit;
        Some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_window_at_a_time_is_given_back() {
        let mut credit = WindowCredit::new(100);
        assert_eq!(credit.take(49, 100), None);
        assert_eq!(credit.take(1, 100), Some(150));
        assert_eq!(credit.announced(), 150);
        // A smaller window never takes back an announced limit.
        assert_eq!(credit.take(60, 20), None);
        assert_eq!(credit.take(40, 20), Some(170));
    }
}
