//! The content of a benchmark message: its round, its sender, its number and the time of sending.

/// Length of the part that is read. A longer content is padded.
pub const PAYLOAD_BYTES: usize = 32;
/// The round's number is counted modulo this.
pub const ROUNDS: u32 = 256;

/// The content of a message: 32 hexadecimal digits of ASCII, which every system can carry. They are 2 digits for the
/// round, 6 for the sender, 8 for the number, and 16 for the time in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The message's round.
    pub round: u32,
    /// The number of the message's sender.
    pub sender: u32,
    /// The message's number, from 0, among those of its sender in this round.
    pub number: u32,
    /// When the message was sent, or was due.
    pub time_ns: u64,
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn write_digits(out: &mut [u8], mut value: u64) {
    for place in out.iter_mut().rev() {
        *place = DIGITS[(value & 15) as usize];
        value >>= 4;
    }
}

fn read_digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |value, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

impl Payload {
    /// Writes the payload to the beginning of `out`, which has at least [`PAYLOAD_BYTES`].
    pub fn write(&self, out: &mut [u8]) {
        write_digits(&mut out[..2], u64::from(self.round));
        write_digits(&mut out[2..8], u64::from(self.sender));
        write_digits(&mut out[8..16], u64::from(self.number));
        write_digits(&mut out[16..32], self.time_ns);
    }

    /// Reads the payload from the beginning of a message. Returns `None` if the message does not belong to the
    /// benchmark.
    pub fn read(text: &[u8]) -> Option<Self> {
        let text = text.get(..PAYLOAD_BYTES)?;
        let small = |range: std::ops::Range<usize>| u32::try_from(read_digits(&text[range])?).ok();
        Some(Self {
            round: small(0..2)?,
            sender: small(2..8)?,
            number: small(8..16)?,
            time_ns: read_digits(&text[16..32])?,
        })
    }
}

/// Room for a payload of `size` bytes (at least [`PAYLOAD_BYTES`]), filled up with letters.
pub fn fill(size: usize) -> Vec<u8> {
    vec![b'x'; size.max(PAYLOAD_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let payload = Payload {
            round: 255,
            sender: 0x00ab_cdef,
            number: 499,
            time_ns: 0x0123_4567_89ab_cdef,
        };
        let mut text = fill(40);
        payload.write(&mut text);
        assert_eq!(text, *b"ffabcdef000001f30123456789abcdefxxxxxxxx");
        assert_eq!(Payload::read(&text), Some(payload));
    }

    #[test]
    fn anything_else_is_not_ours() {
        assert_eq!(Payload::read(b""), None);
        assert_eq!(Payload::read(&[b'x'; 32]), None);
    }
}
