//! The security level that a message asks for.

use sealbus_fipa::{AclMessage, AclMessageRef, Expression};
use sealbus_seal::{SecurityLevel, UnknownSecurityLevel};
use thiserror::Error;

/// The parameter in which a message states the least security level at which it goes to other processes. It is a part
/// of the message: the author's proof covers it, and it stays with the message wherever that waits.
pub const LEVEL_PARAMETER: &str = "X-Sealbus-Level";

/// The act of a sealed message.
pub(crate) const SEALED: &str = "sealed";

/// Somebody asked for a weaker security level than the one in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "level={wanted} would be weaker than level={least}, which holds here: leave it out, or ask for more"
)]
pub struct Downgrade {
    /// The level asked for.
    pub wanted: SecurityLevel,
    /// The level of the channel or the platform.
    pub least: SecurityLevel,
}

impl Downgrade {
    /// Checks that nobody asks for a weaker level than the one in force.
    ///
    /// # Errors
    /// [`Downgrade`] if `wanted` is weaker than `least`.
    pub fn check(wanted: Option<SecurityLevel>, least: Option<SecurityLevel>) -> Result<(), Self> {
        match (wanted, least) {
            (Some(wanted), Some(least)) if wanted < least => Err(Self { wanted, least }),
            _ => Ok(()),
        }
    }
}

/// The security level that a message asks for; `None`: the platform's. A sealed message says so by its act.
///
/// # Errors
/// If the message names a level that does not exist.
pub fn level_of(
    message: &AclMessageRef<'_>,
) -> Result<Option<SecurityLevel>, UnknownSecurityLevel> {
    if message.is_act(SEALED) {
        return Ok(Some(SecurityLevel::Sealed));
    }
    let mut parameters = message.user_defined();
    let found = parameters.find(|(name, _)| name.eq_ignore_ascii_case(LEVEL_PARAMETER));
    let Some((_, value)) = found else {
        return Ok(None);
    };
    value.text().unwrap_or_default().parse().map(Some)
}

/// Whether a message asks for its author's proof.
pub fn asks_for_proof(message: &AclMessageRef<'_>) -> bool {
    matches!(level_of(message), Ok(Some(level)) if level >= SecurityLevel::Signed)
}

/// Makes a message ask for this level.
pub fn set_level(message: &mut AclMessage, level: SecurityLevel) {
    let parameters = &mut message.user_defined;
    parameters.retain(|(name, _)| !name.eq_ignore_ascii_case(LEVEL_PARAMETER));
    let value = Expression::Word(level.as_str().to_owned());
    parameters.push((LEVEL_PARAMETER.to_owned(), value));
}
