//! Reads the files of an issuance log from a platform's address.

use hyper::{Method, StatusCode};
use sealbus_control::names::MASTER_NODE;
use sealbus_seal::tls::ExpectedPeer;
use sealbus_seal::{Identity, IdentityError};
use sealbus_transparency::{LogFile, MAX_BUNDLE_LENGTH};

use crate::http::Http;
use crate::log_server::{LOGS, MOST_LOGS, NAME_LENGTH};
use crate::{Enrolment, HTTP, connect};

/// Reads files over one connection after another, since the platform ends each after a while.
pub struct LogReader {
    at: Enrolment,
    /// Name of the log's CA.
    log: String,
    http: Option<Http>,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The platform cannot be reached, or is not the one of this root.
    #[error("the platform cannot be reached: {0}")]
    Unreachable(String),
    /// The platform has no such file.
    #[error("there is no {0}")]
    Missing(LogFile),
    /// The platform refused.
    #[error("the platform answered {0}")]
    Refused(StatusCode),
}

impl From<IdentityError> for ReadError {
    fn from(error: IdentityError) -> Self {
        Self::Unreachable(error.to_string())
    }
}

impl LogReader {
    /// Reads the log of the CA `log` at this address.
    pub fn new(at: Enrolment, log: &str) -> Self {
        Self {
            at,
            log: log.to_owned(),
            http: None,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read(&mut self, file: LogFile) -> Result<Vec<u8>, ReadError> {
        let path = format!("/log/{}/{file}", self.log);
        match self.get(&path, MAX_BUNDLE_LENGTH).await? {
            (StatusCode::OK, body) => Ok(body),
            (StatusCode::NOT_FOUND, _) => Err(ReadError::Missing(file)),
            (status, _) => Err(ReadError::Refused(status)),
        }
    }

    /// The names of all logs, that of the CA that certifies now first.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn names(&mut self) -> Result<Vec<String>, ReadError> {
        let (status, body) = self.get(LOGS, MOST_LOGS * (NAME_LENGTH + 1)).await?;
        if status != StatusCode::OK {
            return Err(ReadError::Refused(status));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let text = String::from_utf8_lossy(&body);
        let names = text.lines().filter(|name| name.bytes().all(is_plain));
        Ok(names.map(str::to_owned).collect())
    }

    async fn get(&mut self, path: &str, most: usize) -> Result<(StatusCode, Vec<u8>), ReadError> {
        let mut is_new = false;
        loop {
            let mut http = match self.http.take() {
                Some(http) => http,
                None => {
                    is_new = true;
                    self.open().await?
                }
            };
            match http.request(Method::GET, path, Vec::new(), most).await {
                Ok((status, body)) => {
                    self.http = Some(http);
                    return Ok((status, body.to_vec()));
                }
                // A connection that was used before may have ended meanwhile.
                Err(_) if !is_new => {}
                Err(why) => return Err(ReadError::Unreachable(why)),
            }
        }
    }

    async fn open(&self) -> Result<Http, ReadError> {
        let Enrolment {
            platform,
            addresses,
            root,
        } = &self.at;
        let master = Identity::node(platform, MASTER_NODE).map(ExpectedPeer::Exactly)?;
        let stream = connect(addresses, platform, *root, master, HTTP).await;
        let stream = stream.map_err(ReadError::Unreachable)?;
        let host = addresses.first().map_or("", String::as_str);
        let opened = Http::open(stream, host).await;
        opened.map_err(ReadError::Unreachable)
    }
}
