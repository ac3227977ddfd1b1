//! The native half of the Python package `sealbus`: messages, and access to the bus.

use mimalloc::MiMalloc;

mod acl;
mod agent;
mod body;
mod channel;
#[cfg(feature = "command")]
mod command;
mod conversation;
mod delegation;
mod directory;
#[cfg(unix)]
mod driver;
mod error;
mod event;
mod filter;
mod json;
mod last_events;
mod log;
mod management;
mod message;
mod platform;
mod protocol;
mod pump;
mod runtime;
mod sl;
mod subscribing;
mod write_json;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The names that `sealbus/_sealbus.pyi` describes.
#[pyo3::pymodule]
mod _sealbus {
    #[pymodule_export]
    use crate::acl::aid::PyAid;
    #[pymodule_export]
    use crate::acl::message::PyAclMessage;
    #[pymodule_export]
    use crate::acl::representation::{
        decode, detect, encode, explain, performatives, representation_name, representations,
        validate,
    };
    #[pymodule_export]
    use crate::agent::{PyAgentHandle, PyUnsent};
    #[pymodule_export]
    use crate::channel::{PyChannelEvent, PyChannelHandle, PyRepliesHandle, PySubscriptionHandle};
    #[pymodule_export]
    use crate::conversation::{PyConversation, PyOpenRequest, new_conversation_id};
    #[pymodule_export]
    use crate::delegation::PyDelegation;
    #[pymodule_export]
    use crate::directory::{
        ams_found, ams_search, ams_subscribe, ams_told, df_cancel, df_deregister, df_found,
        df_modify, df_register, df_search, df_subscribe, df_told, directory_done,
    };
    // Elsewhere no selector is a descriptor.
    #[cfg(unix)]
    #[pymodule_export]
    use crate::driver::PyDriver;
    #[pymodule_export]
    use crate::filter::PyFilter;
    #[pymodule_export]
    use crate::json::{PyObjectReader, json_text, read_json};
    #[pymodule_export]
    use crate::log::{forward_log, quiet_log, take_log, tell_of_log};
    #[pymodule_export]
    use crate::management::{PyAmsAgentDescription, PyDfAgentDescription, PyServiceDescription};
    #[pymodule_export]
    use crate::message::PyMessage;
    #[pymodule_export]
    use crate::platform::{PyPlatformHandle, join_platform};
    #[pymodule_export]
    use crate::protocol::{
        PyBranch, PyInitiator, PyParticipant, PyRefused, PySide, forward, opened_by, opens,
    };
    #[pymodule_export]
    use crate::pump::PyPump;
    #[pymodule_export]
    use crate::runtime::{forked, set_threads};
    #[pymodule_export]
    use crate::sl::{read_sl, write_sl};
    #[pymodule_export]
    use crate::write_json::{PyFields, write_json};
}
