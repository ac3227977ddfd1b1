//! The body of a request: multipart/mixed with exactly two parts, envelope and message (FIPA00084, RFC 2046).
//!
//! The reader accepts the forms that known platforms send: a preamble or none, white space around parameters, line
//! feeds without carriage returns, the misprint `multipart-mixed` of the standard's example. The writer keeps to the
//! forms that JADE reads.

use std::ops::Range;

use thiserror::Error;

/// The longest boundary. RFC 2046 allows 70 characters, and some senders use more.
const LONGEST_BOUNDARY: usize = 200;
/// Longest header block of a part, in bytes.
const LONGEST_PART_HEADERS: usize = 4 << 10;

/// The reason why a body is not an envelope and a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MultipartError {
    /// Another media type.
    #[error("the content type is '{0}': send multipart/mixed with an envelope and a message")]
    MediaType(String),
    /// No usable boundary.
    #[error("the content type names no boundary of 1 to {LONGEST_BOUNDARY} printable characters")]
    Boundary,
    /// The body has no part.
    #[error("the body has no line '--{0}', which begins a part")]
    NoPart(String),
    /// The body ends within a part.
    #[error("the body ends before the line '--{0}--', which ends the last part")]
    Unfinished(String),
    /// Some other number of parts than two.
    #[error("the body has {0} parts: send two, an envelope and a message")]
    Parts(usize),
    /// A part whose headers do not end, or are no headers.
    #[error("the headers of part {0} are malformed: header lines end with an empty line")]
    PartHeaders(usize),
}

/// One part: the place of its body, and its content type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part's `Content-Type`, without white space around it. Empty if it names none.
    pub content_type: String,
    /// The part's body, as a range of the whole.
    pub body: Range<usize>,
}

