//! Kept messages with the proofs of their authors: the record of what agents received, and the pages in which operators
//! get every message that has a proof. Proofs are not checked here, because their reader trusts no node.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use sealbus_channels::frame::Frame;
use sealbus_channels::{ChannelPath, ChannelPattern};
use sealbus_control::evidence::{
    EvidencePage, EvidencePosition, EvidenceQuestion, ProvedMessage, RecordedMessage,
};
use sealbus_control::post::Cover;
use sealbus_control::{Blob, Fault, FaultCode, WaitingProvenance};
use sealbus_fipa::{Limits, bitefficient};
use sealbus_journal::{Journal, JournalError, NewRecord, ReadFrom, Record, Stream};
use sealbus_seal::PlatformName;

use super::{CHANNEL, KeptChannelLogs, RECORD, storage};
use crate::post::MAILBOX;

/// The most messages in one request to record.
const MOST_RECORDED: usize = 512;
/// The most records, and the most bytes of them, that are searched for one page.
const MOST_LOOKED_AT: (usize, usize) = (16_384, 32 << 20);
/// The most bytes of messages on a page, unless a single message has more.
const MOST_BYTES: usize = 512 << 10;

/// A message in the form of a record.
fn to_record(recorded: &RecordedMessage) -> NewRecord {
    let evidence = &recorded.evidence.0;
    let mut payload = Vec::with_capacity(4 + evidence.len() + recorded.message.0.len());
    payload.extend_from_slice(&(evidence.len() as u32).to_be_bytes());
    payload.extend_from_slice(evidence);
    payload.extend_from_slice(&recorded.message.0);
    NewRecord {
        key: Bytes::copy_from_slice(recorded.receiver.as_bytes()),
        attributes: Bytes::new(),
        payload: payload.into(),
    }
}

/// A kept message. It has evidence only if somebody signed it.
struct KeptMessage<'r> {
    channel: Option<&'r str>,
    qos: String,
    receivers: Vec<Cow<'r, str>>,
    message: &'r [u8],
    evidence: Cow<'r, [u8]>,
}

/// The kind of a stream of messages.
#[derive(Clone, Copy)]
enum Source<'s> {
    Channel,
    Mailbox(&'s str),
    Record,
}

impl<'s> Source<'s> {
    fn of(name: &'s str) -> Option<Self> {
        if name == RECORD {
            return Some(Self::Record);
        }
        if let Some(path) = name.strip_prefix(CHANNEL) {
            return ChannelPath::new(path).is_ok().then_some(Self::Channel);
        }
        name.strip_prefix(MAILBOX).map(Self::Mailbox)
    }

    /// The message in a record; `None` if the record is not a message.
    fn open<'r>(self, record: &'r Record, platform: &PlatformName) -> Option<KeptMessage<'r>>
    where
        's: 'r,
    {
        let direct = |receiver: &str, message, evidence| KeptMessage {
            channel: None,
            qos: String::new(),
            receivers: vec![Cow::Owned(format!("{receiver}@{platform}"))],
            message,
            evidence,
        };
        match self {
            Self::Channel => match Frame::decode(&record.payload) {
                Ok(Frame::Keep {
                    head,
                    evidence,
                    body,
                    ..
                }) => Some(KeptMessage {
                    channel: Some(head.channel),
                    qos: head.stated_qos(),
                    receivers: head
                        .stated_receivers()
                        .iter()
                        .copied()
                        .map(Cow::from)
                        .collect(),
                    message: body,
                    evidence: Cow::Borrowed(evidence),
                }),
                _ => None,
            },
            Self::Mailbox(agent) => {
                let cover: Cover = serde_json::from_slice(&record.attributes).ok()?;
                let evidence = match cover.provenance {
                    WaitingProvenance::Signed { evidence, .. } => evidence.0,
                    _ => Vec::new(),
                };
                Some(direct(agent, &record.payload, Cow::Owned(evidence)))
            }
            Self::Record => {
                let receiver = std::str::from_utf8(&record.key).ok()?;
                let (length, rest) = record.payload.split_first_chunk::<4>()?;
                let (evidence, message) =
                    rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
                Some(direct(receiver, message, Cow::Borrowed(evidence)))
            }
        }
    }
}

/// Opens any bytes as a record of each kind of stream. A record of a received message must be written as it was read.
pub fn check_record(key: &[u8], attributes: &[u8], payload: &[u8]) {
    let record = Record {
        number: 1,
        time: std::time::UNIX_EPOCH,
        key: Bytes::copy_from_slice(key),
        attributes: Bytes::copy_from_slice(attributes),
        payload: Bytes::copy_from_slice(payload),
    };
    let Ok(platform) = "factory".parse() else {
        return;
    };
    for source in [Source::Channel, Source::Mailbox("agent"), Source::Record] {
        let Some(kept) = source.open(&record, &platform) else {
            continue;
        };
        assert!(kept.message.len() <= payload.len());
        if let (Source::Record, Ok(receiver)) = (source, str::from_utf8(key)) {
            let again = to_record(&RecordedMessage {
                receiver: receiver.to_owned(),
                message: Blob(kept.message.to_vec()),
                evidence: Blob(kept.evidence.to_vec()),
            });
            assert_eq!((&again.key[..], &again.payload[..]), (key, payload));
        }
    }
}

/// A question whose parts are checked.
struct CheckedEvidenceQuestion<'q> {
    question: &'q EvidenceQuestion,
    channel: Option<ChannelPattern>,
}

