//! A key in a token.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::eddsa::{EddsaParams, EddsaSignatureScheme};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::types::AuthPin;
use parking_lot::Mutex;
use sealbus_seal::{KeyError, KeyHolder, PublicKey, Signature};
use thiserror::Error as ThisError;
use zeroize::Zeroizing;

use crate::name::{KeyName, NameError};

/// The longest file with a PIN, in bytes.
const LONGEST_PIN: u64 = 256;
/// The name of Ed25519 as a curve (RFC 8410), in DER.
const CURVE: [u8; 5] = [0x06, 0x03, 0x2b, 0x65, 0x70];
/// The beginning of a point of that curve, an octet string of 32 bytes in DER.
const POINT: [u8; 2] = [0x04, 0x20];
/// A signature that shows that both halves of a key belong together.
const TRIAL: &[u8] = b"sealbus: is this the private half of the key?\0";

/// Libraries of tokens. A process may initialise each of them once.
static MODULES: Mutex<BTreeMap<PathBuf, Pkcs11>> = Mutex::new(BTreeMap::new());

/// PINs that a token refused, by library, slot and file, with the time when each was written. None is tried twice, because
/// tokens lock themselves after a few tries.
static REFUSED: Mutex<BTreeMap<(PathBuf, u64, PathBuf), SystemTime>> = Mutex::new(BTreeMap::new());

/// Why a key in a token cannot be used.
#[derive(Debug, ThisError)]
pub enum TokenKeyError {
    /// The name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The library cannot be loaded.
    #[error("the library {} of the token cannot be used: {reason}", path.display())]
    Module {
        /// The library.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The PIN cannot be read.
    #[error("the PIN cannot be read from {}: {reason}", path.display())]
    Pin {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// The token refused the PIN. Some tokens lock after a few tries.
    #[error("the token refuses the PIN in {}: correct the file before the token locks itself", .0.display())]
    WrongPin(PathBuf),
    /// The token would lock itself at the next wrong PIN, or has done so.
    #[error(
        "too many wrong PINs were tried: log in with the token's own tool, and unlock it there if need be; correct {}, and start again",
        .0.display()
    )]
    TooManyPins(PathBuf),
    /// No token, or more than one, has that name.
    #[error("{found} tokens have the name in {name}: one must have it")]
    Tokens {
        /// The name of the key.
        name: String,
        /// How many there are.
        found: usize,
    },
    /// The token lacks the key.
    #[error("the token has no key with the name {0}")]
    NoKey(String),
    /// The token has one half of the key only, so none is made beside it.
    #[error(
        "the token has only one half of the key {0}, and both the private and the public key must have that name: put the other half beside it, or delete it if no certificate is for it"
    )]
    HalfKey(String),
    /// Several keys have that name.
    #[error(
        "{found} keys in the token have the name {name}: add `id`, or give each key a label of its own"
    )]
    Keys {
        /// The name of the key.
        name: String,
        /// How many there are.
        found: usize,
    },
    /// The key is of another algorithm, or its halves do not belong together.
    #[error("{0} is not a pair of Ed25519 keys that signs (CKM_EDDSA): let Sealbus make the key")]
    NotEd25519(String),
    /// The token refused something else.
    #[error("the token refuses to {action}: {error}")]
    Token {
        /// The refused work.
        action: &'static str,
        /// Its answer.
        error: Error,
    },
}

/// A session, and the private key in it.
struct Opened {
    session: Session,
    private: ObjectHandle,
    public: PublicKey,
}

/// A private key that a token holds. The token must be there whenever something is signed.
pub struct TokenKey {
    name: KeyName,
    public: PublicKey,
    /// `None` after the token refused to sign.
    opened: Mutex<Option<Opened>>,
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey({})", self.name)
    }
}

impl TokenKey {
    /// The key with this name.
    ///
    /// # Errors
    /// [`TokenKeyError`].
    pub fn open(name: &KeyName) -> Result<Self, TokenKeyError> {
        Ok(Self::of(name, opened(name)?))
    }

    /// The key with this name, which is made in the token if neither half of it is there. It cannot be taken out.
    ///
    /// # Errors
    /// [`TokenKeyError`].
    pub fn open_or_make(name: &KeyName) -> Result<Self, TokenKeyError> {
        match opened(name) {
            Err(TokenKeyError::NoKey(_)) => {
                make(name, &log_in(name)?)?;
                Self::open(name)
            }
            other => Ok(Self::of(name, other?)),
        }
    }

