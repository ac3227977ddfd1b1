//! The text of a manifest's file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Most bytes of a manifest.
const LONGEST: u64 = 64 << 20;

/// Reads the text of a file.
///
/// # Errors
/// The system's error; [`io::ErrorKind::FileTooLarge`] if the file is longer than a manifest may be.
pub(super) fn read(path: &Path) -> io::Result<String> {
    whole(File::open(path)?)
}

fn whole(file: impl Read) -> io::Result<String> {
    let mut text = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        let message = format!("it has more than {} MiB", LONGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8");
    String::from_utf8(text).map_err(no_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        let error = whole(io::repeat(b' ')).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(whole(&b"[platform]"[..]).unwrap(), "[platform]");
        let error = whole(&b"\xff"[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
