//! Figures in a page, between two marking lines, so that all of them come from one run.

use std::fs;
use std::path::Path;

use crate::papers::PapersError;

/// The line after which the figures end.
const END: &str = "<!-- end of figures -->";

/// Puts `figures` between the line `begin` and the next line that ends figures.
pub(crate) fn put(path: &Path, begin: &str, figures: &str) -> Result<(), PapersError> {
    let fault = |reason: String| PapersError::File {
        path: path.to_owned(),
        reason,
    };
    let text = fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    let text = replace(&text, begin, figures)
        .ok_or_else(|| fault(format!("it must hold the lines {begin} and {END}")))?;
    fs::write(path, text).map_err(|error| fault(error.to_string()))
}

fn replace(text: &str, begin: &str, figures: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n{figures}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_figures_of_that_mark_are_replaced() {
        let page = format!("a\n<!-- x -->\n1\n{END}\nb\n<!-- y -->\n2\n{END}\nc\n");
        let wanted = format!("a\n<!-- x -->\n1\n{END}\nb\n<!-- y -->\n3\n{END}\nc\n");
        assert_eq!(replace(&page, "<!-- y -->", "3"), Some(wanted));
        assert_eq!(replace(&page, "<!-- z -->", "3"), None);
    }
}
