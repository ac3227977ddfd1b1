//! Keys, certificates and signing requests as text (RFC 7468).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Characters of base64 in a line.
const LINE: usize = 64;

/// The text of bytes that may be a private key.
pub(crate) fn pem(label: &str, der: &[u8]) -> Zeroizing<String> {
    let body = Zeroizing::new(STANDARD.encode(der));
    let (begin, end) = frame(label);
    // A buffer that grows would leave copies of the key behind.
    let length = begin.len() + body.len() + body.len() / LINE + end.len() + 3;
    let mut text = Zeroizing::new(String::with_capacity(length));
    text.push_str(&begin);
    for line in body.as_bytes().chunks(LINE) {
        text.push('\n');
        text.push_str(std::str::from_utf8(line).unwrap_or_default());
    }
    text.push('\n');
    text.push_str(&end);
    text.push('\n');
    text
}

/// The bytes of the first block with this label. Other text may stand around it.
///
/// # Errors
/// The fault of the text.
pub(crate) fn read_pem(label: &str, text: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let (begin, end) = frame(label);
    let rest = text.split_once(&begin).map(|(_, rest)| rest);
    let (body, _) = rest
        .and_then(|rest| rest.split_once(&end))
        .ok_or_else(|| format!("it has no {label} block"))?;
    // A buffer that grows would leave copies of a key behind.
    let mut joined = Zeroizing::new(String::with_capacity(body.len()));
    joined.extend(body.split_whitespace());
    let der = STANDARD.decode(joined.as_bytes());
    der.map(Zeroizing::new)
        .map_err(|_| "its block is not base64".to_owned())
}

fn frame(label: &str) -> (String, String) {
    (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    )
}
