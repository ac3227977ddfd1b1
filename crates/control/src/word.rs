//! A node's word to any Master, leading or not, over a connection of its own. It is signed, and nothing in it or in the reply
//! is secret: a Master that stands by needs no certificate for it.

use sealbus_seal::Identity;
use serde::{Deserialize, Serialize};

use crate::authority::IssuedChain;
use crate::statement::Signed;
use crate::{Blob, Fault};

/// The word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// The node does not hear the Master that leads.
    Alarm {
        /// An [`Alarm`](crate::statement::Alarm).
        statement: Signed,
        /// The versions of the deny lists that the node holds.
        known: Vec<(Identity, u64)>,
    },
    /// The node asks for a certificate in place of one that its process holds.
    Renew {
        /// A [`Vouching`](crate::statement::Vouching).
        voucher: Signed,
    },
}

/// The Master's reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The alarm is noted. Comes with what the node lacks of the Master's own signed deny list.
    Noted {
        /// The changes since the version that the node holds, or the whole list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deny_list: Option<Blob>,
    },
    /// A certificate in place of the one that is held.
    Renewed {
        /// The certificate.
        chain: IssuedChain,
    },
    /// The Master does nothing for it.
    Refused(Fault),
}
