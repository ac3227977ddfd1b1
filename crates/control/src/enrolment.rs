//! Joining a platform over TLS. The token's fingerprint pins the server, so a newcomer needs nothing else. A node that
//! comes back signs with its node key instead of using a token.

use serde::{Deserialize, Serialize};

use super::{Blob, NodeDescription, PlatformDescription, Term, UnixMillis};
use crate::ask::conversation;
use crate::authority::IssuedChain;
use crate::statement::Signed;

conversation! {
    /// The requests of a node to the Master.
    pub enum EnrolmentRequest in ask ("ask") {
        /// Join with a one-time token.
        Join {
            /// The token's secret.
            secret: String,
            /// The requested name; `None`: the Master chooses the next free `node-N`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            name: Option<String>,
            /// The node's clock, to distinguish a wrong clock from a wrong certificate.
            now: UnixMillis,
            /// The description of the node.
            node: NodeDescription,
            /// Signing request (PKCS#10 DER) for the node's own key. With this key the node vouches for the requests
            /// that it takes to the CA.
            request: Blob,
        } -> Box<Joined>;
        /// Come back, or renew the node's own certificate.
        Return {
            /// A [`Returning`](crate::statement::Returning).
            statement: Signed,
        } -> Box<Joined>;
        /// A certificate chain (DER, leaf first) for the node's process or agent, while the node has no certificate
        /// with which to ask for one over the bus.
        Certify {
            /// A [`Vouching`](crate::statement::Vouching).
            voucher: Signed,
        } -> IssuedChain;
        /// Join as a further Master, with a CA of its own, using a one-time token.
        JoinAsMaster {
            /// The token's secret.
            secret: String,
            /// Signing request (PKCS#10 DER) for the CA's own key.
            request: Blob,
            /// The Master's clock.
            now: UnixMillis,
        } -> Box<CertifiedAuthority>;
    }
    /// The answer to an [`EnrolmentRequest`].
    pub enum EnrolmentAnswer ("answer") {
        Joined(Box<Joined>);
        Certified(IssuedChain);
        Authority(Box<CertifiedAuthority>);
    }
}

/// The certificates of a new CA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertifiedAuthority {
    /// The platform's root certificate, DER.
    pub root: Blob,
    /// The certificate chain of the CA, DER, without the root.
    pub chain: Vec<Blob>,
}

/// The facts that a node learns when it joins or comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The node's name.
    pub name: String,
    /// Name of the node's process.
    pub process: String,
    /// The platform.
    pub platform: PlatformDescription,
    /// Certificate chain of the node's own key, DER, leaf first.
    pub chain: Vec<Blob>,
    /// The whole signed deny list in force.
    pub deny_list: Blob,
    /// The Master's term, if there may be several Masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<Term>,
    /// The addresses (`host:port`) of all Masters, if there may be several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masters: Vec<String>,
}
