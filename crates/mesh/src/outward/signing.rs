//! Level `signed`: the agents of this process sign their messages. A batch consists of the messages of all agents that
//! are ready when bytes are written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealbus_bus::{Moment, NoSigner};
use sealbus_proof::{Batch, Hash, MOST_MESSAGES, SignError, Signer};
use sealbus_seal::SecurityLevel;
use sealbus_seal::binding::BindingError;
use thiserror::Error;

use super::Outward;
use crate::frame::{Frame, SignedMessages};

/// If this many signatures are unacknowledged, further messages are held back to share one.
const ON_THEIR_WAY: usize = 4;
/// The longest time that messages are held back, however far away the peer is.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_millis(1);

/// Why messages of an agent cannot be signed.
#[derive(Debug, Error)]
enum NotSigned {
    #[error(transparent)]
    NoSigner(#[from] NoSigner),
    #[error(transparent)]
    Unusable(#[from] SignError),
    /// The certificate cannot be shown on the connection.
    #[error(transparent)]
    NotBound(#[from] BindingError),
}

/// The signers of one agent on the link.
#[derive(Default)]
pub(super) struct Signing {
    /// The signers of its messages in the session, latest last, each with the number of the frame behind its last
    /// signature.
    signers: Vec<(Arc<Signer>, u64)>,
    /// The connection on which the agent last showed its delegation, and the signer with that delegation.
    shown: Option<(u64, Arc<Signer>)>,
}

impl Signing {
    /// Notes that messages were signed; the frame `next` follows the signature. Forgets acknowledged signatures.
    fn note(&mut self, signer: Arc<Signer>, next: u64, acknowledged: u64) {
        match self.signers.last_mut() {
            Some((last, end)) if Arc::ptr_eq(last, &signer) => *end = next,
            _ => {
                self.signers.retain(|(_, end)| *end > acknowledged);
                self.signers.push((signer, next));
            }
        }
    }
}

/// The signatures under way. Messages wait for each other, so that not each gets a signature of its own while the peer
/// still checks earlier ones: checking a signature takes as long as taking a hundred messages.
#[derive(Default)]
pub(super) struct Signatures {
    /// For each unacknowledged signature, the number of the frame behind it.
    ends: VecDeque<u64>,
    /// Whether the latest signature is not written yet.
    is_unwritten: bool,
    /// The time since which messages are held back although they could be written.
    held_since: Option<Instant>,
}

impl Signatures {
    /// Whether messages that are ready wait until those before them have arrived, for [`LONGEST_HOLD`] at most.
    fn hold(&mut self, now: Instant) -> bool {
        if self.ends.len() < ON_THEIR_WAY || self.is_unwritten {
            return false;
        }
        now < *self.held_since.get_or_insert(now) + LONGEST_HOLD
    }
}

impl Outward {
    /// Whether messages that are ready must not be written yet.
    pub(super) fn hold_messages(&mut self, now: Instant) -> bool {
        !self.unsigned.is_empty() && self.signatures.hold(now)
    }

    /// Whether messages are held back.
    pub(crate) fn holds_messages(&self) -> bool {
        self.signatures.held_since.is_some()
    }

    /// Notes that all signatures were written.
    pub(super) fn signatures_written(&mut self) {
        self.signatures.is_unwritten = false;
    }

    /// Notes that the peer has taken all frames before this one.
    pub(super) fn signatures_arrived(&mut self, acknowledged: u64) {
        let ends = &mut self.signatures.ends;
        while ends.front().is_some_and(|end| *end <= acknowledged) {
            ends.pop_front();
        }
    }

    /// Whether messages are signed.
    pub(super) fn signs(&self) -> bool {
        self.level >= SecurityLevel::Signed
    }

    /// Notes that a message of the agent of `handle` is in the session. It is signed before anything is written.
    pub(super) fn note_unsigned(&mut self, handle: u32, statement: Hash) {
        self.unsigned.push((handle, statement));
        // Without a connection there is time: agents may get other certificates before the peer sees these.
        if self.unsigned.len() >= MOST_MESSAGES && self.connection != 0 {
            self.sign_all();
        }
    }

    /// Signs all messages if one of the agent of `handle` is not signed yet.
    pub(super) fn sign(&mut self, handle: u32) {
        if self.unsigned.iter().any(|(sender, _)| *sender == handle) {
            self.sign_all();
        }
    }

    /// Signs the messages of all agents.
    pub(super) fn sign_all(&mut self) {
        if self.unsigned.is_empty() {
            return;
        }
        self.signatures.held_since = None;
        let mut unsigned = std::mem::take(&mut self.unsigned);
        for unsigned in unsigned.chunks_mut(MOST_MESSAGES) {
            self.sign_batch(unsigned);
        }
        unsigned.clear();
        unsigned.shrink_to(MOST_MESSAGES);
        self.unsigned = unsigned;
    }

    fn sign_batch(&mut self, unsigned: &mut [(u32, Hash)]) {
        // The sort is stable: the order of each agent's messages stays.
        unsigned.sort_by_key(|(sender, _)| *sender);
        let mut batch: Option<Batch> = None;
        let (mut authors, mut signers) = (Vec::new(), Vec::new());
        let mut statements = Vec::with_capacity(unsigned.len());
        for said in unsigned.chunk_by(|one, other| one.0 == other.0) {
            let sender = said[0].0;
            statements.clear();
            statements.extend(said.iter().map(|(_, statement)| *statement));
            let added = self.signer(sender).and_then(|signer| {
                let batch = batch.get_or_insert_with(|| Batch::new(signer.key().clone()));
                Ok((batch.add(&signer, &statements)?, signer))
            });
            authors.push(match added {
                Ok((entry, signer)) => {
                    signers.push((sender, signer));
                    SignedMessages::new(sender, &entry)
                }
                Err(error) => {
                    let name = self.name_of(sender).unwrap_or_default();
                    tracing::error!(agent = %name, %error, "cannot sign messages: they will be refused");
                    // The receiver refuses the messages, and so their sender is told. A batch has at most MOST_MESSAGES.
                    SignedMessages::unsigned(sender, said.len() as u16)
                }
            });
        }
        let signed = batch
            .map(|batch| batch.sign(Moment::now().unix_ms()))
            .transpose();
        let signed = signed.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot sign messages: they will be refused");
            for author in &mut authors {
                *author = SignedMessages::unsigned(author.sender(), author.count());
            }
            None
        });
        self.session.append(&Frame::Sign {
            time: signed.as_ref().map_or(0, |signed| signed.time()),
            signature: signed.as_ref().map_or(&[], |signed| signed.signature()),
            authors: &authors,
        });
        let (next, acknowledged) = (self.session.next(), self.session.acknowledged());
        self.signatures.ends.push_back(next);
        self.signatures.is_unwritten = true;
        for (sender, signer) in signers {
            if let Some(Some(bound)) = self.bound.get_mut(sender as usize) {
                bound.signing.note(signer, next, acknowledged);
            }
        }
    }

    /// The signer of the agent of `handle`. Ensures that the peer knows its certificate and delegation.
    fn signer(&mut self, handle: u32) -> Result<Arc<Signer>, NotSigned> {
        let Some(Some(bound)) = self.bound.get(handle as usize) else {
            return Err(SignError::NoAuthor.into());
        };
        let signer = bound.agent.signer()?;
        self.show(handle, &signer)?;
        Ok(signer)
    }

    /// Binds an agent whose frames are sent again to a new connection. Also shows the peer the earlier certificates of
    /// its signatures, and its delegations.
    pub(super) fn prove_again(&mut self, handle: u32) {
        let acknowledged = self.session.acknowledged();
        let Some(Some(bound)) = self.bound.get(handle as usize) else {
            return;
        };
        if bound.connection == self.connection {
            return;
        }
        let signers = bound.signing.signers.iter();
        let signers = signers.filter(|(_, end)| *end > acknowledged);
        let signers: Vec<_> = signers.map(|(signer, _)| signer.clone()).collect();
        for signer in &signers {
            // The peer refuses messages that it cannot check, and so the sender is told.
            let _ = self.show(handle, signer);
        }
        // The certificate that is bound last counts, so the present one comes last.
        let _ = self.prove_now(handle);
    }

    /// Ensures that the peer knows the delegation of the agent of `handle`. The peer accepts a delegation only after
    /// its certificate, and the agent may have a new certificate that this link does not know yet.
    fn show(&mut self, handle: u32, signer: &Arc<Signer>) -> Result<(), BindingError> {
        self.bind_with(handle, signer.credential())?;
        let connection = self.connection;
        let Some(Some(bound)) = self.bound.get_mut(handle as usize) else {
            return Ok(());
        };
        let shown = bound.signing.shown.as_ref();
        let is_shown =
            shown.is_some_and(|(on, shown)| *on == connection && Arc::ptr_eq(shown, signer));
        if connection == 0 || is_shown {
            return Ok(());
        }
        let mut delegation = Vec::with_capacity(signer.delegation().length());
        signer.delegation().encode(&mut delegation);
        let frame = Frame::Delegate {
            handle,
            serial: *signer.serial().as_bytes(),
            delegation: &delegation,
        };
        frame.encode(0, &mut self.control);
        bound.signing.shown = Some((connection, signer.clone()));
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::{Duration, SystemTime};

    use sealbus_bus::{Bus, BusConfig};
    use sealbus_seal::binding::{Binding, BoundConnection, Role};
    use sealbus_seal::issuance::Grant;
    use sealbus_seal::{
        Credential, Identity, KeyPair, PlatformName, RootAuthority, Serial, SigningRequest,
        Timestamp, Validity,
    };

    use super::*;
    use crate::frame::{LONGEST_BODY, parse};
    use crate::outward::ConnectionProof;

    const LEVEL: SecurityLevel = SecurityLevel::Signed;
    const NAME: &str = "sender@factory";

    #[derive(Debug, PartialEq)]
    enum Shown {
        Certificate(Serial),
        Delegation(Serial),
    }

    /// The certificates and delegations of the agent with handle 0 that are about to be written.
    fn shown(outward: &mut Outward) -> Vec<Shown> {
        let control = std::mem::take(&mut outward.control);
        let (mut at, mut shown) = (0, Vec::new());
        while let Some(parsed) = parse(&control[at..], LONGEST_BODY).unwrap() {
            at += parsed.length;
            shown.push(match parsed.frame {
                Frame::Bind { handle: 0, proof } => {
                    let chain = Binding::decode(proof).unwrap().chain().clone();
                    Shown::Certificate(chain.certificate().unwrap().serial())
                }
                Frame::Delegate {
                    handle: 0, serial, ..
                } => Shown::Delegation(Serial::from_bytes(serial)),
                other => panic!("{other:?}"),
            });
        }
        shown
    }

    fn connect(outward: &mut Outward, number: u64) {
        let proof = ConnectionProof {
            channel: BoundConnection::with_exporter([number as u8; 32], LEVEL, 1),
            role: Role::Client,
        };
        let too_large = outward.connected(number, Some(proof), 1 << 20);
        assert!(too_large.is_empty());
    }

    fn certify(platform: &PlatformName, agent: &str) -> (Arc<Credential>, Serial) {
        let validity = Validity::starting(
            Timestamp::from(SystemTime::now()),
            Duration::from_secs(3_600),
        );
        let root = RootAuthority::create(platform, validity).unwrap();
        let issuing = root.create_authority("ca-1", validity).unwrap();
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let identity = Identity::from_agent_name(agent).unwrap();
        let grant = Grant::by_operator(identity, [127, 0, 0, 1].into());
        let issued = issuing.issue(&grant, &request, validity).unwrap();
        let serial = issued.chain.certificate().unwrap().serial();
        (
            Arc::new(Credential::new(key, issued.chain).unwrap()),
            serial,
        )
    }

    /// An agent of a process without a transport, where the bus tells nobody that a credential has changed.
    fn with_sender() -> (Bus, sealbus_bus::Outbox, PlatformName) {
        let platform = PlatformName::new("factory").unwrap();
        let config = BusConfig::new(platform.clone());
        let bus = Bus::new(config, tokio::runtime::Handle::current());
        let (first, _) = certify(&platform, NAME);
        let (outbox, _) = bus.attach(NAME, Some(first), None).unwrap();
        (bus, outbox, platform)
    }

    #[tokio::test]
    async fn messages_wait_for_each_other_while_signatures_are_on_their_way() {
        let (bus, _outbox, _) = with_sender();
        let agent = bus.agent(NAME).unwrap();
        let mut outward = Outward::new(LEVEL, 1 << 20, 1 << 20, 16);
        connect(&mut outward, 1);
        let handle = outward.bind(&agent).unwrap();
        let now = Instant::now();
        let mut behind = Vec::new();
        for number in 0..ON_THEIR_WAY {
            outward.note_unsigned(handle, [number as u8; 32]);
            assert!(!outward.hold_messages(now), "{number} waits");
            outward.sign_all();
            // Nothing waits for a signature that is not written.
            assert!(!outward.hold_messages(now));
            outward.signatures_written();
            behind.push(outward.session.next());
        }
        outward.note_unsigned(handle, [9; 32]);
        assert!(outward.hold_messages(now) && outward.holds_messages());
        assert!(!outward.hold_messages(now + LONGEST_HOLD));
        assert!(outward.hold_messages(now));
        outward.acknowledged(behind[0]).unwrap();
        assert!(!outward.hold_messages(now));
        // A full batch does not wait.
        outward.sign_all();
        outward.signatures_written();
        for _ in 0..MOST_MESSAGES {
            assert!(!outward.unsigned.is_empty() || !outward.holds_messages());
            outward.note_unsigned(handle, [0; 32]);
            outward.hold_messages(now);
        }
        assert!(outward.unsigned.is_empty() && !outward.holds_messages());
    }

    /// An acknowledgement that was lost with its connection comes with the hello of the next one.
    #[tokio::test]
    async fn the_handle_of_an_agent_that_has_left_is_free_after_a_resumed_session() {
        let (bus, outbox, _) = with_sender();
        let agent = bus.agent(NAME).unwrap();
        let mut outward = Outward::new(LEVEL, 1 << 20, 1 << 20, 16);
        connect(&mut outward, 1);
        outward.bind(&agent).unwrap();
        drop(outbox);
        outward.unbind(&agent);
        let arrived = outward.session.next();
        outward.disconnected();
        assert!(outward.free_handles.is_empty());
        outward.session.acknowledge(arrived).unwrap();
        connect(&mut outward, 2);
        assert_eq!(outward.free_handles, [0]);
    }

    #[tokio::test]
    async fn a_delegation_follows_its_certificate_though_the_link_has_not_heard_of_it() {
        let platform = PlatformName::new("factory").unwrap();
        let (first, of_first) = certify(&platform, NAME);
        let (second, of_second) = certify(&platform, NAME);
        // The bus has no transport, so it tells nobody that a credential has changed.
        let bus = Bus::new(BusConfig::new(platform), tokio::runtime::Handle::current());
        let _attached = bus.attach(NAME, Some(first), None).unwrap();
        let agent = bus.agent(NAME).unwrap();
        let mut outward = Outward::new(LEVEL, 1 << 20, 1 << 20, 16);
        connect(&mut outward, 1);
        let handle = outward.bind(&agent).unwrap();
        assert_eq!(handle, 0);
        let say = |outward: &mut Outward, what: u8| {
            outward.note_unsigned(handle, [what; 32]);
            outward.sign_all();
            shown(outward)
        };
        let with_first = [Shown::Certificate(of_first), Shown::Delegation(of_first)];
        let with_second = [Shown::Certificate(of_second), Shown::Delegation(of_second)];
        assert_eq!(say(&mut outward, 1), with_first);
        assert_eq!(say(&mut outward, 2), []);
        bus.set_credential(NAME, second).unwrap();
        assert_eq!(say(&mut outward, 3), with_second);
        assert_eq!(say(&mut outward, 4), []);
        // The link is told of a credential that it has shown already.
        outward.renew(&agent);
        assert_eq!(shown(&mut outward), []);
        // The signatures under both are sent again on another connection. The present certificate is shown last.
        outward.disconnected();
        connect(&mut outward, 2);
        let again: Vec<_> = with_first.into_iter().chain(with_second).collect();
        assert_eq!(shown(&mut outward), again);
        assert_eq!(say(&mut outward, 5), []);
    }
}
