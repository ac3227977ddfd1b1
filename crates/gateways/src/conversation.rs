//! The conversation on one connection to another platform, in the words of its transport. Free of I/O.

use crate::address::Address;
use crate::queue::Verdict;

/// The other platform's words.
#[derive(Debug)]
pub(crate) enum Heard {
    /// The answer to the oldest unanswered request.
    Answer {
        verdict: Verdict,
        /// Whether the connection takes more requests.
        keeps_open: bool,
    },
    /// The platform ends the connection in order. It has not taken the unanswered requests.
    Closed,
    /// The requests must go to another place.
    Elsewhere(Address),
}

/// A conversation over one connection. The owner writes and reads its bytes.
pub(crate) trait PeerConversation: Send {
    /// Appends a request to the bytes to be written.
    fn write(&mut self, request: &[u8], out: &mut Vec<u8>);

    /// The most unanswered requests at a time, if more of them would lose their order at the other side.
    fn window(&self) -> Option<usize> {
        None
    }

    /// Takes the bytes that have come.
    fn push(&mut self, bytes: &[u8]);

    /// The platform's next words; `None` until more bytes come.
    ///
    /// # Errors
    /// The other side does not speak this transport, in words for people.
    fn hear(&mut self) -> Result<Option<Heard>, String>;
}
