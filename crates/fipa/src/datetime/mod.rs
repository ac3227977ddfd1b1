//! The FIPA date-time token: `20260304T050607089Z`, or relative as in `+00000000T000030000`.
//!
//! One format serves ACL (`reply-by`), envelopes (`date`) and SL (FIPA00070, FIPA00008): four
//! digits of year, two each of month and day, a `T`, two each of hour, minute and second, three of
//! milliseconds, then an optional letter, the type designator. `Z` is UTC. A leading `+` or `-`
//! makes the fields amounts of time counted from the moment of reception.

mod calendar;
#[cfg(feature = "std")]
mod clock;

use alloc::vec::Vec;
use calendar::{civil_from_days, days_from_civil, days_of_month};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

const MS_SECOND: i64 = 1_000;
const MS_MINUTE: i64 = 60 * MS_SECOND;
const MS_HOUR: i64 = 60 * MS_MINUTE;
const MS_DAY: i64 = 24 * MS_HOUR;
/// A relative year or month has no calendar. It counts as 365 or 30 days, as in JADE.
const DAYS_RELATIVE_YEAR: i64 = 365;
const DAYS_RELATIVE_MONTH: i64 = 30;

/// The start from which the fields of a [`DateTime`] are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A point of the calendar: no sign.
    Calendar,
    /// An amount of time after reception: `+`.
    After,
    /// An amount of time before reception: `-`.
    Before,
}

/// A FIPA date-time token, kept field by field so that writing returns the token that was read.
///
/// Two values are equal when their tokens are; compare moments by [`DateTime::unix_ms`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DateTime {
    origin: Origin,
    year: u16,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    millisecond: u16,
    designator: Option<u8>,
}

/// Why a text is not a date-time, or has no place on the time line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DateTimeError {
    /// The text has not the form of the token.
    #[error(
        "byte {offset} of the date-time: expected {expected}; the form is [+|-]YYYYMMDDTHHMMSSmmm with an optional letter"
    )]
    Form {
        /// The place, counted in bytes from the start of the token.
        offset: usize,
        /// The expected bytes.
        expected: &'static str,
    },
    /// A field of a calendar date is outside its range, such as month 13 or 30 February.
    #[error("the date-time has a {field} that the calendar does not have")]
    NoSuchDay {
        /// The offending field.
        field: &'static str,
    },
    /// The moment lies outside the years 0 to 9999. The token can express no other years.
    #[error("the moment lies outside the years 0 to 9999, which a FIPA date-time cannot express")]
    OutOfRange,
    /// The type designator is a letter whose time zone is unknown. Only `Z` (UTC) is known.
    #[error("the type designator '{0}' names no known time zone; send the time in UTC, with 'Z'")]
    UnknownDesignator(char),
}

impl DateTime {
    /// The longest token in bytes: sign, 17 digits, `T` and designator.
    pub const MAX_LENGTH: usize = 20;

    /// Reads a token from its ASCII bytes. All of the bytes must belong to the token.
    pub fn parse(text: &[u8]) -> Result<Self, DateTimeError> {
        let (origin, start) = match text.first() {
            Some(b'+') => (Origin::After, 1),
            Some(b'-') => (Origin::Before, 1),
            _ => (Origin::Calendar, 0),
        };
        let mut digits = [0u8; 17];
        for (index, digit) in digits.iter_mut().enumerate() {
            // The `T` stands between the eighth digit and the ninth.
            let offset = start + index + usize::from(index >= 8);
            if index == 8 && !matches!(text.get(offset - 1), Some(b'T' | b't')) {
                return Err(DateTimeError::Form {
                    offset: offset - 1,
                    expected: "'T'",
                });
            }
            match text.get(offset) {
                Some(byte) if byte.is_ascii_digit() => *digit = *byte,
                _ => {
                    return Err(DateTimeError::Form {
                        offset,
                        expected: "a digit",
                    });
                }
            }
        }
        let end = start + 18;
        let designator = match text.get(end) {
            None => None,
            Some(byte) if byte.is_ascii_alphabetic() => Some(*byte),
            Some(_) => {
                return Err(DateTimeError::Form {
                    offset: end,
                    expected: "a letter or the end",
                });
            }
        };
        if text.len() > end + 1 {
            return Err(DateTimeError::Form {
                offset: end + 1,
                expected: "the end",
            });
        }
        Self::from_digits(origin, &digits, designator)
    }

