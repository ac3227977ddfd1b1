//! The checks of a strict receiver beyond the encoding (FIPA00061, FIPA00037).

use alloc::borrow::Cow;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::expression::is_standard_word;
use crate::{AclMessage, Aid, Expression, Origin, Performative, is_word};

/// A part of a message that is against the standard, or unwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The field, such as `receiver[0].name`.
    pub field: Cow<'static, str>,
    /// The fault and the remedy.
    pub message: String,
    /// The standard that requires this.
    pub reference: &'static str,
}

/// How bad a [`Finding`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Allowed, but some platforms will not understand it.
    Warning,
    /// Against the standard.
    Error,
}

/// Facts that the receiver knows and the message does not state. The default knows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expectations<'a> {
    /// The moment of reception, in milliseconds after 1 January 1970 UTC.
    pub received_unix_ms: Option<i64>,
    /// The `reply-with` tags for which the receiver awaits answers.
    pub awaited: Option<&'a [Expression]>,
}

/// Checks a message as a strict receiver does. Without findings the message is sound.
pub fn validate(message: &AclMessage, expectations: &Expectations<'_>) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    findings.performative(message);
    findings.agents(message);
    findings.conversation(message, expectations);
    findings.content(message);
    findings.words(message);
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(
        &mut self,
        severity: Severity,
        field: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
        reference: &'static str,
    ) {
        self.0.push(Finding {
            severity,
            field: field.into(),
            message: message.into(),
            reference,
        });
    }

    fn error(&mut self, field: impl Into<Cow<'static, str>>, message: impl Into<String>) {
        self.add(Severity::Error, field, message, "FIPA00061");
    }

    fn warning(&mut self, field: impl Into<Cow<'static, str>>, message: impl Into<String>) {
        self.add(Severity::Warning, field, message, "FIPA00061");
    }

    fn performative(&mut self, message: &AclMessage) {
        if let Performative::Other(name) = &message.performative {
            let what = "is not one of the 22 standard acts; receivers must have agreed on it";
            self.warning("performative", format!("'{}' {what}", name.escape_debug()));
            if !is_word(name.as_bytes()) {
                self.error("performative", "is not a word");
            }
        }
        if matches!(
            message.performative,
            Performative::InformIf | Performative::InformRef
        ) {
            let what = "is planned inside a request, and not sent on its own";
            self.add(Severity::Warning, "performative", what, "FIPA00037");
        }
    }

    fn agents(&mut self, message: &AclMessage) {
        match &message.sender {
            None => self.warning("sender", "is absent; JADE drops messages without sender"),
            Some(sender) => self.agent("sender", sender),
        }
        if message.receivers.is_empty() {
            self.warning(
                "receiver",
                "is absent; only an embedded message may do without",
            );
        }
        for (name, aids) in [
            ("receiver", &message.receivers),
            ("reply-to", &message.reply_to),
        ] {
            let mut names = alloc::collections::BTreeSet::new();
            for (index, aid) in aids.iter().enumerate() {
                self.agent(&format!("{name}[{index}]"), aid);
                if !names.insert(&aid.name) {
                    self.warning(format!("{name}[{index}]"), "is named a second time");
                }
            }
        }
    }

    fn agent(&mut self, field: &str, aid: &Aid) {
        match Aid::new(aid.name.as_str()) {
            Err(error) => {
                self.add(
                    Severity::Error,
                    format!("{field}.name"),
                    error.to_string(),
                    "FIPA00023",
                );
            }
            Ok(aid) if aid.platform().is_none() => {
                let what = "has no platform (name@platform), so it is not globally unique";
                self.add(
                    Severity::Warning,
                    format!("{field}.name"),
                    what,
                    "FIPA00023",
                );
            }
            Ok(_) => {}
        }
        for (index, resolver) in aid.resolvers.iter().enumerate() {
            self.agent(&format!("{field}.resolvers[{index}]"), resolver);
        }
        self.user_defined(&format!("{field}."), &aid.user_defined);
    }

    fn user_defined(&mut self, field: &str, parameters: &[(String, Expression)]) {
        let mut names = alloc::collections::BTreeSet::new();
        for (name, value) in parameters {
            let field = format!("{field}{name}");
            if !name
                .get(..2)
                .is_some_and(|start| start.eq_ignore_ascii_case("X-"))
            {
                self.error(field.clone(), "does not begin with X-");
            }
            if !is_word(name.as_bytes()) {
                self.error(field.clone(), "has a name that is not a word");
            }
            if !names.insert(name.to_ascii_lowercase()) {
                self.error(field.clone(), "is given a second time");
            }
            self.word(&field, value);
        }
    }

    fn conversation(&mut self, message: &AclMessage, expectations: &Expectations<'_>) {
        if message.protocol.is_some() && message.conversation_id.is_none() {
            self.error("conversation-id", "is absent, but a protocol demands one");
        }
        if let Some(protocol) = &message.protocol
            && !is_standard_word(protocol.as_bytes())
        {
            self.error("protocol", "is not a word");
        }
        if let (Some(tag), Some(awaited)) = (&message.in_reply_to, expectations.awaited) {
            // The encodings differ in whether a tag is a word or a string.
            let same = |other: &Expression| match (other.as_str(), tag.as_str()) {
                (Some(one), Some(other)) => one == other,
                _ => other == tag,
            };
            if !awaited.iter().any(same) {
                self.error(
                    "in-reply-to",
                    "answers nothing that the receiver awaits an answer to",
                );
            }
        }
        let Some(moment) = &message.reply_by else {
            return;
        };
        if moment.origin() == Origin::Calendar && moment.designator().is_none() {
            self.warning(
                "reply-by",
                "is in the sender's local time, which is not sent; write UTC with Z",
            );
        }
        let Some(now) = expectations.received_unix_ms else {
            return;
        };
        match moment.unix_ms(now) {
            Ok(moment) if moment < now => {
                self.warning("reply-by", "is past: the sender waits no more");
            }
            Ok(_) => {}
            Err(error) => self.warning("reply-by", error.to_string()),
        }
    }

    fn content(&mut self, message: &AclMessage) {
        match &message.content {
            Some(_) if message.language.is_none() => {
                self.warning(
                    "language",
                    "is absent, so the content cannot be interpreted",
                );
            }
            None if message.language.is_some() || message.encoding.is_some() => {
                self.warning(
                    "content",
                    "is absent, though its language or encoding is given",
                );
            }
            _ => {}
        }
    }

    fn words(&mut self, message: &AclMessage) {
        for (field, value) in [
            ("language", &message.language),
            ("encoding", &message.encoding),
            ("ontology", &message.ontology),
            ("conversation-id", &message.conversation_id),
            ("reply-with", &message.reply_with),
            ("in-reply-to", &message.in_reply_to),
        ] {
            if let Some(value) = value {
                self.word(field, value);
            }
        }
        self.user_defined("", &message.user_defined);
    }

    fn word(&mut self, field: &str, value: &Expression) {
        match value {
            Expression::Word(word) if !is_word(word.as_bytes()) => {
                let what = "is not a word; make it a string";
                self.add(Severity::Error, field.to_owned(), what, "FIPA00070");
            }
            Expression::List(items) => items.iter().for_each(|item| self.word(field, item)),
            _ => {}
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} {} [{}]",
            self.severity, self.field, self.message, self.reference
        )
    }
}
