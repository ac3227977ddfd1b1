//! A node's message to any Master, leading or not, over a connection of its own. It is signed, and neither it nor the
//! reply contains a secret, so a Master that stands by needs no certificate for it.

use sealbus_seal::Identity;
use serde::{Deserialize, Serialize};

use crate::authority::IssuedChain;
use crate::statement::Signed;
use crate::{Blob, Fault};

/// The message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// The node does not hear the leading Master.
    Alarm {
        /// An [`Alarm`](crate::statement::Alarm).
        statement: Signed,
        /// The versions of the deny lists that the node holds.
        known: Vec<(Identity, u64)>,
    },
    /// The node asks for a certificate to replace one of its process.
    Renew {
        /// A [`Vouching`](crate::statement::Vouching).
        voucher: Signed,
    },
}

/// The Master's reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The alarm is noted. The reply has what the node lacks of the Master's own signed deny list.
    Noted {
        /// The changes since the version that the node has, or the whole list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deny_list: Option<Blob>,
    },
    /// A certificate that replaces the former one.
    Renewed {
        /// The certificate.
        chain: IssuedChain,
    },
    /// The Master does not do it.
    Refused(Fault),
}