    /// Builds a date-time from its 17 ASCII digits, as the bit-efficient encoding carries them.
    pub fn from_digits(
        origin: Origin,
        digits: &[u8; 17],
        designator: Option<u8>,
    ) -> Result<Self, DateTimeError> {
        if let Some(offset) = digits.iter().position(|byte| !byte.is_ascii_digit()) {
            return Err(DateTimeError::Form {
                offset,
                expected: "a digit",
            });
        }
        if designator.is_some_and(|letter| !letter.is_ascii_alphabetic()) {
            return Err(DateTimeError::Form {
                offset: 18,
                expected: "a letter or the end",
            });
        }
        let two = |at: usize| (digits[at] - b'0') * 10 + (digits[at + 1] - b'0');
        let date_time = Self {
            origin,
            year: u16::from(two(0)) * 100 + u16::from(two(2)),
            month: two(4),
            day: two(6),
            hour: two(8),
            minute: two(10),
            second: two(12),
            millisecond: u16::from(two(14)) * 10 + u16::from(digits[16] - b'0'),
            designator,
        };
        if origin == Origin::Calendar {
            date_time.check_calendar()?;
        }
        Ok(date_time)
    }

    fn check_calendar(&self) -> Result<(), DateTimeError> {
        let field = if !(1..=12).contains(&self.month) {
            "month"
        } else if self.day == 0 || self.day > days_of_month(self.year, self.month) {
            "day"
        } else if self.hour > 23 {
            "hour"
        } else if self.minute > 59 {
            "minute"
        } else if self.second > 60 {
            // 60 is a leap second.
            "second"
        } else {
            return Ok(());
        };
        Err(DateTimeError::NoSuchDay { field })
    }

    /// The moment that lies `milliseconds` after 1 January 1970 UTC, written with `Z`.
    pub fn from_unix_ms(milliseconds: i64) -> Result<Self, DateTimeError> {
        let (year, month, day) = civil_from_days(milliseconds.div_euclid(MS_DAY));
        let year = u16::try_from(year).ok().filter(|year| *year <= 9999);
        let year = year.ok_or(DateTimeError::OutOfRange)?;
        let in_day = milliseconds.rem_euclid(MS_DAY);
        Ok(Self {
            origin: Origin::Calendar,
            year,
            month,
            day,
            hour: (in_day / MS_HOUR) as u8,
            minute: (in_day % MS_HOUR / MS_MINUTE) as u8,
            second: (in_day % MS_MINUTE / MS_SECOND) as u8,
            millisecond: (in_day % MS_SECOND) as u16,
            designator: Some(b'Z'),
        })
    }

    /// "This long after you receive it", cut to milliseconds.
    pub fn after(amount: Duration) -> Result<Self, DateTimeError> {
        Self::relative(Origin::After, amount)
    }

    /// "This long before you received it", cut to milliseconds.
    pub fn before(amount: Duration) -> Result<Self, DateTimeError> {
        Self::relative(Origin::Before, amount)
    }

    fn relative(origin: Origin, amount: Duration) -> Result<Self, DateTimeError> {
        let amount = i64::try_from(amount.as_millis()).map_err(|_| DateTimeError::OutOfRange)?;
        let (days, in_day) = (amount / MS_DAY, amount % MS_DAY);
        let year = u16::try_from(days / DAYS_RELATIVE_YEAR)
            .ok()
            .filter(|year| *year <= 9999);
        let days = days % DAYS_RELATIVE_YEAR;
        Ok(Self {
            origin,
            year: year.ok_or(DateTimeError::OutOfRange)?,
            month: (days / DAYS_RELATIVE_MONTH) as u8,
            day: (days % DAYS_RELATIVE_MONTH) as u8,
            hour: (in_day / MS_HOUR) as u8,
            minute: (in_day % MS_HOUR / MS_MINUTE) as u8,
            second: (in_day % MS_MINUTE / MS_SECOND) as u8,
            millisecond: (in_day % MS_SECOND) as u16,
            designator: None,
        })
    }

