//! The names under which hosts see agents' tools.

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;

/// Longest name of a tool that the language models' interfaces take.
const LONGEST: usize = 64;
/// The number of hexadecimal digits that distinguish names which look alike.
const DIGITS: usize = 16;
const SEPARATOR: &str = "__";

/// The name of a tool: `AGENT__TOOL` if this fits and can be read in one way only, otherwise its beginning and a hash.
///
/// Two tools never get one name, unless SHA-256 is broken to 64 bits: the hashed form ends in `__` and 16 digits, and the
/// plain form never does.
pub(crate) fn tool_name(agent: &str, tool: &str) -> String {
    let name = format!("{agent}{SEPARATOR}{tool}");
    let is_plain = name.len() <= LONGEST
        && name.bytes().all(is_allowed)
        && !agent.is_empty()
        && !tool.is_empty()
        && !agent.contains(SEPARATOR)
        && !tool.contains(SEPARATOR)
        && !agent.ends_with('_')
        && !tool.starts_with('_')
        && !is_hash(tool);
    if is_plain {
        return name;
    }
    let whole = format!("{agent}\0{tool}");
    let hash = digest(&SHA256, whole.as_bytes());
    let hash = HEXLOWER.encode(&hash.as_ref()[..DIGITS / 2]);
    let room = LONGEST - SEPARATOR.len() - DIGITS;
    let mut readable: String = name
        .chars()
        .take(room)
        .map(|letter| match u8::try_from(letter) {
            Ok(byte) if is_allowed(byte) => letter,
            _ => '_',
        })
        .collect();
    readable.push_str(SEPARATOR);
    readable.push_str(&hash);
    readable
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn is_hash(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn readable_names_stay_readable() {
        assert_eq!(tool_name("model", "complete"), "model__complete");
        assert_eq!(tool_name("seller-1", "sell_tea"), "seller-1__sell_tea");
    }

    #[test]
    fn names_that_look_alike_differ() {
        let alike = [
            ("a", "b__c"),
            ("a__b", "c"),
            ("a_", "b"),
            ("a", "_b"),
            ("a@b", "c"),
            ("a b", "c"),
        ];
        let names: std::collections::BTreeSet<String> =
            alike.iter().map(|(a, t)| tool_name(a, t)).collect();
        assert_eq!(names.len(), alike.len());
        // No tool takes the hashed name of another.
        let hashed = tool_name(&"a".repeat(100), "b");
        let (agent, tool) = hashed.split_once(SEPARATOR).unwrap();
        assert_ne!(tool_name(agent, tool), hashed);
    }

    proptest! {
        #[test]
        fn every_name_fits(agent in ".{0,200}", tool in ".{0,200}") {
            let name = tool_name(&agent, &tool);
            prop_assert!(name.len() <= LONGEST);
            prop_assert!(name.bytes().all(is_allowed));
        }

        #[test]
        fn different_tools_have_different_names(
            one in ("[a_@-]{1,6}", "[a_@-]{1,6}"),
            other in ("[a_@-]{1,6}", "[a_@-]{1,6}"),
        ) {
            prop_assume!(one != other);
            prop_assert_ne!(tool_name(&one.0, &one.1), tool_name(&other.0, &other.1));
        }
    }
}
