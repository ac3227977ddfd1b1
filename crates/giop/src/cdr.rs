//! CORBA's common data representation (CORBA 3.3 part 2, 9.3): basic types in either byte order, each at a multiple of
//! its own length. Lengths count from the first byte of the message, or of the encapsulation.

use thiserror::Error;

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ByteOrder {
    /// The highest byte first, as the ORBs written in Java send.
    #[default]
    Big,
    /// The lowest byte first.
    Little,
}

impl ByteOrder {
    /// The order named by the lowest bit of an octet.
    pub const fn of_flag(octet: u8) -> Self {
        if octet & 1 == 1 {
            Self::Little
        } else {
            Self::Big
        }
    }

    /// The octet for it.
    pub const fn flag(self) -> u8 {
        self as u8
    }
}

/// An error in an encoded value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("at byte {at}: {problem}")]
pub struct MarshalError {
    /// The place, counted from the first byte of the message or encapsulation.
    pub at: usize,
    /// The mistake there.
    pub problem: MarshalProblem,
}

/// The kinds of mistakes in encoded values.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MarshalProblem {
    /// The bytes end too soon.
    #[error("{wanted} bytes are needed, and {left} are left")]
    Short {
        /// The bytes needed.
        wanted: usize,
        /// The bytes there.
        left: usize,
    },
    /// More of something than allowed.
    #[error("{count} {what}, and the limit is {most}")]
    TooMany {
        /// The things.
        what: &'static str,
        /// Their number.
        count: usize,
        /// The most allowed.
        most: usize,
    },
    /// Bytes that cannot stand there.
    #[error("{0}")]
    Wrong(&'static str),
    /// A kind of value that is not read.
    #[error("a value of the type {0} is not read here")]
    Unread(String),
}

/// Reads values from bytes.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    order: ByteOrder,
}

impl<'a> Decoder<'a> {
    /// Reads from the place `at`. Alignment counts from the first of the bytes.
    pub fn new(bytes: &'a [u8], at: usize, order: ByteOrder) -> Self {
        Self {
            bytes,
            at: at.min(bytes.len()),
            order,
        }
    }

    /// Reads an encapsulation: bytes that begin with their own order.
    ///
    /// # Errors
    /// If there are no bytes.
    pub fn encapsulated(bytes: &'a [u8]) -> Result<Self, MarshalError> {
        let mut decoder = Self::new(bytes, 0, ByteOrder::Big);
        decoder.order = ByteOrder::of_flag(decoder.octet()?);
        Ok(decoder)
    }

    /// The place of the next byte.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The order in force.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// The number of bytes left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// An error at this place.
    pub fn error(&self, problem: MarshalProblem) -> MarshalError {
        MarshalError {
            at: self.at,
            problem,
        }
    }

    /// Passes over padding, whose bytes may have any value.
    ///
    /// # Errors
    /// If the bytes end before.
    pub fn align(&mut self, to: usize) -> Result<(), MarshalError> {
        self.take(self.at.next_multiple_of(to) - self.at)?;
        Ok(())
    }

    /// The next bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], MarshalError> {
        let left = self.left();
        if count > left {
            let wanted = count;
            return Err(self.error(MarshalProblem::Short { wanted, left }));
        }
        let taken = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], MarshalError> {
        self.align(N)?;
        let mut number = [0; N];
        number.copy_from_slice(self.take(N)?);
        if self.order == ByteOrder::Little {
            number.reverse();
        }
        Ok(number)
    }

    /// An octet.
    ///
    /// # Errors
    /// If the bytes end before.
    pub fn octet(&mut self) -> Result<u8, MarshalError> {
        Ok(self.number::<1>()?[0])
    }

    /// A boolean.
    ///
    /// # Errors
    /// If the bytes end before, or it is neither 0 nor 1.
    pub fn boolean(&mut self) -> Result<bool, MarshalError> {
        match self.octet()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error(MarshalProblem::Wrong("a boolean is neither 0 nor 1"))),
        }
    }

    /// An unsigned short.
    ///
    /// # Errors
    /// If the bytes end before.
    pub fn ushort(&mut self) -> Result<u16, MarshalError> {
        self.number().map(u16::from_be_bytes)
    }

    /// A short.
    ///
    /// # Errors
    /// If the bytes end before.
    pub fn short(&mut self) -> Result<i16, MarshalError> {
        self.number().map(i16::from_be_bytes)
    }

    /// An unsigned long.
    ///
    /// # Errors
    /// If the bytes end before.
    pub fn ulong(&mut self) -> Result<u32, MarshalError> {
        self.number().map(u32::from_be_bytes)
    }

    /// A long.
    ///
    /// # Errors
    /// If the bytes end before.
    pub fn long(&mut self) -> Result<i32, MarshalError> {
        self.number().map(i32::from_be_bytes)
    }

    /// An unsigned long long.
    ///
    /// # Errors
    /// If the bytes end before.
    pub fn ulonglong(&mut self) -> Result<u64, MarshalError> {
        self.number().map(u64::from_be_bytes)
    }

    /// A sequence of octets.
    ///
    /// # Errors
    /// If the bytes end before.
    pub fn octets(&mut self) -> Result<&'a [u8], MarshalError> {
        let length = self.ulong()? as usize;
        self.take(length)
    }

    /// A string in the code set of its connection, without the NUL at its end.
    ///
    /// # Errors
    /// If the bytes end before, or the string has a NUL elsewhere, or none at its end.
    pub fn string(&mut self) -> Result<&'a [u8], MarshalError> {
        // An empty string without even a NUL is wrong, but some ORBs send it.
        match self.octets()?.split_last() {
            None => Ok(&[]),
            Some((0, text)) if !text.contains(&0) => Ok(text),
            Some(_) => Err(self.error(MarshalProblem::Wrong(
                "a string does not end with its only NUL",
            ))),
        }
    }

    /// The number of elements of a sequence. `least` is the length of the shortest element, so the count is checked
    /// against the bytes that are left before memory is taken.
    ///
    /// # Errors
    /// If there are more than `most` elements, or more than the bytes left can hold.
    pub fn count(
        &mut self,
        what: &'static str,
        most: usize,
        least: usize,
    ) -> Result<usize, MarshalError> {
        let count = self.ulong()? as usize;
        if count > most {
            return Err(self.error(MarshalProblem::TooMany { what, count, most }));
        }
        let (wanted, left) = (count.saturating_mul(least), self.left());
        if wanted > left {
            return Err(self.error(MarshalProblem::Short { wanted, left }));
        }
        Ok(count)
    }

    /// A sequence, of at most `most` elements of at least `least` bytes each.
    ///
    /// # Errors
    /// As for [`count`](Self::count), or the error of an element.
    pub fn sequence<T>(
        &mut self,
        what: &'static str,
        most: usize,
        least: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, MarshalError>,
    ) -> Result<Vec<T>, MarshalError> {
        let count = self.count(what, most, least)?;
        (0..count).map(|_| element(self)).collect()
    }
}

