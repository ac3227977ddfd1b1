//! The words inside a sealed message, which its receiver shows to others.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use sealbus_fipa::{AclMessage, AclMessageRef, ExpressionRef, Limits, bitefficient};
use sealbus_seal::encryption::{Commitment, Encapsulation, EncryptionKeyId, Salt};
use serde::{Deserialize, Serialize};

use crate::blob::Blob;
use crate::error::{EvidenceFileError, NotDisclosed, NotTrue};
use crate::file::{DisclosedLine, EvidenceLine, MessageLine, at, hexadecimal, whole, write_file};

/// The performative of the outer message.
const SEALED: &str = "sealed";
/// The versions of the content of a sealed message, each with the number of bytes before the commitment. The first version has
/// the key and the encapsulated secret, the second has the name of the secret. In both, the number follows. The content of a
/// sealed event may begin with the same byte, but has its commitment elsewhere, so only words of direct messages are disclosed.
const FORMS: [(u8, usize); 2] = [
    (3, 1 + EncryptionKeyId::LENGTH + Encapsulation::LENGTH + 4),
    (4, 1 + 8 + 4),
];

/// The words inside a sealed message, with the salt of its author's commitment to them. Its text form is a line of JSON.
///
/// Its holder can read the words, and show others that the author wrote them: [`disclose`] puts them into a file of
/// evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disclosure {
    salt: Blob,
    inside: Blob,
}

/// The words inside a sealed message, as its author committed to them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DisclosedReport {
    /// The performative.
    pub performative: String,
    /// `:in-reply-to`, if it is text.
    pub in_reply_to: Option<String>,
    /// The content, if it is text.
    pub content: Option<String>,
    /// SHA-256 of the content's bytes, hexadecimal; none without content.
    pub content_sha256: Option<String>,
}

impl Disclosure {
    /// The disclosure of a message in the bit-efficient encoding (FIPA00069).
    pub fn new(salt: &Salt, inside: &[u8]) -> Self {
        Self {
            salt: Blob(salt.as_bytes().to_vec()),
            inside: Blob(inside.to_vec()),
        }
    }

    /// The author's commitment; none if the salt has another length.
    fn commitment(&self) -> Option<Commitment> {
        commitment_of(&self.salt, &self.inside)
    }
}

impl fmt::Display for Disclosure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Disclosure {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

fn commitment_of(salt: &Blob, inside: &Blob) -> Option<Commitment> {
    let salt = salt.0.as_slice().try_into().ok()?;
    Some(Commitment::new(&Salt::from_bytes(salt), &inside.0))
}

/// The commitment in a sealed direct message; none if it is another message. `channel` is the channel of the message's
/// line.
fn commitment_in(outer: &AclMessageRef<'_>, channel: Option<&str>) -> Option<Commitment> {
    let content = outer.content_bytes()?;
    if channel.is_some() || !outer.is_act(SEALED) {
        return None;
    }
    let version = content.first()?;
    let (_, at) = FORMS.iter().find(|(form, _)| form == version)?;
    let commitment = content.get(*at..)?.first_chunk()?;
    Some(Commitment::from_bytes(*commitment))
}

fn decode(message: &[u8]) -> Result<AclMessageRef<'_>, sealbus_fipa::DecodeError> {
    let limits = Limits {
        message_length: message.len(),
        ..Limits::default()
    };
    bitefficient::decode_ref(message, &limits)
}

/// Whether a message inside a sealed one has the names that the outer one shows.
pub fn is_inside(inside: &AclMessage, outer: &AclMessage) -> bool {
    inside.sender == outer.sender
        && inside.receivers == outer.receivers
        && inside.conversation_id == outer.conversation_id
        && inside.reply_with == outer.reply_with
}

/// A parameter, if it is text.
pub(crate) fn text(expression: Option<ExpressionRef<'_>>) -> Option<String> {
    match expression? {
        ExpressionRef::Word(word) => Some(word.to_owned()),
        ExpressionRef::String(text) => Some(text.into_owned()),
        _ => None,
    }
}

