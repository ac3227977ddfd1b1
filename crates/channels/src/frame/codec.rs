//! The encoding and decoding of frames: the byte of each kind, and the fields after it.

use bytes::Bytes;

use super::field::{FieldReader, number, text};
use super::{Announcement, Frame, FrameError, Head, MOST_TARGETS, Stamp, Targets};
use sealbus_bus::RefusalReason;
use sealbus_bus::text::LONGEST_EXPLANATION;
use sealbus_proof::LONGEST_EVIDENCE;

const HELLO: u8 = 0x01;
const ACKNOWLEDGE: u8 = 0x02;
const VOID: u8 = 0x10;
const ANNOUNCE: u8 = 0x11;
const WITHDRAW: u8 = 0x12;
const CREDIT: u8 = 0x13;
const TAKEN: u8 = 0x14;
const KNOWN: u8 = 0x15;
const FILTER_ERRORS: u8 = 0x16;
const MISSED: u8 = 0x17;
pub(super) const EVENT: u8 = 0x20;
const REPLY: u8 = 0x21;
const NO_ANSWER: u8 = 0x22;
const REFUSAL: u8 = 0x23;
const ABSENT: u8 = 0x24;
const KEEP: u8 = 0x30;
const KEEP_SIGNED: u8 = 0x31;

