//! Tokens that operators made, each in a row of its own.

use std::time::Duration;

use sealbus_seal::token::{Purpose, Secret, SecretHash, Token, TokenBook, TokenEntry, TokenError};
use sealbus_seal::{Name, Timestamp};
use sealbus_store::{Row, Rows};

use crate::state::DamagedRow;

/// Prefix of the rows that keep the tokens.
pub(crate) const TOKEN_ROW: &str = "token/";

/// Tokens, with the rows that keep them.
#[derive(Default)]
pub(crate) struct Tokens {
    book: TokenBook,
    rows: Rows,
}

impl Tokens {
    /// Loads the tokens from their rows. Other rows are passed over.
    ///
    /// # Errors
    /// If a row cannot be read.
    pub(crate) fn load<'r>(
        rows: impl IntoIterator<Item = (&'r str, &'r [u8])>,
    ) -> Result<Self, DamagedRow> {
        let ours = |(key, _): &(&str, _)| key.starts_with(TOKEN_ROW);
        let entry = |(key, value): (&str, &[u8])| {
            serde_json::from_slice(value).map_err(|error| DamagedRow {
                key: key.to_owned(),
                error,
            })
        };
        let entries = rows.into_iter().filter(ours).map(entry);
        let entries: Vec<(SecretHash, TokenEntry)> = entries.collect::<Result<_, _>>()?;
        Ok(Self {
            book: TokenBook::from_entries(entries),
            rows: Rows::default(),
        })
    }

    /// The one name that a token was made for, if the token is known and was made for one name.
    pub(crate) fn name_of(&self, secret: &Secret) -> Option<String> {
        let entry = self.book.entry(&secret.hash())?;
        entry.name.as_ref().map(ToString::to_string)
    }

    /// Checks whether a token could be redeemed. The token stays as it is.
    ///
    /// # Errors
    /// As [`TokenBook::check`].
    pub(crate) fn check(
        &self,
        purpose: Purpose,
        secret: &Secret,
        name: Option<&Name>,
        now: Timestamp,
    ) -> Result<(), TokenError> {
        self.book.check(purpose, secret, name, now).map(|_| ())
    }

    /// Enters a token.
    ///
    /// # Errors
    /// As [`TokenBook::enter`].
    pub(crate) fn enter(
        &mut self,
        token: &Token,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(), TokenError> {
        for gone in self.book.forget(now) {
            self.rows.delete(format!("{TOKEN_ROW}{gone}"));
        }
        let hash = self.book.enter(token, lifetime, now)?;
        self.save(&hash);
        Ok(())
    }

    /// Spends a token.
    ///
    /// # Errors
    /// As [`TokenBook::redeem`].
    pub(crate) fn redeem(
        &mut self,
        purpose: Purpose,
        secret: &Secret,
        name: &Name,
        now: Timestamp,
    ) -> Result<(), TokenError> {
        let hash = self.book.redeem(purpose, secret, name, now)?;
        self.save(&hash);
        Ok(())
    }

    fn save(&mut self, hash: &SecretHash) {
        if let Some(entry) = self.book.entry(hash) {
            self.rows.put(format!("{TOKEN_ROW}{hash}"), &(hash, entry));
        }
    }

    /// Takes the changed rows.
    pub(super) fn take_rows(&mut self) -> Vec<Row> {
        self.rows.take()
    }
}
