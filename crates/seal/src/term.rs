//! The time in which one Master leads, if a platform has several.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A term of a Master. The terms of a platform only rise. The store accepts only changes of the latest term, and a node
/// obeys the highest term that it has heard of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Term {
    /// When the platform was last restored from a backup, in Unix seconds; 0 if never.
    pub epoch: u64,
    /// The number of the term in this epoch: how many Masters have begun to lead, including this one.
    pub number: u64,
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.number)
    }
}

/// How a receiver that obeys the highest term judges a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The term is over: a higher one was heard of before. A Master that acts in it is not obeyed.
    Over {
        /// The highest term.
        highest: Term,
    },
    /// The term is still the highest one.
    Same,
    /// The term is the highest one from now on. It must be stored before anyone is obeyed in it.
    Higher,
}

impl Term {
    /// Judges this term; `highest` is the highest one that was heard of before.
    pub fn heard_after(self, highest: Option<Term>) -> Heard {
        match highest {
            Some(highest) if self < highest => Heard::Over { highest },
            Some(highest) if self == highest => Heard::Same,
            _ => Heard::Higher,
        }
    }
}

/// The text is not a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a term is written EPOCH.NUMBER")]
pub struct NotATerm;

impl FromStr for Term {
    type Err = NotATerm;

    fn from_str(text: &str) -> Result<Self, NotATerm> {
        let (epoch, number) = text.split_once('.').ok_or(NotATerm)?;
        let read = |part: &str| part.parse().map_err(|_| NotATerm);
        Ok(Self {
            epoch: read(epoch)?,
            number: read(number)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_as_they_are_written_and_epochs_come_first() {
        let term = |text: &str| text.parse::<Term>().unwrap();
        assert_eq!(term("1790000000.3").to_string(), "1790000000.3");
        assert!(term("0.9") < term("1.1") && term("0.9") < term("0.10"));
        for text in ["", "3", "1.2.3", "-1.2", "1.x"] {
            assert_eq!(text.parse::<Term>(), Err(NotATerm), "{text}");
        }
    }
}