impl<'a> Frame<'a> {
    /// Reads a frame. Nothing is copied.
    ///
    /// # Errors
    /// [`FrameError`]. The ACL message is not checked.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = FieldReader { rest: bytes };
        let kind = reader.byte("its kind")?;
        if kind == HELLO {
            let from = reader.fixed("an epoch")?;
            let to = reader.fixed("an epoch")?;
            if from == 0 {
                return Err(FrameError::Limit("the epoch"));
            }
            reader.end()?;
            return Ok(Self::Hello { from, to });
        }
        let stamp = Stamp {
            session: reader.fixed("the session")?,
            number: reader.number("the frame's number")?,
        };
        let frame = match kind {
            ACKNOWLEDGE => Self::Acknowledge {
                stamp,
                upto: reader.number("what is acknowledged")?,
                read: reader.number("what is read")?,
                after: reader.number("the frame before")?,
            },
            VOID => Self::Void { stamp },
            ANNOUNCE => Self::Announce {
                stamp,
                announcement: Announcement::read(&mut reader)?,
            },
            WITHDRAW => Self::Withdraw {
                stamp,
                subscription: reader.short("the subscription")?,
                moved_before: reader.number("the first frame not taken")?,
            },
            CREDIT => Self::Credit {
                stamp,
                subscription: reader.short("the subscription")?,
                limit: reader.number("the credit")?,
            },
            TAKEN => Self::Taken {
                stamp,
                taken: reader.number("the frame taken")?,
            },
            KNOWN => Self::Known { stamp },
            FILTER_ERRORS => Self::FilterErrors {
                stamp,
                subscription: reader.short("the subscription")?,
                count: reader.number("the count")?,
                text: reader.text("the text", LONGEST_EXPLANATION)?,
            },
            MISSED => Self::Missed {
                stamp,
                subscription: reader.short("the subscription")?,
                count: reader.number("the count")?,
            },
            ABSENT => Self::Absent {
                stamp,
                message: reader.number("the frame")?,
            },
            EVENT => Self::Event {
                stamp,
                head: Head::read(&mut reader)?,
                targets: Targets::read(&mut reader)?,
                body: reader.rest(),
            },
            REPLY => Self::Reply {
                stamp,
                head: Head::read(&mut reader)?,
                subscription: reader.short("the subscription")?,
                body: reader.rest(),
            },
            NO_ANSWER => Self::NoAnswer {
                stamp,
                request: reader.number("the request")?,
                subscription: reader.short("the subscription")?,
            },
            REFUSAL => Self::Refusal {
                stamp,
                refused: reader.number("the frame refused")?,
                reason: RefusalReason::from_code(reader.byte("the reason")?)
                    .ok_or(FrameError::Limit("the reason"))?,
                text: reader.text("the text", LONGEST_EXPLANATION)?,
            },
            KEEP => Self::Keep {
                stamp,
                head: Head::read(&mut reader)?,
                evidence: &[],
                body: reader.rest(),
            },
            KEEP_SIGNED => Self::Keep {
                stamp,
                head: Head::read(&mut reader)?,
                evidence: match reader.bytes("the evidence", LONGEST_EVIDENCE)? {
                    [] => return Err(FrameError::Limit("the evidence")),
                    evidence => evidence,
                },
                body: reader.rest(),
            },
            other => return Err(FrameError::Kind(other)),
        };
        reader.end()?;
        Ok(frame)
    }

    /// Appends the frame to `out`. A text that is too long for its field is cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Hello { from, to } => {
                out.push(HELLO);
                out.extend_from_slice(&from.to_le_bytes());
                out.extend_from_slice(&to.to_le_bytes());
            }
            Self::Acknowledge {
                stamp,
                upto,
                read,
                after,
            } => {
                stamp.write(ACKNOWLEDGE, out);
                number(out, upto);
                number(out, read);
                number(out, after);
            }
            Self::Void { stamp } => stamp.write(VOID, out),
            Self::Announce {
                stamp,
                announcement,
            } => {
                stamp.write(ANNOUNCE, out);
                announcement.write(out);
            }
            Self::Withdraw {
                stamp,
                subscription,
                moved_before,
            } => {
                stamp.write(WITHDRAW, out);
                number(out, subscription.into());
                number(out, moved_before);
            }
            Self::Credit {
                stamp,
                subscription,
                limit,
            } => {
                stamp.write(CREDIT, out);
                number(out, subscription.into());
                number(out, limit);
            }
            Self::Known { stamp } => stamp.write(KNOWN, out),
            Self::Missed {
                stamp,
                subscription,
                count,
            } => {
                stamp.write(MISSED, out);
                number(out, subscription.into());
                number(out, count);
            }
            Self::FilterErrors {
                stamp,
                subscription,
                count,
                text: words,
            } => {
                stamp.write(FILTER_ERRORS, out);
                number(out, subscription.into());
                number(out, count);
                text(out, words, LONGEST_EXPLANATION);
            }
            Self::Absent { stamp, message } => {
                stamp.write(ABSENT, out);
                number(out, message);
            }
            Self::Taken { stamp, taken } => {
                stamp.write(TAKEN, out);
                number(out, taken);
            }
            Self::Event {
                stamp,
                head,
                targets,
                body,
            } => {
                stamp.write(EVENT, out);
                head.write(out);
                number(out, targets.count as u64);
                out.extend_from_slice(targets.encoded);
                out.extend_from_slice(body);
            }
            Self::Reply {
                stamp,
                head,
                subscription,
                body,
            } => {
                stamp.write(REPLY, out);
                head.write(out);
                number(out, subscription.into());
                out.extend_from_slice(body);
            }
            Self::NoAnswer {
                stamp,
                request,
                subscription,
            } => {
                stamp.write(NO_ANSWER, out);
                number(out, request);
                number(out, subscription.into());
            }
            Self::Refusal {
                stamp,
                refused,
                reason,
                text: words,
            } => {
                stamp.write(REFUSAL, out);
                number(out, refused);
                out.push(reason.code());
                text(out, words, LONGEST_EXPLANATION);
            }
            Self::Keep {
                stamp,
                head,
                evidence: [],
                body,
            } => {
                stamp.write(KEEP, out);
                head.write(out);
                out.extend_from_slice(body);
            }
            Self::Keep {
                stamp,
                head,
                evidence,
                body,
            } => {
                stamp.write(KEEP_SIGNED, out);
                head.write(out);
                number(out, evidence.len() as u64);
                out.extend_from_slice(evidence);
                out.extend_from_slice(body);
            }
        }
    }

    /// The frame as bytes of its own.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.into()
    }
}

/// Appends the start of an event's frame. The caller then appends the ACL message.
pub fn begin_event(out: &mut Vec<u8>, stamp: Stamp, head: &Head<'_>, targets: &[u32]) {
    stamp.write(EVENT, out);
    head.write(out);
    // If there are too many targets to name, the frame names none, and each subscription evaluates its own filter.
    let named = if targets.len() > MOST_TARGETS {
        &[]
    } else {
        targets
    };
    number(out, named.len() as u64);
    for target in named {
        number(out, (*target).into());
    }
}

impl Stamp {
    pub(super) fn write(&self, kind: u8, out: &mut Vec<u8>) {
        out.push(kind);
        out.extend_from_slice(&self.session.to_le_bytes());
        number(out, self.number);
    }
}
