//! The keys of authorities: in a file, or in a token that the file names.

use std::path::Path;
use std::sync::Arc;

use sealbus_pkcs11::{KeyName, NameError, TokenKey};
use sealbus_seal::{AuthorityKey, SignatureAlgorithm, VerifyingKey};
use zeroize::Zeroizing;

use super::{AuthoritiesError, CA_KEY, NEW_KEY, ROOT_CERTIFICATE, ROOT_KEY, read, write};

/// Lets a token hold the keys that the Master in `directory` will have: that of its CA, and for a new platform also that of
/// the root. The keys are made in the token if they are not there. Returns their public halves.
///
/// # Errors
/// [`AuthoritiesError::HasKey`], if there are such keys already.
pub fn place_keys(
    directory: &Path,
    root: Option<&KeyName>,
    ca: Option<&KeyName>,
) -> Result<Vec<VerifyingKey>, AuthoritiesError> {
    let at = |name: &str| directory.join(name);
    let places = [(root, ROOT_KEY, ROOT_CERTIFICATE), (ca, NEW_KEY, CA_KEY)];
    let places = places.map(|(key, file, later)| Some((key?, at(file), at(later))));
    for (key, file, later) in places.iter().flatten() {
        // The same name once more does no harm: an earlier run of the command may have been cut off.
        let is_other = |text: Vec<u8>| text.trim_ascii() != key.as_str().as_bytes();
        if read(file)?.is_some_and(is_other) {
            return Err(AuthoritiesError::HasKey(file.clone()));
        }
        if later.exists() {
            return Err(AuthoritiesError::HasKey(later.clone()));
        }
    }
    let mut made: Vec<VerifyingKey> = Vec::new();
    let mut texts = Vec::new();
    for (key, file, _) in places.iter().flatten() {
        let key = AuthorityKey::Held(Arc::new(TokenKey::open_or_make(key)?));
        if made.contains(&key.public_key()) {
            return Err(AuthoritiesError::OneKey);
        }
        made.push(key.public_key());
        texts.push((file, key.to_text()?));
    }
    for (file, text) in texts {
        write(file, text.as_bytes())?;
    }
    Ok(made)
}

/// Whether a file names a key in a token, instead of holding one.
pub(in super::super) fn is_in_token(text: &[u8]) -> bool {
    text.starts_with(b"pkcs11:")
}

/// The key in a file, or the one in a token that the file names.
pub(super) fn parse_key(path: &Path, text: &[u8]) -> Result<AuthorityKey, AuthoritiesError> {
    let text = Zeroizing::new(String::from_utf8_lossy(text).into_owned());
    let damaged = |problem: String| AuthoritiesError::Damaged {
        path: path.to_owned(),
        problem,
    };
    if !is_in_token(text.as_bytes()) {
        return AuthorityKey::from_pkcs8_pem(&text).map_err(|error| damaged(error.to_string()));
    }
    let name: KeyName =
        (text.trim_end().parse()).map_err(|error: NameError| damaged(error.to_string()))?;
    let held = TokenKey::open(&name).map_err(|error| AuthoritiesError::Token {
        path: path.to_owned(),
        error,
    })?;
    Ok(AuthorityKey::Held(Arc::new(held)))
}

/// The key of this algorithm for a CA in `directory` that is not certified yet. It is made once. It replaces a key of another
/// algorithm, which a start with another manifest may have left.
pub(super) fn new_key(
    directory: &Path,
    algorithm: SignatureAlgorithm,
) -> Result<AuthorityKey, AuthoritiesError> {
    let path = directory.join(NEW_KEY);
    if let Some(text) = read(&path)? {
        if is_in_token(&text) && algorithm != SignatureAlgorithm::Ed25519 {
            return Err(AuthoritiesError::OtherNewKey {
                path,
                wanted: algorithm,
            });
        }
        let key = parse_key(&path, &text)?;
        if key.algorithm() == algorithm {
            return Ok(key);
        }
    }
    let key = AuthorityKey::generate(algorithm)?;
    write(&path, key.to_text()?.as_bytes())?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use sealbus_seal::SigningRequest;

    use super::super::request_authority;
    use super::*;

    #[test]
    fn a_key_that_is_not_certified_gives_way_to_one_of_the_platforms_algorithm() {
        let place = tempfile::tempdir().unwrap();
        let asked = |signatures| {
            let request = request_authority(place.path(), signatures).unwrap();
            SigningRequest::parse(&request)
                .unwrap()
                .public_key()
                .clone()
        };
        for signatures in SignatureAlgorithm::ALL {
            let key = asked(signatures);
            assert_eq!(key.algorithm(), signatures);
            assert_eq!(asked(signatures), key);
        }
    }

    #[test]
    fn a_key_in_a_token_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(NEW_KEY);
        let text = "pkcs11:token=factory;object=ca";
        std::fs::write(&path, text).unwrap();
        let refused = request_authority(place.path(), SignatureAlgorithm::MlDsa65).unwrap_err();
        assert!(refused.to_string().contains(NEW_KEY), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}
