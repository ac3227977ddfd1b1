//! The attacking program. It speaks the protocol of the mesh, or of the broker, by itself, and breaks its rules.
//!
//! No part of the SDK, the bus or the transport's endpoint stands between the intruder and the victim, because those
//! parts would already stop the intruder on its own side. The intruder goes on, connection after connection, until it
//! is ended.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use sealbus_brokers::rabbitmq::names;
use sealbus_control::attachment::ask;
use sealbus_control::host::Host;
use sealbus_control::{Blob, Subject};
use sealbus_fipa::{AclMessage, Aid, Performative, bitefficient};
use sealbus_mesh::frame::{self, Frame, Hello, PREFACE, PROTOCOL_VERSION};
use sealbus_mesh::protocol_name;
use sealbus_process::attachment::Attachment;
use sealbus_seal::binding::{Binding, BoundConnection, Role};
use sealbus_seal::issuance::Grant;
use sealbus_seal::tls::{CertificateSource, provider, server_name};
use sealbus_seal::{
    CertificateChain, Credential, Identity, KeyPair, PlatformName, ProcessId, RootAuthority,
    SecurityLevel, SigningRequest, Validity,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::conversation::nanoseconds;
use super::amqp::{Amqp, Publication};
use super::{Failure, TAKEN};
use crate::arguments::{AttackKind, DemoAttack};
use crate::error::CliError;

/// Pause between two messages, and between two connections.
const PAUSE: Duration = Duration::from_millis(10);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Attacks until the intruder is ended. Each answer it receives goes to standard output.
pub(crate) async fn run(attack: &DemoAttack) -> Result<(), CliError> {
    let failed = |error: Failure| CliError::Failed {
        message: error.to_string(),
        help: None,
    };
    let disguise = Disguise::new(attack).await.map_err(failed)?;
    loop {
        let assaulted = match &attack.broker {
            None => assault(attack, &disguise).await,
            Some(vhost) => assault_by_broker(attack, &disguise, vhost).await,
        };
        match assaulted {
            Ok(()) => {}
            Err(told) => anstream::println!("{told}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The credentials that the intruder presents.
struct Disguise {
    /// The certificate of its process, if it has one.
    process: Option<Credential>,
    /// The certificate of its agent, if it has one.
    agent: Option<Credential>,
    /// The name that it writes into its messages.
    sender: String,
    /// The attachment that keeps the intruder alive in its node's eyes.
    _attachment: Option<Attachment>,
}

impl Disguise {
    async fn new(attack: &DemoAttack) -> Result<Self, Failure> {
        let innocent = attack.innocent.clone();
        Ok(match attack.kind {
            AttackKind::NoCertificate => Self {
                process: None,
                agent: None,
                sender: innocent,
                _attachment: None,
            },
            AttackKind::OtherAuthority => Self::self_made(innocent)?,
            AttackKind::Forgery => Self {
                sender: innocent,
                ..Self::certified().await?
            },
            AttackKind::Revoked => Self::certified().await?,
        })
    }

    /// A properly certified intruder. It joins with its ticket like any program, and keeps keys and attachment to
    /// itself.
    async fn certified() -> Result<Self, Failure> {
        let ticket = std::env::var("SEALBUS_TICKET")?;
        let attachment = Attachment::join(&ticket).await?;
        let membership = attachment.membership();
        let name = membership
            .agents
            .first()
            .ok_or("the ticket is for no agent")?
            .clone();
        let sender = format!("{name}@{}", membership.platform.name);
        let process = request_certificate(&attachment, Subject::Process).await?;
        let agent = request_certificate(&attachment, Subject::Agent { name }).await?;
        Ok(Self {
            process: Some(process),
            agent: Some(agent),
            sender,
            _attachment: Some(attachment),
        })
    }

    /// An intruder certified for the innocent agent's name by a CA of its own making, which uses the platform's name.
    fn self_made(innocent: String) -> Result<Self, Failure> {
        let (_, platform) = innocent
            .rsplit_once('@')
            .ok_or("the innocent has no platform")?;
        let platform = PlatformName::new(platform)?;
        let validity = Validity::starting(SystemTime::now().into(), Duration::from_secs(3600));
        let root = RootAuthority::create(&platform, validity)?;
        let authority = root.create_authority("ca-1", validity)?;
        let certify = |identity: Identity| -> Result<Credential, Failure> {
            let key = KeyPair::generate()?;
            let request = SigningRequest::parse(&key.signing_request()?)?;
            let grant = Grant::by_operator(identity, IpAddr::V4(Ipv4Addr::LOCALHOST));
            Ok(Credential::new(
                key,
                authority.issue(&grant, &request, validity)?.chain,
            )?)
        };
        Ok(Self {
            process: Some(certify(Identity::process(
                &platform,
                "node-1",
                ProcessId::random()?,
            )?)?),
            agent: Some(certify(Identity::from_agent_name(&innocent)?)?),
            sender: innocent,
            _attachment: None,
        })
    }

    fn process_identity(&self) -> Result<String, Failure> {
        Ok(match &self.process {
            Some(credential) => credential.certificate()?.identity().to_string(),
            None => "spiffe://demo/process/node-1/00000000000000000000000000000000".to_owned(),
        })
    }
}

/// Has a locally made key certified through the node.
async fn request_certificate(
    attachment: &Attachment,
    subject: Subject,
) -> Result<Credential, Failure> {
    let key = KeyPair::generate()?;
    let request = Blob(key.signing_request()?);
    let chain = attachment.ask(ask::Certify { subject, request }).await?;
    let chain = CertificateChain::try_from(chain)?;
    Ok(Credential::new(key, chain)?)
}

/// Runs one connection, from the handshake until the other side closes it.
async fn assault(attack: &DemoAttack, disguise: &Disguise) -> Result<(), Failure> {
    let mut connection = VictimConnection::open(attack, disguise).await?;
    connection.greet(disguise).await?;
    if let Some(agent) = &disguise.agent {
        let binding = Binding::prove(agent, &connection.channel()?, Role::Client)?;
        let mut proof = Vec::new();
        binding.encode(&mut proof);
        connection
            .send(&Frame::Bind {
                handle: 0,
                proof: &proof,
            })
            .await?;
    }
    connection
        .send(&Frame::Target {
            handle: 0,
            name: &attack.receiver,
        })
        .await?;
    connection.until_accepted().await?;
    loop {
        let payload = message(attack, disguise)?;
        connection
            .send(&Frame::Message {
                is_signed: false,
                sender: 0,
                target: 0,
                payload: &payload,
            })
            .await?;
        connection.listen().await?;
    }
}

/// Runs one connection to the broker, from the login until the broker closes it.
///
/// A forger first writes as itself and puts another agent's name into the message. Then it also claims the other
/// identity to the broker.
async fn assault_by_broker(
    attack: &DemoAttack,
    disguise: &Disguise,
    vhost: &str,
) -> Result<(), Failure> {
    let config = tls(disguise.agent.as_ref())?;
    let mut broker = Amqp::open(attack.address, Arc::new(config), vhost).await?;
    let user = |name: &str| {
        let local = name.split('@').next().unwrap_or_default();
        names::user(local, IpAddr::V4(Ipv4Addr::LOCALHOST))
    };
    let own = match &disguise.agent {
        Some(agent) => agent.certificate()?.identity().agent_name(),
        None => None,
    };
    let own = user(own.as_deref().unwrap_or(&disguise.sender));
    let forged = user(&disguise.sender);
    let epoch = ProcessId::random()?.to_string();
    let epoch = epoch.get(..16).unwrap_or("0000000000000000");
    for number in 1u64.. {
        let message = message(attack, disguise)?;
        let message_id = format!("{epoch}-{number:x}-1");
        let mut publication = Publication {
            exchange: names::MESSAGES,
            routing_key: &attack.receiver,
            message_id: &message_id,
            user_id: Some(&own),
            payload: &message,
        };
        broker.publish(&publication).await?;
        anstream::println!("{TAKEN}");
        if own != forged && number > 10 {
            publication.user_id = Some(&forged);
            broker.publish(&publication).await?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// The intruder's message, encoded.
fn message(attack: &DemoAttack, disguise: &Disguise) -> Result<Vec<u8>, Failure> {
    let message = AclMessage::new(Performative::Inform)
        .with_sender(Aid::new(disguise.sender.clone())?)
        .with_receiver(Aid::new(attack.receiver.clone())?)
        .with_conversation_id(attack.conversation.clone())
        .with_content(nanoseconds().to_string());
    let mut payload = Vec::new();
    bitefficient::encode(&message, &mut payload)?;
    Ok(payload)
}

/// A TLS configuration that trusts anybody and presents this certificate.
fn tls(credential: Option<&Credential>) -> Result<ClientConfig, Failure> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Indifferent));
    Ok(match credential {
        Some(credential) => {
            let source: Arc<dyn ResolvesClientCert> = CertificateSource::new(credential)?;
            builder.with_client_cert_resolver(source)
        }
        None => builder.with_no_client_auth(),
    })
}

/// A connection to the victim's process, on which the intruder writes freely.
struct VictimConnection {
    stream: TlsStream<TcpStream>,
    /// Bytes that were read and not yet decoded.
    unread: Vec<u8>,
    /// Number of the next counted frame.
    sequence: u64,
    /// Counted frames received.
    received: u64,
}

impl VictimConnection {
    async fn open(attack: &DemoAttack, disguise: &Disguise) -> Result<Self, Failure> {
        let mut config = tls(disguise.process.as_ref())?;
        config.alpn_protocols = vec![protocol_name(SecurityLevel::Auth).to_vec()];
        let stream = TcpStream::connect(attack.address).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(server_name(), stream)
            .await?;
        Ok(Self {
            stream,
            unread: Vec::new(),
            sequence: 0,
            received: 0,
        })
    }

    fn channel(&self) -> Result<BoundConnection, Failure> {
        Ok(BoundConnection::of(
            self.stream.get_ref().1,
            SecurityLevel::Auth,
            PROTOCOL_VERSION,
        )?)
    }

    async fn greet(&mut self, disguise: &Disguise) -> Result<(), Failure> {
        let process = disguise.process_identity()?;
        let hello = Frame::Hello(Hello {
            version: PROTOCOL_VERSION,
            level: SecurityLevel::Auth.code(),
            resumed: false,
            incarnation: *ProcessId::random()?.as_bytes(),
            session: [0; 16],
            given_up: [0; 16],
            received: 0,
            connection: 1,
            largest_message: 16 << 20,
            process: &process,
            address: "127.0.0.1:9",
        });
        let mut bytes = PREFACE.to_vec();
        hello.encode(0, &mut bytes);
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await?;
        while self.unread.len() < PREFACE.len() {
            self.fill().await?;
        }
        self.unread.drain(..PREFACE.len());
        Ok(())
    }

    async fn send(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        frame.encode(self.sequence, &mut bytes);
        if frame.kind().is_counted() {
            self.sequence += 1;
        }
        self.stream.write_all(&bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Reads until the receiver's process lets the intruder send.
    async fn until_accepted(&mut self) -> Result<(), Failure> {
        tokio::time::timeout(PATIENCE, async {
            loop {
                if self.next().await? == Heard::Accepted {
                    return Ok(());
                }
            }
        })
        .await?
    }

    /// Reads the available frames for the length of a pause.
    async fn listen(&mut self) -> Result<(), Failure> {
        let until = tokio::time::Instant::now() + PAUSE;
        while let Ok(heard) = tokio::time::timeout_at(until, self.next()).await {
            if heard? == Heard::Taken {
                anstream::println!("{TAKEN}");
            }
        }
        Ok(())
    }

    /// The next frame, as far as it matters to the intruder.
    async fn next(&mut self) -> Result<Heard, Failure> {
        loop {
            let parsed = frame::parse(&self.unread, frame::LONGEST_BODY)?;
            let Some(parsed) = parsed else {
                self.fill().await?;
                continue;
            };
            let length = parsed.length;
            if parsed.frame.kind().is_counted() {
                self.received += 1;
            }
            let heard = match parsed.frame {
                Frame::Accept { .. } => Heard::Accepted,
                // The target was the first counted frame. Acknowledged frames beyond it are messages.
                Frame::Acknowledge { received } if received > 1 => Heard::Taken,
                Frame::Ping => Heard::Ping,
                Frame::Goodbye { reason, text } => return Err(format!("{reason:?}: {text}").into()),
                Frame::Refused { reason, text, .. } => {
                    return Err(format!("{reason}: {text}").into());
                }
                Frame::Returned { why, .. } => {
                    return Err(format!("the message came back: {why:?}").into());
                }
                Frame::Leaving { why, .. } => return Err(format!("not accepted: {why:?}").into()),
                _ => Heard::Nothing,
            };
            self.unread.drain(..length);
            if heard == Heard::Ping {
                self.send(&Frame::Pong).await?;
            }
            return Ok(heard);
        }
    }

    async fn fill(&mut self) -> Result<(), Failure> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err("the connection was closed".into()),
            _ => Ok(()),
        }
    }
}

/// The meaning of a frame to the intruder.
#[derive(PartialEq, Eq)]
enum Heard {
    Accepted,
    Taken,
    Ping,
    Nothing,
}

/// Trusts any server, because an intruder has no reason to be careful.
#[derive(Debug)]
struct Indifferent;

impl ServerCertVerifier for Indifferent {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}
