//! The entrance for operators: a socket of the Master's user, and a key beside it.
//!
//! Programs that run as the Master's user can open the socket. They are admitted only if they prove that they have the
//! key, with a MAC over a challenge that the Master makes for each connection. A program without access to the Master's
//! state folder cannot read the key.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sealbus_files::write_private;
use sealbus_seal::token::Secret;

use crate::ask::conversation;
use crate::local::Stream;
use crate::rpc::{self, LONGEST_FRAME, RpcCaller};
use crate::{Fault, FaultCode};

/// File name of the socket in the Master's state folder.
const SOCKET: &str = "admin.sock";
/// File name of the socket of a Master that stands by.
const STANDBY_SOCKET: &str = "standby.sock";
/// File name of the key beside it.
const KEY: &str = "admin.key";
/// The context of the MAC, which distinguishes it from MACs for other purposes.
const CONTEXT: &[u8] = b"sealbus operator v1\0";
/// How long the Master may take to admit an operator.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a Master runs with this state folder.
pub fn is_served(directory: &Path) -> bool {
    crate::local::is_listening(&socket_in(directory))
}

/// The socket of the Master that runs with a state folder.
pub fn socket_in(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}

/// The socket of the Master that stands by with a state folder.
pub fn standby_socket_in(directory: &Path) -> PathBuf {
    directory.join(STANDBY_SOCKET)
}

conversation! {
    /// The first messages on an operator's connection.
    pub enum Entry in ask ("ask") {
        /// Asks for a challenge.
        Challenge -> Secret;
        /// Proves the key.
        Prove {
            /// The MAC over the challenge, base64url.
            proof: String,
        } -> ();
    }
    /// The Master's answers to [`Entry`].
    pub enum EntryAnswer ("answer") {
        Challenge { challenge: Secret };
        Welcome;
    }
}

/// The operators' key.
pub struct OperatorKey(Secret);

impl OperatorKey {
    /// Reads the key in a Master's state folder.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a key.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(directory.join(KEY))?;
        let secret = text.trim().parse().map_err(io::Error::other)?;
        Ok(Self(secret))
    }

    /// Makes the key in a Master's state folder if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn keep(directory: &Path) -> io::Result<Self> {
        match Self::read(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let secret = Secret::random().map_err(io::Error::other)?;
        write_private(&directory.join(KEY), secret.text().as_bytes())?;
        Ok(Self(secret))
    }

    /// The proof for this challenge.
    fn prove(&self, challenge: &Secret) -> String {
        URL_SAFE_NO_PAD.encode(self.0.mac(CONTEXT, challenge.as_bytes()))
    }

    /// Whether `proof` is the proof for this challenge.
    pub fn is_proved(&self, challenge: &Secret, proof: &str) -> bool {
        let proof = URL_SAFE_NO_PAD.decode(proof).unwrap_or_default();
        self.0.has_mac(CONTEXT, challenge.as_bytes(), &proof)
    }
}

/// Opens a connection to the Master that runs on a state folder.
///
/// # Errors
/// [`FaultCode::Unavailable`] if no Master runs there, and [`FaultCode::NotPermitted`] if it does not admit this user.
pub async fn connect(directory: &Path) -> Result<RpcCaller, Fault> {
    connect_at(directory, &socket_in(directory)).await
}

/// Opens a connection to the Master that stands by with a state folder.
///
/// # Errors
/// As [`connect`].
pub async fn connect_to_standby(directory: &Path) -> Result<RpcCaller, Fault> {
    connect_at(directory, &standby_socket_in(directory)).await
}

async fn connect_at(directory: &Path, path: &Path) -> Result<RpcCaller, Fault> {
    let stream = Stream::connect(path).await.map_err(|error| {
        Fault::new(
            FaultCode::Unavailable,
            format!("{}: {error}", path.display()),
        )
    })?;
    let key = OperatorKey::read(directory).map_err(|error| {
        let key = directory.join(KEY);
        let message = format!(
            "the operators' key {} cannot be read: {error}",
            key.display()
        );
        Fault::new(FaultCode::NotPermitted, message)
            .advise("run the command as the Master's user, where its state folder can be read")
    })?;
    let (caller, _, drive) = rpc::open(stream, LONGEST_FRAME);
    tokio::spawn(drive);
    let challenge = caller.ask(ask::Challenge, PATIENCE).await?;
    let proof = key.prove(&challenge);
    caller.ask(ask::Prove { proof }, PATIENCE).await?;
    Ok(caller)
}