    fn of(name: &KeyName, opened: Opened) -> Self {
        Self {
            name: name.clone(),
            public: opened.public,
            opened: Mutex::new(Some(opened)),
        }
    }

    fn sign_with(
        &self,
        opened: &mut Option<Opened>,
        message: &[u8],
    ) -> Result<Signature, TokenKeyError> {
        if opened.is_none() {
            let again = self::opened(&self.name)?;
            if again.public != self.public {
                return Err(TokenKeyError::NoKey(self.name.to_string()));
            }
            *opened = Some(again);
        }
        let opened = opened
            .as_ref()
            .ok_or_else(|| TokenKeyError::NoKey(self.name.to_string()))?;
        signed(&self.name, &opened.session, opened.private, message)
    }
}

impl KeyHolder for TokenKey {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, message: &[u8]) -> Result<Signature, KeyError> {
        let mut opened = self.opened.lock();
        let was_open = opened.is_some();
        let mut result = self.sign_with(&mut opened, message);
        if result.is_err() {
            *opened = None;
            // The token may have been away, and forgotten the session.
            if was_open {
                result = self.sign_with(&mut opened, message);
            }
        }
        result.map_err(|error| {
            tracing::error!(key = %self.name, %error, "a token did not sign");
            KeyError::NotSigned(error.to_string())
        })
    }

    fn name(&self) -> &str {
        self.name.as_str()
    }
}

fn refused(action: &'static str) -> impl Fn(Error) -> TokenKeyError {
    move |error| TokenKeyError::Token { action, error }
}

fn module(path: &Path) -> Result<Pkcs11, TokenKeyError> {
    let mut modules = MODULES.lock();
    if let Some(module) = modules.get(path) {
        return Ok(module.clone());
    }
    let unusable = |error: Error| TokenKeyError::Module {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let module = Pkcs11::new(path).map_err(unusable)?;
    match module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
        Err(error) => return Err(unusable(error)),
    }
    modules.insert(path.to_owned(), module.clone());
    Ok(module)
}

/// The PIN, without the line's end, and when it was written. Others must not be able to read its file.
fn pin(path: &Path) -> Result<(AuthPin, SystemTime), TokenKeyError> {
    let unreadable = |reason: String| TokenKeyError::Pin {
        path: path.to_owned(),
        reason,
    };
    let failed = |error: io::Error| unreadable(error.to_string());
    let file = fs::File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if about.permissions().mode() & 0o077 != 0 {
            let reason = "others may read it: set its mode to 0600";
            return Err(unreadable(reason.to_owned()));
        }
    }
    let mut text = Zeroizing::new(String::new());
    file.take(LONGEST_PIN + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > LONGEST_PIN {
        return Err(unreadable(format!("it has more than {LONGEST_PIN} bytes")));
    }
    let pin = AuthPin::new(text.trim_end_matches(['\r', '\n']).into());
    Ok((pin, about.modified().map_err(failed)?))
}

/// A session with the token of a key. All sessions of a process with a token are logged in together.
fn log_in(name: &KeyName) -> Result<Session, TokenKeyError> {
    let module = module(&name.module)?;
    let slots = module
        .get_slots_with_initialized_token()
        .map_err(refused("list its slots"))?;
    let mut found = Vec::new();
    for slot in slots {
        let info = module
            .get_token_info(slot)
            .map_err(refused("describe itself"))?;
        let is_it = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
        if is_it(&name.token, info.label()) && is_it(&name.serial, info.serial_number()) {
            let is_at_risk = info.user_pin_final_try() || info.user_pin_locked();
            found.push((slot, is_at_risk));
        }
    }
    let [(slot, is_at_risk)] = found[..] else {
        return Err(TokenKeyError::Tokens {
            name: name.to_string(),
            found: found.len(),
        });
    };
    // A service that is started again and again tries once each time.
    if is_at_risk {
        return Err(TokenKeyError::TooManyPins(name.pin.clone()));
    }
    let (pin, written) = pin(&name.pin)?;
    let mut refused_pins = REFUSED.lock();
    let entry = (name.module.clone(), slot.id(), name.pin.clone());
    if refused_pins.get(&entry) == Some(&written) {
        return Err(TokenKeyError::WrongPin(name.pin.clone()));
    }
    let session = module
        .open_rw_session(slot)
        .map_err(refused("open a session"))?;
    match session.login(UserType::User, Some(&pin)) {
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(session),
        Err(Error::Pkcs11(
            RvError::PinIncorrect | RvError::PinLenRange | RvError::PinInvalid,
            _,
        )) => {
            refused_pins.insert(entry, written);
            Err(TokenKeyError::WrongPin(name.pin.clone()))
        }
        Err(error) => Err(refused("log in")(error)),
    }
}

