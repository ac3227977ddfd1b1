//! Server-sent events (HTML standard, section 9.2), from the bytes of an answer. Free of I/O, and bounded.

/// Why a stream is not a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// A line, or an event, is too long.
    #[error("an event of its stream has more than {0} bytes")]
    TooLong(usize),
    /// A line is no text.
    #[error("its stream is not in UTF-8")]
    NoText,
}

/// Reads events from what a stream brings.
#[derive(Debug)]
pub struct ServerSentEvents {
    most: usize,
    line: Vec<u8>,
    data: String,
    has_data: bool,
    /// The last byte was a carriage return, which a line feed may belong to.
    after_return: bool,
    is_first: bool,
}

impl ServerSentEvents {
    /// Events of `most` bytes at most.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            data: String::new(),
            has_data: false,
            after_return: false,
            is_first: true,
        }
    }

    /// Takes what has come, and gives the data of each event that it completes to `each`. Several lines of data are joined by line
    /// feeds.
    ///
    /// # Errors
    /// [`EventError`]: nothing more can be read from this stream.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(String),
    ) -> Result<(), EventError> {
        if self.after_return && !bytes.is_empty() {
            self.after_return = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.keep(&bytes[..end])?;
            let is_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if is_return {
                self.after_return = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            let line = std::mem::take(&mut self.line);
            if let Some(data) = self.read(&line)? {
                each(data);
            }
        }
        self.keep(bytes)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), EventError> {
        if self.line.len() + self.data.len() + bytes.len() > self.most {
            return Err(EventError::TooLong(self.most));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, line: &[u8]) -> Result<Option<String>, EventError> {
        let mut line = str::from_utf8(line).map_err(|_| EventError::NoText)?;
        if std::mem::take(&mut self.is_first) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            let is_event = std::mem::take(&mut self.has_data);
            return Ok(is_event.then_some(data));
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        // Nobody goes on from an id, so it is not kept.
        if name == "data" {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push('\n');
            }
            self.data.push_str(value);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(stream: &[u8], most: usize, step: usize) -> Result<Vec<String>, EventError> {
        let mut events = ServerSentEvents::new(most);
        let mut found = Vec::new();
        for piece in stream.chunks(step.max(1)) {
            events.push(piece, |data| found.push(data))?;
        }
        Ok(found)
    }

    fn says(stream: &[u8]) -> Vec<String> {
        all(stream, 100, 1).unwrap()
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        assert_eq!(
            says(b"data: a\ndata:b\n\n: still here\n\ndata: c\r\n\r\n"),
            ["a\nb", "c"]
        );
        assert_eq!(says(b"data\n\ndata\ndata\n\n"), ["", "\n"]);
        assert_eq!(says(b"event: x\n\ndata:  two\r\rdata: lost"), [" two"]);
        assert_eq!(says("\u{feff}data: a\n\n".as_bytes()), ["a"]);
        assert_eq!(says(b"id: 7\ndata: a\n\ndata: b\n\n"), ["a", "b"]);
    }

    #[test]
    fn a_stream_without_end_takes_no_memory() {
        let long = vec![b'x'; 1 << 20];
        assert_eq!(all(&long, 1_000, 64), Err(EventError::TooLong(1_000)));
        let lines = b"data: xxxxxxxx\n".repeat(1_000);
        assert_eq!(all(&lines, 1_000, 64), Err(EventError::TooLong(1_000)));
        assert_eq!(all(b"data: \xff\n\n", 1_000, 64), Err(EventError::NoText));
        let many = b"data: x\n\n".repeat(1_000);
        assert_eq!(all(&many, 16, 64).unwrap().len(), 1_000);
        // An id stands in each event after it, and nobody reads it.
        let mut events = ServerSentEvents::new(1 << 20);
        let id = ["id: ", &"x".repeat(1 << 19), "\ndata\n\n"].concat();
        let mut kept = 0;
        events
            .push(id.as_bytes(), |data| kept += data.len())
            .unwrap();
        kept += format!("{events:?}").len();
        assert!(kept < 1_000, "{kept} bytes");
    }

    proptest! {
        #[test]
        fn the_pieces_of_a_stream_do_not_matter(
            stream in "(data|id|x)?:? ?[a-z]{0,3}(\r|\n|\r\n)?(data: [a-z]\r?\n\r?\n)*[\r\n]*",
            step in 1_usize..9,
        ) {
            let bytes = stream.as_bytes();
            prop_assert_eq!(all(bytes, 1 << 16, step), all(bytes, 1 << 16, bytes.len()));
        }
    }
}
