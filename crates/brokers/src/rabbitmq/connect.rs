//! Opens connections to the broker, each in the name of one agent or process.

use std::mem;
use std::sync::Arc;

use async_compat::Compat;
use async_rs::{Runtime, Tokio};
use futures_util::Stream;
use lapin::tcp::AsyncTcpStream;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties, Event};
use sealbus_seal::tls::{
    CertificateSource, Connector, ExpectedPeer, HandshakeRefusal, server_name,
};
use sealbus_seal::{SecurityLevel, Trust};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use super::access::RabbitClient;
use super::names;
use super::socket::{CutOnDrop, Layer, Socket, Sockets};
use crate::client::Owner;
use crate::config::BrokerSecurity;

/// The reason why there is no connection.
#[derive(Debug, Error)]
pub(super) enum ConnectError {
    /// The address is not valid.
    #[error("{0:?} is not a broker address: write HOST:PORT")]
    Address(String),
    /// The certificate cannot be used.
    #[error("{who} cannot log in to the broker: {why}")]
    Credential { who: String, why: String },
    /// The broker does not belong to the platform.
    #[error("{address} is not the broker of this platform: {why}")]
    NotOurs { address: String, why: String },
    /// The broker refuses the client, or is not there.
    #[error("the broker {address} does not let {who} in, or is not there: {error}")]
    Refused {
        address: String,
        who: String,
        error: Box<lapin::Error>,
    },
}

/// The purpose of a connection; it is part of the connection's name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Sending,
    Receiving,
}

/// A connection in the name of one agent or process.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) events: std::pin::Pin<Box<dyn Stream<Item = Event> + Send>>,
    /// Cuts the connection when this value is dropped.
    pub(super) cut: CutOnDrop,
    /// The user that logged in.
    pub(super) user: String,
}

/// SASL EXTERNAL: the certificate says who it is.
struct External;

impl lapin::auth::AuthProvider for External {}

/// Connects `owner` to the broker at `address`.
pub(super) async fn open(
    config: &RabbitClient,
    address: &str,
    owner: &Owner,
    purpose: Purpose,
) -> Result<Opened, ConnectError> {
    let (host, port) = address
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host.trim_matches(['[', ']']), port.parse().ok()?)))
        .ok_or_else(|| ConnectError::Address(address.to_owned()))?;
    let (login, trust) = match &config.security {
        BrokerSecurity::None(login) => (Some(login), None),
        BrokerSecurity::Tls(login, trust) => (Some(login), Some(trust)),
        BrokerSecurity::Auth(trust) | BrokerSecurity::Signed(trust) => (None, Some(trust)),
    };
    let secure = trust
        .map(|trust| tls(config, trust, owner))
        .transpose()
        .map_err(|why| ConnectError::Credential {
            who: owner.name.to_string(),
            why,
        })?;
    let mut properties = ConnectionProperties::default().with_connection_name(
        match purpose {
            Purpose::Sending => format!("{} sends", owner.name),
            Purpose::Receiving => format!("{} receives", owner.name),
        }
        .into(),
    );
    let user = match login {
        Some(login) => login.user.clone(),
        None => {
            properties = properties.with_auth_provider(External);
            own_user(owner).ok_or_else(|| ConnectError::Credential {
                who: owner.name.to_string(),
                why: "it has no certificate with an address".to_owned(),
            })?
        }
    };
    let uri = AMQPUri {
        scheme: if secure.is_some() {
            AMQPScheme::AMQPS
        } else {
            AMQPScheme::AMQP
        },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo {
                username: user.clone(),
                password: login
                    .map(|login| login.password.clone())
                    .unwrap_or_default(),
            },
            host: host.to_owned(),
            port,
        },
        vhost: config.vhost.clone(),
        query: AMQPQueryString {
            heartbeat: Some(u16::try_from(config.heartbeat.as_secs()).unwrap_or(u16::MAX)),
            ..AMQPQueryString::default()
        },
    };
    let (secure, refusal) = secure.unzip();
    let refused = |error: lapin::Error| {
        let address = address.to_owned();
        match refusal.as_ref().and_then(HandshakeRefusal::get) {
            Some(why) => ConnectError::NotOurs {
                address,
                why: why.to_string(),
            },
            None => ConnectError::Refused {
                address,
                who: owner.name.to_string(),
                error: Box::new(error),
            },
        }
    };
    let cut = CutOnDrop::default();
    let of_socket = cut.cut();
    let connection = Connection::connector(
        uri,
        Runtime::new(Sockets(Tokio::current())),
        async move |uri: AMQPUri, _| {
            be_quiet();
            let tcp = TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).await?;
            // A small message must not wait for the acknowledgement of the one before.
            tcp.set_nodelay(true)?;
            let layer = match &secure {
                None => Layer::Plain(tcp),
                Some(secure) => Layer::Secure(Box::new(secure.connect(server_name(), tcp).await?)),
            };
            let cut = of_socket.clone();
            let socket = Socket { layer, cut };
            Ok(AsyncTcpStream::Plain(Compat::new(socket)))
        },
        properties,
    )
    .await
    .map_err(&refused)?;
    let events = Box::pin(connection.events_listener());
    Ok(Opened {
        connection,
        events,
        cut,
        user,
    })
}

/// Switches logging off for this thread, which the AMQP library has started for the connection. The library would log
/// whole messages. The connection's results and events report its faults.
fn be_quiet() {
    let nobody = Dispatch::new(NoSubscriber::default());
    // This lasts as long as the thread.
    mem::forget(tracing::dispatcher::set_default(&nobody));
}

/// The user name in the owner's certificate.
fn own_user(owner: &Owner) -> Option<String> {
    let certificate = owner.credential.as_ref()?.certificate().ok()?;
    names::user_of(certificate.identity(), certificate.address()?)
}

fn tls(
    config: &RabbitClient,
    trust: &Arc<Trust>,
    owner: &Owner,
) -> Result<(TlsConnector, HandshakeRefusal), String> {
    let credential = owner
        .credential
        .as_ref()
        .ok_or("it has no certificate; it is attached without one")?;
    let level: SecurityLevel = config.security.level();
    let source = CertificateSource::new(credential).map_err(|error| error.to_string())?;
    let connector =
        Connector::new(level, source, trust.clone(), &[]).map_err(|error| error.to_string())?;
    let broker = names::broker_identity(&config.platform).ok_or("the platform has no name")?;
    let (client, refusal) = connector
        .connect(ExpectedPeer::Exactly(broker))
        .map_err(|error| error.to_string())?;
    Ok((client.into(), refusal))
}
