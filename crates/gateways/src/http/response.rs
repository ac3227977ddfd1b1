//! The answers of another platform, from the bytes of its connection.
//!
//! JADE's answers name no length and yet leave the connection open. An answer without a length is therefore complete
//! with its head, as in JADE's own client. Bytes after the head are skipped, up to a line that begins with `HTTP/1.`.

use memchr::memchr;
use thiserror::Error;

/// Longest head of an answer, in bytes.
const LONGEST_HEAD: usize = 16 << 10;
/// The longest body that is read, and the most that is skipped.
const LONGEST_BODY: usize = 256 << 10;
/// How much of a body is kept, to explain a refusal.
const KEPT: usize = 300;
/// Most headers.
const MOST_HEADERS: usize = 64;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The beginning of the body, or the reason in the first line, for people.
    pub detail: String,
    /// Whether the connection can be used for more requests.
    pub keeps_open: bool,
}

/// The bytes are no answer, or too many.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("its answer is not HTTP ({0})")]
pub struct AnswerError(pub &'static str);

enum State {
    /// Before a head; bytes skipped so far.
    Between(usize),
    /// In a body of which this many bytes are still to come.
    Body(Answer, usize),
    /// In a body that comes in chunks. This many bytes of the body were read.
    Chunks(Answer, usize),
}

/// Reads answers from the bytes of a connection.
pub struct AnswerReader {
    bytes: Vec<u8>,
    state: State,
}

impl Default for AnswerReader {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            state: State::Between(0),
        }
    }
}

impl AnswerReader {
    /// Takes the bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next answer, if it is complete.
    ///
    /// # Errors
    /// [`AnswerError`]: nothing more can be read from this connection.
    pub fn next_answer(&mut self) -> Result<Option<Answer>, AnswerError> {
        loop {
            match std::mem::replace(&mut self.state, State::Between(0)) {
                State::Between(skipped) => {
                    if !self.skip(skipped)? {
                        return Ok(None);
                    }
                    match self.head()? {
                        Head::Missing => return Ok(None),
                        Head::Interim => {}
                        Head::Whole(answer) => return Ok(Some(answer)),
                        Head::Body(state) => self.state = state,
                    }
                }
                State::Body(mut answer, left) => {
                    let taken = left.min(self.bytes.len());
                    keep(&mut answer, &self.bytes[..taken]);
                    self.bytes.drain(..taken);
                    if taken == left {
                        return Ok(Some(answer));
                    }
                    self.state = State::Body(answer, left - taken);
                    return Ok(None);
                }
                State::Chunks(mut answer, read) => match self.chunk()? {
                    Chunk::Missing => {
                        self.state = State::Chunks(answer, read);
                        return Ok(None);
                    }
                    Chunk::Data(data) => {
                        let read = read + data.len();
                        if read > LONGEST_BODY {
                            return Err(AnswerError("the body is too long"));
                        }
                        keep(&mut answer, &data);
                        self.state = State::Chunks(answer, read);
                    }
                    Chunk::Last => return Ok(Some(answer)),
                },
            }
        }
    }

    /// Drops lines before the head. Returns whether the head has begun.
    fn skip(&mut self, mut skipped: usize) -> Result<bool, AnswerError> {
        const MARK: &[u8] = b"HTTP/1.";
        loop {
            if self.bytes.starts_with(MARK) {
                return Ok(true);
            }
            let Some(end) = memchr(b'\n', &self.bytes) else {
                break;
            };
            self.bytes.drain(..=end);
            skipped += end + 1;
            if skipped > LONGEST_BODY {
                return Err(AnswerError("too much stands before the status line"));
            }
        }
        if self.bytes.len() > LONGEST_HEAD {
            return Err(AnswerError("a line is too long"));
        }
        self.state = State::Between(skipped);
        Ok(false)
    }

