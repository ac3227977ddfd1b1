//! The meaning of each byte of a message.

use super::NAME;
use super::nibbles::Nibbles;
use super::parse::{Observer, Parser, read_date_time};
use super::scan::byte_string;
use super::token::{Atom, Bracket, Piece};
use crate::explain::{Explanation, Pieces, shown};
use crate::{DecodeError, Limits, Performative};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};

pub(super) fn explain(bytes: &[u8], limits: &Limits) -> Explanation {
    let mut parser = Parser::new(bytes, limits, Explainer(Pieces::new(bytes)));
    if matches!(bytes.first(), Some(0xfb | 0xfc)) {
        // The message does not state the size of the table. Most peers agree on 256 entries.
        parser = parser.with_code_table(1);
    }
    let error = parser.message().err();
    parser.into_observer().0.finish(NAME, error)
}

struct Explainer<'a>(Pieces<'a>);

impl Observer for Explainer<'_> {
    fn piece(&mut self, piece: Piece, start: usize, end: usize) -> Result<(), DecodeError> {
        let bytes = self.0.bytes;
        let first = bytes.get(start).copied().unwrap_or(0);
        let (meaning, reference) = match piece {
            Piece::MessageId => {
                let meaning = match first {
                    0xfa => "message id: no code tables",
                    0xfb => "message id: code tables, which this message changes",
                    _ => "message id: code tables, which this message leaves as they are",
                };
                (meaning.to_owned(), "FIPA00069 MessageId")
            }
            Piece::Version => {
                let meaning = format!("version {}.{}", first >> 4, first & 0x0f);
                (meaning, "FIPA00069 Version")
            }
            Piece::Performative => match Performative::from_code(first) {
                Some(act) => (
                    format!("{act}: {}", act.meaning()),
                    "FIPA00069 MessageType, FIPA00037",
                ),
                None => (
                    "user-defined act, its name follows".to_owned(),
                    "FIPA00069 MessageType",
                ),
            },
            Piece::Parameter(parameter) => {
                self.0.depth = 0;
                let meaning = format!("parameter: {}", parameter.name());
                (meaning, "FIPA00069 MessageParameter, FIPA00061")
            }
            Piece::UserDefinedMark => {
                self.0.depth = 0;
                (
                    "user-defined parameter".to_owned(),
                    "FIPA00069 UserDefinedMessageParameter",
                )
            }
            Piece::AidStart => {
                let reference = "FIPA00069 AgentIdentifier";
                self.0.depth += 1;
                self.0.add(start..end, "AID, its name follows", reference);
                self.0.depth += 1;
                return Ok(());
            }
            Piece::AddressesStart => ("addresses".to_owned(), "FIPA00069 Addresses"),
            Piece::ResolversStart => ("resolvers".to_owned(), "FIPA00069 Resolvers"),
            Piece::AidUserDefinedMark => {
                let reference = "FIPA00069 UserDefinedParameter";
                ("user-defined parameter of the AID".to_owned(), reference)
            }
            Piece::End(what) => {
                if what == "AID" {
                    self.0.depth = self.0.depth.saturating_sub(2);
                    self.0
                        .add(start..end, "end of AID", "FIPA00069 EndOfCollection");
                    return Ok(());
                }
                if what == "message" {
                    self.0.depth = 0;
                }
                let reference = match what {
                    "message" => "FIPA00069 EndOfMessage",
                    _ => "FIPA00069 EndOfCollection",
                };
                (format!("end of {what}"), reference)
            }
            Piece::Atom { kind, bracket } => {
                if bracket == Bracket::Closes {
                    self.0.depth = self.0.depth.saturating_sub(1);
                }
                if bracket == Bracket::Opens {
                    self.0.depth += 1;
                }
                let bracket = match bracket {
                    Bracket::None => "",
                    Bracket::Opens => "'(' and ",
                    Bracket::Closes => "')' and ",
                };
                let (value, reference) = atom(bytes, kind, start, end);
                (format!("{bracket}{value}"), reference)
            }
            Piece::ListStart => {
                self.0.add(start..end, "'('", "FIPA00069 ExprStart");
                self.0.depth += 1;
                return Ok(());
            }
            Piece::ListEnd => {
                self.0.depth = self.0.depth.saturating_sub(1);
                ("')'".to_owned(), "FIPA00069 ExprEnd")
            }
            Piece::DateTime => {
                let moment = read_date_time(bytes, start).map(|(moment, _)| moment.to_string());
                let meaning = format!("date-time {}", moment.unwrap_or_default());
                (meaning, "FIPA00069 BinDateTimeToken")
            }
            Piece::TextMark => (
                "an expression as text follows".to_owned(),
                "FIPA00069 BinExpression",
            ),
            Piece::NoContent => ("no value: taken as empty".to_owned(), "not in the standard"),
        };
        self.0.add(start..end, meaning, reference);
        Ok(())
    }
}

fn atom(bytes: &[u8], kind: Atom, start: usize, end: usize) -> (String, &'static str) {
    let text = || shown(&bytes[start + 1..end.saturating_sub(1).max(start + 1)]);
    let number = |hexadecimal| {
        let number = Nibbles::parse(bytes, start + 1, hexadecimal);
        number
            .map(|(number, _)| number.to_string())
            .unwrap_or_default()
    };
    let index = || {
        let index = &bytes[start + 1..end];
        index
            .iter()
            .fold(0usize, |index, byte| index << 8 | usize::from(*byte))
    };
    match kind {
        Atom::Word => (format!("word {}", text()), "FIPA00069 BinWord"),
        Atom::String => (format!("string {}", text()), "FIPA00069 BinString"),
        Atom::Number => (format!("number {}", number(false)), "FIPA00069 BinNumber"),
        Atom::Hexadecimal => (format!("number {}", number(true)), "FIPA00069 BinNumber"),
        Atom::Bytes(width) => {
            let value = byte_string(bytes, start + 1, usize::from(width)).unwrap_or((end, end));
            let value = &bytes[value.0..value.1];
            let meaning = format!("byte string of {} bytes: {}", value.len(), shown(value));
            (meaning, "FIPA00069 BinString")
        }
        Atom::TableWord => (
            format!("word {} of the code table", index()),
            "FIPA00069 BinWord",
        ),
        Atom::TableString => (
            format!("string {} of the code table", index()),
            "FIPA00069 BinString",
        ),
        Atom::TableBytes => (
            format!("byte string {} of the code table", index()),
            "FIPA00069 BinString",
        ),
    }
}
