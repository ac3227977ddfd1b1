//! The conversion of frames to bytes and back, without I/O.

use bytes::{Buf, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Fault;

const LENGTH: usize = 4;

/// The message on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frame {
    /// A request that needs an answer.
    Call {
        /// A number that the asker chooses. The answer repeats it.
        id: u64,
        /// The request.
        body: Box<RawValue>,
    },
    /// The answer to a call.
    Answer {
        /// The call's number.
        id: u64,
        /// The answer.
        body: Box<RawValue>,
    },
    /// The answer to a call that failed.
    Fault {
        /// The call's number.
        id: u64,
        /// The error.
        body: Fault,
    },
    /// A request that needs no answer.
    Notice {
        /// The notice.
        body: Box<RawValue>,
    },
}

/// Why bytes are not a frame, or a frame cannot be sent. The connection must then be closed.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The frame is longer than the limit.
    #[error("a frame of {length} bytes exceeds the limit of {limit}")]
    TooLong {
        /// The frame's length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes are not a frame of this protocol.
    #[error("not a frame of this protocol: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Appends `frame` to `out`.
///
/// # Errors
/// [`CodecError::TooLong`] if the frame exceeds `limit`; `out` is then unchanged.
pub fn encode(frame: &Frame, limit: usize, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    if let Err(error) = serde_json::to_writer(&mut *out, frame) {
        out.truncate(start);
        return Err(error.into());
    }
    let length = out.len() - start - LENGTH;
    match u32::try_from(length) {
        Ok(prefix) if length <= limit => {
            out[start..start + LENGTH].copy_from_slice(&prefix.to_be_bytes());
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(CodecError::TooLong { length, limit })
        }
    }
}

/// Cuts a stream of bytes into frames.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    limit: usize,
}

impl Decoder {
    /// A decoder that refuses frames of more than `limit` bytes before reading them.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            limit,
        }
    }

    /// Allows frames of up to `limit` bytes from now on.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The buffer to which bytes from the stream are appended.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next frame, or `None` if the frame is not complete yet.
    ///
    /// # Errors
    /// [`CodecError`]; the stream cannot go on after it.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, CodecError> {
        let Some(prefix) = self.buffer.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > self.limit {
            return Err(CodecError::TooLong {
                length,
                limit: self.limit,
            });
        }
        if self.buffer.len() < LENGTH + length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH);
        let body = self.buffer.split_to(length);
        Ok(Some(serde_json::from_slice(&body)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn notice(text: &str) -> Frame {
        Frame::Notice {
            body: serde_json::value::to_raw_value(text).unwrap(),
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_before_it_is_read() {
        let mut decoder = Decoder::new(10);
        decoder.buffer().extend_from_slice(&11_u32.to_be_bytes());
        assert!(matches!(
            decoder.next_frame(),
            Err(CodecError::TooLong {
                length: 11,
                limit: 10
            })
        ));
    }

    #[test]
    fn an_outgoing_frame_over_the_limit_leaves_nothing_behind() {
        let mut out = b"before".to_vec();
        assert!(encode(&notice("a text too long for it"), 8, &mut out).is_err());
        assert_eq!(out, b"before");
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(texts in prop::collection::vec(".{0,40}", 1..8), cut in 1_usize..50) {
            let mut bytes = Vec::new();
            for text in &texts {
                encode(&notice(text), 1000, &mut bytes).unwrap();
            }
            let mut decoder = Decoder::new(1000);
            let mut seen = Vec::new();
            for chunk in bytes.chunks(cut) {
                decoder.buffer().extend_from_slice(chunk);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    let Frame::Notice { body } = frame else { panic!("another frame") };
                    seen.push(serde_json::from_str::<String>(body.get()).unwrap());
                }
            }
            prop_assert_eq!(seen, texts);
        }

        #[test]
        fn any_bytes_are_an_error_or_a_frame(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::new(100);
            decoder.buffer().extend_from_slice(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }
}