/// The attributes by which both halves of a key are found.
fn attributes(name: &KeyName) -> Vec<Attribute> {
    let label = name
        .object
        .iter()
        .map(|it| Attribute::Label(it.clone().into_bytes()));
    label
        .chain(name.id.iter().map(|it| Attribute::Id(it.clone())))
        .collect()
}

/// The one object of this class with the name of the key.
fn find(
    name: &KeyName,
    session: &Session,
    class: ObjectClass,
) -> Result<ObjectHandle, TokenKeyError> {
    let mut template = attributes(name);
    template.push(Attribute::Class(class));
    let found = session
        .find_objects(&template)
        .map_err(refused("search a key"))?;
    match found[..] {
        [] => Err(TokenKeyError::NoKey(name.to_string())),
        [one] => Ok(one),
        _ => Err(TokenKeyError::Keys {
            name: name.to_string(),
            found: found.len(),
        }),
    }
}

fn opened(name: &KeyName) -> Result<Opened, TokenKeyError> {
    let session = log_in(name)?;
    let private = find(name, &session, ObjectClass::PRIVATE_KEY);
    let public = find(name, &session, ObjectClass::PUBLIC_KEY);
    let (private, public) = match (private, public) {
        // Another key beside it would have the same name, and neither could be used.
        (Ok(_), Err(TokenKeyError::NoKey(_))) | (Err(TokenKeyError::NoKey(_)), Ok(_)) => {
            return Err(TokenKeyError::HalfKey(name.to_string()));
        }
        (private, public) => (private?, public?),
    };
    let values = session
        .get_attributes(public, &[AttributeType::KeyType, AttributeType::EcPoint])
        .map_err(refused("show a public key"))?;
    let not_ed25519 = || TokenKeyError::NotEd25519(name.to_string());
    let mut point = None;
    for value in values {
        match value {
            Attribute::KeyType(KeyType::EC_EDWARDS) => {}
            // Some tokens show the bytes of the point alone.
            Attribute::EcPoint(bytes) => {
                let bare = bytes.strip_prefix(&POINT).filter(|it| it.len() == 32);
                point = <[u8; 32]>::try_from(bare.unwrap_or(&bytes)).ok();
            }
            _ => return Err(not_ed25519()),
        }
    }
    let public = PublicKey::from_bytes(point.ok_or_else(not_ed25519)?);
    let trial = signed(name, &session, private, TRIAL)?;
    if !public.verifies(TRIAL, &trial) {
        return Err(not_ed25519());
    }
    Ok(Opened {
        session,
        private,
        public,
    })
}

fn signed(
    name: &KeyName,
    session: &Session,
    private: ObjectHandle,
    message: &[u8],
) -> Result<Signature, TokenKeyError> {
    let mechanism = Mechanism::Eddsa(EddsaParams::new(EddsaSignatureScheme::Ed25519));
    let bytes = session
        .sign(&mechanism, private, message)
        .map_err(refused("sign"))?;
    let bytes =
        <[u8; 64]>::try_from(bytes).map_err(|_| TokenKeyError::NotEd25519(name.to_string()))?;
    Ok(Signature::from_bytes(bytes))
}

fn make(name: &KeyName, session: &Session) -> Result<(), TokenKeyError> {
    let mut public = attributes(name);
    let mut private = public.clone();
    public.extend([
        Attribute::Token(true),
        Attribute::Verify(true),
        Attribute::EcParams(CURVE.to_vec()),
    ]);
    private.extend([
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
    ]);
    session
        .generate_key_pair(&Mechanism::EccEdwardsKeyPairGen, &public, &private)
        .map(|_| ())
        .map_err(refused("make an Ed25519 key"))
}
