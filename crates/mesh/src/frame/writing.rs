//! Writing frames: they are appended to a buffer. The header is written last, when the length of the body is known.

use sealbus_bus::text::LONGEST_EXPLANATION;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::{FLAG_MORE, FLAG_SIGNED, Frame, HEADER_LENGTH, Header, Kind};

impl Frame<'_> {
    /// Appends the frame. `sequence` is the frame's number if it is counted.
    pub fn encode(&self, sequence: u64, out: &mut Vec<u8>) {
        let start = begin(out);
        let mut flags = 0;
        match self {
            Self::Hello(hello) => hello.encode(out),
            Self::Goodbye { reason, text } => {
                out.push(*reason as u8);
                put_text(out, text);
            }
            Self::Bind { handle, proof } => {
                put_u32(out, *handle);
                out.extend_from_slice(proof);
            }
            Self::Acknowledge { received } => put_u64(out, *received),
            Self::Ping | Self::Pong => {}
            Self::Message {
                sender,
                target,
                is_signed,
                payload,
            } => {
                flags = mark(*is_signed);
                put_u32(out, *sender);
                put_u32(out, *target);
                out.extend_from_slice(payload);
            }
            Self::Row {
                sender,
                target,
                messages,
            } => {
                put_u32(out, *sender);
                put_u32(out, *target);
                messages.encode(out);
            }
            Self::Begin {
                sender,
                target,
                is_signed,
                total,
                piece,
            } => {
                flags = mark(*is_signed);
                put_u32(out, *sender);
                put_u32(out, *target);
                put_u32(out, *total);
                out.extend_from_slice(piece);
            }
            Self::Continue { target, piece } => {
                put_u32(out, *target);
                out.extend_from_slice(piece);
            }
            Self::Target { handle, name } => {
                put_u32(out, *handle);
                out.extend_from_slice(name.as_bytes());
            }
            Self::Prove { target, proof } => {
                put_u32(out, *target);
                out.extend_from_slice(proof);
            }
            Self::Accept { target, limit } | Self::Credit { target, limit } => {
                put_u32(out, *target);
                put_u64(out, *limit);
            }
            Self::Leaving { target, why } => {
                put_u32(out, *target);
                out.push(why.code());
            }
            Self::CloseTarget { target: handle }
            | Self::TargetClosed { target: handle }
            | Self::Unbind { handle } => put_u32(out, *handle),
            Self::Returned {
                target,
                sender,
                why,
                more,
                piece,
            } => {
                put_u32(out, *target);
                put_u32(out, *sender);
                out.push(why.code());
                out.extend_from_slice(piece);
                flags = if *more { FLAG_MORE } else { 0 };
            }
            Self::Unread {
                number,
                sender,
                more,
                piece,
            } => {
                put_u32(out, *number);
                put_u32(out, *sender);
                out.extend_from_slice(piece);
                flags = if *more { FLAG_MORE } else { 0 };
            }
            Self::Refused {
                handle,
                reason,
                text,
            } => {
                put_u32(out, *handle);
                out.push(reason.code());
                put_text(out, text);
            }
            Self::Delegate {
                handle,
                serial,
                delegation,
            } => {
                put_u32(out, *handle);
                out.extend_from_slice(serial);
                out.extend_from_slice(delegation);
            }
            Self::Sign {
                time,
                signature,
                authors,
            } => {
                put_u64(out, *time);
                // Signatures are far shorter.
                let length = u16::try_from(signature.len()).unwrap_or(u16::MAX);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(signature);
                out.extend_from_slice(authors.as_bytes());
            }
        }
        finish(out, start, self.kind(), flags, sequence);
    }
}

/// Appends room for a header and a message's handles. The caller appends the payload and then calls [`finish_message`].
pub(crate) fn begin_message(out: &mut Vec<u8>, sender: u32, target: u32) -> usize {
    let start = begin(out);
    put_u32(out, sender);
    put_u32(out, target);
    start
}

/// The flags of a message.
fn mark(is_signed: bool) -> u8 {
    if is_signed { FLAG_SIGNED } else { 0 }
}

/// Completes a frame begun by [`begin_message`] at `start`.
pub(crate) fn finish_message(out: &mut [u8], start: usize, sequence: u64, is_signed: bool) {
    finish(out, start, Kind::Message, mark(is_signed), sequence);
}

/// Completes a row of messages that begins at `start`.
pub(crate) fn finish_row(out: &mut [u8], start: usize, sequence: u64) {
    finish(out, start, Kind::Row, 0, sequence);
}

/// Extends the frame at the beginning of `out` by `by` bytes that are stored elsewhere.
pub(crate) fn lengthen(out: &mut [u8], by: usize) {
    if let Ok((header, _)) = Header::mut_from_prefix(out) {
        let length = header.length.get() as usize + by;
        // The makers of frames cut bodies to LONGEST_BODY.
        header.length = U32::new(u32::try_from(length).unwrap_or(u32::MAX));
    }
}

/// The number of bytes before the payload in a [`Frame::Message`].
pub(crate) const MESSAGE_START: usize = HEADER_LENGTH + 8;

fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LENGTH]);
    start
}

fn finish(out: &mut [u8], start: usize, kind: Kind, flags: u8, sequence: u64) {
    let length = out.len() - start - HEADER_LENGTH;
    // The makers of frames cut bodies to LONGEST_BODY.
    let header = Header {
        length: U32::new(u32::try_from(length).unwrap_or(u32::MAX)),
        kind: kind as u8,
        flags,
        reserved: U16::ZERO,
        sequence: U32::new((sequence & u64::from(u32::MAX)) as u32),
    };
    out[start..start + HEADER_LENGTH].copy_from_slice(header.as_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a length of at most 64 KiB.
pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&(length as u16).to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(LONGEST_EXPLANATION);
    out.extend_from_slice(&text.as_bytes()[..end]);
}
