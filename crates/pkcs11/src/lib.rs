//! Keys in a token: a smart card, a hardware security module, or a program that behaves like one. The token signs, and
//! never gives a private key away.
//!
//! A key has a name in the form of RFC 7512, for example
//!
//! ```text
//! pkcs11:token=factory;object=ca?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/etc/sealbus/pin
//! ```
//!
//! The module is the token's library for PKCS#11, and the PIN lies in a file of its own. Keys are Ed25519 (CKM_EDDSA).

mod name;
mod token;

pub use name::{KeyName, NameError};
pub use token::{TokenKey, TokenKeyError};
