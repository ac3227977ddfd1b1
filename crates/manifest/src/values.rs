//! The values of keys: texts, numbers, times and sizes. A value of the wrong type is a mistake.

use std::ops::Range;
use std::str::FromStr;

use toml::de::{DeTable, DeValue};

use super::problem::{kind, suggestion};
use super::read::{Reader, Value};

impl<'t> Reader<'t> {
    pub(super) fn table<'v>(&mut self, value: &'v Value<'t>, key: &str) -> Option<&'v DeTable<'t>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            other => {
                self.wrong_type(value.span(), key, other, "a table");
                None
            }
        }
    }

    pub(super) fn wrong_type(
        &mut self,
        span: Range<usize>,
        key: &str,
        found: &DeValue<'_>,
        wanted: &str,
    ) {
        let message = format!("`{key}` is {}, not {wanted}", kind(found));
        self.problem(span, message, Some(format!("write {wanted}")));
    }

    pub(super) fn text_of(
        &mut self,
        table: &DeTable<'t>,
        key: &str,
    ) -> Option<(String, Range<usize>)> {
        let value = table.get(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some((text.to_string(), value.span())),
            other => {
                self.wrong_type(value.span(), key, other, "a text in quotes");
                None
            }
        }
    }

    pub(super) fn texts(&mut self, table: &DeTable<'t>, key: &str) -> Vec<String> {
        let Some(value) = table.get(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(value.span(), key, value.get_ref(), "a list of texts");
            return Vec::new();
        };
        let mut texts = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(text) => texts.push(text.to_string()),
                other => self.wrong_type(item.span(), key, other, "a list of texts"),
            }
        }
        texts
    }

    pub(super) fn parsed<T: FromStr>(
        &mut self,
        table: &DeTable<'t>,
        key: &str,
        wanted: &str,
    ) -> Option<T> {
        let (text, at) = self.text_of(table, key)?;
        let value = text.parse().ok();
        if value.is_none() {
            let help = Some(format!("write {wanted}"));
            self.problem(at, format!("`{key}` cannot be \"{text}\""), help);
        }
        value
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        table: &DeTable<'t>,
        key: &str,
        of: &[(&str, T)],
    ) -> Option<T> {
        let (text, at) = self.text_of(table, key)?;
        if let Some((_, value)) = of.iter().find(|(name, _)| *name == text) {
            return Some(*value);
        }
        let names: Vec<&str> = of.iter().map(|(name, _)| *name).collect();
        let help = suggestion(&text, &names)
            .unwrap_or_else(|| format!("write one of {}", names.join(", ")));
        self.problem(at, format!("`{key}` cannot be \"{text}\""), Some(help));
        None
    }

    pub(super) fn integer(
        &mut self,
        table: &DeTable<'t>,
        key: &str,
        range: std::ops::RangeInclusive<i64>,
    ) -> Option<i64> {
        let value = table.get(key)?;
        let DeValue::Integer(digits) = value.get_ref() else {
            self.wrong_type(value.span(), key, value.get_ref(), "a whole number");
            return None;
        };
        match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) if range.contains(&number) => Some(number),
            _ => {
                let help = format!("write a number from {} to {}", range.start(), range.end());
                self.problem(
                    value.span(),
                    format!("`{key}` cannot be {digits}"),
                    Some(help),
                );
                None
            }
        }
    }

    /// A number of processors, in thousandths. The kernel keeps no less than a hundredth.
    pub(super) fn thousandths(&mut self, table: &DeTable<'t>, key: &str) -> Option<u64> {
        const WANTED: &str = "a number of processors such as 0.5 or 2, of 0.01 to 10000";
        let value = table.get(key)?;
        let number: Option<f64> = match value.get_ref() {
            DeValue::Integer(digits) => digits.to_string().parse().ok(),
            DeValue::Float(digits) => digits.to_string().parse().ok(),
            other => {
                self.wrong_type(value.span(), key, other, WANTED);
                return None;
            }
        };
        let number = number.filter(|number| (0.01..=10_000.0).contains(number));
        if number.is_none() {
            let message = format!("`{key}` cannot be {}", &self.text[value.span()]);
            self.problem(value.span(), message, Some(format!("write {WANTED}")));
        }
        number.map(|number| (number * 1000.0).round() as u64)
    }

    /// Seconds, written as a number or a text such as `30s`, `10m`, `1h`, `7d`.
    pub(super) fn duration(&mut self, table: &DeTable<'t>, key: &str) -> Option<u64> {
        const WANTED: &str = "a time such as \"30s\", \"10m\", \"1h\" or \"7d\", of 2 s to 1 year";
        let units = &[("s", 1), ("m", 60), ("h", 3600), ("d", 86400)];
        self.quantity(table, key, units, 2..=31_536_000, WANTED)
    }

    /// Bytes, written as a number or a text such as `64 KiB`, `16 MiB`.
    pub(super) fn size(&mut self, table: &DeTable<'t>, key: &str) -> Option<u64> {
        const WANTED: &str = "a size such as 65536, \"64 KiB\" or \"16 MiB\", of 1 KiB to 1 GiB";
        let units = &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
        self.quantity(table, key, units, 1024..=1 << 30, WANTED)
    }

    /// An amount of disk space in bytes.
    pub(super) fn room(&mut self, table: &DeTable<'t>, key: &str) -> Option<u64> {
        const WANTED: &str = "a size such as \"512 MiB\" or \"64 GiB\", of 64 KiB to 1024 TiB";
        let units = &[
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
        ];
        self.quantity(table, key, units, 65_536..=1 << 50, WANTED)
    }

    pub(super) fn truth(&mut self, table: &DeTable<'t>, key: &str) -> Option<bool> {
        let value = table.get(key)?;
        match value.get_ref() {
            DeValue::Boolean(truth) => Some(*truth),
            other => {
                self.wrong_type(value.span(), key, other, "true or false");
                None
            }
        }
    }

    fn quantity(
        &mut self,
        table: &DeTable<'t>,
        key: &str,
        units: &[(&str, u64)],
        range: std::ops::RangeInclusive<u64>,
        wanted: &str,
    ) -> Option<u64> {
        let value = table.get(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix()).ok(),
            DeValue::String(text) => units.iter().find_map(|(unit, factor)| {
                let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
                number.checked_mul(*factor)
            }),
            other => {
                self.wrong_type(value.span(), key, other, wanted);
                return None;
            }
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let message = format!("`{key}` cannot be {}", &self.text[value.span()]);
            self.problem(value.span(), message, Some(format!("write {wanted}")));
        }
        number
    }
}

impl<'t> Reader<'t> {
    pub(super) fn missing(
        &mut self,
        table: &DeTable<'t>,
        key: &str,
        span: Range<usize>,
        message: &str,
        example: &str,
    ) {
        // A value of the wrong type has been reported already.
        if table.get(key).is_none() {
            self.problem(span, message, Some(format!("add {example}")));
        }
    }

    pub(super) fn unknown_keys(&mut self, table: &DeTable<'t>, known: &[&str], place: &str) {
        for key in table
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
        {
            let name = key.get_ref();
            let help = suggestion(name, known)
                .unwrap_or_else(|| format!("known are {}", known.join(", ")));
            self.problem(
                key.span(),
                format!("unknown key `{name}` {place}"),
                Some(help),
            );
        }
    }
}
