//! Names in the order of their use.

use std::collections::{BTreeMap, HashMap};

/// A limited set of names, which forgets the least recently used one.
#[derive(Debug)]
pub struct RecentNames {
    uses: HashMap<String, u64>,
    in_order: BTreeMap<u64, String>,
    latest: u64,
    most: usize,
}

impl RecentNames {
    /// An empty set for at most this many names.
    pub fn new(most: usize) -> Self {
        Self {
            uses: HashMap::new(),
            in_order: BTreeMap::new(),
            latest: 0,
            most,
        }
    }

    /// Notes the use of a name. Returns the name that is forgotten to make room.
    pub fn note(&mut self, name: &str) -> Option<String> {
        self.latest += 1;
        if let Some(used) = self.uses.get_mut(name) {
            if let Some(name) = self.in_order.remove(used) {
                self.in_order.insert(self.latest, name);
            }
            *used = self.latest;
            return None;
        }
        self.uses.insert(name.to_owned(), self.latest);
        self.in_order.insert(self.latest, name.to_owned());
        if self.uses.len() <= self.most {
            return None;
        }
        let (_, forgotten) = self.in_order.pop_first()?;
        self.uses.remove(&forgotten);
        Some(forgotten)
    }

    /// Removes a name. Returns whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(used) = self.uses.remove(name) else {
            return false;
        };
        self.in_order.remove(&used);
        true
    }

    /// Whether the name is there.
    pub fn contains(&self, name: &str) -> bool {
        self.uses.contains_key(name)
    }

    /// The names, least recently used first.
    pub fn iter(&self) -> impl Iterator<Item = &String> {
        self.in_order.values()
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.uses.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_name_is_forgotten() {
        let mut names = RecentNames::new(2);
        assert!(names.is_empty());
        assert_eq!(names.note("a"), None);
        assert_eq!(names.note("b"), None);
        assert_eq!(names.note("a"), None);
        assert_eq!(names.note("c"), Some("b".to_owned()));
        assert!(names.contains("a") && !names.contains("b"));
        assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "c"]);
        assert!(names.remove("a") && !names.remove("a"));
        assert_eq!(names.note("d"), None);
        assert_eq!((names.len(), names.in_order.len()), (2, 2));
    }
}