    /// The start from which the fields are counted.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether the token has a sign. The meaning of such a token depends on the moment of reception.
    pub fn is_relative(&self) -> bool {
        self.origin != Origin::Calendar
    }

    /// The type designator, a letter; `Z` is UTC.
    pub fn designator(&self) -> Option<u8> {
        self.designator
    }

    /// The 17 ASCII digits of year, month, day, hour, minute, second and millisecond.
    pub fn digits(&self) -> [u8; 17] {
        let mut digits = [0u8; 17];
        let mut put = |at: usize, value: u8| {
            digits[at] = b'0' + value / 10;
            digits[at + 1] = b'0' + value % 10;
        };
        put(0, (self.year / 100) as u8);
        put(2, (self.year % 100) as u8);
        put(4, self.month);
        put(6, self.day);
        put(8, self.hour);
        put(10, self.minute);
        put(12, self.second);
        put(14, (self.millisecond / 10) as u8);
        digits[16] = b'0' + (self.millisecond % 10) as u8;
        digits
    }

    /// Appends the token to `out`; allocates nothing if `out` has room.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match self.origin {
            Origin::Calendar => {}
            Origin::After => out.push(b'+'),
            Origin::Before => out.push(b'-'),
        }
        let digits = self.digits();
        out.extend_from_slice(&digits[..8]);
        out.push(b'T');
        out.extend_from_slice(&digits[8..]);
        out.extend(self.designator);
    }

    /// The amount of time that a relative token stands for, without its sign; `None` for a calendar date.
    pub fn amount(&self) -> Option<Duration> {
        self.is_relative()
            .then(|| Duration::from_millis(self.amount_ms() as u64))
    }

    fn amount_ms(&self) -> i64 {
        let days = i64::from(self.year) * DAYS_RELATIVE_YEAR
            + i64::from(self.month) * DAYS_RELATIVE_MONTH
            + i64::from(self.day);
        days * MS_DAY + self.in_day_ms()
    }

    fn in_day_ms(&self) -> i64 {
        i64::from(self.hour) * MS_HOUR
            + i64::from(self.minute) * MS_MINUTE
            + i64::from(self.second) * MS_SECOND
            + i64::from(self.millisecond)
    }

    /// The token's moment, in milliseconds after 1 January 1970 UTC.
    ///
    /// `received_unix_ms` is the moment of reception. Relative tokens count from it (a year as 365 days, a month as
    /// 30). A token without designator is the sender's local time. Its zone is not sent, so the token is read as UTC.
    ///
    /// # Errors
    /// [`DateTimeError::UnknownDesignator`] for a letter other than `Z`.
    pub fn unix_ms(&self, received_unix_ms: i64) -> Result<i64, DateTimeError> {
        match self.designator {
            None | Some(b'Z' | b'z') => {}
            Some(other) => return Err(DateTimeError::UnknownDesignator(char::from(other))),
        }
        Ok(match self.origin {
            Origin::Calendar => {
                days_from_civil(self.year, self.month, self.day) * MS_DAY + self.in_day_ms()
            }
            Origin::After => received_unix_ms.saturating_add(self.amount_ms()),
            Origin::Before => received_unix_ms.saturating_sub(self.amount_ms()),
        })
    }

    /// Makes a relative token absolute (UTC, with `Z`). A calendar date is returned unchanged.
    pub fn absolute(&self, received_unix_ms: i64) -> Result<Self, DateTimeError> {
        if self.is_relative() {
            Self::from_unix_ms(self.unix_ms(received_unix_ms)?)
        } else {
            Ok(*self)
        }
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::Calendar => {}
            Origin::After => f.write_str("+")?,
            Origin::Before => f.write_str("-")?,
        }
        write!(
            f,
            "{:04}{:02}{:02}T{:02}{:02}{:02}{:03}",
            self.year, self.month, self.day, self.hour, self.minute, self.second, self.millisecond
        )?;
        match self.designator {
            Some(letter) => write!(f, "{}", char::from(letter)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DateTime({self})")
    }
}

