//! Names of keys (RFC 7512).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// The longest name, in bytes.
const LONGEST: usize = 2048;
/// The scheme.
const SCHEME: &str = "pkcs11:";

/// The name of a key in a token.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyName {
    /// The name as it was written.
    text: String,
    /// The library of the token.
    pub(crate) module: PathBuf,
    /// The file with the user's PIN.
    pub(crate) pin: PathBuf,
    pub(crate) token: Option<String>,
    pub(crate) serial: Option<String>,
    /// The key's label.
    pub(crate) object: Option<String>,
    pub(crate) id: Option<Vec<u8>>,
}

/// Why a text is not the name of a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// It begins otherwise.
    #[error("the name of a key in a token begins with `{SCHEME}` (RFC 7512)")]
    Scheme,
    /// It is too long.
    #[error("the name of a key has at most {LONGEST} bytes")]
    TooLong,
    /// A part has no value, or its value is not well encoded.
    #[error(
        "`{0}` is not an attribute with a value: write NAME=VALUE, and % before the digits of a byte"
    )]
    Malformed(String),
    /// An attribute is there twice.
    #[error("the name has the attribute `{0}` twice")]
    Twice(String),
    /// An attribute has no meaning here.
    #[error(
        "the name has the attribute `{0}`; those that are read are token, serial, object, id, type, module-path and pin-source"
    )]
    Unknown(String),
    /// A path is relative, and means something else in another folder.
    #[error("{0} of the name is not a whole path: begin it with /")]
    Relative(&'static str),
    /// The PIN itself is in the name.
    #[error(
        "the name holds a PIN, which others may read: put the PIN into a file, and name it with pin-source"
    )]
    Pin,
    /// An attribute is missing.
    #[error("the name lacks `{0}`")]
    Missing(&'static str),
}

impl FromStr for KeyName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() > LONGEST {
            return Err(NameError::TooLong);
        }
        let rest = text.strip_prefix(SCHEME).ok_or(NameError::Scheme)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut module, mut pin) = (None, None);
        let (mut token, mut serial, mut object, mut kind, mut id) = (None, None, None, None, None);
        let parts = path.split(';').map(|part| (part, true));
        let parts = parts.chain(query.split('&').map(|part| (part, false)));
        for (part, is_path) in parts.filter(|(part, _)| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            // No error shows a PIN.
            if name == "pin-value" {
                return Err(NameError::Pin);
            }
            let malformed = || NameError::Malformed(part.to_owned());
            let bytes = decoded(value).ok_or_else(malformed)?;
            let text = || String::from_utf8(bytes.clone()).map_err(|_| malformed());
            let is_new = match (is_path, name) {
                (true, "token") => token.replace(text()?).is_none(),
                (true, "serial") => serial.replace(text()?).is_none(),
                (true, "object") => object.replace(text()?).is_none(),
                (true, "type") => kind.replace(text()?).is_none(),
                (true, "id") => id.replace(bytes).is_none(),
                (false, "module-path") => module.replace(text()?).is_none(),
                (false, "pin-source") => pin.replace(text()?).is_none(),
                _ => return Err(NameError::Unknown(name.to_owned())),
            };
            if !is_new {
                return Err(NameError::Twice(name.to_owned()));
            }
        }
        if kind.is_some_and(|kind| kind != "private") {
            return Err(NameError::Missing("type=private"));
        }
        if token.is_none() && serial.is_none() {
            return Err(NameError::Missing("token"));
        }
        if object.is_none() && id.is_none() {
            return Err(NameError::Missing("object"));
        }
        let pin = pin.ok_or(NameError::Missing("pin-source"))?;
        let pin = pin.strip_prefix("file:").unwrap_or(&pin);
        let module = module.ok_or(NameError::Missing("module-path"))?;
        let whole = |path: &str, name| match Path::new(path).is_absolute() {
            true => Ok(path.into()),
            false => Err(NameError::Relative(name)),
        };
        Ok(Self {
            text: text.to_owned(),
            module: whole(&module, "module-path")?,
            pin: whole(pin, "pin-source")?,
            token,
            serial,
            object,
            id,
        })
    }
}

/// The bytes of a value; `None` if it is empty or not well encoded.
fn decoded(value: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        let digits = str::from_utf8(digits).ok()?;
        if digits.starts_with('+') {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    (!bytes.is_empty()).then_some(bytes)
}

impl KeyName {
    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "pkcs11:token=The%20factory;object=ca;id=%01%ff;type=private?module-path=/usr/lib/x.so&pin-source=file:/etc/pin";

    #[test]
    fn a_name_is_read() {
        let name: KeyName = GOOD.parse().unwrap();
        assert_eq!(name.token.as_deref(), Some("The factory"));
        assert_eq!(name.object.as_deref(), Some("ca"));
        assert_eq!(name.id.as_deref(), Some(&[1, 255][..]));
        assert_eq!(name.module, PathBuf::from("/usr/lib/x.so"));
        assert_eq!(name.pin, PathBuf::from("/etc/pin"));
        assert_eq!(name.as_str(), GOOD);
    }

    #[test]
    fn other_names_are_refused() {
        let query = "?module-path=/x.so&pin-source=/pin";
        let parsed = |text: &str| text.parse::<KeyName>().map(|_| ());
        for (path, error) in [
            ("http://x", NameError::Scheme),
            ("pkcs11:token=t", NameError::Missing("object")),
            ("pkcs11:object=o", NameError::Missing("token")),
            (
                "pkcs11:token=t;object",
                NameError::Malformed("object".into()),
            ),
            (
                "pkcs11:token=t;object=",
                NameError::Malformed("object=".into()),
            ),
            (
                "pkcs11:token=t;object=%4",
                NameError::Malformed("object=%4".into()),
            ),
            (
                "pkcs11:token=t;object=%+1",
                NameError::Malformed("object=%+1".into()),
            ),
            (
                "pkcs11:token=t;object=%ff",
                NameError::Malformed("object=%ff".into()),
            ),
            (
                "pkcs11:token=t;token=u;object=o",
                NameError::Twice("token".into()),
            ),
            (
                "pkcs11:token=t;object=o;slot-id=1",
                NameError::Unknown("slot-id".into()),
            ),
            (
                "pkcs11:token=t;object=o;type=cert",
                NameError::Missing("type=private"),
            ),
        ] {
            assert_eq!(parsed(&format!("{path}{query}")), Err(error), "{path}");
        }
        let good = "pkcs11:token=t;object=o";
        for (query, error) in [
            ("", NameError::Missing("pin-source")),
            ("?module-path=/x.so", NameError::Missing("pin-source")),
            ("?pin-source=/pin", NameError::Missing("module-path")),
            ("?module-path=/x.so&pin-value=1234", NameError::Pin),
            ("?module-path=/x.so&pin-value=12%4", NameError::Pin),
            (
                "?module-path=x.so&pin-source=/pin",
                NameError::Relative("module-path"),
            ),
            (
                "?module-path=/x.so&pin-source=file:pin",
                NameError::Relative("pin-source"),
            ),
            ("?token=u", NameError::Unknown("token".into())),
        ] {
            assert_eq!(parsed(&format!("{good}{query}")), Err(error), "{query}");
        }
        assert_eq!(
            parsed(&format!("{good}{}", "x".repeat(LONGEST))),
            Err(NameError::TooLong)
        );
        assert_eq!(parsed(&format!("{good}{query}")), Ok(()));
    }
}