/// Checks the disclosed words of messages. Returns them with the places of the messages.
pub(crate) fn check(
    messages: &[(usize, &[u8])],
    disclosed: &[(usize, &[u8])],
) -> Result<Vec<(usize, DisclosedReport)>, EvidenceFileError> {
    let mut least = 0;
    let check = |(number, line): &(usize, &[u8])| {
        let (place, words) = at(*number, check_line(messages, line, least))?;
        least = place + 1;
        Ok((place, words))
    };
    disclosed.iter().map(check).collect()
}

fn check_line(
    messages: &[(usize, &[u8])],
    line: &[u8],
    least: usize,
) -> Result<(usize, DisclosedReport), NotTrue> {
    let EvidenceLine::Disclosed(line) = serde_json::from_slice(line)? else {
        return Err(NotTrue::Form("it is not disclosed words"));
    };
    let sealed = messages.get(line.message).filter(|_| line.message >= least);
    let Some((_, sealed)) = sealed else {
        return Err(NotTrue::Form(
            "the file has no such message, or its words stand before",
        ));
    };
    let EvidenceLine::Message(MessageLine {
        message, channel, ..
    }) = serde_json::from_slice(sealed)?
    else {
        return Err(NotTrue::Form("it is not a message"));
    };
    let outer = decode(&message.0)?;
    let Some(committed) = commitment_in(&outer, channel.as_deref()) else {
        return Err(NotTrue::Form(
            "the message was not sealed, or is no direct message",
        ));
    };
    if commitment_of(&line.salt, &line.inside) != Some(committed) {
        return Err(NotTrue::Form("the author committed to other words"));
    }
    let inside = decode(&line.inside.0)?;
    if !is_inside(&inside.to_owned(), &outer.to_owned()) {
        return Err(NotTrue::Form(
            "the words have another sender, receiver or conversation than the message",
        ));
    }
    let content = inside.content_bytes();
    let words = DisclosedReport {
        performative: inside.performative().as_str().to_owned(),
        in_reply_to: text(inside.in_reply_to()),
        content_sha256: content.as_deref().map(hexadecimal),
        content: content.and_then(|bytes| String::from_utf8(bytes.into_owned()).ok()),
    };
    Ok((line.message, words))
}

/// The same file of evidence with the words of sealed messages in it. Words that the file has already stay.
///
/// # Errors
/// [`NotDisclosed`] if the file is damaged, or the words are not those of one of its messages.
pub fn disclose(file: &[u8], words: &[Disclosure]) -> Result<Vec<u8>, NotDisclosed> {
    let mut lines = Vec::new();
    let mut disclosed = BTreeMap::new();
    let mut committed: HashMap<[u8; Commitment::LENGTH], Vec<(usize, AclMessage)>> = HashMap::new();
    let mut messages = 0;
    for (number, line) in (1..).zip(whole(file)?.split(|byte| *byte == b'\n')) {
        let line = at(number, serde_json::from_slice(line))?;
        match line {
            EvidenceLine::Disclosed(line) => {
                disclosed.insert(line.message, line);
                continue;
            }
            EvidenceLine::Message(MessageLine {
                ref message,
                ref channel,
                ..
            }) => {
                let outer = at(number, decode(&message.0))?;
                if let Some(commitment) = commitment_in(&outer, channel.as_deref()) {
                    let found = committed.entry(*commitment.as_bytes()).or_default();
                    found.push((messages, outer.to_owned()));
                }
                messages += 1;
            }
            _ => {}
        }
        lines.push(line);
    }
    for (number, words) in (1..).zip(words) {
        let commitment = words.commitment();
        // Others may have copied the commitment into messages of their own.
        let candidates = commitment.and_then(|it| committed.get(it.as_bytes()));
        let message = candidates.and_then(|all| {
            let inside = decode(&words.inside.0).ok()?.to_owned();
            let of_it = all.iter().find(|(_, outer)| is_inside(&inside, outer));
            of_it.map(|(message, _)| *message)
        });
        let message = message.ok_or(NotDisclosed::OfNoMessage { number })?;
        let Disclosure { salt, inside } = words.clone();
        let line = DisclosedLine {
            message,
            salt,
            inside,
        };
        disclosed.insert(message, line);
    }
    lines.extend(disclosed.into_values().map(EvidenceLine::Disclosed));
    Ok(write_file(&lines)?)
}
