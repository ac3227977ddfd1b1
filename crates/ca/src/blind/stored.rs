//! The stored deny list, beside that of a CA that does not know the state.

use sealbus_control::Fault;
use sealbus_seal::Timestamp;
use sealbus_seal::denylist::DenyList;

use super::Blind;
use crate::not_denied;

impl Blind {
    /// Denies the entries of a stored list that nobody takes any more: this CA signed the list while it led and has
    /// signed a later one since, or the certificate that it was signed under has ended.
    ///
    /// # Errors
    /// [`FaultCode::Full`](sealbus_control::FaultCode::Full); the denials for which there was room are in force.
    pub fn take_over(&mut self, stored: &DenyList, now: Timestamp) -> Result<(), Fault> {
        let lists = self.trust.deny_lists();
        if lists.iter().any(|list| !stored.outlasts(list)) {
            return Ok(());
        }
        self.deny_list.prune(now);
        let taken = self.deny_list.take_over(stored, now);
        // If the list is full, what had room is in force all the same.
        self.publish(now)?;
        taken.map(drop).map_err(|error| not_denied(&error))
    }
}
