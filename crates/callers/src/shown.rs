//! Foreign texts, made harmless.

use serde_json::Value;

/// Whether a character is not seen, or changes the order of others. A model reads texts in characters that its user does not
/// see: these are all that Unicode lets a program ignore (`Default_Ignorable_Code_Point`), with separators and annotations.
fn is_unseen(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// A foreign text in a form that a model may see: one short line, without invisible characters and without characters
/// that change the order of others.
pub fn shown(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        let letter = match letter {
            _ if letter.is_control() => ' ',
            _ if is_unseen(letter) => continue,
            _ => letter,
        };
        if shown.len() + letter.len_utf8() > most {
            shown.push('…');
            break;
        }
        shown.push(letter);
    }
    shown
}

/// A foreign value, such as a schema, without unseen characters in its texts and names. Lines stay.
pub(crate) fn shown_value(value: Value) -> Value {
    let text = |mut text: String| {
        let is_line = |letter| matches!(letter, '\n' | '\t');
        text.retain(|it| is_line(it) || !(it.is_control() || is_unseen(it)));
        text
    };
    match value {
        Value::String(it) => Value::String(text(it)),
        Value::Array(items) => items.into_iter().map(shown_value).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members
                .map(|(name, it)| (text(name), shown_value(it)))
                .collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_characters_are_not_shown() {
        assert_eq!(shown("a\u{202e}b\u{1b}[31m\nc\u{200b}", 100), "ab [31m c");
        assert_eq!(shown(&"é".repeat(1 << 20), 10), "ééééé…");
        // A byte each: selectors of variants; and marks, fillers and hyphens that are not seen.
        let hidden = "\u{fe01}\u{e0100}\u{e01ef}\u{61c}\u{ad}\u{34f}\u{180e}\u{3164}\u{fff9}";
        assert_eq!(shown(&format!("a{hidden}b"), 100), "ab");
        let value = serde_json::json!({"a\u{200b}": [format!("b{hidden}\n\u{1b}c"), 7]});
        assert_eq!(shown_value(value), serde_json::json!({"a": ["b\nc", 7]}));
    }
}
