//! Reading messages (FIPA00071).

use super::JADE_ENCODING;
use super::elements::{Element, Elements, trimmed};
use crate::{
    AclMessage, Content, DateTime, DecodeError, DecodeProblem, Expression, Limits, Performative,
    base64,
};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Reads a message, which must be the whole document.
///
/// # Errors
/// [`DecodeError`] with the offset of the byte that does not fit, or the exceeded limit.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<AclMessage, DecodeError> {
    let mut elements = Elements::new(bytes, limits)?;
    let root = elements.root()?;
    if root.name() != "fipa-message" {
        return Err(root.unexpected("<fipa-message>"));
    }
    let mut reader = MessageReader {
        elements,
        base64: None,
    };
    let message = reader.message(&root)?;
    reader.elements.end()?;
    Ok(message)
}

struct MessageReader<'a> {
    elements: Elements<'a>,
    /// The place of the statement that the content is base64.
    base64: Option<usize>,
}

/// Whether the parameter says that the content is base64.
fn marks_base64((name, value): &(String, Expression)) -> bool {
    let is_base64 = |value: &str| value.eq_ignore_ascii_case("base64");
    name.eq_ignore_ascii_case(JADE_ENCODING) && value.as_str().is_some_and(is_base64)
}

impl<'a> MessageReader<'a> {
    fn message(&mut self, root: &Element<'a>) -> Result<AclMessage, DecodeError> {
        let act = root
            .attribute("act")?
            .filter(|act| !trimmed(act).is_empty());
        let act = act.ok_or_else(|| root.missing("the attribute 'act'"))?;
        let mut message = AclMessage::new(Performative::from(trimmed(&act)));
        let mut text_seen = false;
        while let Some(element) = self.elements.child()? {
            match element.name() {
                "sender" => {
                    let mut aids = Vec::with_capacity(1);
                    self.elements.aids(&mut aids)?;
                    let mut aids = aids.into_iter();
                    let sender = aids.next().ok_or_else(|| element.missing("an agent"))?;
                    if aids.next().is_some() || message.sender.replace(sender).is_some() {
                        return Err(element.duplicate("sender"));
                    }
                }
                "receiver" => self.elements.aids(&mut message.receivers)?,
                "reply-to" => self.elements.aids(&mut message.reply_to)?,
                "content" => {
                    if core::mem::replace(&mut text_seen, true) {
                        return Err(element.duplicate("content"));
                    }
                    let text = self.elements.text()?;
                    if text.is_empty() && element.attribute("href")?.is_some() {
                        return Err(element.missing("content in the message, not elsewhere (href)"));
                    }
                    message.content = Some(Content::Text(text.into_owned()));
                }
                "language" => self.once(&element, "language", &mut message.language)?,
                "encoding" => self.once(&element, "encoding", &mut message.encoding)?,
                "ontology" => self.once(&element, "ontology", &mut message.ontology)?,
                "reply-with" => self.once(&element, "reply-with", &mut message.reply_with)?,
                "in-reply-to" => self.once(&element, "in-reply-to", &mut message.in_reply_to)?,
                "conversation-id" => {
                    self.once(&element, "conversation-id", &mut message.conversation_id)?;
                }
                "protocol" => {
                    let text = self.elements.text_or(&element, "href")?;
                    if message
                        .protocol
                        .replace(trimmed(&text).to_owned())
                        .is_some()
                    {
                        return Err(element.duplicate("protocol"));
                    }
                }
                "reply-by" => {
                    let text = self.elements.text_or(&element, "time")?;
                    let moment = DateTime::parse(trimmed(&text).as_bytes())
                        .map_err(|problem| DecodeError::new(element.offset(), problem.into()))?;
                    if message.reply_by.replace(moment).is_some() {
                        return Err(element.duplicate("reply-by"));
                    }
                }
                _ => {
                    let parameter = self.elements.user_defined(&element)?;
                    if marks_base64(&parameter) {
                        self.base64 = Some(element.offset());
                    }
                    message.user_defined.push(parameter);
                }
            }
        }
        if message.conversation_id.is_none()
            && let Some(id) = root.attribute("conversation-id")?
        {
            message.conversation_id = Some(self.elements.expression(&id, root.offset())?);
        }
        if let (Some(offset), Some(Content::Text(text))) = (self.base64, &message.content) {
            if !base64::is_valid(text.as_bytes()) {
                let problem = "expected content in base64, as X-JADE-Encoding says".to_owned();
                return Err(DecodeError::new(offset, DecodeProblem::Syntax(problem)));
            }
            message.content = Some(Content::Bytes(base64::decode(text.as_bytes())));
            // Without content it is a parameter like any other.
            message
                .user_defined
                .retain(|parameter| !marks_base64(parameter));
        }
        Ok(message)
    }

    fn once(
        &mut self,
        element: &Element<'a>,
        name: &'static str,
        slot: &mut Option<Expression>,
    ) -> Result<(), DecodeError> {
        let text = self.elements.text_or(element, "href")?;
        let value = self.elements.expression(&text, element.offset())?;
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(element.duplicate(name)),
        }
    }
}
