//! Connections from other platforms over IIOP.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use sealbus_fipa::Limits;
use sealbus_giop::{SystemException, Version, close_connection};
use sealbus_web::accept_each;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::serving::{Call, Serving, Step};
use super::transmission;
use crate::config::milliseconds;
use crate::counters::Turned;
use crate::farewell::farewell;
use crate::inward::TurnedAway;
use crate::places::{BodyRoom, ConnectionPlace, NoRoom, Places, TOO_MANY};
use crate::policy::MessageOrigin;
use crate::shared::Shared;

/// Bytes read together at most.
const READ: usize = 64 << 10;
/// Messages delivered in a row before their receivers may act.
const ROW: usize = 8;

pub(crate) struct Server {
    pub(crate) shared: Arc<Shared>,
    pub(crate) places: Arc<Places>,
    pub(crate) key: Vec<u8>,
}

impl Server {
    /// Serves for ever. Connections end with the returned future.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        accept_each(&listener, |stream, mut from, _| {
            from.set_ip(from.ip().to_canonical());
            let Some(place) = self.places.enter(from.ip()) else {
                self.turned(Turned::TooMany, from.ip(), TOO_MANY);
                // The answer fits into the socket's buffer, so nothing waits for the client.
                let _ = stream.try_write(&close_connection(Version::V1_2));
                return None;
            };
            Some(self.clone().serve(stream, from, place))
        })
        .await;
    }

    fn turned(&self, what: Turned, from: IpAddr, explanation: &str) {
        let turned = TurnedAway::before_its_sender_is_known(what, explanation.to_owned());
        self.shared.turn_away(&turned, from);
    }

    async fn serve(
        self: Arc<Self>,
        mut stream: TcpStream,
        from: SocketAddr,
        place: ConnectionPlace,
    ) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let origin = MessageOrigin {
            address: from.ip(),
            certificate: None,
        };
        let limits = &self.shared.config.limits;
        let (idle_time, body_time) = (
            milliseconds(limits.head_time),
            milliseconds(limits.body_time),
        );
        let mut serving = Serving::new(&self.key, limits.body);
        let mut input = vec![0; READ];
        let mut room = place.body();
        let mut has_asked = false;
        // Since when the beginning of a message has waited for its end.
        let mut since: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let until = since.map_or(now + idle_time, |since| since + body_time);
            let count = match tokio::time::timeout_at(until.into(), stream.read(&mut input)).await {
                // A client that just goes away did nothing wrong.
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(count)) => count,
                Err(_) => {
                    serving.forget_older_than(Instant::now());
                    if serving.waiting() > 0 {
                        let explanation = "a message took longer than the limit body-time";
                        self.turned(Turned::TooSlow, origin.address, explanation);
                    } else if since.take().is_some() {
                        // There were only parts of messages that were not continued.
                        continue;
                    } else if !has_asked {
                        let explanation = "no message came within the limit head-time";
                        self.turned(Turned::TooSlow, origin.address, explanation);
                    }
                    return farewell(&mut stream, &serving.farewell()).await;
                }
            };
            if let Err(NoRoom(limit)) = room.take(count) {
                let explanation = format!(
                    "other messages that are being read leave no room, the limit {limit}: try again"
                );
                self.turned(Turned::TooMany, origin.address, &explanation);
                return farewell(&mut stream, &serving.farewell()).await;
            }
            serving.push(&input[..count]);
            let mut output = Vec::new();
            let mut delivered = 0;
            while let Some(step) = serving.step(Instant::now()) {
                has_asked = true;
                since = None;
                match step {
                    Step::Answer(bytes) => output.extend(bytes),
                    Step::Refuse(what, explanation, bytes) => {
                        self.turned(what, origin.address, &explanation);
                        output.extend(bytes);
                    }
                    Step::Deliver(call, message) => {
                        delivered += 1;
                        if delivered % ROW == 0 {
                            // Receivers answer the first messages while the last ones are still read.
                            tokio::task::yield_now().await;
                        }
                        match self.deliver(&call, &message, &origin).await {
                            Ok(()) => output.extend(call.done()),
                            Err(exception) => {
                                output.extend(call.exception(&exception));
                                if exception.is_transient() && call.is_answered() {
                                    // Later requests would overtake the one that must be made again.
                                    output.extend(serving.farewell());
                                    return farewell(&mut stream, &output).await;
                                }
                            }
                        }
                    }
                    Step::End(bytes, fault) => {
                        if let Some((what, explanation)) = fault {
                            self.turned(what, origin.address, &explanation);
                        }
                        output.extend(bytes);
                        return farewell(&mut stream, &output).await;
                    }
                }
            }
            // Whole messages between them give parts no more time.
            if let Some(limit) = Instant::now().checked_sub(body_time) {
                serving.forget_older_than(limit);
            }
            room = reserved(&place, serving.waiting());
            if serving.waiting() == 0 {
                since = None;
            } else if since.is_none() {
                since = Some(Instant::now());
            }
            if !output.is_empty() {
                let writing = tokio::time::timeout(body_time, stream.write_all(&output));
                if !matches!(writing.await, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }

    async fn deliver(
        &self,
        call: &Call,
        message: &sealbus_giop::mts::FipaMessage,
        origin: &MessageOrigin,
    ) -> Result<(), SystemException> {
        let limits = Limits {
            message_length: self.shared.config.limits.body,
            ..Limits::default()
        };
        let size = message.body.len();
        let read = transmission::read(message, call.code_set, &limits);
        let turned = match read {
            Ok(transmission) => {
                let taken = self
                    .shared
                    .receive(transmission, size, origin, call.is_answered());
                match taken.await {
                    Ok(()) => return Ok(()),
                    Err(turned) => turned,
                }
            }
            Err(error) => Box::new(TurnedAway::before_its_sender_is_known(
                Turned::Malformed,
                error.to_string(),
            )),
        };
        self.shared.turn_away(&turned, origin.address);
        Err(match turned.what {
            Turned::Malformed => SystemException::bad_param(),
            Turned::TooLarge => SystemException::imp_limit(),
            Turned::TooSlow | Turned::TooMany | Turned::Busy => SystemException::transient(),
            Turned::ForgedSender | Turned::NotPermitted | Turned::Relay | Turned::Loop => {
                SystemException::no_permission()
            }
        })
    }
}

/// Room for bytes that are there already.
fn reserved(place: &ConnectionPlace, bytes: usize) -> BodyRoom<'_> {
    let mut room = place.body();
    // The bytes had room before. They stay even if others took that room in between.
    let _ = room.take(bytes);
    room
}
