//! Messages of gRPC in a body of HTTP/2: each has a head of five bytes. Free of I/O.

use bytes::{BufMut, Bytes, BytesMut};

/// Before each message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is compressed, and nobody has agreed to that.
    #[error("a message is compressed")]
    Compressed,
    /// It is longer than the reader takes.
    #[error("a message has more than {0} bytes")]
    TooLong(usize),
}

/// A message, and the bytes after it.
pub type Split<'b> = (&'b [u8], &'b [u8]);

/// The first message, and the bytes after it. None: not all of it is there.
///
/// # Errors
/// [`FrameError`], before the message is there.
pub fn first(bytes: &[u8], most: usize) -> Result<Option<Split<'_>>, FrameError> {
    let Some((head, rest)) = bytes.split_at_checked(HEAD) else {
        return Ok(None);
    };
    let [is_compressed, length @ ..] = head else {
        return Ok(None);
    };
    if *is_compressed != 0 {
        return Err(FrameError::Compressed);
    }
    let length = length
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    if length > most {
        return Err(FrameError::TooLong(most));
    }
    Ok(rest.split_at_checked(length))
}

/// A message with its head. It is shorter than 4 GiB.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEAD + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(message);
    framed.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_too_long_or_compressed_is_refused_by_its_head() {
        assert_eq!(
            first(&[0, 0xff, 0xff, 0xff, 0xff], 9),
            Err(FrameError::TooLong(9))
        );
        assert_eq!(first(&[1, 0, 0, 0, 0], 9), Err(FrameError::Compressed));
        assert_eq!(first(&[0, 0, 0, 0], 9), Ok(None));
        assert_eq!(first(&framed(b""), 9), Ok(Some((&b""[..], &b""[..]))));
    }

    proptest! {
        #[test]
        fn messages_are_read_as_they_were_written(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..5), cut in 0_usize..200) {
            let whole: Vec<u8> = messages.iter().flat_map(|it| framed(it)).collect();
            let mut rest = &whole[..];
            let mut read = Vec::new();
            while let Some((message, after)) = first(rest, 30).unwrap() {
                read.push(message.to_vec());
                rest = after;
            }
            prop_assert_eq!(read, messages);
            prop_assert!(rest.is_empty());
            let cut = cut.min(whole.len());
            let found = first(&whole[..cut], 30).unwrap();
            prop_assert!(found.is_none_or(|(message, after)| 5 + message.len() + after.len() == cut));
        }
    }
}
