//! Requests over HTTP, and the status of the answer to each.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use sealbus_bus::text::{LONGEST_EXPLANATION, excerpt};
use sealbus_fipa::Limits;

use super::server::{RefusedRequest, Service};
use super::transmission;
use crate::address::Transport;
use crate::counters::Turned;
use crate::inward::TurnedAway;
use crate::outside::Outside;
use crate::policy::MessageOrigin;
use crate::shared::Shared;

impl Service for Shared {
    fn description(&self) -> String {
        Outside {
            platform: &self.platform,
            own: &self.own,
            transport: Transport::Http,
        }
        .description()
    }

    async fn receive(
        self: &Arc<Self>,
        content_type: &str,
        body: Bytes,
        origin: &MessageOrigin,
    ) -> Result<(), RefusedRequest> {
        let limits = Limits {
            message_length: self.config.limits.body,
            ..Limits::default()
        };
        let transmission = match transmission::read(content_type, &body, &limits) {
            Ok(transmission) => transmission,
            Err(error) => {
                let turned =
                    TurnedAway::before_its_sender_is_known(Turned::Malformed, error.to_string());
                self.turn_away(&turned, origin.address);
                let mut refused = refused(&turned);
                if error.is_unsupported() {
                    refused.status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
                }
                return Err(refused);
            }
        };
        let taken = Shared::receive(self, transmission, body.len(), origin, true);
        taken.await.map_err(|turned| {
            self.turn_away(&turned, origin.address);
            refused(&turned)
        })
    }

    fn turned(&self, what: Turned, from: IpAddr, explanation: &str) {
        let turned = TurnedAway::before_its_sender_is_known(what, explanation.to_owned());
        self.turn_away(&turned, from);
    }
}

fn refused(turned: &TurnedAway) -> RefusedRequest {
    RefusedRequest {
        status: match turned.what {
            Turned::Malformed => StatusCode::BAD_REQUEST,
            Turned::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Turned::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Turned::TooMany | Turned::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Turned::ForgedSender | Turned::NotPermitted | Turned::Relay => StatusCode::FORBIDDEN,
            Turned::Loop => StatusCode::LOOP_DETECTED,
        },
        // Parts of the text come from the sender, and the room of the request's body does not count the answer.
        explanation: excerpt(&turned.explanation, LONGEST_EXPLANATION),
    }
}
