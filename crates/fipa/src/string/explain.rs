//! The meaning of each token of a message.

use super::NAME;
use super::parse::{Layout, Observer, Piece};
use crate::explain::{Explanation, Pieces, shown};
use crate::{Limits, Performative};
use alloc::borrow::ToOwned;
use alloc::format;

pub(super) fn explain(bytes: &[u8], limits: &Limits) -> Explanation {
    let mut explainer = Explainer(Pieces::new(bytes));
    let error = Layout::observed(bytes, limits, &mut explainer).err();
    explainer.0.finish(NAME, error)
}

struct Explainer<'a>(Pieces<'a>);

impl Observer for Explainer<'_> {
    fn piece(&mut self, piece: Piece, start: usize, end: usize) {
        let text = &self.0.bytes[start..end];
        let (meaning, reference) = match piece {
            Piece::Open => {
                self.0.add(start..end, "'('", "FIPA00070");
                self.0.depth += 1;
                return;
            }
            Piece::Close => {
                self.0.depth = self.0.depth.saturating_sub(1);
                ("')'".to_owned(), "FIPA00070")
            }
            Piece::Performative => match Performative::standard(text) {
                Some(act) => (
                    format!("{act}: {}", act.meaning()),
                    "FIPA00070 MessageType, FIPA00037",
                ),
                None => (
                    format!("user-defined act {}", shown(text)),
                    "FIPA00070 MessageType",
                ),
            },
            Piece::Parameter(parameter) => {
                let meaning = format!("parameter: {}", parameter.name());
                (meaning, "FIPA00070 MessageParameter, FIPA00061")
            }
            Piece::UserDefined => {
                let meaning = format!("user-defined parameter {}", shown(text));
                (meaning, "FIPA00070 UserDefinedParameter")
            }
            Piece::Keyword(word) => (format!("keyword {word}"), "FIPA00070 AgentIdentifier"),
            Piece::Name => (
                format!("name of an agent: {}", shown(text)),
                "FIPA00070 AgentIdentifier",
            ),
            Piece::Address => (format!("address: {}", shown(text)), "FIPA00070 URL"),
            Piece::Value => {
                let kind = match text.first() {
                    Some(b'"') => "string",
                    Some(b'#') => "byte-length-encoded string",
                    Some(b'0'..=b'9' | b'+' | b'-') => "number or date-time",
                    _ => "word",
                };
                (format!("{kind} {}", shown(text)), "FIPA00070 Expression")
            }
        };
        self.0.add(start..end, meaning, reference);
    }
}