/// The boundary in a content type.
///
/// # Errors
/// If the content type is not multipart/mixed, or names no boundary.
pub fn boundary(content_type: &str) -> Result<String, MultipartError> {
    let (media_type, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    let media_type = media_type.trim();
    let is_multipart = ["multipart/mixed", "multipart-mixed"]
        .iter()
        .any(|known| media_type.eq_ignore_ascii_case(known));
    if !is_multipart {
        return Err(MultipartError::MediaType(
            media_type.chars().take(100).collect(),
        ));
    }
    let boundary = parameter(parameters, "boundary").ok_or(MultipartError::Boundary)?;
    let is_legal = (1..=LONGEST_BOUNDARY).contains(&boundary.len())
        && boundary.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && !boundary.ends_with(' ');
    is_legal.then_some(boundary).ok_or(MultipartError::Boundary)
}

/// The value of a parameter in `; name=value; name="value"`.
pub fn parameter(mut rest: &str, wanted: &str) -> Option<String> {
    loop {
        rest = rest.trim_start_matches(|c: char| c == ';' || c.is_ascii_whitespace());
        let (name, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim_end().to_owned(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = next;
    }
}

/// The text up to the closing quote, and the text after it.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// The two parts of a body.
///
/// # Errors
/// [`MultipartError`].
pub fn parts(body: &[u8], boundary: &str) -> Result<[Part; 2], MultipartError> {
    let mut lines = Delimiters {
        body,
        boundary: boundary.as_bytes(),
        line: Some(0),
    };
    let first = lines
        .next()
        .ok_or_else(|| MultipartError::NoPart(boundary.to_owned()))?;
    let mut begin = first.end;
    let mut is_last = first.is_last;
    let mut found = Vec::with_capacity(2);
    while !is_last {
        let next = lines
            .next()
            .ok_or_else(|| MultipartError::Unfinished(boundary.to_owned()))?;
        // Parts beyond two are only counted.
        if found.len() < 2 {
            found.push(part(body, begin..next.begin.max(begin), found.len() + 1)?);
        } else {
            return Err(MultipartError::Parts(3));
        }
        begin = next.end;
        is_last = next.is_last;
    }
    let count = found.len();
    <[Part; 2]>::try_from(found).map_err(|_| MultipartError::Parts(count))
}

/// A line that begins or ends a part.
struct Delimiter {
    /// The offset at which the delimiter begins, including the line end before it.
    begin: usize,
    /// The offset of the bytes after the delimiter.
    end: usize,
    /// The body ends here.
    is_last: bool,
}

struct Delimiters<'a> {
    body: &'a [u8],
    boundary: &'a [u8],
    /// The beginning of the next line.
    line: Option<usize>,
}

impl Iterator for Delimiters<'_> {
    type Item = Delimiter;

    fn next(&mut self) -> Option<Delimiter> {
        while let Some(start) = self.line {
            let line = &self.body[start..];
            let rest = line
                .strip_prefix(b"--")
                .and_then(|line| line.strip_prefix(self.boundary));
            if let Some(rest) = rest {
                let begin = match &self.body[..start] {
                    [.., b'\r', b'\n'] => start - 2,
                    [.., b'\n'] => start - 1,
                    _ => start,
                };
                let after = self.body.len() - rest.len();
                if rest.starts_with(b"--") {
                    self.line = None;
                    return Some(Delimiter {
                        begin,
                        end: after + 2,
                        is_last: true,
                    });
                }
                let blank = rest
                    .iter()
                    .take_while(|byte| matches!(byte, b' ' | b'\t'))
                    .count();
                let end = match &rest[blank..] {
                    [b'\r', b'\n', ..] => Some(after + blank + 2),
                    [b'\n', ..] => Some(after + blank + 1),
                    // A longer boundary that begins with this one.
                    _ => None,
                };
                if let Some(end) = end {
                    // If the part between two delimiters is empty, the line end also belongs to the next delimiter.
                    self.line = Some(end);
                    return Some(Delimiter {
                        begin,
                        end,
                        is_last: false,
                    });
                }
            }
            self.line = memchr::memchr(b'\n', line).map(|length| start + length + 1);
        }
        None
    }
}

/// Reads the headers of a part.
fn part(body: &[u8], range: Range<usize>, number: usize) -> Result<Part, MultipartError> {
    let wrong = || MultipartError::PartHeaders(number);
    let mut content_type = String::new();
    let mut at = range.start;
    let mut in_content_type = false;
    loop {
        let rest = &body[at..range.end];
        let length = memchr::memchr(b'\n', rest).ok_or_else(wrong)?;
        if at + length - range.start > LONGEST_PART_HEADERS {
            return Err(wrong());
        }
        let line = &rest[..length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        at += length + 1;
        if line.is_empty() {
            let content_type = content_type.trim().to_owned();
            return Ok(Part {
                content_type,
                body: at..range.end,
            });
        }
        let line = str::from_utf8(line).map_err(|_| wrong())?;
        if line.starts_with([' ', '\t']) {
            if in_content_type {
                content_type.push_str(line);
            }
            continue;
        }
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        in_content_type = name.trim().eq_ignore_ascii_case("content-type");
        if in_content_type {
            value.clone_into(&mut content_type);
        }
    }
}

/// The content type of a body with this boundary. JADE requires the quotes.
pub fn content_type(boundary: &str) -> String {
    format!("multipart/mixed ; boundary=\"{boundary}\"")
}

/// A body that is to be written.
pub struct Body<'a>([&'a [u8]; 15]);

impl<'a> Body<'a> {
    /// The body for an envelope and a message, each with its content type. The boundary must occur in neither.
    pub fn new(
        boundary: &'a str,
        envelope: (&'a str, &'a [u8]),
        message: (&'a str, &'a [u8]),
    ) -> Self {
        Self([
            b"This is not part of the MIME multipart encoded message.\r\n--",
            boundary.as_bytes(),
            b"\r\nContent-Type: ",
            envelope.0.as_bytes(),
            b"\r\n\r\n",
            envelope.1,
            b"\r\n--",
            boundary.as_bytes(),
            b"\r\nContent-Type: ",
            message.0.as_bytes(),
            b"\r\n\r\n",
            message.1,
            b"\r\n--",
            boundary.as_bytes(),
            b"--\r\n",
        ])
    }

