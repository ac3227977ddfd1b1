//! Opens connections to the broker, each in the name of one agent or process.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use async_compat::Compat;
use async_rs::{Runtime, Tokio};
use futures_util::Stream;
use lapin::tcp::AsyncTcpStream;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties, Event};
use sealbus_seal::tls::{
    CertificateSource, Connector, ExpectedPeer, HandshakeRefusal, server_name,
};
use sealbus_seal::{Credential, SecurityLevel, Trust};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use super::config::{RabbitConfig, RabbitSecurity};
use super::names;
use super::socket::{Socket, Sockets};

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    /// Not within the time.
    #[error("the broker {address} does not answer within {} s: is it running, and reachable from here?", .after.as_secs())]
    TooSlow { address: String, after: Duration },
    /// The address is none.
    #[error("{0:?} is no address of a broker: write HOST:PORT")]
    Address(String),
    /// The certificate cannot be used.
    #[error("{who} cannot log in to the broker: {why}")]
    Credential { who: String, why: String },
    /// It is not the platform's broker.
    #[error("{address} is not the broker of this platform: {why}")]
    NotOurs { address: String, why: String },
    /// It does not let the client in, or is not there.
    #[error("the broker {address} does not let {who} in, or is not there: {error}")]
    Refused {
        address: String,
        who: String,
        error: Box<lapin::Error>,
    },
}

/// What a connection is for; it is a part of its name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Sending,
    Receiving,
}

/// Who connects: an agent, or a process.
#[derive(Clone)]
pub(crate) struct Client {
    /// What it is called in logs and connection names.
    pub(crate) name: Arc<str>,
    /// What it proves its name with.
    pub(crate) credential: Option<Arc<Credential>>,
}

/// A connection in the name of one client.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) events: std::pin::Pin<Box<dyn Stream<Item = Event> + Send>>,
    /// The user that logged in.
    pub(crate) user: String,
}

/// SASL EXTERNAL: the certificate says who it is.
struct External;

impl lapin::auth::AuthProvider for External {}

/// Connects `client` to the broker at `address`.
pub(crate) async fn open(
    config: &RabbitConfig,
    address: &str,
    client: &Client,
    purpose: Purpose,
) -> Result<Opened, ConnectError> {
    timeout(
        config.connect_time,
        connect(config, address, client, purpose),
    )
    .await
    .unwrap_or_else(|_| {
        Err(ConnectError::TooSlow {
            address: address.to_owned(),
            after: config.connect_time,
        })
    })
}

async fn connect(
    config: &RabbitConfig,
    address: &str,
    client: &Client,
    purpose: Purpose,
) -> Result<Opened, ConnectError> {
    let (host, port) = address
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host.trim_matches(['[', ']']), port.parse().ok()?)))
        .ok_or_else(|| ConnectError::Address(address.to_owned()))?;
    let (login, trust) = match &config.security {
        RabbitSecurity::None(login) => (Some(login), None),
        RabbitSecurity::Tls(login, trust) => (Some(login), Some(trust)),
        RabbitSecurity::Auth(trust) => (None, Some(trust)),
    };
    let secure = trust
        .map(|trust| tls(config, trust, client))
        .transpose()
        .map_err(|why| ConnectError::Credential {
            who: client.name.to_string(),
            why,
        })?;
    let mut properties = ConnectionProperties::default().with_connection_name(
        match purpose {
            Purpose::Sending => format!("{} sends", client.name),
            Purpose::Receiving => format!("{} receives", client.name),
        }
        .into(),
    );
    let user = match login {
        Some(login) => login.user.clone(),
        None => {
            properties = properties.with_auth_provider(External);
            own_user(client).ok_or_else(|| ConnectError::Credential {
                who: client.name.to_string(),
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
                who: client.name.to_string(),
                error: Box::new(error),
            },
        }
    };
    let connection = Connection::connector(
        uri,
        Runtime::new(Sockets(Tokio::current())),
        async move |uri: AMQPUri, _| {
            be_quiet();
            let tcp = TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).await?;
            // Small messages are not to wait for the acknowledgement of the one before.
            tcp.set_nodelay(true)?;
            let socket = match &secure {
                None => Socket::Plain(tcp),
                Some(secure) => Socket::Secure(Box::new(secure.connect(server_name(), tcp).await?)),
            };
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
        user,
    })
}

/// Switches logging off for this thread, which is one that the AMQP library has started for the connection: it would log
/// whole messages. What goes wrong on the connection is told by its results and events.
fn be_quiet() {
    let nobody = Dispatch::new(NoSubscriber::default());
    // For as long as the thread lives.
    mem::forget(tracing::dispatcher::set_default(&nobody));
}

/// The user name in the client's certificate.
fn own_user(client: &Client) -> Option<String> {
    let certificate = client.credential.as_ref()?.certificate().ok()?;
    names::user_of(certificate.identity(), certificate.address()?)
}

fn tls(
    config: &RabbitConfig,
    trust: &Arc<Trust>,
    client: &Client,
) -> Result<(TlsConnector, HandshakeRefusal), String> {
    let credential = client
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
