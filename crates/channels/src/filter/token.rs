//! The tokens of the Common Expression Language.

use super::{FilterProblem, Literal};

/// A token, and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Token<'a> {
    pub(super) at: usize,
    pub(super) kind: Kind<'a>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind<'a> {
    /// A name or keyword.
    Name(&'a str),
    /// A number or text.
    Literal(Literal),
    /// An operator or punctuation.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// Longer signs come first, so that `<=` is not read as `<`.
const SIGNS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "(", ")",
    "[", "]", "{", "}", ".", ",", "=",
];

type At<T> = Result<T, (usize, FilterProblem)>;

/// Splits the text into tokens.
pub(super) fn tokens(text: &str) -> At<Vec<Token<'_>>> {
    let mut reader = TokenReader { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        reader.skip_blanks();
        let at = reader.at;
        let kind = reader.token()?;
        let is_end = matches!(kind, Kind::End);
        tokens.push(Token { at, kind });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct TokenReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> TokenReader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blanks = rest.len()
                - rest
                    .trim_start_matches([' ', '\t', '\n', '\r', '\x0c'])
                    .len();
            self.at += blanks;
            if !self.rest().starts_with("//") {
                return;
            }
            let comment = self.rest().find('\n');
            self.at = comment.map_or(self.text.len(), |length| self.at + length);
        }
    }

    fn token(&mut self) -> At<Kind<'a>> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(Kind::End);
        };
        let second = rest.as_bytes().get(1);
        if first.is_ascii_digit() || (first == '.' && second.is_some_and(u8::is_ascii_digit)) {
            return self.number().map(Kind::Literal);
        }
        if let Some(literal) = self.quoted()? {
            return Ok(Kind::Literal(literal));
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let length = length_of(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            self.at += length;
            return Ok(Kind::Name(&rest[..length]));
        }
        match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => {
                self.at += sign.len();
                Ok(Kind::Sign(sign))
            }
            None => Err((self.at, FilterProblem::Character(first))),
        }
    }

    fn number(&mut self) -> At<Literal> {
        let start = self.at;
        let rest = self.rest();
        let hexadecimal = rest
            .strip_prefix("0x")
            .or_else(|| rest.strip_prefix("0X"))
            .map(|digits| &digits[..length_of(digits, |byte| byte.is_ascii_hexdigit())]);
        let bad = (start, FilterProblem::Number);
        if let Some(digits) = hexadecimal {
            self.at += 2 + digits.len();
            let value = u64::from_str_radix(digits, 16).map_err(|_| bad.clone())?;
            return self.integer(value, start);
        }
        let digit = |byte: u8| byte.is_ascii_digit();
        let mut length = length_of(rest, digit);
        let mut is_integer = true;
        let fraction = rest[length..]
            .strip_prefix('.')
            .map(|fraction| length_of(fraction, digit))
            .filter(|digits| *digits > 0);
        if let Some(digits) = fraction {
            is_integer = false;
            length += 1 + digits;
        }
        if let Some(exponent) = rest[length..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let digits = length_of(&exponent[sign..], digit);
            if digits > 0 {
                is_integer = false;
                length += 1 + sign + digits;
            }
        }
        self.at += length;
        if is_integer {
            let value = rest[..length].parse().map_err(|_| bad)?;
            return self.integer(value, start);
        }
        let value = rest[..length].parse().map_err(|_| bad)?;
        self.no_letter_follows(start)?;
        Ok(Literal::Double(value))
    }

    fn integer(&mut self, value: u64, start: usize) -> At<Literal> {
        if self.rest().starts_with(['u', 'U']) {
            self.at += 1;
            self.no_letter_follows(start)?;
            return Ok(Literal::Uint(value));
        }
        self.no_letter_follows(start)?;
        // 2^63 may follow a minus sign, which the parser checks.
        Ok(match i64::try_from(value) {
            Ok(value) => Literal::Int(value),
            Err(_) if value == 1 << 63 => Literal::MinimumWithoutSign,
            Err(_) => return Err((start, FilterProblem::Number)),
        })
    }

    fn no_letter_follows(&self, start: usize) -> At<()> {
        if self
            .rest()
            .starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        {
            return Err((start, FilterProblem::Number));
        }
        Ok(())
    }

    /// A text in quotes, if there is one.
    fn quoted(&mut self) -> At<Option<Literal>> {
        let start = self.at;
        let rest = self.rest();
        let prefix = length_of(rest, |byte| matches!(byte, b'r' | b'R' | b'b' | b'B'));
        if prefix > 2 || !rest[prefix..].starts_with(['"', '\'']) {
            return Ok(None);
        }
        let marks = rest[..prefix].to_ascii_lowercase();
        if marks.contains('b') {
            return Err((start, FilterProblem::Unsupported("bytes")));
        }
        if marks == "rr" {
            return Ok(None);
        }
        let is_raw = marks == "r";
        let body = &rest[prefix..];
        let quote = &body[..1];
        let triple = quote.repeat(3);
        let closing = if body.starts_with(&triple) {
            &triple
        } else {
            quote
        };
        self.at += prefix + closing.len();
        let mut text = String::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(closing) {
                self.at += closing.len();
                return Ok(Some(Literal::Text(text)));
            }
            let Some(character) = rest.chars().next() else {
                return Err((start, FilterProblem::OpenText));
            };
            match character {
                '\n' | '\r' if closing.len() == 1 => {
                    return Err((start, FilterProblem::OpenText));
                }
                '\\' if !is_raw => text.push(self.escape()?),
                _ => {
                    self.at += character.len_utf8();
                    text.push(character);
                }
            }
        }
    }

    fn escape(&mut self) -> At<char> {
        let at = self.at;
        let bad = || (at, FilterProblem::Escape);
        let rest = &self.rest()[1..];
        let letter = rest.chars().next().ok_or_else(bad)?;
        let (character, length) = match letter {
            'a' => ('\x07', 1),
            'b' => ('\x08', 1),
            'f' => ('\x0c', 1),
            'n' => ('\n', 1),
            'r' => ('\r', 1),
            't' => ('\t', 1),
            'v' => ('\x0b', 1),
            '\\' | '?' | '"' | '\'' | '`' => (letter, 1),
            'x' | 'X' | 'u' | 'U' => {
                let digits = match letter {
                    'x' | 'X' => 2,
                    'u' => 4,
                    _ => 8,
                };
                (
                    code_point(rest.get(1..=digits), 16).ok_or_else(bad)?,
                    1 + digits,
                )
            }
            '0'..='3' => (code_point(rest.get(..3), 8).ok_or_else(bad)?, 3),
            _ => return Err(bad()),
        };
        self.at += 1 + length;
        Ok(character)
    }
}

fn length_of(text: &str, belongs: impl Fn(u8) -> bool) -> usize {
    text.bytes()
        .position(|byte| !belongs(byte))
        .unwrap_or(text.len())
}

fn code_point(digits: Option<&str>, radix: u32) -> Option<char> {
    let digits = digits?;
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    char::from_u32(u32::from_str_radix(digits, radix).ok()?)
}
