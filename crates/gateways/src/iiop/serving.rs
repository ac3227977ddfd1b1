//! The answers of the gateway's object on one connection. Free of I/O.

use std::time::Instant;

use sealbus_giop::cdr::{ByteOrder, Decoder, Encoder};
use sealbus_giop::mts::{FipaMessage, MESSAGE, TYPE_ID};
use sealbus_giop::{
    AssembleError, Assembler, AssemblyLimits, Body, CodeSet, CodeSets, HEADER_LENGTH, Kind,
    LocateReply, LocateStatus, Message, Reply, ReplyStatus, Request, Response, SystemException,
    Version, Whole, close_connection, message_error,
};

use crate::counters::Turned;

/// The interface that every object has.
const OBJECT: &[u8] = b"IDL:omg.org/CORBA/Object:1.0";
/// A request's own fields, besides its message.
const HEAD: usize = 8 << 10;

/// The consequence of a message of the other side.
#[derive(Debug)]
pub(super) enum Step {
    /// These bytes are the answer; perhaps there are none.
    Answer(Vec<u8>),
    /// The message is to be delivered; then its answer is due.
    Deliver(Call, FipaMessage),
    /// A request is refused with these bytes, for this reason.
    Refuse(Turned, String, Vec<u8>),
    /// The connection ends after these bytes. The reason, if it is the other side's fault.
    End(Vec<u8>, Option<(Turned, String)>),
}

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    version: Version,
    order: ByteOrder,
    id: u32,
    response: Response,
    /// The character set of its strings.
    pub(super) code_set: CodeSet,
}

impl Call {
    /// Whether the caller waits for the answer.
    pub(super) fn is_answered(&self) -> bool {
        self.response != Response::None
    }

    fn reply(&self, status: ReplyStatus, result: impl FnOnce(&mut Encoder)) -> Vec<u8> {
        if !self.is_answered() {
            return Vec::new();
        }
        Reply::new(self.id, status).encode(self.version, self.order, result)
    }

    /// The reply that the call was carried out.
    pub(super) fn done(&self) -> Vec<u8> {
        self.reply(ReplyStatus::NoException, |_| {})
    }

    /// The reply that the call was not carried out.
    pub(super) fn exception(&self, exception: &SystemException) -> Vec<u8> {
        self.reply(ReplyStatus::SystemException, |out| exception.encode(out))
    }
}

/// One connection of another platform.
pub(super) struct Serving<'a> {
    key: &'a [u8],
    assembler: Assembler,
    /// The character set that the connection's first request names.
    code_set: CodeSet,
    /// The version of the last message.
    version: Version,
}

impl<'a> Serving<'a> {
    /// Serves the object with this key. `body` is the longest message, in bytes.
    pub(super) fn new(key: &'a [u8], body: usize) -> Self {
        Self {
            key,
            assembler: Assembler::new(AssemblyLimits::of_messages(body.saturating_add(HEAD))),
            code_set: CodeSet::Unnamed,
            version: Version::V1_2,
        }
    }

