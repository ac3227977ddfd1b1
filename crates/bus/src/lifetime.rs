//! A length of time as people type it: `90s`, `10m`, `1h`, `500ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How long something may last: a whole number with its unit, kept to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lifetime(pub Duration);

/// The argument is not a length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a length of time: write a whole number followed by ms, s, m, h or d, such as 90s"
)]
pub struct LifetimeError(String);

impl FromStr for Lifetime {
    type Err = LifetimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || LifetimeError(text.chars().take(40).collect());
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| error())?;
        let milliseconds = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(error()),
        };
        let milliseconds = number.checked_mul(milliseconds).ok_or_else(error)?;
        Ok(Self(Duration::from_millis(milliseconds)))
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        for (unit, name) in [
            (86_400_000, "d"),
            (3_600_000, "h"),
            (60_000, "m"),
            (1_000, "s"),
        ] {
            if milliseconds >= unit && milliseconds.is_multiple_of(unit) {
                return write!(f, "{}{name}", milliseconds / unit);
            }
        }
        write!(f, "{milliseconds}ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in ["1ms", "90s", "10m", "1h", "2d", "1500ms"] {
            assert_eq!(
                text.parse::<Lifetime>().map(|l| l.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn refuses_what_has_no_unit_or_no_number() {
        for text in [
            "",
            "10",
            "s",
            "1.5s",
            "-1s",
            "10 s",
            "10min",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(text.parse::<Lifetime>().is_err(), "{text}");
        }
    }
}
