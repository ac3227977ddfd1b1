//! Tokens and tickets that operators made.

use sealbus_seal::token::{Purpose, Secret, TokenBook, TokenError};
use sealbus_seal::{Name, Timestamp};
use sealbus_store::Rows;

/// Tokens and tickets, with the row that keeps them.
pub(crate) struct Tokens {
    book: TokenBook,
    changed: bool,
}

/// The key of the row that keeps the tokens.
pub(crate) const TOKENS_ROW: &str = "tokens";

impl Tokens {
    /// Loads the tokens from the stored row, if there is one.
    ///
    /// # Errors
    /// If the row cannot be read.
    pub(crate) fn load(row: Option<&[u8]>) -> Result<Self, serde_json::Error> {
        let entries: Vec<_> = row
            .map(serde_json::from_slice)
            .transpose()?
            .unwrap_or_default();
        Ok(Self {
            book: TokenBook::from_entries(entries),
            changed: false,
        })
    }

    /// The one name that a token was made for, if the token is known and was made for one name.
    pub(crate) fn name_of(&self, secret: &Secret) -> Option<String> {
        let hash = secret.hash();
        let (_, entry) = self.book.entries().find(|(known, _)| **known == hash)?;
        entry.name.as_ref().map(ToString::to_string)
    }

    /// Checks whether a token could be redeemed. The token stays as it is.
    ///
    /// # Errors
    /// As [`TokenBook::redeem`].
    pub(crate) fn check(
        &self,
        purpose: Purpose,
        secret: &Secret,
        name: Option<&str>,
        now: Timestamp,
    ) -> Result<(), TokenError> {
        let name = Name::new("node", name.unwrap_or("any"))?;
        self.book
            .clone()
            .redeem(purpose, secret, &name, now)
            .map(|_| ())
    }

    /// Notes the row if it changed.
    pub(super) fn take_row(&mut self, rows: &mut Rows) {
        if std::mem::take(&mut self.changed) {
            let entries: Vec<_> = self.book.entries().collect();
            rows.put(TOKENS_ROW.to_owned(), &entries);
        }
    }

    /// The book, for changes.
    pub(crate) fn change(&mut self) -> &mut TokenBook {
        self.changed = true;
        &mut self.book
    }
}
