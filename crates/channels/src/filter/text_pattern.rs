//! The regular expressions of `matches`: their room in a filter, and the cost of a search.

use regex::{Error, Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

use super::{DEEPEST_FILTER, FilterProblem, LARGEST_PATTERN};

/// The least room of a pattern, in bytes.
const SMALLEST_PATTERN: usize = 1 << 10;
/// A pattern of fewer states costs as much as one with so many.
const FEWEST_STATES: usize = 16;

/// A compiled regular expression.
#[derive(Debug)]
pub(super) struct TextPattern {
    regex: Regex,
    states: usize,
}

impl TextPattern {
    /// Compiles a regular expression. `room`: the bytes that the patterns of the filter may still take; this one is
    /// subtracted.
    pub(super) fn new(source: &str, room: &mut usize) -> Result<Self, FilterProblem> {
        // A compiled expression does not tell its size. So it is compiled with little room first, then with twice as
        // much, and so on.
        let mut size = SMALLEST_PATTERN.min(*room);
        let regex = loop {
            let built = RegexBuilder::new(source)
                .size_limit(size)
                .dfa_size_limit(LARGEST_PATTERN)
                .nest_limit(DEEPEST_FILTER as u32)
                .build();
            match built {
                Ok(regex) => break regex,
                Err(Error::CompiledTooBig(_)) if size < *room => size = (2 * size).min(*room),
                Err(Error::CompiledTooBig(_)) => return Err(FilterProblem::LargePatterns),
                Err(error) => return Err(FilterProblem::Pattern(error.to_string())),
            }
        };
        let syntax = ParserBuilder::new()
            .nest_limit(DEEPEST_FILTER as u32)
            .build()
            .parse(source)
            .map_err(|error| FilterProblem::Pattern(error.to_string()))?;
        *room -= size;
        Ok(Self {
            regex,
            states: states(&syntax),
        })
    }

    /// The cost of a search. At worst, each state of the pattern reads each byte of the text.
    pub(super) fn cost(&self, text: &str) -> usize {
        text.len().saturating_mul(self.states.max(FEWEST_STATES)) / 64
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// The number of states that a search can be in at one byte. The recursion is as deep as the pattern, whose depth is limited.
fn states(syntax: &Hir) -> usize {
    match syntax.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        // A character has up to four bytes, each with its own state.
        HirKind::Class(class) => class.maximum_len().unwrap_or(1),
        HirKind::Capture(capture) => states(&capture.sub).saturating_add(2),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            let once = states(&repetition.sub).saturating_add(1);
            once.saturating_mul(times as usize)
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(states).fold(0, usize::saturating_add)
        }
    }
}
