//! Reading envelopes (FIPA00088).

use super::{BASE, REVISION};
use crate::bitefficient::{
    DEEPEST, NAME as ACL_BIT_EFFICIENT, Nibbles, byte_string, find_end, read_date_time,
};
use crate::envelope::{Envelope, EnvelopeParameters, Received};
use crate::representation::XML as ACL_XML;
use crate::string::NAME as ACL_STRING;
use crate::{Aid, Content, DateTime, DecodeError, DecodeProblem, Expression, Limits};
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Reads an envelope and returns its end, where the payload begins.
///
/// # Errors
/// [`DecodeError`] with the offset of the first byte that does not fit, or the exceeded limit.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<(Envelope, usize), DecodeError> {
    let mut reader = Reader {
        bytes,
        at: 0,
        values_left: limits.values,
        limits: *limits,
    };
    let mut revisions = Vec::new();
    loop {
        let start = reader.at;
        match reader.peek() {
            Some(REVISION) if revisions.len() >= limits.depth => {
                return Err(DecodeError::limit(start, "revisions", limits.depth));
            }
            Some(REVISION) => revisions.push(reader.part(REVISION)?),
            Some(BASE) => {
                let base = reader.part(BASE)?;
                revisions.reverse();
                return Ok((Envelope { base, revisions }, reader.at));
            }
            _ => {
                return Err(DecodeError::expected(
                    bytes,
                    start,
                    "an envelope (FD or FE)",
                ));
            }
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    values_left: usize,
    limits: Limits,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn expected(&self, what: &'static str) -> DecodeError {
        DecodeError::expected(self.bytes, self.at, what)
    }

    fn take(&mut self, expected: &'static str) -> Result<u8, DecodeError> {
        let byte = self.peek().ok_or_else(|| self.expected(expected))?;
        self.at += 1;
        Ok(byte)
    }

    fn count_value(&mut self) -> Result<(), DecodeError> {
        let left = self.values_left.checked_sub(1);
        let error = || DecodeError::limit(self.at, "values", self.limits.values);
        self.values_left = left.ok_or_else(error)?;
        Ok(())
    }

    fn text(&mut self, expected: &'static str) -> Result<&'a str, DecodeError> {
        self.count_value()?;
        let start = self.at;
        let Some((end, _)) = find_end(self.bytes, start) else {
            return Err(DecodeError::expected(
                self.bytes,
                self.bytes.len(),
                "00 after a text",
            ));
        };
        self.at = end + 1;
        core::str::from_utf8(&self.bytes[start..end])
            .map_err(|_| DecodeError::not_utf8(start, expected))
    }

    fn date_time(&mut self) -> Result<DateTime, DecodeError> {
        let (date_time, end) = read_date_time(self.bytes, self.at)?;
        self.at = end;
        Ok(date_time)
    }

    /// The base or a revision.
    fn part(&mut self, mark: u8) -> Result<EnvelopeParameters, DecodeError> {
        self.count_value()?;
        let start = self.at;
        self.at += 1;
        let length =
            usize::from(self.take("the length")?) << 8 | usize::from(self.take("the length")?);
        let mut possible_ends = [start + length; 2];
        if length == 0 {
            let Some(field) = self.bytes[self.at..].first_chunk::<4>() else {
                return Err(self.expected("the four bytes of a long length"));
            };
            self.at += 4;
            let length = u32::from_be_bytes(*field) as usize;
            // One encoder does not count these four bytes.
            possible_ends = [
                start.saturating_add(length),
                start.saturating_add(length).saturating_add(4),
            ];
        }
        let end = possible_ends[0];
        if end > self.bytes.len() {
            let all = self.bytes.len();
            return Err(DecodeError::expected(
                self.bytes,
                all,
                "as many bytes as the envelope's length says",
            ));
        }
        if end - start > self.limits.message_length {
            let limit = self.limits.message_length;
            return Err(DecodeError::limit(start, "bytes", limit));
        }
        let mut parameters = EnvelopeParameters::default();
        if mark == BASE {
            parameters.acl_representation = Some(self.representation()?);
            parameters.date = Some(self.date_time()?);
        } else {
            parameters.received = Some(self.received()?);
        }
        let mut seen = 0u16;
        loop {
            let at = self.at;
            let code = self.take("a parameter (00, 02 to 0B) or the end of the envelope (01)")?;
            if code == 0x01 {
                break;
            }
            let repeated = code >= 2 && seen & 1 << code.min(15) != 0;
            seen |= 1 << code.min(15);
            let parameter = match code {
                0x00 => {
                    parameters.user_defined.push(self.user_defined()?);
                    continue;
                }
                0x02 => {
                    parameters.to = self.aids(self.depth())?;
                    "to"
                }
                0x03 => {
                    parameters.from = Some(self.aid(self.depth())?);
                    "from"
                }
                0x04 => {
                    parameters.acl_representation = Some(self.representation()?);
                    "acl-representation"
                }
                0x05 => {
                    parameters.comments = Some(self.text("comments")?.to_owned());
                    "comments"
                }
                0x06 => {
                    parameters.payload_length = self.payload_length()?;
                    "payload-length"
                }
                0x07 => {
                    parameters.payload_encoding = Some(self.text("payload-encoding")?.to_owned());
                    "payload-encoding"
                }
                0x09 => {
                    parameters.intended_receivers = self.aids(self.depth())?;
                    "intended-receiver"
                }
                0x0a => {
                    parameters.received = Some(self.received()?);
                    "received"
                }
                0x0b => {
                    parameters.transport_behaviour = Some(self.any()?);
                    "transport-behaviour"
                }
                _ => {
                    let expected = "a parameter (00, 02 to 07, 09 to 0B) or the end (01)";
                    return Err(DecodeError::expected(self.bytes, at, expected));
                }
            };
            if repeated {
                return Err(DecodeError::new(at, DecodeProblem::Duplicate { parameter }));
            }
        }
        if !possible_ends.contains(&self.at) {
            let expected = "the end of the envelope where its length says";
            return Err(self.expected(expected));
        }
        Ok(parameters)
    }

    fn depth(&self) -> usize {
        self.limits.depth.min(DEEPEST)
    }

    fn representation(&mut self) -> Result<String, DecodeError> {
        let at = self.at;
        Ok(match self.take("an acl-representation")? {
            0x00 => self.text("an acl-representation")?.to_owned(),
            0x10 => ACL_BIT_EFFICIENT.to_owned(),
            0x11 => ACL_STRING.to_owned(),
            0x12 => ACL_XML.to_owned(),
            _ => {
                let expected = "an acl-representation (00, 10 to 12)";
                return Err(DecodeError::expected(self.bytes, at, expected));
            }
        })
    }

    /// Reads digits without a tag. A negative number stands for an unknown length.
    fn payload_length(&mut self) -> Result<Option<u64>, DecodeError> {
        let Some((number, end)) = Nibbles::parse(self.bytes, self.at, false) else {
            return Err(self.expected("a number in nibbles"));
        };
        // Nibbles allow numbers of any length, but no length has more digits than this.
        if end - self.at > 12 {
            return Err(self.expected("a length of the payload"));
        }
        let text = number.to_string();
        if text.starts_with('-') {
            self.at = end;
            return Ok(None);
        }
        let length = text
            .parse()
            .map_err(|_| self.expected("a length of the payload"))?;
        self.at = end;
        Ok(Some(length))
    }

    fn any(&mut self) -> Result<Content, DecodeError> {
        let at = self.at;
        let width = match self.take("a value (14, 16, 17 or 19)")? {
            0x14 => return Ok(Content::Text(self.text("text")?.to_owned())),
            0x16 => 1,
            0x17 => 2,
            0x19 => 4,
            _ => {
                let expected = "a value (14, 16, 17 or 19)";
                return Err(DecodeError::expected(self.bytes, at, expected));
            }
        };
        let (start, end) = byte_string(self.bytes, self.at, width)?;
        self.at = end;
        Ok(Content::Bytes(self.bytes[start..end].to_vec()))
    }

    /// Reads name and value. One encoder writes both in one text with a blank between them.
    fn user_defined(&mut self) -> Result<(String, String), DecodeError> {
        let name = self.text("the name of a parameter")?;
        if let Some((name, value)) = name.split_once(' ') {
            return Ok((name.to_owned(), value.to_owned()));
        }
        Ok((
            name.to_owned(),
            self.text("the value of a parameter")?.to_owned(),
        ))
    }

    fn aids(&mut self, depth: usize) -> Result<Vec<Aid>, DecodeError> {
        let mut aids = Vec::new();
        while self.peek() != Some(0x01) {
            if aids.len() >= self.limits.agents {
                return Err(DecodeError::too_many_agents(self.at, &self.limits));
            }
            aids.push(self.aid(depth)?);
        }
        self.at += 1;
        Ok(aids)
    }

    fn aid(&mut self, depth: usize) -> Result<Aid, DecodeError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(DecodeError::limit(
                self.at,
                "levels of resolvers",
                self.depth(),
            ));
        };
        if self.peek() != Some(0x02) {
            return Err(self.expected("an AID (02)"));
        }
        self.at += 1;
        let start = self.at;
        let name = self.text("the name of an agent")?;
        if name.is_empty() {
            return Err(DecodeError::expected(
                self.bytes,
                start,
                "the name of an agent",
            ));
        }
        let mut aid = Aid::unchecked(name.to_owned());
        loop {
            match self.peek() {
                Some(0x01) => {
                    self.at += 1;
                    return Ok(aid);
                }
                Some(0x02) if aid.addresses.is_empty() => {
                    self.at += 1;
                    while self.peek() != Some(0x01) {
                        aid.addresses.push(self.text("an address")?.to_owned());
                    }
                    self.at += 1;
                }
                Some(0x03) if aid.resolvers.is_empty() => {
                    self.at += 1;
                    aid.resolvers = self.aids(depth)?;
                }
                // 04 before the version of 2002.
                Some(0x04 | 0x05) => {
                    self.at += 1;
                    let name = self.text("the name of a parameter")?.to_owned();
                    let value = match self.any()? {
                        Content::Text(text) => Expression::String(text),
                        Content::Bytes(bytes) => Expression::Bytes(bytes),
                    };
                    aid.user_defined.push((name, value));
                }
                _ => {
                    return Err(self.expected(
                        "addresses (02) or resolvers (03), each once, a parameter (05), or the end of the AID (01)",
                    ));
                }
            }
        }
    }

    fn received(&mut self) -> Result<Received, DecodeError> {
        let by = self.text("the URL of the receiving service")?;
        let mut received = Received {
            // One encoder puts the code of the parameter, a line feed, before the URL.
            by: by.strip_prefix('\n').unwrap_or(by).to_owned(),
            date: self.date_time()?,
            from: None,
            id: None,
            via: None,
            user_defined: Vec::new(),
        };
        loop {
            let at = self.at;
            let code = self.take("a part of a stamp (00, 02 to 04) or its end (01)")?;
            let (slot, parameter) = match code {
                0x01 => return Ok(received),
                0x00 => {
                    received.user_defined.push(self.user_defined()?);
                    continue;
                }
                0x02 => (&mut received.from, "from"),
                0x03 => (&mut received.id, "id"),
                0x04 => (&mut received.via, "via"),
                _ => {
                    let expected = "a part of a stamp (00, 02 to 04) or its end (01)";
                    return Err(DecodeError::expected(self.bytes, at, expected));
                }
            };
            if slot.replace(self.text(parameter)?.to_owned()).is_some() {
                return Err(DecodeError::new(at, DecodeProblem::Duplicate { parameter }));
            }
        }
    }
}
