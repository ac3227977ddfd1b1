//! The origin of a message from outside: this platform's knowledge about the sender.

use sealbus_fipa::{AclMessageRef, Expression};

/// The parameter in which the gateway notes the origin of a message from outside. The parameter counts only in messages
/// that the gateway relays. The gateway removes it from all messages that come in or go out. In the identifier of a
/// subscriber of the DF, the same parameter has the network address alone, for the notices.
pub const ORIGIN_PARAMETER: &str = "X-Sealbus-Origin";

/// The known facts about the sender of a message from another platform. The sender's name is only claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignOrigin {
    /// The network address that the message came from, as the gateway saw it. Empty if the gateway was not told.
    pub address: String,
    /// SHA-256 fingerprint, in lower-case hexadecimal, of the certificate shown on the connection that carried the
    /// message. The gateway's policy decides which certificates are accepted.
    pub certificate: Option<String>,
    /// Whether the policy lets agents of that platform register themselves in this platform's DF.
    pub may_register: bool,
}

impl ForeignOrigin {
    /// The value of [`ORIGIN_PARAMETER`].
    pub fn to_expression(&self) -> Expression {
        Expression::List(vec![
            Expression::String(self.address.clone()),
            Expression::String(self.certificate.clone().unwrap_or_default()),
            Expression::Word(
                if self.may_register {
                    "register"
                } else {
                    "none"
                }
                .to_owned(),
            ),
        ])
    }

    /// Reads the gateway's note in a message that it relayed. Trust the note only in a message that is known to be relayed.
    pub fn read(message: &AclMessageRef<'_>) -> Self {
        let told = message
            .user_defined()
            .find(|(name, _)| name.eq_ignore_ascii_case(ORIGIN_PARAMETER));
        let Some(Expression::List(told)) = told.map(|(_, value)| value.to_owned()) else {
            return Self::default();
        };
        let text = |at: usize| told.get(at).and_then(Expression::as_str).unwrap_or("");
        Self {
            address: text(0).to_owned(),
            certificate: Some(text(1)).filter(|it| !it.is_empty()).map(str::to_owned),
            may_register: text(2) == "register",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use sealbus_fipa::bitefficient::EncodedMessage;
    use sealbus_fipa::{AclMessage, Aid, Limits, Performative, bitefficient};

    use super::*;
    use crate::{Provenance, ReceivedMessage};

    /// The processes of the gateway and of the receiver are seldom the same.
    #[test]
    fn what_is_known_of_a_sender_travels_over_the_mesh() {
        for may_register in [false, true] {
            let known = ForeignOrigin {
                address: "192.0.2.7".to_owned(),
                certificate: None,
                may_register,
            };
            let mut message = AclMessage::new(Performative::Inform)
                .with_sender(Aid::new("a@plat1").unwrap())
                .with_receiver(Aid::new("b@factory").unwrap());
            message
                .user_defined
                .push((ORIGIN_PARAMETER.to_owned(), known.to_expression()));
            let mut bytes = Vec::new();
            bitefficient::encode(&message, &mut bytes).unwrap();
            let read = bitefficient::decode(&bytes, &Limits::default()).unwrap();
            assert_eq!(ForeignOrigin::read(&AclMessage::view(&read)), known);
        }
    }

    /// The provenance tells the agent the same. The parameter has no effect in a message from an agent of this platform.
    #[test]
    fn the_note_is_not_among_the_parameters_that_the_receiver_reads() {
        let known = ForeignOrigin::default();
        let mut message = AclMessage::new(Performative::Inform);
        let name = ORIGIN_PARAMETER.to_lowercase();
        message.user_defined.push((name, known.to_expression()));
        let mut bytes = Vec::new();
        bitefficient::encode(&message, &mut bytes).unwrap();
        for (provenance, left) in [
            (Provenance::Foreign(Arc::new(known)), 0),
            (Provenance::Claimed, 1),
        ] {
            let bytes = Bytes::copy_from_slice(&bytes);
            let encoded = EncodedMessage::new(bytes, &Limits::default()).unwrap();
            let received = ReceivedMessage::encoded(encoded, provenance);
            assert_eq!(received.into_message().user_defined.len(), left);
        }
    }
}
