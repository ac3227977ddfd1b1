//! The check of the security level that a message asks for.

use sealbus_fipa::AclMessage;
use sealbus_seal::SecurityLevel;

use crate::bus::Bus;
use crate::level::{Downgrade, level_of};

/// Checks that a message can be sent at the level that it asks for.
pub(super) fn check_level(bus: &Bus, message: &AclMessage) -> Result<(), String> {
    let wanted = level_of(&message.view()).map_err(|error| error.to_string())?;
    let Some(wanted) = wanted else { return Ok(()) };
    let (transport, least, levels) = match bus.transport() {
        Some(transport) => {
            let offered = transport.capabilities();
            let least = bus.level().unwrap_or(offered.level);
            (transport.name(), least, offered.levels)
        }
        // Messages between agents of one process are not signed.
        None => (
            "in-process",
            SecurityLevel::None,
            SecurityLevel::Auth.and_weaker(),
        ),
    };
    Downgrade::check(Some(wanted), Some(least)).map_err(|error| error.to_string())?;
    // The bus seals messages above the transport, and the agents sign the sealed messages.
    let offered = match (wanted, bus.sealer()) {
        (SecurityLevel::Sealed, Some(_)) => SecurityLevel::Signed,
        _ => wanted,
    };
    match levels.contains(&offered) {
        true => Ok(()),
        false => Err(format!(
            "the transport {transport} cannot give level={wanted}: ask for less, or use another transport"
        )),
    }
}
