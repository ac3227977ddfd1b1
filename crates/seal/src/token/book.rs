//! The tokens that a platform has made.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{MOST_TOKENS, Purpose, Secret, SecretHash, Token, TokenError};
use crate::identity::Name;
use crate::timestamp::Timestamp;

/// How long a spent or expired token is remembered, so that an error can say that it was used again.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// The platform's record of a token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenEntry {
    /// The purpose of the token.
    pub purpose: Purpose,
    /// The name that the token was made for, if it is bound to one.
    pub name: Option<Name>,
    /// The moment at which the token expires.
    pub expires: Timestamp,
    /// When it was used, and the name of its user.
    pub redeemed: Option<(Timestamp, Name)>,
}

/// The tokens that a platform has made. Each can be redeemed once, in time, by the user that it was made for.
///
/// The book is a state machine without I/O: store the [entry](TokenBook::entry) of each changed hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenBook {
    entries: HashMap<SecretHash, TokenEntry>,
}

impl TokenBook {
    /// An empty book.
    pub fn new() -> Self {
        Self::default()
    }

    /// A book from stored entries.
    pub fn from_entries(entries: impl IntoIterator<Item = (SecretHash, TokenEntry)>) -> Self {
        Self {
            entries: entries.into_iter().collect(),
        }
    }

    /// The entry under a hash, for storing.
    pub fn entry(&self, hash: &SecretHash) -> Option<&TokenEntry> {
        self.entries.get(hash)
    }

    /// Enters a token that is valid for `lifetime`. Returns the hash under which the token is kept. Tokens that were spent
    /// or expired long ago are [forgotten](Self::forget).
    pub fn enter(
        &mut self,
        token: &Token,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<SecretHash, TokenError> {
        self.enter_secret(
            token.purpose,
            token.name.clone(),
            &token.secret,
            lifetime,
            now,
        )
    }

    /// Enters a bare secret, for the one-time tickets that a node gives to the programs that it starts.
    pub fn enter_secret(
        &mut self,
        purpose: Purpose,
        name: Option<Name>,
        secret: &Secret,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<SecretHash, TokenError> {
        self.forget(now);
        if self.entries.len() >= MOST_TOKENS {
            return Err(TokenError::Full);
        }
        let hash = secret.hash();
        let expires = now.plus(lifetime);
        self.entries.insert(
            hash,
            TokenEntry {
                purpose,
                name,
                expires,
                redeemed: None,
            },
        );
        Ok(hash)
    }

    /// Checks whether the token with this secret could be spent for `name` or, without a name, for some name. The token
    /// does not change.
    ///
    /// The secret is looked up by its hash, so the time of this call reveals nothing about the kept secrets.
    pub fn check(
        &self,
        purpose: Purpose,
        secret: &Secret,
        name: Option<&Name>,
        now: Timestamp,
    ) -> Result<SecretHash, TokenError> {
        let hash = secret.hash();
        let entry = self.entry(&hash).ok_or(TokenError::Unknown(purpose))?;
        if entry.purpose != purpose {
            return Err(TokenError::WrongPurpose {
                expected: purpose,
                found: entry.purpose,
            });
        }
        if let Some((at, by)) = &entry.redeemed {
            return Err(TokenError::Redeemed {
                purpose,
                at: *at,
                by: by.clone(),
            });
        }
        if now > entry.expires {
            return Err(TokenError::Expired {
                purpose,
                at: entry.expires,
            });
        }
        match (&entry.name, name) {
            (Some(expected), Some(found)) if expected != found => Err(TokenError::WrongName {
                purpose,
                expected: expected.clone(),
                found: found.clone(),
            }),
            _ => Ok(hash),
        }
    }

    /// Spends the token with this secret for `name`. Each token can be spent once.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn redeem(
        &mut self,
        purpose: Purpose,
        secret: &Secret,
        name: &Name,
        now: Timestamp,
    ) -> Result<SecretHash, TokenError> {
        let hash = self.check(purpose, secret, Some(name), now)?;
        if let Some(entry) = self.entries.get_mut(&hash) {
            entry.redeemed = Some((now, name.clone()));
        }
        Ok(hash)
    }

    /// Makes a redeemed token valid again. Meant for a failure after the redemption that is not the fault of the
    /// token's user.
    pub fn restore(&mut self, hash: &SecretHash) {
        if let Some(entry) = self.entries.get_mut(hash) {
            entry.redeemed = None;
        }
    }

    /// Forgets tokens that were spent or expired long ago. Returns their hashes.
    pub fn forget(&mut self, now: Timestamp) -> Vec<SecretHash> {
        let is_over = |entry: &TokenEntry| {
            let over = entry.redeemed.as_ref().map_or(entry.expires, |(at, _)| *at);
            over.plus(MEMORY) < now
        };
        let over = self.entries.extract_if(|_, entry| is_over(entry));
        over.map(|(hash, _)| hash).collect()
    }
}