    /// The length of the body in bytes.
    pub fn length(&self) -> usize {
        self.0.iter().map(|piece| piece.len()).sum()
    }

    /// Appends the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.length());
        self.0.iter().for_each(|piece| out.extend_from_slice(piece));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn boundaries_are_read_as_known_platforms_write_them() {
        for (content_type, expected) in [
            ("multipart/mixed ; boundary=\"b1\"", "b1"),
            ("multipart/mixed;boundary=b1", "b1"),
            ("Multipart/Mixed; charset=utf-8; BOUNDARY = \"b 1\"", "b 1"),
            ("multipart-mixed ;\tboundary=\"a\\\"b\"; x=y", "a\"b"),
        ] {
            assert_eq!(boundary(content_type).as_deref(), Ok(expected));
        }
        assert!(matches!(
            boundary("text/plain"),
            Err(MultipartError::MediaType(_))
        ));
        for wrong in [
            "multipart/mixed",
            "multipart/mixed; boundary=",
            "multipart/mixed; boundary=\"unfinished",
            "multipart/mixed; boundary=\"a\u{7f}\"",
        ] {
            assert_eq!(boundary(wrong), Err(MultipartError::Boundary), "{wrong}");
        }
    }

    #[test]
    fn anything_but_two_finished_parts_is_refused() {
        let read = |body: &str| parts(body.as_bytes(), "b").unwrap_err();
        assert_eq!(read("nothing"), MultipartError::NoPart("b".into()));
        assert_eq!(read("--b--"), MultipartError::Parts(0));
        assert_eq!(read("--b\r\n\r\nx\r\n--b--"), MultipartError::Parts(1));
        assert_eq!(
            read("--b\n\n1\n--b\n\n2\n--b\n\n3\n--b--"),
            MultipartError::Parts(3)
        );
        assert_eq!(
            read("--b\r\n\r\n1\r\n--b\r\n\r\n2"),
            MultipartError::Unfinished("b".into())
        );
        assert_eq!(
            read("--b\r\nno header\r\n--b--"),
            MultipartError::PartHeaders(1)
        );
        assert_eq!(read("--b\r\n--b--"), MultipartError::PartHeaders(1));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            boundary in "[a-z0-9]{1,40}",
            envelope in prop::collection::vec(any::<u8>(), 0..200),
            message in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let is_free = |part: &[u8]| !part.windows(boundary.len()).any(|it| it == boundary.as_bytes());
            prop_assume!(is_free(&envelope) && is_free(&message));
            let written = Body::new(&boundary, ("application/xml", &envelope), ("application/text", &message));
            let mut body = Vec::new();
            written.write(&mut body);
            prop_assert_eq!(body.len(), written.length());
            let read = super::boundary(&content_type(&boundary)).unwrap();
            let [first, second] = parts(&body, &read).unwrap();
            prop_assert_eq!(&body[first.body], &envelope[..]);
            prop_assert_eq!(&body[second.body], &message[..]);
            prop_assert_eq!(first.content_type, "application/xml");
            prop_assert_eq!(second.content_type, "application/text");
        }

        #[test]
        fn nothing_panics(
            body in prop::collection::vec(prop::sample::select(&b"-b\r\n: ;\"=Content-Type"[..]), 0..200),
        ) {
            if let Ok([first, second]) = parts(&body, "b") {
                prop_assert!(first.body.end <= second.body.start);
                prop_assert!(second.body.end <= body.len());
            }
            let _ = boundary(&String::from_utf8_lossy(&body));
        }
    }
}
