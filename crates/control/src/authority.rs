//! The conversations of nodes and agents with the CA service: the JSON content of ACL messages to `ca@hap`, as those with the
//! Master ([`node`](super::node)).

use crate::Blob;
use crate::ask::conversation;
use crate::statement::Signed;
use crate::workload::{WorkloadIssuer, WorkloadToken};

conversation! {
    /// The requests of a node, or of an agent, to `ca@hap`.
    pub enum AuthorityRequest in ask_ca ("ask") {
        /// A certificate chain (DER, leaf first) for a process of the node or one of its agents.
        Certify {
            /// The node's signed request, a [`Vouching`](crate::statement::Vouching).
            voucher: Signed,
        } -> Vec<Blob>;
        /// A workload token for the agent that asks.
        WorkloadToken {
            /// Whom the token is for.
            audience: String,
            /// The agent of the platform, by its local name, for which an agent asks that stands for a neighbour.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            asker: Option<String>,
        } -> WorkloadToken;
        /// The keys against which workload tokens are checked.
        WorkloadIssuer -> WorkloadIssuer;
    }
    /// The answers of `ca@hap`.
    pub enum AuthorityAnswer ("answer") {
        Certified { chain: Vec<Blob> };
        WorkloadToken(WorkloadToken);
        WorkloadIssuer(WorkloadIssuer);
    }
}