    fn head(&mut self) -> Result<Head, AnswerError> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let length = match head.parse(&self.bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.bytes.len() > LONGEST_HEAD => {
                return Err(AnswerError("the head is too long"));
            }
            Ok(httparse::Status::Partial) => return Ok(Head::Missing),
            Err(_) => return Err(AnswerError("the head cannot be read")),
        };
        let status = head.code.unwrap_or_default();
        let header = |name: &str| {
            let mut all = head.headers.iter();
            let found = all.find(|header| header.name.eq_ignore_ascii_case(name));
            found
                .and_then(|header| str::from_utf8(header.value).ok())
                .map(str::trim)
        };
        let has = |name: &str, word: &str| {
            header(name).is_some_and(|value| {
                value
                    .split(',')
                    .any(|it| it.trim().eq_ignore_ascii_case(word))
            })
        };
        let is_1_1 = head.version == Some(1);
        let answer = Answer {
            status,
            detail: String::new(),
            keeps_open: !has("connection", "close") && (is_1_1 || has("connection", "keep-alive")),
        };
        let reason: String = head.reason.unwrap_or_default().chars().take(KEPT).collect();
        let content_length = header("content-length").map(str::parse::<usize>);
        let is_chunked = has("transfer-encoding", "chunked");
        let next = if (100..200).contains(&status) {
            Head::Interim
        } else if is_chunked {
            Head::Body(State::Chunks(answer, 0))
        } else {
            match content_length {
                Some(Err(_)) => return Err(AnswerError("the length of the body is not a number")),
                Some(Ok(length)) if length > LONGEST_BODY => {
                    return Err(AnswerError("the body is too long"));
                }
                Some(Ok(length)) if length > 0 && status != 204 && status != 304 => {
                    Head::Body(State::Body(answer, length))
                }
                _ => Head::Whole(Answer {
                    detail: reason,
                    ..answer
                }),
            }
        };
        self.bytes.drain(..length);
        Ok(next)
    }

    fn chunk(&mut self) -> Result<Chunk, AnswerError> {
        let wrong = AnswerError("a chunk of the body cannot be read");
        let (start, length) = match httparse::parse_chunk_size(&self.bytes) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) if self.bytes.len() > LONGEST_HEAD => return Err(wrong),
            Ok(httparse::Status::Partial) => return Ok(Chunk::Missing),
            Err(_) => return Err(wrong),
        };
        if length == 0 {
            // Trailers end with an empty line.
            let rest = &self.bytes[start..];
            let end = if rest.starts_with(b"\r\n") {
                Some(2)
            } else {
                memchr::memmem::find(rest, b"\r\n\r\n").map(|at| at + 4)
            };
            return match end {
                Some(end) => {
                    self.bytes.drain(..start + end);
                    Ok(Chunk::Last)
                }
                None if rest.len() > LONGEST_HEAD => Err(wrong),
                None => Ok(Chunk::Missing),
            };
        }
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= LONGEST_BODY)
            .ok_or(AnswerError("the body is too long"))?;
        let end = start + length;
        if self.bytes.len() < end + 2 {
            return Ok(Chunk::Missing);
        }
        let data = self.bytes[start..end].to_vec();
        self.bytes.drain(..end + 2);
        Ok(Chunk::Data(data))
    }
}

enum Head {
    Missing,
    Interim,
    Whole(Answer),
    Body(State),
}

enum Chunk {
    Missing,
    Data(Vec<u8>),
    Last,
}

fn keep(answer: &mut Answer, body: &[u8]) {
    if answer.detail.len() < KEPT {
        let text = String::from_utf8_lossy(&body[..body.len().min(KEPT)]);
        answer.detail.push_str(&text.replace(char::is_control, " "));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const JADE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: no-cache\r\n\
        Connection: Keep-Alive\r\n\r\n<html><body><h1>200 OK</h1></body></html>\r\n";
    const CHUNKED: &str =
        "HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    const SIZED: &str = "HTTP/1.0 403 Forbidden\r\nContent-Length: 5\r\n\r\nno\n\n\n";

    fn read_all(reader: &mut AnswerReader) -> Vec<(u16, String, bool)> {
        std::iter::from_fn(|| reader.next_answer().unwrap())
            .map(|answer| (answer.status, answer.detail, answer.keeps_open))
            .collect()
    }

    proptest! {
        /// The answers are the same however the bytes are cut.
        #[test]
        fn answers_are_read_in_pieces(cuts in prop::collection::vec(1_usize..40, 1..60)) {
            let bytes = [JADE, CHUNKED, JADE, SIZED, "HTTP/1.1 100 Continue\r\n\r\n", JADE].concat();
            let mut rest = bytes.as_bytes();
            let mut reader = AnswerReader::default();
            let mut answers = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                reader.push(piece);
                answers.extend(read_all(&mut reader));
                rest = after;
            }
            let ok = || (200, "OK".to_owned(), true);
            prop_assert_eq!(answers, vec![
                ok(),
                (503, "abc".to_owned(), true),
                ok(),
                (403, "no   ".to_owned(), false),
                ok(),
            ]);
        }

        #[test]
        fn nothing_panics_or_grows(pieces in prop::collection::vec(
            prop::sample::select(vec!["HTTP/1.1 200 OK\r\n", "\r\n", "Content-Length: 4\r\n", "x", "ffff\r\n",
                "Transfer-Encoding: chunked\r\n", "Content-Length: 99999999999999999999\r\n", "\n", "0\r\n"]),
            0..60,
        )) {
            let mut reader = AnswerReader::default();
            for piece in pieces {
                reader.push(piece.as_bytes());
                while let Ok(Some(_)) = reader.next_answer() {}
                prop_assert!(reader.bytes.len() < 4096);
            }
        }
    }

    #[test]
    fn too_much_is_an_error() {
        let mut reader = AnswerReader::default();
        reader.push(&vec![b'x'; LONGEST_HEAD + 1]);
        assert!(reader.next_answer().is_err());
        let mut reader = AnswerReader::default();
        reader.push(b"HTTP/1.1 200 OK\r\nX: ");
        reader.push(&vec![b'x'; LONGEST_HEAD]);
        assert!(reader.next_answer().is_err());
    }
}
