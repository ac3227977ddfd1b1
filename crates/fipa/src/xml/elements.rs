//! Walks through XML element by element, within limits.
//!
//! Entities are refused, except XML's own five and character references, so that no document can grow while it is read.
//! Document type declarations are skipped.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use crate::bitefficient::DEEPEST;
use crate::{DecodeError, DecodeProblem, Found, Limits};

/// A position in an XML document.
pub(crate) struct Elements<'a> {
    reader: Reader<&'a [u8]>,
    bytes: &'a [u8],
    values_left: usize,
    depth: usize,
    /// Whether the current element is an empty one, `<…/>`, without an end tag.
    in_empty: bool,
    pub(super) limits: Limits,
}

/// The contents of an element.
pub(super) enum TextOrChild<'a> {
    Text(Cow<'a, str>),
    Child(Element<'a>),
}

/// An element that has begun.
pub(crate) struct Element<'a> {
    start: BytesStart<'a>,
    offset: usize,
}

/// The text without the white space of XML at its ends. A no-break space, for example, is text.
pub(crate) fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r', '\n'])
}

impl Element<'_> {
    /// The name without namespace prefix.
    pub(crate) fn name(&self) -> &str {
        self.start.local_name().into_inner()
    }

    /// The value of an attribute.
    pub(crate) fn attribute(&self, name: &str) -> Result<Option<Cow<'_, str>>, DecodeError> {
        let mut attributes = self.start.attributes();
        // A check for duplicates would take quadratic time. The first attribute of a name counts.
        for attribute in attributes.with_checks(false) {
            let attribute = attribute.map_err(|error| self.syntax(error))?;
            // An attribute with a prefix, such as `xml:id`, is not FIPA's.
            if attribute.key.into_inner() == name {
                let value = attribute.normalized_value(XmlVersion::Implicit1_0);
                return value.map(Some).map_err(|error| self.syntax(error));
            }
        }
        Ok(None)
    }

    fn syntax(&self, error: impl core::fmt::Display) -> DecodeError {
        DecodeError::new(self.offset, DecodeProblem::Syntax(error.to_string()))
    }

    /// The error that this element may not be here.
    #[cold]
    pub(crate) fn unexpected(&self, expected: &'static str) -> DecodeError {
        let name: String = self.name().chars().take(40).collect();
        let problem = DecodeProblem::Syntax(format!("expected {expected}, found <{name}>"));
        DecodeError::new(self.offset, problem)
    }

    /// The error that something is missing in this element.
    #[cold]
    pub(crate) fn missing(&self, expected: &'static str) -> DecodeError {
        let found = Found::End;
        DecodeError::new(self.offset, DecodeProblem::Unexpected { expected, found })
    }

    pub(crate) fn duplicate(&self, parameter: &'static str) -> DecodeError {
        DecodeError::new(self.offset, DecodeProblem::Duplicate { parameter })
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a> Elements<'a> {
    pub(crate) fn new(bytes: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        if bytes.len() > limits.message_length {
            let limit = limits.message_length;
            return Err(DecodeError::limit(limit, "bytes", limit));
        }
        let text = core::str::from_utf8(bytes)
            .map_err(|error| DecodeError::not_utf8(error.valid_up_to(), "XML in UTF-8"))?;
        let mut reader = Reader::from_str(text);
        let config = reader.config_mut();
        config.allow_dangling_amp = false;
        Ok(Self {
            reader,
            bytes,
            values_left: limits.values,
            depth: 0,
            in_empty: false,
            limits: *limits,
        })
    }

    pub(super) fn offset(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX)
    }

    #[inline]
    fn event(&mut self) -> Result<(usize, Event<'a>), DecodeError> {
        let offset = self.offset();
        match self.reader.read_event() {
            Ok(event) => Ok((offset, event)),
            Err(error) => {
                let offset = usize::try_from(self.reader.error_position()).unwrap_or(offset);
                let problem = DecodeProblem::Syntax(error.to_string());
                Err(DecodeError::new(offset, problem))
            }
        }
    }

    fn enter(&mut self, start: BytesStart<'a>, offset: usize) -> Result<Element<'a>, DecodeError> {
        // A resolver's elements nest three deep.
        let limit = self
            .limits
            .depth
            .min(DEEPEST)
            .saturating_mul(3)
            .saturating_add(4);
        self.depth += 1;
        if self.depth > limit {
            return Err(DecodeError::limit(offset, "nested elements", limit));
        }
        self.count_values(1, offset)?;
        Ok(Element { start, offset })
    }

    pub(super) fn count_values(&mut self, count: usize, offset: usize) -> Result<(), DecodeError> {
        self.values_left = self
            .values_left
            .checked_sub(count)
            .ok_or_else(|| DecodeError::limit(offset, "values", self.limits.values))?;
        Ok(())
    }

    /// Leaves the element we are in if it is an empty one.
    fn leave_empty(&mut self) -> bool {
        let empty = core::mem::take(&mut self.in_empty);
        self.depth -= usize::from(empty);
        empty
    }

    /// The element that the document is.
    pub(crate) fn root(&mut self) -> Result<Element<'a>, DecodeError> {
        self.child()?
            .ok_or_else(|| DecodeError::expected(self.bytes, self.offset(), "an element"))
    }

    /// The next child of the current element, or `None` after its end tag.
    pub(crate) fn child(&mut self) -> Result<Option<Element<'a>>, DecodeError> {
        if self.leave_empty() {
            return Ok(None);
        }
        loop {
            let (offset, event) = self.event()?;
            match event {
                Event::Start(start) => return self.enter(start, offset).map(Some),
                Event::Empty(start) => {
                    self.in_empty = true;
                    return self.enter(start, offset).map(Some);
                }
                Event::Text(text) if text.as_bytes().trim_ascii().is_empty() => {}
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
                Event::End(_) => {
                    self.depth -= 1;
                    return Ok(None);
                }
                _ => {
                    return Err(DecodeError::expected(
                        self.bytes,
                        offset,
                        "an element or its end",
                    ));
                }
            }
        }
    }

    /// The text of the current element. Reads up to and including its end tag.
    pub(crate) fn text(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        match self.text_or_child()? {
            TextOrChild::Text(text) => Ok(text),
            TextOrChild::Child(element) => Err(element.unexpected("text or an end tag")),
        }
    }

    /// The text of the current element, reading up to and including its end tag; or its first child.
    pub(super) fn text_or_child(&mut self) -> Result<TextOrChild<'a>, DecodeError> {
        let mut text = Cow::Borrowed("");
        if self.leave_empty() {
            return Ok(TextOrChild::Text(text));
        }
        loop {
            let (offset, event) = self.event()?;
            match event {
                Event::Text(part) => append(&mut text, part.xml10_content()),
                Event::CData(part) => append(&mut text, part.xml10_content()),
                Event::GeneralRef(reference) => {
                    let name = reference.xml10_content();
                    let resolved = match name.as_ref() {
                        "lt" => Some('<'),
                        "gt" => Some('>'),
                        "amp" => Some('&'),
                        "apos" => Some('\''),
                        "quot" => Some('"'),
                        _ => reference.resolve_char_ref().ok().flatten(),
                    };
                    let Some(character) = resolved else {
                        return Err(DecodeError::expected(
                            self.bytes,
                            offset,
                            "one of XML's own entities or a character reference",
                        ));
                    };
                    text.to_mut().push(character);
                }
                Event::Comment(_) | Event::PI(_) => {}
                Event::End(_) => {
                    self.depth -= 1;
                    return Ok(TextOrChild::Text(text));
                }
                Event::Start(start) if text.trim_ascii().is_empty() => {
                    return self.enter(start, offset).map(TextOrChild::Child);
                }
                Event::Empty(start) if text.trim_ascii().is_empty() => {
                    self.in_empty = true;
                    return self.enter(start, offset).map(TextOrChild::Child);
                }
                _ => {
                    return Err(DecodeError::expected(
                        self.bytes,
                        offset,
                        "text or an end tag",
                    ));
                }
            }
        }
    }

    /// Steps over the rest of the current element, up to and including its end tag.
    pub(crate) fn skip(&mut self) -> Result<(), DecodeError> {
        if self.leave_empty() {
            return Ok(());
        }
        let outside = self.depth - 1;
        while self.depth > outside {
            let (offset, event) = self.event()?;
            match event {
                Event::Start(start) => drop(self.enter(start, offset)?),
                Event::End(_) => self.depth -= 1,
                Event::Eof => {
                    return Err(DecodeError::expected(self.bytes, offset, "an end tag"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Nothing but comments and white space may follow the document's element.
    pub(crate) fn end(&mut self) -> Result<(), DecodeError> {
        loop {
            let (offset, event) = self.event()?;
            match event {
                Event::Eof => return Ok(()),
                Event::Text(text) if text.as_bytes().trim_ascii().is_empty() => {}
                Event::Comment(_) | Event::PI(_) => {}
                _ => return Err(DecodeError::expected(self.bytes, offset, "the end")),
            }
        }
    }
}

fn append<'a>(text: &mut Cow<'a, str>, part: Cow<'a, str>) {
    if text.is_empty() {
        *text = part;
    } else {
        text.to_mut().push_str(&part);
    }
}
