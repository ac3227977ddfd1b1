//! Channel paths: the place of a channel in the tree of topics.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// The longest path or pattern, in bytes.
pub const LONGEST_PATH: usize = 512;
/// The most levels of a path or pattern.
pub const MOST_LEVELS: usize = 16;
/// The longest level, in bytes.
pub const LONGEST_LEVEL: usize = 128;

/// The place of a channel, level by level: `/dates/business`.
///
/// A level is any text except `.` and `..`, without `/`, `*`, white space and control characters. Letter case counts:
/// `/Dates` is another channel than `/dates`. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelPath(Arc<str>);

/// The reason why a text is not a path or pattern of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {offset} of the channel {text:?}: {problem}")]
pub struct PathError {
    /// The text, cut to 80 characters.
    pub text: String,
    /// The place of the fault, in bytes from the start of the text.
    pub offset: usize,
    /// The fault at that place.
    pub problem: PathProblem,
}

/// The fault in the text of a path or pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathProblem {
    /// The path does not begin with `/`.
    #[error("expected '/': a channel is written from the root, such as /dates/business")]
    NotFromRoot,
    /// Nothing between two slashes, or at the end.
    #[error("expected a level between two slashes and after the last one")]
    EmptyLevel,
    /// A character that a level cannot contain.
    #[error("the character {0:?} is not allowed in a level")]
    IllegalCharacter(char),
    /// `.` or `..`.
    #[error("a level cannot be '.' or '..'")]
    DotLevel,
    /// `*` or `**` in a path, which names one channel.
    #[error("'*' stands for many channels, but one is needed here")]
    Wildcard,
    /// `*` as a part of a level.
    #[error("'*' stands for a whole level: write /dates/*, not /dates/b*")]
    PartialWildcard,
    /// `**` before the end.
    #[error("'**' stands for all the rest and must be the last level")]
    RestNotLast,
    /// The text is too long.
    #[error("longer than {LONGEST_PATH} bytes")]
    TooLong,
    /// The level is too long.
    #[error("a level longer than {LONGEST_LEVEL} bytes")]
    LevelTooLong,
    /// Too many levels.
    #[error("more than {MOST_LEVELS} levels")]
    TooManyLevels,
}

impl ChannelPath {
    /// Reads a path.
    ///
    /// # Errors
    /// [`PathError`] with the place and the reason.
    pub fn new(text: &str) -> Result<Self, PathError> {
        check(text, false)?;
        Ok(Self(text.into()))
    }

    /// The text, as it was read.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The levels, from the root on.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        levels(&self.0)
    }
}

/// The levels of a checked path or pattern.
pub(super) fn levels(text: &str) -> impl DoubleEndedIterator<Item = &str> + Clone {
    text.get(1..).unwrap_or_default().split('/')
}

/// Checks the text of a path, or of a pattern.
pub(super) fn check(text: &str, is_pattern: bool) -> Result<(), PathError> {
    let error = |offset, problem| PathError {
        text: text.chars().take(80).collect(),
        offset,
        problem,
    };
    if !text.starts_with('/') {
        return Err(error(0, PathProblem::NotFromRoot));
    }
    if text.len() > LONGEST_PATH {
        return Err(error(LONGEST_PATH, PathProblem::TooLong));
    }
    let mut offset = 1;
    for (index, level) in levels(text).enumerate() {
        if index == MOST_LEVELS {
            return Err(error(offset, PathProblem::TooManyLevels));
        }
        check_level(level, is_pattern).map_err(|(at, problem)| error(offset + at, problem))?;
        let end = offset + level.len();
        if level == "**" && end < text.len() {
            return Err(error(offset, PathProblem::RestNotLast));
        }
        offset = end + 1;
    }
    Ok(())
}

/// Checks one level. The error names the place and the problem.
pub(super) fn check_level(level: &str, is_pattern: bool) -> Result<(), (usize, PathProblem)> {
    match level {
        "" => return Err((0, PathProblem::EmptyLevel)),
        "." | ".." => return Err((0, PathProblem::DotLevel)),
        "*" | "**" if is_pattern => return Ok(()),
        _ => {}
    }
    if level.len() > LONGEST_LEVEL {
        return Err((0, PathProblem::LevelTooLong));
    }
    for (at, character) in level.char_indices() {
        match character {
            '*' if is_pattern => return Err((at, PathProblem::PartialWildcard)),
            '*' => return Err((at, PathProblem::Wildcard)),
            '/' => return Err((at, PathProblem::IllegalCharacter('/'))),
            _ if character.is_control() || character.is_whitespace() => {
                return Err((at, PathProblem::IllegalCharacter(character)));
            }
            _ => {}
        }
    }
    Ok(())
}

impl FromStr for ChannelPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        Self::new(text)
    }
}

impl fmt::Display for ChannelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Borrow<str> for ChannelPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}
