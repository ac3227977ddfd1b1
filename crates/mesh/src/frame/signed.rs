//! The messages that a signature covers.

use sealbus_proof::AuthorEntry;
use sealbus_seal::Serial;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Stands for a serial number if the process could not sign for the sender.
const NO_CERTIFICATE: [u8; 16] = [0; 16];

/// The messages of one sender that a signature covers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct SignedMessages {
    sender: U32,
    serial: [u8; 16],
    first: U64,
    count: U16,
}

impl SignedMessages {
    /// Messages of the sender with this handle, from their entry in the batch.
    pub fn new(sender: u32, entry: &AuthorEntry) -> Self {
        Self {
            sender: U32::new(sender),
            serial: *entry.serial.as_bytes(),
            first: U64::new(entry.first),
            count: U16::new(entry.count),
        }
    }

    /// Messages for which the process could not sign. The receiver refuses them.
    pub fn unsigned(sender: u32, count: u16) -> Self {
        Self {
            sender: U32::new(sender),
            serial: NO_CERTIFICATE,
            first: U64::new(0),
            count: U16::new(count),
        }
    }

    /// The sender's handle.
    pub fn sender(&self) -> u32 {
        self.sender.get()
    }

    /// The serial number of the sender's certificate; `None` if the process could not sign.
    pub fn serial(&self) -> Option<Serial> {
        (self.serial != NO_CERTIFICATE).then(|| Serial::from_bytes(self.serial))
    }

    /// The number of the first message under this certificate.
    pub fn first(&self) -> u64 {
        self.first.get()
    }

    /// The number of messages.
    pub fn count(&self) -> u16 {
        self.count.get()
    }
}
