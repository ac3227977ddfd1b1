//! Channel patterns, and an index that finds the subscriptions that match a channel.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::path::{self, ChannelPath, PathError};

/// A set of channels, written as a path. `*` stands for any one level. A last `**` stands for any number of further
/// levels, including none. `/dates/*` matches `/dates/business`; `/dates/**` matches `/dates`, `/dates/business` and
/// all channels below.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelPattern(Arc<str>);

impl ChannelPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PathError`] with the place and the reason.
    pub fn new(text: &str) -> Result<Self, PathError> {
        path::check(text, true)?;
        Ok(Self(text.into()))
    }

    /// The text, as it was read.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The levels, from the root on.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        path::levels(&self.0)
    }

    /// The channel, if the pattern means exactly one.
    pub fn as_path(&self) -> Option<ChannelPath> {
        ChannelPath::new(&self.0).ok()
    }

    /// Whether the pattern means this channel.
    pub fn matches(&self, channel: &ChannelPath) -> bool {
        let mut levels = channel.levels();
        for wanted in self.levels() {
            match (wanted, levels.next()) {
                ("**", _) => return true,
                (_, None) => return false,
                ("*", Some(_)) => {}
                (wanted, Some(level)) if wanted != level => return false,
                _ => {}
            }
        }
        levels.next().is_none()
    }

    /// Whether this pattern also matches each channel that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.levels(), other.levels());
        loop {
            match (ours.next(), theirs.next()) {
                (Some("**"), _) | (None, None) => return true,
                (_, Some("**")) | (Some(_), None) | (None, Some(_)) => return false,
                (Some("*"), _) => {}
                (Some(one), Some(two)) if one != two => return false,
                _ => {}
            }
        }
    }

    /// Whether both patterns match some common channel.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.levels(), other.levels());
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some("**"), _) | (_, Some("**")) => return true,
                (Some(_), None) | (None, Some(_)) => return false,
                (Some("*"), _) | (_, Some("*")) => {}
                (Some(one), Some(two)) if one != two => return false,
                _ => {}
            }
        }
    }
}

impl From<&ChannelPath> for ChannelPattern {
    fn from(path: &ChannelPath) -> Self {
        Self(path.as_str().into())
    }
}

impl FromStr for ChannelPattern {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::new(text)
    }
}

impl fmt::Display for ChannelPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Values by pattern, such as subscriptions. The index finds the values that match a channel without looking at the
/// others.
///
/// The patterns form a tree by their levels. At each level a look-up follows the branch of that name and the branch of
/// `*`. A look-up allocates nothing.
#[derive(Clone, Debug)]
pub struct PatternIndex<T> {
    root: Branch<T>,
    count: usize,
}

#[derive(Clone, Debug)]
struct Branch<T> {
    named: HashMap<Box<str>, Branch<T>>,
    any: Option<Box<Branch<T>>>,
    /// Patterns that end here.
    here: Vec<T>,
    /// Patterns that end here with `**`.
    rest: Vec<T>,
}

impl<T> Default for Branch<T> {
    fn default() -> Self {
        Self {
            named: HashMap::new(),
            any: None,
            here: Vec::new(),
            rest: Vec::new(),
        }
    }
}

impl<T> Default for PatternIndex<T> {
    fn default() -> Self {
        Self {
            root: Branch::default(),
            count: 0,
        }
    }
}

impl<T> PatternIndex<T> {
    /// An empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a value under a pattern. The same pattern may have many values.
    pub fn insert(&mut self, pattern: &ChannelPattern, value: T) {
        let mut branch = &mut self.root;
        let mut is_rest = false;
        for level in pattern.levels() {
            branch = match level {
                "**" => {
                    is_rest = true;
                    break;
                }
                "*" => branch.any.get_or_insert_default(),
                level => branch.named.entry(level.into()).or_default(),
            };
        }
        if is_rest {
            branch.rest.push(value);
        } else {
            branch.here.push(value);
        }
        self.count += 1;
    }

    /// Removes the values under exactly this pattern for which `is_it` holds. Returns their number.
    pub fn remove(&mut self, pattern: &ChannelPattern, mut is_it: impl FnMut(&T) -> bool) -> usize {
        let removed = self.root.remove(pattern.levels(), &mut is_it);
        self.count -= removed;
        removed
    }

    /// Calls `found` with each value whose pattern matches the channel.
    pub fn for_each_match<'a>(&'a self, channel: &ChannelPath, mut found: impl FnMut(&'a T)) {
        self.root.matches(channel.levels(), &mut found);
    }
}

impl<T> Branch<T> {
    fn is_empty(&self) -> bool {
        self.named.is_empty() && self.any.is_none() && self.here.is_empty() && self.rest.is_empty()
    }

    // The recursion is as deep as a pattern has levels, which are few.
    fn matches<'a, 'p>(
        &'a self,
        mut levels: impl Iterator<Item = &'p str> + Clone,
        found: &mut impl FnMut(&'a T),
    ) {
        self.rest.iter().for_each(&mut *found);
        let Some(level) = levels.next() else {
            return self.here.iter().for_each(found);
        };
        if let Some(branch) = self.named.get(level) {
            branch.matches(levels.clone(), found);
        }
        if let Some(branch) = &self.any {
            branch.matches(levels, found);
        }
    }

    fn remove<'p>(
        &mut self,
        mut levels: impl Iterator<Item = &'p str>,
        is_it: &mut impl FnMut(&T) -> bool,
    ) -> usize {
        let values = match levels.next() {
            None => &mut self.here,
            Some("**") => &mut self.rest,
            Some("*") => {
                let Some(branch) = &mut self.any else {
                    return 0;
                };
                let removed = branch.remove(levels, is_it);
                if branch.is_empty() {
                    self.any = None;
                }
                return removed;
            }
            Some(level) => {
                let Some(branch) = self.named.get_mut(level) else {
                    return 0;
                };
                let removed = branch.remove(levels, is_it);
                if branch.is_empty() {
                    self.named.remove(level);
                }
                return removed;
            }
        };
        let before = values.len();
        values.retain(|value| !is_it(value));
        before - values.len()
    }
}