/// Writes values.
#[derive(Clone, Debug)]
pub struct Encoder {
    bytes: Vec<u8>,
    order: ByteOrder,
}

impl Encoder {
    /// Writes from the first byte of a message.
    pub fn new(order: ByteOrder) -> Self {
        Self::with_capacity(order, 256)
    }

    /// Writes from the first byte of a message that is expected to have so many bytes.
    pub fn with_capacity(order: ByteOrder, capacity: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity),
            order,
        }
    }

    /// Writes an encapsulation, which begins with the order of its bytes.
    pub fn encapsulated(order: ByteOrder) -> Self {
        let mut encoder = Self::new(order);
        encoder.octet(order.flag());
        encoder
    }

    /// The order in force.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// The written bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The written bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes padding.
    pub fn align(&mut self, to: usize) {
        let length = self.bytes.len().next_multiple_of(to);
        self.bytes.resize(length, 0);
    }

    fn number<const N: usize>(&mut self, mut number: [u8; N]) {
        self.align(N);
        if self.order == ByteOrder::Little {
            number.reverse();
        }
        self.raw(&number);
    }

    /// Writes an octet.
    pub fn octet(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Writes a boolean.
    pub fn boolean(&mut self, value: bool) {
        self.octet(value.into());
    }

    /// Writes an unsigned short.
    pub fn ushort(&mut self, value: u16) {
        self.number(value.to_be_bytes());
    }

    /// Writes a short.
    pub fn short(&mut self, value: i16) {
        self.number(value.to_be_bytes());
    }

    /// Writes an unsigned long.
    pub fn ulong(&mut self, value: u32) {
        self.number(value.to_be_bytes());
    }

    /// Writes a long.
    pub fn long(&mut self, value: i32) {
        self.number(value.to_be_bytes());
    }

    /// Writes an unsigned long long.
    pub fn ulonglong(&mut self, value: u64) {
        self.number(value.to_be_bytes());
    }

    /// Writes the length of a sequence. A message of more than 4 GiB cannot be written, because its header has no room
    /// for the length.
    pub fn length(&mut self, length: usize) {
        self.ulong(u32::try_from(length).unwrap_or(u32::MAX));
    }

    /// Writes a sequence of octets.
    pub fn octets(&mut self, octets: &[u8]) {
        self.length(octets.len());
        self.raw(octets);
    }

    /// Writes a string, with a NUL at its end.
    pub fn string(&mut self, text: &[u8]) {
        self.length(text.len() + 1);
        self.raw(text);
        self.octet(0);
    }

    /// Writes a sequence.
    pub fn sequence<T>(&mut self, elements: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.length(elements.len());
        for it in elements {
            element(self, it);
        }
    }

    /// Writes the length of the whole message into its header.
    pub(crate) fn end_message(mut self, header_length: usize) -> Vec<u8> {
        let length = self.bytes.len() - header_length;
        let mut size = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        if self.order == ByteOrder::Little {
            size.reverse();
        }
        self.bytes[header_length - 4..header_length].copy_from_slice(&size);
        self.bytes
    }
}
