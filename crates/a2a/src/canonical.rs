//! The canonical form of JSON (RFC 8785), which signatures cover. Free of I/O.

use serde_json::{Map, Number, Value};

/// The canonical form.
pub(crate) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, to: &mut String) {
    match value {
        Value::Number(number) => to.push_str(&written(number)),
        Value::Array(list) => {
            to.push('[');
            for (place, value) in list.iter().enumerate() {
                if place > 0 {
                    to.push(',');
                }
                write(value, to);
            }
            to.push(']');
        }
        Value::Object(map) => {
            // In the order of the units of UTF-16, which differs from that of bytes beyond the basic plane.
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            to.push('{');
            for (place, (name, value)) in members.into_iter().enumerate() {
                if place > 0 {
                    to.push(',');
                }
                to.push_str(&Value::from(name.as_str()).to_string());
                to.push(':');
                write(value, to);
            }
            to.push('}');
        }
        // The escapes of RFC 8785, section 3.2.2.2, are those of the library.
        other => to.push_str(&other.to_string()),
    }
}

/// A number as ECMAScript writes it (`Number::toString`): all are 64-bit floating-point numbers.
fn written(number: &Number) -> String {
    let value = number.as_f64().unwrap_or_default();
    if value == 0.0 {
        return "0".to_owned();
    }
    // The shortest digits that mean this number, and the place of the point among them.
    let shortest = Number::from_f64(value.abs()).map_or_else(String::new, |it| it.to_string());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0');
    let length = |text: &str| i32::try_from(text.len()).unwrap_or(i32::MAX);
    let zeros_before = length(&all) - length(significant);
    let point = length(whole) - zeros_before + exponent.parse::<i32>().unwrap_or_default();
    let digits = significant.trim_end_matches('0');
    let count = length(digits);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or_default());
    let sign = if value < 0.0 { "-" } else { "" };
    if count <= point && point <= 21 {
        return format!("{sign}{digits}{}", zeros(point - count));
    }
    if 0 < point && point <= 21 {
        let (whole, rest) = digits.split_at(usize::try_from(point).unwrap_or_default());
        return format!("{sign}{whole}.{rest}");
    }
    if -6 < point && point <= 0 {
        return format!("{sign}0.{}{digits}", zeros(-point));
    }
    let (first, rest) = digits.split_at(1);
    let dot = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{dot}{rest}e{:+}", point - 1)
}

/// A value without empty texts, lists and objects, which some signers leave out before they sign. None: nothing is left of it.
pub(crate) fn without_empty(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) if text.is_empty() => None,
        Value::Array(list) => {
            let rest: Vec<Value> = list.iter().filter_map(without_empty).collect();
            (!rest.is_empty()).then(|| rest.into())
        }
        Value::Object(map) => {
            let rest = map.iter();
            let rest = rest.filter_map(|(name, it)| Some((name.clone(), without_empty(it)?)));
            let rest: Map<String, Value> = rest.collect();
            (!rest.is_empty()).then(|| rest.into())
        }
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// RFC 8785, section 3.2.2 and appendix B.
    #[test]
    fn the_standards_examples_are_written_so() {
        let example = r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
            "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#;
        let value: Value = serde_json::from_str(example).unwrap();
        assert_eq!(
            canonical(&value),
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
        );
        for (bits, text) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            let number = Number::from_f64(f64::from_bits(bits)).unwrap();
            assert_eq!(written(&number), text);
        }
    }

    /// RFC 8785, section 3.2.3.
    #[test]
    fn members_are_in_the_order_of_the_standard() {
        let value = json!({
            "\u{20ac}": "Euro Sign", "\r": "Carriage Return", "\u{fb33}": "Hebrew Letter Dalet With Dagesh", "1": "One",
            "\u{1f600}": "Emoji: Grinning Face", "\u{80}": "Control", "ö": "Latin Small Letter O With Diaeresis",
        });
        let text = canonical(&value);
        let places = [
            "\\r",
            "1",
            "\u{80}",
            "ö",
            "\u{20ac}",
            "\u{1f600}",
            "\u{fb33}",
        ];
        let places = places.map(|name| text.find(&format!("\"{name}\":")).unwrap());
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn what_is_empty_is_left_out() {
        let value =
            json!({"a": "", "b": [[], {}], "c": {"d": {"e": ""}}, "f": [false, 0, null], "g": "h"});
        let rest = json!({"f": [false, 0, null], "g": "h"});
        assert_eq!(without_empty(&value), Some(rest));
        assert_eq!(without_empty(&json!({"a": {"b": []}})), None);
    }

    proptest! {
        #[test]
        fn a_canonical_form_means_the_same(number in any::<f64>().prop_filter("a number", |it| it.is_finite()), text in ".{0,20}") {
            let value = json!({&text: [number, &text]});
            let read: Value = serde_json::from_str(&canonical(&value)).unwrap();
            prop_assert_eq!(&read[&text][1], &text);
            prop_assert_eq!(read[&text][0].as_f64(), Some(number));
            prop_assert_eq!(canonical(&read), canonical(&value));
        }
    }
}
