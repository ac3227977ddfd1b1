//! The rights of a page.

use serde::Serialize;

/// The rights of a page besides seeing names, counters and the heads of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rights {
    /// It may show the bodies of messages.
    pub bodies: bool,
    /// It may kill, move and revoke agents.
    pub operates: bool,
}
