//! The part of AMQP 0-9-1 that an intruder needs: it logs in, publishes, and reads the broker's answers.
//!
//! This is written by hand, so that no part of Sealbus stands between the intruder and the broker. Section numbers
//! refer to the AMQP 0-9-1 specification.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use sealbus_seal::tls::server_name;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Failure;

/// Kinds of frames, and the octet that ends each (4.2.3).
const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const END: u8 = 0xCE;
/// Length of the longest frame that the intruder reads.
const LONGEST: usize = 256 * 1024;
/// Methods (1.8), as class and number.
const START: (u16, u16) = (10, 10);
const START_OK: (u16, u16) = (10, 11);
const TUNE: (u16, u16) = (10, 30);
const TUNE_OK: (u16, u16) = (10, 31);
const OPEN: (u16, u16) = (10, 40);
const OPEN_OK: (u16, u16) = (10, 41);
const CLOSE: (u16, u16) = (10, 50);
const CHANNEL_OPEN: (u16, u16) = (20, 10);
const CHANNEL_OPEN_OK: (u16, u16) = (20, 11);
const CHANNEL_CLOSE: (u16, u16) = (20, 40);
const CONFIRM_SELECT: (u16, u16) = (85, 10);
const CONFIRM_SELECT_OK: (u16, u16) = (85, 11);
const PUBLISH: (u16, u16) = (60, 40);
const RETURN: (u16, u16) = (60, 50);
const ACK: (u16, u16) = (60, 80);

/// The published message.
pub(super) struct Publication<'a> {
    pub(super) exchange: &'a str,
    pub(super) routing_key: &'a str,
    pub(super) message_id: &'a str,
    /// `None` leaves the property out.
    pub(super) user_id: Option<&'a str>,
    pub(super) payload: &'a [u8],
}

/// A connection with one channel, on which the broker confirms the messages it took.
pub(super) struct Amqp {
    stream: TlsStream<TcpStream>,
}

impl Amqp {
    /// Logs in with the certificate in `config` and nothing else (SASL EXTERNAL).
    pub(super) async fn open(
        address: SocketAddr,
        config: Arc<ClientConfig>,
        vhost: &str,
    ) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(config)
            .connect(server_name(), stream)
            .await?;
        let mut amqp = Self { stream };
        amqp.stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        amqp.expect(START).await?;
        let mut login = Vec::new();
        login.extend(0u32.to_be_bytes());
        short(&mut login, "EXTERNAL");
        login.extend(0u32.to_be_bytes());
        short(&mut login, "en_US");
        amqp.method(0, START_OK, &login).await?;
        // The intruder accepts the broker's proposal.
        let tuning = amqp.expect(TUNE).await?;
        amqp.method(0, TUNE_OK, &tuning).await?;
        let mut open = Vec::new();
        short(&mut open, vhost);
        open.extend([0, 0]);
        amqp.method(0, OPEN, &open).await?;
        amqp.expect(OPEN_OK).await?;
        amqp.method(1, CHANNEL_OPEN, &[0]).await?;
        amqp.expect(CHANNEL_OPEN_OK).await?;
        amqp.method(1, CONFIRM_SELECT, &[0]).await?;
        amqp.expect(CONFIRM_SELECT_OK).await?;
        Ok(amqp)
    }

    /// Publishes, and waits until the broker has taken it.
    pub(super) async fn publish(&mut self, publication: &Publication<'_>) -> Result<(), Failure> {
        let mut publish = vec![0, 0];
        short(&mut publish, publication.exchange);
        short(&mut publish, publication.routing_key);
        // Mandatory: without a queue the message comes back.
        publish.push(1);
        self.method(1, PUBLISH, &publish).await?;
        // Class, weight, length, and the flags of the properties that follow (4.2.6.1): delivery-mode, message-id,
        // user-id.
        let mut header = Vec::new();
        header.extend(60u16.to_be_bytes());
        header.extend(0u16.to_be_bytes());
        header.extend((publication.payload.len() as u64).to_be_bytes());
        let flags = 1u16 << 12 | 1 << 7 | u16::from(publication.user_id.is_some()) << 4;
        header.extend(flags.to_be_bytes());
        header.push(2);
        short(&mut header, publication.message_id);
        if let Some(user) = publication.user_id {
            short(&mut header, user);
        }
        self.frame(HEADER, 1, &header).await?;
        self.frame(BODY, 1, publication.payload).await?;
        self.expect(ACK).await?;
        Ok(())
    }

    /// The arguments of the next method, which must be this one. Content in between is skipped.
    async fn expect(&mut self, wanted: (u16, u16)) -> Result<Vec<u8>, Failure> {
        loop {
            let (kind, body) = self.read().await?;
            if kind != METHOD {
                continue;
            }
            let Some((head, arguments)) = body.split_first_chunk::<4>() else {
                return Err("the broker sent half a method".into());
            };
            let [a, b, c, d] = *head;
            match (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])) {
                CLOSE | CHANNEL_CLOSE => {
                    let code = arguments
                        .first_chunk()
                        .map_or(0, |code| u16::from_be_bytes(*code));
                    let length = arguments.get(2).map_or(0, |length| usize::from(*length));
                    let text = arguments.get(3..3 + length).unwrap_or_default();
                    let text = String::from_utf8_lossy(text);
                    return Err(format!("the broker says: {code} {text}").into());
                }
                RETURN => return Err("the broker says: no queue for it".into()),
                method if method == wanted => return Ok(arguments.to_vec()),
                _ => {}
            }
        }
    }

    async fn read(&mut self) -> Result<(u8, Vec<u8>), Failure> {
        let mut head = [0; 7];
        self.stream.read_exact(&mut head).await?;
        let [kind, _, _, length @ ..] = head;
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST {
            return Err("the broker sent too long a frame".into());
        }
        let mut body = vec![0; length + 1];
        self.stream.read_exact(&mut body).await?;
        if body.pop() != Some(END) {
            return Err("the broker sent a frame without an end".into());
        }
        Ok((kind, body))
    }

    async fn method(
        &mut self,
        channel: u16,
        (class, method): (u16, u16),
        arguments: &[u8],
    ) -> Result<(), Failure> {
        let mut body = Vec::new();
        body.extend(class.to_be_bytes());
        body.extend(method.to_be_bytes());
        body.extend(arguments);
        self.frame(METHOD, channel, &body).await
    }

    async fn frame(&mut self, kind: u8, channel: u16, body: &[u8]) -> Result<(), Failure> {
        let mut frame = vec![kind];
        frame.extend(channel.to_be_bytes());
        frame.extend((body.len() as u32).to_be_bytes());
        frame.extend(body);
        frame.push(END);
        self.stream.write_all(&frame).await?;
        Ok(self.stream.flush().await?)
    }
}

/// A short string (4.2.5.3).
fn short(out: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.len().min(255)];
    out.push(text.len() as u8);
    out.extend(text);
}
