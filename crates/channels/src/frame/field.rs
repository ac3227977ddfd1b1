//! The fields of a frame: numbers, moments and texts, which are read within their limits and written in only one form.

use super::FrameError;
use sealbus_bus::Moment;

pub(super) struct FieldReader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8, FrameError> {
        let (first, rest) = self.rest.split_first().ok_or(FrameError::Short(what))?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn fixed(&mut self, what: &'static str) -> Result<u64, FrameError> {
        let (first, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(FrameError::Short(what))?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*first))
    }

    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, FrameError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(FrameError::Limit(what));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                // Each number has one form.
                return if byte == 0 && shift > 0 {
                    Err(FrameError::Limit(what))
                } else {
                    Ok(value)
                };
            }
        }
        Err(FrameError::Limit(what))
    }

    pub(super) fn short(&mut self, what: &'static str) -> Result<u32, FrameError> {
        u32::try_from(self.number(what)?).map_err(|_| FrameError::Limit(what))
    }

    pub(super) fn moment(&mut self, what: &'static str) -> Result<Moment, FrameError> {
        let milliseconds = self.number(what)?;
        let moment = Moment::from_unix_ms(milliseconds);
        if moment.unix_ms() == milliseconds {
            Ok(moment)
        } else {
            Err(FrameError::Limit(what))
        }
    }

    pub(super) fn bytes(
        &mut self,
        what: &'static str,
        longest: usize,
    ) -> Result<&'a [u8], FrameError> {
        let length = usize::try_from(self.number(what)?).unwrap_or(usize::MAX);
        if length > longest {
            return Err(FrameError::Limit(what));
        }
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(FrameError::Short(what))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn text(
        &mut self,
        what: &'static str,
        longest: usize,
    ) -> Result<&'a str, FrameError> {
        std::str::from_utf8(self.bytes(what, longest)?).map_err(|_| FrameError::Text(what))
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(super) fn end(&self) -> Result<(), FrameError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(FrameError::Long)
        }
    }
}

pub(super) fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn text(out: &mut Vec<u8>, text: &str, longest: usize) {
    let text = &text[..text.floor_char_boundary(longest)];
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}
