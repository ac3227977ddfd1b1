//! Reading frames. The bytes come from a peer, and none is trusted before it is checked.

use std::str;

use sealbus_bus::RefusalReason;
use sealbus_proof::MOST_MESSAGES;
use zerocopy::FromBytes;

use super::{
    FLAG_MORE, FLAG_SIGNED, Frame, FrameError, GoodbyeReason, HEADER_LENGTH, Header, Hello, Kind,
    RowMessages, SignedMessages, Why,
};

/// A frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The frame.
    pub frame: Frame<'a>,
    /// The low 32 bits of its number, if it is counted.
    pub sequence: u32,
    /// The bytes that it took.
    pub length: usize,
}

/// Reads the frame at the beginning of `bytes`. `None`: more bytes are needed.
///
/// # Errors
/// [`FrameError`] as soon as the fault is certain.
pub fn parse(bytes: &[u8], longest_body: usize) -> Result<Option<Parsed<'_>>, FrameError> {
    let Ok((header, rest)) = Header::ref_from_prefix(bytes) else {
        return Ok(None);
    };
    let length = header.length.get() as usize;
    let kind = Kind::from_code(header.kind).ok_or(FrameError::UnknownKind(header.kind))?;
    if length > longest_body {
        return Err(FrameError::TooLong {
            length,
            limit: longest_body,
        });
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let frame = decode(kind, header.flags, body).ok_or(FrameError::Malformed(kind))?;
    Ok(Some(Parsed {
        frame,
        sequence: header.sequence.get(),
        length: HEADER_LENGTH + length,
    }))
}

/// The whole length of the frame at the beginning of `bytes`, which this process wrote.
pub(crate) fn length_of(bytes: &[u8]) -> Option<usize> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    Some(HEADER_LENGTH + header.length.get() as usize)
}

#[inline]
fn decode(kind: Kind, flags: u8, body: &[u8]) -> Option<Frame<'_>> {
    Some(match kind {
        Kind::Message => {
            let (sender, body) = take_u32(body)?;
            let (target, payload) = take_u32(body)?;
            Frame::Message {
                sender,
                target,
                is_signed: flags & FLAG_SIGNED != 0,
                payload,
            }
        }
        Kind::Row => {
            let (sender, body) = take_u32(body)?;
            let (target, messages) = take_u32(body)?;
            Frame::Row {
                sender,
                target,
                messages: RowMessages::decode(messages)?,
            }
        }
        Kind::Begin => {
            let (sender, body) = take_u32(body)?;
            let (target, body) = take_u32(body)?;
            let (total, piece) = take_u32(body)?;
            Frame::Begin {
                sender,
                target,
                is_signed: flags & FLAG_SIGNED != 0,
                total,
                piece,
            }
        }
        Kind::Continue => {
            let (target, piece) = take_u32(body)?;
            Frame::Continue { target, piece }
        }
        Kind::Credit => {
            let (target, body) = take_u32(body)?;
            Frame::Credit {
                target,
                limit: whole_u64(body)?,
            }
        }
        Kind::Acknowledge => Frame::Acknowledge {
            received: whole_u64(body)?,
        },
        Kind::Ping => body.is_empty().then_some(Frame::Ping)?,
        Kind::Pong => body.is_empty().then_some(Frame::Pong)?,
        Kind::Hello => Frame::Hello(Hello::decode(body)?),
        Kind::Goodbye => {
            let (reason, text) = body.split_first()?;
            Frame::Goodbye {
                reason: GoodbyeReason::from_code(*reason)?,
                text: str::from_utf8(text).ok()?,
            }
        }
        Kind::Bind => {
            let (handle, proof) = take_u32(body)?;
            Frame::Bind { handle, proof }
        }
        Kind::Prove => {
            let (target, proof) = take_u32(body)?;
            Frame::Prove { target, proof }
        }
        Kind::Target => {
            let (handle, name) = take_u32(body)?;
            Frame::Target {
                handle,
                name: str::from_utf8(name).ok()?,
            }
        }
        Kind::Accept => {
            let (target, body) = take_u32(body)?;
            Frame::Accept {
                target,
                limit: whole_u64(body)?,
            }
        }
        Kind::Leaving => {
            let (target, body) = take_u32(body)?;
            let [why] = body else { return None };
            Frame::Leaving {
                target,
                why: Why::from_code(*why)?,
            }
        }
        Kind::CloseTarget => Frame::CloseTarget {
            target: whole_u32(body)?,
        },
        Kind::TargetClosed => Frame::TargetClosed {
            target: whole_u32(body)?,
        },
        Kind::Returned => {
            let (target, body) = take_u32(body)?;
            let (sender, body) = take_u32(body)?;
            let (why, piece) = body.split_first()?;
            let more = flags & FLAG_MORE != 0;
            Frame::Returned {
                target,
                sender,
                why: Why::from_code(*why)?,
                more,
                piece,
            }
        }
        Kind::Unread => {
            let (number, body) = take_u32(body)?;
            let (sender, piece) = take_u32(body)?;
            Frame::Unread {
                number,
                sender,
                more: flags & FLAG_MORE != 0,
                piece,
            }
        }
        Kind::Unbind => Frame::Unbind {
            handle: whole_u32(body)?,
        },
        Kind::Refused => {
            let (handle, body) = take_u32(body)?;
            let (reason, text) = body.split_first()?;
            Frame::Refused {
                handle,
                reason: RefusalReason::from_code(*reason)?,
                text: str::from_utf8(text).ok()?,
            }
        }
        Kind::Delegate => {
            let (handle, body) = take_u32(body)?;
            let (serial, delegation) = body.split_first_chunk()?;
            Frame::Delegate {
                handle,
                serial: *serial,
                delegation,
            }
        }
        Kind::Sign => {
            let (time, body) = body.split_first_chunk()?;
            let (length, body) = body.split_first_chunk()?;
            let length = usize::from(u16::from_le_bytes(*length));
            let (signature, authors) = body.split_at_checked(length)?;
            let authors = <[SignedMessages]>::ref_from_bytes(authors).ok()?;
            let is_right = (1..=MOST_MESSAGES).contains(&authors.len());
            is_right.then_some(Frame::Sign {
                time: u64::from_le_bytes(*time),
                signature,
                authors,
            })?
        }
    })
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes
        .split_first_chunk::<4>()
        .map(|(value, rest)| (u32::from_le_bytes(*value), rest))
}

fn whole_u32(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn whole_u64(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}
