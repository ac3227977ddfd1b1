//! The Master places agents on nodes, keeps the directory, and hosts the system agents.
//!
//! [`state`] decides, without I/O. The other modules carry events to it and its effects out.

mod admin;
mod asking;
mod authorities;
mod authority_care;
mod backup;
mod blind;
mod broker;
mod broker_alarms;
mod broker_care;
mod broker_certificate;
mod broker_watch;
mod certifying;
mod claim;
mod config;
mod cut_off;
mod dead_letters;
mod desk;
mod desk_shares;
mod directories;
mod election;
pub mod embedded;
mod enrolment;
mod forwarding;
mod foundation;
mod gateways;
mod issuance_log;
mod joining;
mod kept_ports;
mod latest;
mod listing;
mod master_error;
mod masters;
mod operator;
mod own_host;
mod own_processes;
pub mod placement;
pub mod registry;
mod restore;
mod running;
mod server_certificate;
mod standby;
mod standby_admin;
pub mod state;
mod state_store;
mod stopped;
mod system;
mod taking_in;
mod telling;
mod unstored;
mod vouching;
mod written;

pub use authorities::{
    Authorities, AuthoritiesError, certify_authority, has_authority, place_keys, request_authority,
};
pub(crate) use broker::Broker;
pub use broker_care::BrokerStartError;
pub(crate) use certifying::certify_vouched;
pub use config::MasterConfig;
pub(crate) use desk::{Desk, DeskHandle};
pub use election::Elected;
pub(crate) use foundation::lay;
pub use foundation::{FoundationError, PlatformSettings};
pub use issuance_log::{OutsideWitness, SharedLogError};
pub use joining::{Invitation, JoinError, join};
pub use master_error::MasterError;
pub(crate) use own_host::{HostedProcess, OwnHost};
pub use restore::{RestoreError, check_backup, describe_backup, restore};
pub use running::Master;
pub use sealbus_pkcs11::{KeyName, NameError};
pub use state_store::{StateError, is_held};
pub use stopped::certify_broker_of;
pub(crate) use system::SystemAgents;
pub use system::SystemError;
pub use written::ClockBehind;

/// For the fuzz targets: the readers of the files and rows of a Master, and of other Masters' statements.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::standby::check_instance;
    pub use crate::unstored::check_file;
}

/// The present time in the unit of certificates.
pub(crate) fn timestamp_now() -> sealbus_seal::Timestamp {
    sealbus_control::clock::timestamp(sealbus_control::clock::now())
}
