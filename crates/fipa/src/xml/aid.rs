//! The common part of messages and envelopes in XML: agents, and texts that are expressions.

use alloc::borrow::Cow;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::elements::{Element, Elements, TextOrChild, trimmed};
use crate::string::{check_expression, expression_view};
use crate::{Aid, DecodeError, DecodeProblem, Expression, is_word};

impl<'a> Elements<'a> {
    /// The text of an element, or if there is none, the value of an attribute.
    pub(crate) fn text_or(
        &mut self,
        element: &Element<'a>,
        attribute: &str,
    ) -> Result<Cow<'a, str>, DecodeError> {
        let text = self.text()?;
        if trimmed(&text).is_empty()
            && let Some(value) = element.attribute(attribute)?
        {
            return Ok(Cow::Owned(value.into_owned()));
        }
        Ok(text)
    }

    /// Reads text as an expression of the String encoding. Any other text is a string.
    pub(super) fn expression(
        &mut self,
        text: &str,
        offset: usize,
    ) -> Result<Expression, DecodeError> {
        if is_word(text.as_bytes()) {
            return Ok(Expression::Word(text.to_owned()));
        }
        match check_expression(text.as_bytes(), &self.limits) {
            Ok(values) => {
                // The element counts as one value already.
                self.count_values(values.saturating_sub(1), offset)?;
                if let Some(expression) = expression_view(text.as_bytes()) {
                    return Ok(expression.to_owned());
                }
            }
            Err(DecodeError {
                problem: problem @ DecodeProblem::Limit { .. },
                ..
            }) => return Err(DecodeError::new(offset, problem)),
            Err(_) => {}
        }
        Ok(Expression::String(text.to_owned()))
    }

    /// The AIDs in the element we are in.
    pub(crate) fn aids(&mut self, aids: &mut Vec<Aid>) -> Result<(), DecodeError> {
        while let Some(element) = self.child()? {
            if element.name() != "agent-identifier" {
                return Err(element.unexpected("<agent-identifier>"));
            }
            if aids.len() >= self.limits.agents {
                return Err(DecodeError::too_many_agents(self.offset(), &self.limits));
            }
            aids.push(self.aid(&element)?);
        }
        Ok(())
    }

    fn aid(&mut self, start: &Element<'a>) -> Result<Aid, DecodeError> {
        let mut aid = Aid::unchecked(String::new());
        while let Some(element) = self.child()? {
            match element.name() {
                "name" => {
                    let name = self.attribute_or_text(&element, "id")?;
                    if !core::mem::replace(&mut aid.name, name).is_empty() {
                        return Err(element.duplicate("name"));
                    }
                }
                "addresses" => {
                    while let Some(element) = self.child()? {
                        if element.name() != "url" {
                            return Err(element.unexpected("<url>"));
                        }
                        aid.addresses
                            .push(self.attribute_or_text(&element, "href")?);
                    }
                }
                "resolvers" => self.aids(&mut aid.resolvers)?,
                _ => aid.user_defined.push(self.user_defined(&element)?),
            }
        }
        if aid.name.is_empty() {
            return Err(start.missing("the name of an agent"));
        }
        Ok(aid)
    }

    /// The content of the present element: text, or a `url` element.
    pub(crate) fn text_or_url(&mut self) -> Result<String, DecodeError> {
        match self.text_or_child()? {
            TextOrChild::Text(text) => Ok(trimmed(&text).to_owned()),
            TextOrChild::Child(element) => {
                let url = self.attribute_or_text(&element, "href")?;
                match self.child()? {
                    None => Ok(url),
                    Some(element) => Err(element.unexpected("the end of the element")),
                }
            }
        }
    }

    /// Reads a name or address, which is an attribute in messages and text in envelopes.
    fn attribute_or_text(
        &mut self,
        element: &Element<'a>,
        attribute: &str,
    ) -> Result<String, DecodeError> {
        let text = self.text()?;
        Ok(match element.attribute(attribute)? {
            Some(value) => value.into_owned(),
            None => trimmed(&text).to_owned(),
        })
    }

    /// `<user-defined href="X-…">`, or as JADE writes it, `<X-…>`.
    pub(super) fn user_defined(
        &mut self,
        element: &Element<'a>,
    ) -> Result<(String, Expression), DecodeError> {
        let name = if element.name() == "user-defined" {
            let name = element.attribute("href")?.filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| element.missing("the attribute 'href'"))?;
            name.into_owned()
        } else if element
            .name()
            .get(..2)
            .is_some_and(|start| start.eq_ignore_ascii_case("X-"))
        {
            element.name().to_owned()
        } else {
            return Err(element.unexpected("an element of FIPA's message or AID"));
        };
        let text = self.text()?;
        Ok((name, self.expression(&text, element.offset())?))
    }
}
