//! The requests with which operators only read.

use super::AdminRequest;

impl AdminRequest {
    /// Whether the request changes nothing, and its answer contains no secret and no content of messages.
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Status
            | Self::Masters
            | Self::Nodes { .. }
            | Self::Agents { .. }
            | Self::Refusals
            | Self::Log { .. }
            | Self::ChannelLogs
            | Self::Narrow { .. }
            | Self::CertificationEvents { .. }
            | Self::Certificates { .. }
            | Self::Authorities
            | Self::Root
            | Self::Checkpoint
            | Self::DfSearch { .. }
            | Self::Gateway
            | Self::Broker => true,
            Self::Observe { watch } => watch.as_ref().is_none_or(|watch| !watch.bodies),
            Self::Token { .. }
            | Self::Ticket { .. }
            // A reader could guess the values of variables, one by one.
            | Self::Compare { .. }
            | Self::Apply { .. }
            | Self::StartAgain { .. }
            | Self::Kill { .. }
            | Self::Move { .. }
            | Self::Mailbox { .. }
            | Self::Evidence { .. }
            | Self::Revoke { .. }
            | Self::RevokeAuthority { .. }
            | Self::Send { .. }
            | Self::DfRegister { .. }
            | Self::DfDeregister { .. }
            | Self::GatewayAllow { .. }
            | Self::GatewayDeny { .. }
            | Self::Federate { .. }
            | Self::CertifyBroker { .. }
            | Self::CertifyCaller { .. }
            | Self::Backup { .. }
            | Self::BackupPiece { .. }
            | Self::HandOver
            | Self::Shutdown { .. } => false,
        }
    }
}
