//! Foreign texts, made harmless.

/// A foreign text in a form that a model may see: one short line, without invisible characters and without characters
/// that change the order of others.
pub fn shown(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        let letter = match letter {
            _ if letter.is_control() => ' ',
            '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}' => continue,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_characters_are_not_shown() {
        assert_eq!(shown("a\u{202e}b\u{1b}[31m\nc\u{200b}", 100), "ab [31m c");
        assert_eq!(shown(&"é".repeat(1 << 20), 10), "ééééé…");
    }
}