    /// Takes the bytes that have come.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.assembler.push(bytes);
    }

    /// The bytes that wait for the rest of their message.
    pub(super) fn waiting(&self) -> usize {
        self.assembler.waiting()
    }

    /// Forgets messages in parts that began before `time`.
    pub(super) fn forget_older_than(&mut self, time: Instant) {
        self.assembler.forget_older_than(time);
    }

    /// The message that ends the connection in order.
    pub(super) fn farewell(&self) -> Vec<u8> {
        close_connection(self.version)
    }

    /// The next step; `None` until more bytes come.
    pub(super) fn step(&mut self, now: Instant) -> Option<Step> {
        let whole = match self.assembler.next_message(now) {
            Ok(whole) => whole?,
            Err(error) => {
                let what = match error {
                    AssembleError::NotGiop => Turned::Malformed,
                    AssembleError::TooLong { .. } => Turned::TooLarge,
                    AssembleError::TooManyParts => Turned::TooMany,
                };
                let bytes = message_error(self.version);
                return Some(Step::End(bytes, Some((what, error.to_string()))));
            }
        };
        self.version = whole.header.version;
        Some(self.hear(&whole))
    }

    fn hear(&mut self, whole: &Whole) -> Step {
        let (version, order) = (whole.header.version, whole.header.order);
        let message = match Message::decode(&whole.header, &whole.bytes) {
            Ok(message) => message,
            Err(error) => return self.unreadable(whole, &error.to_string()),
        };
        match message {
            Message::Request(request, body) => {
                if let Some(sets) = CodeSets::find(&request.contexts) {
                    self.code_set = sets.char_set;
                }
                let call = Call {
                    version,
                    order,
                    id: request.id,
                    response: request.response,
                    code_set: self.code_set,
                };
                self.request(call, &request, body)
            }
            Message::LocateRequest(question) => {
                let is_here = question.target.key().is_some_and(|it| *it == *self.key);
                let status = if is_here {
                    LocateStatus::Here
                } else {
                    LocateStatus::Unknown
                };
                let id = question.id;
                Step::Answer(LocateReply { id, status }.encode(version, order))
            }
            Message::CloseConnection | Message::MessageError => Step::End(Vec::new(), None),
            // Unasked replies do no harm. No call is waited for, so none can be cancelled.
            Message::CancelRequest(_) | Message::Reply(..) | Message::LocateReply(_) => {
                Step::Answer(Vec::new())
            }
        }
    }

    /// A message whose own fields cannot be read. In 1.2 the number of a request comes first, and whether its caller
    /// waits.
    fn unreadable(&self, whole: &Whole, problem: &str) -> Step {
        let header = whole.header;
        let mut decoder = Decoder::new(&whole.bytes, HEADER_LENGTH, header.order);
        let id = decoder.ulong();
        let waits = decoder.octet().is_ok_and(|flags| flags & 3 != 0);
        let explanation = format!("a message of GIOP cannot be read: {problem}");
        match id {
            Ok(id) if header.kind == Kind::Request && header.version == Version::V1_2 => {
                let call = Call {
                    version: header.version,
                    order: header.order,
                    id,
                    response: if waits {
                        Response::Wanted
                    } else {
                        Response::None
                    },
                    code_set: self.code_set,
                };
                let bytes = call.exception(&SystemException::marshal());
                Step::Refuse(Turned::Malformed, explanation, bytes)
            }
            _ => {
                let bytes = message_error(header.version);
                Step::End(bytes, Some((Turned::Malformed, explanation)))
            }
        }
    }

    fn request(&self, call: Call, request: &Request<'_>, body: Body<'_>) -> Step {
        let refuse = |exception: &SystemException, explanation: String| {
            Step::Refuse(Turned::Malformed, explanation, call.exception(exception))
        };
        if request.target.key().is_none_or(|it| *it != *self.key) {
            let explanation = "there is no object with the key of the request".to_owned();
            return refuse(&SystemException::object_not_exist(), explanation);
        }
        let unread = |error: &dyn std::fmt::Display| {
            let explanation = format!("the arguments of the request cannot be read: {error}");
            refuse(&SystemException::marshal(), explanation)
        };
        let operation = String::from_utf8_lossy(&request.operation);
        match &*operation {
            MESSAGE => match FipaMessage::decode(&mut body.decoder()) {
                Ok(message) => Step::Deliver(call, message),
                Err(error) => unread(&error),
            },
            "_non_existent" => Step::Answer(boolean(&call, false)),
            "_is_a" => match body.decoder().string() {
                Ok(id) => Step::Answer(boolean(&call, id == TYPE_ID.as_bytes() || id == OBJECT)),
                Err(error) => unread(&error),
            },
            other => {
                let other: String = other.chars().take(100).collect();
                let explanation = format!(
                    "the operation '{}' is not one of FIPA::MTS: call message",
                    other.escape_debug()
                );
                refuse(&SystemException::bad_operation(), explanation)
            }
        }
    }
}

fn boolean(call: &Call, value: bool) -> Vec<u8> {
    call.reply(ReplyStatus::NoException, |out| out.boolean(value))
}
