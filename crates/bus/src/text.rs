//! Text from outside, for logs and terminals.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The longest explanation of a refusal: bytes on its way to another process, characters in the log. Much of it comes from
/// the refused party.
pub const LONGEST_EXPLANATION: usize = 1000;

/// Whether a character may control a terminal, change the order of the text around it, or be invisible in it. Two
/// joiners without width are allowed, because some scripts need them.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Marks, embeddings, overrides and isolates of the bidirectional algorithm (Unicode TR 9).
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separators.
            | '\u{2028}' | '\u{2029}'
            // Soft hyphen, and characters without width.
            | '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
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

/// A JSON text with the same value, whose strings a terminal only shows: their control and bidirectional characters
/// are JSON's own escapes. Line ends between the values stay.
pub fn printable_json(json: String) -> String {
    let is_escaped = |character: char| is_unsafe(character) && character != '\n';
    if !json.contains(is_escaped) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_escaped(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(character);
        }
    }
    safe
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
    use proptest::prelude::*;

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

    proptest! {
        /// For any text of others, a terminal gets one line in one direction, and a second pass changes nothing.
        #[test]
        fn nothing_unsafe_is_left(text in any::<String>(), unsafe_ones in "[\u{0}-\u{1f}\u{7f}-\u{9f}\u{200b}\u{200e}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{e0041}]*") {
            let hostile = format!("{unsafe_ones}{text}{unsafe_ones}");
            let shown = printable(&hostile);
            prop_assert!(!shown.contains(is_unsafe));
            prop_assert_eq!(printable(&shown), shown.clone());
            prop_assert!(!excerpt(&hostile, 5).contains(is_unsafe));
            let json = printable_json(serde_json::to_string_pretty(&[&hostile]).unwrap());
            prop_assert!(!json.contains(|it| is_unsafe(it) && it != '\n'));
            prop_assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), vec![hostile]);
        }
    }

    #[test]
    fn an_excerpt_is_bounded() {
        assert_eq!(excerpt("äöü", 3), "äöü");
        assert_eq!(excerpt("äöüß\u{7}", 4), "äöüß…");
    }
}
