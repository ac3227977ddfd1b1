//! Reads the files of an issuance log from a platform's address.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Request, StatusCode};
use sealbus_control::names::MASTER_NODE;
use sealbus_seal::Identity;
use sealbus_seal::tls::ExpectedPeer;
use sealbus_transparency::LogFile;
use sealbus_web::Client;

use crate::log_server::{LOGS, MOST_LOGS, NAME_LENGTH, is_log_name};
use crate::{Enrolment, HTTP, connect};

/// How long one file may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads files over one connection after another, since the platform ends each after a while.
pub struct LogReader {
    http: Client,
    /// The platform's URL.
    platform: String,
    /// Name of the log's CA.
    log: String,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LogReadError {
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

impl LogReader {
    /// Reads the log of the CA `log` at this address.
    pub fn new(at: Enrolment, log: &str) -> Self {
        let host = at.addresses.first().map_or("", String::as_str);
        let platform = format!("http://{host}");
        let http = Client::over(move |_| {
            let at = at.clone();
            async move {
                let master = Identity::node(&at.platform, MASTER_NODE)
                    .map(ExpectedPeer::Exactly)
                    .map_err(|error| error.to_string())?;
                connect(&at.addresses, &at.platform, at.root, master, HTTP).await
            }
        });
        Self {
            http,
            platform,
            log: log.to_owned(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`LogReadError`].
    pub async fn read(&mut self, file: LogFile) -> Result<Vec<u8>, LogReadError> {
        let path = format!("/log/{}/{file}", self.log);
        match self.get(&path, file.longest()).await? {
            (StatusCode::OK, body) => Ok(body.into()),
            (StatusCode::NOT_FOUND, _) => Err(LogReadError::Missing(file)),
            (status, _) => Err(LogReadError::Refused(status)),
        }
    }

    /// The names of all logs, that of the CA that certifies now first.
    ///
    /// # Errors
    /// [`LogReadError`].
    pub async fn names(&mut self) -> Result<Vec<String>, LogReadError> {
        let (status, body) = self.get(LOGS, MOST_LOGS * (NAME_LENGTH + 1)).await?;
        if status != StatusCode::OK {
            return Err(LogReadError::Refused(status));
        }
        let text = String::from_utf8_lossy(&body);
        let names = text.lines().filter(|name| is_log_name(name));
        Ok(names.map(str::to_owned).collect())
    }

    async fn get(&self, path: &str, most: usize) -> Result<(StatusCode, Bytes), LogReadError> {
        let unreachable =
            |error: &dyn std::fmt::Display| LogReadError::Unreachable(error.to_string());
        let request = Request::get(format!("{}{path}", self.platform)).body(Bytes::new());
        let request = request.map_err(|error| unreachable(&error))?;
        let answer = self.http.fetch(request, most, PATIENCE).await;
        let answer = answer.map_err(|error| unreachable(&error))?;
        Ok((answer.status(), answer.into_body()))
    }
}