impl FromStr for DateTime {
    type Err = DateTimeError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_tokens_of_the_standard_and_of_jade_are_read_and_written_alike() {
        for token in [
            "19960415T083000000",
            "20260304T050607089Z",
            "+00000000T011500035",
            "-00000000T000005000Z",
            "20240229T235960999Z",
        ] {
            let date_time: DateTime = token.parse().unwrap();
            assert_eq!(date_time.to_string(), token);
            let mut bytes = Vec::new();
            date_time.write_to(&mut bytes);
            assert_eq!(bytes, token.as_bytes());
        }
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        let moment = |token: &str| token.parse::<DateTime>().unwrap().unix_ms(1_000).unwrap();
        assert_eq!(moment("19700101T000000000Z"), 0);
        assert_eq!(moment("20000229T120000001Z"), 951_825_600_001);
        assert_eq!(moment("19691231T235959999Z"), -1);
        assert_eq!(
            moment("+00000001T011500035"),
            1_000 + 86_400_000 + 4_500_035
        );
        assert_eq!(moment("-00000000T000001000"), 0);
        assert_eq!(
            "20260101T000000000A"
                .parse::<DateTime>()
                .unwrap()
                .unix_ms(0),
            Err(DateTimeError::UnknownDesignator('A'))
        );
    }

    #[test]
    fn what_is_no_date_time_says_where() {
        let error = |token: &str| token.parse::<DateTime>().unwrap_err();
        let form = |offset, expected| DateTimeError::Form { offset, expected };
        assert_eq!(error(""), form(0, "a digit"));
        assert_eq!(error("20260304 050607089"), form(8, "'T'"));
        assert_eq!(error("+0000000xT000000000"), form(8, "a digit"));
        assert_eq!(error("20260304T05060708"), form(17, "a digit"));
        assert_eq!(
            error("20260304T0506070891"),
            form(18, "a letter or the end")
        );
        assert_eq!(error("20260304T050607089ZZ"), form(19, "the end"));
        assert_eq!(
            error("20261304T050607089"),
            DateTimeError::NoSuchDay { field: "month" }
        );
        assert_eq!(
            error("20230229T050607089"),
            DateTimeError::NoSuchDay { field: "day" }
        );
    }

    proptest! {
        #[test]
        fn any_moment_of_the_range_survives(ms in -62_167_219_200_000i64..253_402_300_800_000) {
            let date_time = DateTime::from_unix_ms(ms).unwrap();
            prop_assert_eq!(date_time.unix_ms(0).unwrap(), ms);
            prop_assert_eq!(DateTime::parse(date_time.to_string().as_bytes()).unwrap(), date_time);
            prop_assert_eq!(
                DateTime::from_digits(Origin::Calendar, &date_time.digits(), Some(b'Z')).unwrap(),
                date_time
            );
        }

        #[test]
        fn outside_the_range_is_an_error(beyond in 0i64..i64::MAX / 2) {
            prop_assert!(DateTime::from_unix_ms(253_402_300_800_000 + beyond).is_err());
            prop_assert!(DateTime::from_unix_ms(-62_167_219_200_001 - beyond).is_err());
        }

        #[test]
        fn amounts_survive(ms in 0u64..315_000_000_000_000) {
            let amount = Duration::from_millis(ms);
            let date_time = DateTime::after(amount).unwrap();
            prop_assert_eq!(date_time.amount(), Some(amount));
            prop_assert_eq!(date_time.to_string().parse::<DateTime>().unwrap(), date_time);
            prop_assert_eq!(date_time.unix_ms(5).unwrap(), 5 + ms as i64);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
            if let Ok(date_time) = DateTime::parse(&bytes) {
                prop_assert!(date_time.to_string().eq_ignore_ascii_case(&String::from_utf8(bytes).unwrap()));
            }
        }
    }
}
