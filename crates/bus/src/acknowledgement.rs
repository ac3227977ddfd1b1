//! The moment from which a message counts as delivered.

use std::fmt;

/// When a transport counts a message as accepted by the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Acknowledgement {
    /// The message lies in the mailbox of the receiver, in its process.
    ReceiverProcess,
    /// The agent has taken the message.
    ReceiverAgent,
    /// The message is on disk, synchronised.
    OnDisk,
    /// The message is on the disks of a majority.
    OnMajority,
}

impl Acknowledgement {
    /// All of them, weakest first.
    pub const ALL: [Self; 4] = [
        Self::ReceiverProcess,
        Self::ReceiverAgent,
        Self::OnDisk,
        Self::OnMajority,
    ];

    /// The acknowledgement's name in the text of a channel's QoS and in errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReceiverProcess => "process",
            Self::ReceiverAgent => "agent",
            Self::OnDisk => "disk",
            Self::OnMajority => "majority",
        }
    }
}

impl fmt::Display for Acknowledgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
