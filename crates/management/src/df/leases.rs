use std::collections::{BTreeSet, HashMap};

/// The ends of entries, in milliseconds since 1970 UTC.
#[derive(Debug, Default)]
pub(super) struct Leases {
    by_name: HashMap<String, i64>,
    by_end: BTreeSet<(i64, String)>,
}

impl Leases {
    /// Sets the end of an entry's lease, or `None` for a lease without an end.
    pub(super) fn set(&mut self, name: &str, end: Option<i64>) {
        let former = match end {
            Some(end) => self.by_name.insert(name.to_owned(), end),
            None => self.by_name.remove(name),
        };
        if let Some(former) = former {
            self.by_end.remove(&(former, name.to_owned()));
        }
        if let Some(end) = end {
            self.by_end.insert((end, name.to_owned()));
        }
    }

    /// When the first lease ends.
    pub(super) fn first(&self) -> Option<i64> {
        self.by_end.first().map(|(end, _)| *end)
    }

    /// Takes the name of an entry whose lease has ended.
    pub(super) fn ended(&mut self, now: i64) -> Option<String> {
        if self.first()? > now {
            return None;
        }
        let (_, name) = self.by_end.pop_first()?;
        self.by_name.remove(&name);
        Some(name)
    }
}
