//! Text from outside, for logs and terminals.

use std::borrow::Cow;

/// Whether a character may control a terminal or change the order of the text around it.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Marks, embeddings, overrides and isolates of the bidirectional algorithm (Unicode TR 9).
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separators.
            | '\u{2028}' | '\u{2029}')
}

/// `text` with every control and bidirectional character as an escape, such as `\u{1b}`. Characters for which `keeps`
/// holds are kept.
pub fn printable_but(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |character: char| is_unsafe(character) && !keeps(character);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

/// `text` with every control and bidirectional character as an escape. The result is one line that a terminal only
/// shows.
pub fn printable(text: &str) -> Cow<'_, str> {
    printable_but(text, |_| false)
}

/// The beginning of `text`, [printable](printable()), with at most `most` characters, and an ellipsis if there were
/// more.
pub fn excerpt(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", printable(&text[..end])),
        None => printable(text).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(printable("Grüße, 世界"), "Grüße, 世界");
        assert_eq!(
            printable("\u{1b}[2J\r\n\u{9b}K"),
            "\\u{1b}[2J\\r\\n\\u{9b}K"
        );
        assert_eq!(printable("a\u{202e}b\u{2066}"), "a\\u{202e}b\\u{2066}");
        assert_eq!(printable_but("a\nb\u{7}", |it| it == '\n'), "a\nb\\u{7}");
    }

    #[test]
    fn an_excerpt_is_bounded() {
        assert_eq!(excerpt("äöü", 3), "äöü");
        assert_eq!(excerpt("äöüß\u{7}", 4), "äöüß…");
    }
}
