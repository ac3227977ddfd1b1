//! The statement of an author about a message on the mesh.

use sealbus_proof::{Hash, Statement};

/// The longest name of a target, in bytes: names of foreign agents are longer than those of the platform.
const LONGEST_NAME: usize = 1024;
/// The replacement for a longer name. No agent has this name.
const NOBODY: &str = "?";

/// The name of a target as both sides keep it.
pub(crate) fn target_name(name: &str) -> &str {
    match name.len() <= LONGEST_NAME {
        true => name,
        false => NOBODY,
    }
}

/// The statement of a direct message: its author says it to this receiver.
pub(crate) fn statement_of(receiver: &str, message: &[u8]) -> Hash {
    Statement::direct(target_name(receiver), message)
}