impl CheckedEvidenceQuestion<'_> {
    fn wants(&self, kept: &KeptMessage<'_>) -> bool {
        if let Some(pattern) = &self.channel {
            let path = kept.channel.and_then(|path| ChannelPath::new(path).ok());
            if !path.is_some_and(|path| pattern.matches(&path)) {
                return false;
            }
        }
        let EvidenceQuestion {
            conversation,
            agent,
            ..
        } = self.question;
        if conversation.is_none() && agent.is_none() {
            return true;
        }
        let limits = Limits {
            message_length: kept.message.len(),
            ..Limits::default()
        };
        let Ok(view) = bitefficient::decode_ref(kept.message, &limits) else {
            return false;
        };
        let in_conversation = conversation.as_ref().is_none_or(|wanted| {
            let id = view
                .conversation_id()
                .and_then(|id| id.text().map(Cow::into_owned));
            id.as_ref() == Some(wanted)
        });
        let with_agent = agent.as_ref().is_none_or(|wanted| {
            view.sender().is_some_and(|sender| sender.name() == wanted)
                || kept.receivers.iter().any(|receiver| receiver == wanted)
                || view.receivers().any(|receiver| receiver.name() == wanted)
        });
        in_conversation && with_agent
    }
}

impl KeptChannelLogs {
    /// Records what agents received. The messages are on disk when this returns.
    pub(super) async fn record(&self, messages: &[RecordedMessage]) -> Result<(), Fault> {
        if messages.len() > MOST_RECORDED {
            let text = format!("at most {MOST_RECORDED} messages are recorded at once");
            return Err(Fault::new(FaultCode::BadRequest, text));
        }
        self.reserve.check(&self.node)?;
        let config = self.config(self.obeyed()?.recorded);
        let stream = self.journal.open_stream(RECORD, config).map_err(storage)?;
        let mut under_way = Vec::with_capacity(messages.len());
        for message in messages {
            under_way.push(stream.append(to_record(message)).map_err(storage)?);
        }
        for written in under_way {
            written.await.map_err(storage)?;
        }
        Ok(())
    }

    /// The next page of this node's messages.
    ///
    /// # Errors
    /// [`FaultCode::BadRequest`] if the pattern is not valid.
    pub(super) async fn page(
        self: &Arc<Self>,
        question: EvidenceQuestion,
    ) -> Result<EvidencePage, Fault> {
        let logs = self.clone();
        let page = move || page(&logs.journal, &logs.node, &logs.platform, &question);
        let page = tokio::task::spawn_blocking(page).await;
        page.map_err(Fault::internal)?
    }
}

fn page(
    journal: &Journal,
    node: &str,
    platform: &PlatformName,
    question: &EvidenceQuestion,
) -> Result<EvidencePage, Fault> {
    let channel = question.channel.as_deref().map(ChannelPattern::new);
    let wanted = CheckedEvidenceQuestion {
        question,
        channel: channel
            .transpose()
            .map_err(|error| Fault::new(FaultCode::BadRequest, error.to_string()))?,
    };
    let mut page = EvidencePage {
        node: node.to_owned(),
        ..EvidencePage::default()
    };
    let begin = match &question.positions {
        None => None,
        Some(positions) => match positions.get(node) {
            Some(position) => Some(position),
            None => return Ok(page),
        },
    };
    let mut room = Room {
        bytes: MOST_BYTES,
        looks: MOST_LOOKED_AT,
    };
    for stream in journal.streams() {
        let from = match begin {
            Some(begin) if stream.name() < begin.stream.as_str() => continue,
            Some(begin) if stream.name() == begin.stream => ReadFrom::Number(begin.number),
            _ => match question.since {
                Some(time) => ReadFrom::Time(sealbus_channels::Moment::from_unix_ms(time).into()),
                None => ReadFrom::Start,
            },
        };
        let Some(source) = Source::of(stream.name()) else {
            continue;
        };
        if let Some(number) = read(
            &stream, source, from, &wanted, platform, &mut room, &mut page,
        ) {
            page.next = Some(EvidencePosition {
                stream: stream.name().to_owned(),
                number,
            });
            break;
        }
    }
    Ok(page)
}

/// The room that is left on a page.
struct Room {
    bytes: usize,
    looks: (usize, usize),
}

/// Reads one stream. If the page is full, returns the number at which to go on.
fn read(
    stream: &Stream,
    source: Source<'_>,
    from: ReadFrom,
    wanted: &CheckedEvidenceQuestion<'_>,
    platform: &PlatformName,
    room: &mut Room,
    page: &mut EvidencePage,
) -> Option<u64> {
    let mut reader = stream.read(from);
    loop {
        if room.bytes == 0 || room.looks.0 == 0 || room.looks.1 == 0 {
            return Some(reader.position());
        }
        let record = match reader.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => return None,
            Err(error) => {
                page.damage.push(error.to_string());
                if matches!(error, JournalError::Damaged(_)) && reader.seek_next_file() {
                    continue;
                }
                return None;
            }
        };
        room.looks.0 -= 1;
        room.looks.1 = room.looks.1.saturating_sub(record.payload.len());
        let Some(kept) = source.open(&record, platform) else {
            continue;
        };
        if !wanted.wants(&kept) {
            continue;
        }
        if kept.evidence.is_empty() {
            page.unsigned += 1;
            continue;
        }
        let size = kept.message.len() + kept.evidence.len();
        if size > room.bytes && !page.messages.is_empty() {
            return Some(record.number);
        }
        room.bytes = room.bytes.saturating_sub(size);
        page.messages.push(ProvedMessage {
            channel: kept.channel.map(str::to_owned),
            qos: kept.qos,
            receivers: kept.receivers.into_iter().map(Cow::into_owned).collect(),
            message: Blob(kept.message.to_vec()),
            evidence: Blob(kept.evidence.into_owned()),
        });
    }
}
