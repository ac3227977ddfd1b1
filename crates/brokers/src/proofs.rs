//! Proofs that agents speak through their process: signatures made with the agents' certified keys.
//!
//! Frames travel in the name of a process. The broker proves the process, and several agents share it. An agent proves
//! itself by a [`Binding`] to that process. Another process cannot use a copy of the binding. The proof goes with the
//! agent's frames to each process until the broker has confirmed one of those frames. No I/O.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use sealbus_bus::LocalAgent;
use sealbus_seal::binding::{Binding, BindingError, BoundConnection, Role};
use sealbus_seal::{Fingerprint, Identity, SecurityLevel, Timestamp, Trust, VerifiedIdentity};

/// The version of the signed bytes.
const VERSION: u16 = 1;
/// Makes sure that the signed bytes stand for a process on a broker, and for nothing else.
const CONTEXT: &[u8] = b"sealbus broker process v1\0";

/// The channel that proofs of the agents of `process` are bound to.
fn channel(process: &Identity, level: SecurityLevel) -> BoundConnection {
    let name = process.to_string();
    let hash = Fingerprint::of(&[CONTEXT, name.as_bytes()].concat());
    BoundConnection::with_exporter(*hash.as_bytes(), level, VERSION)
}

/// Checks that an agent has signed to speak through `process`.
///
/// # Errors
/// [`BindingError`].
pub(crate) fn verify(
    proof: &[u8],
    process: &Identity,
    level: SecurityLevel,
    trust: &Trust,
    now: Timestamp,
) -> Result<VerifiedIdentity, BindingError> {
    Binding::decode(proof)?.verify(&channel(process, level), Role::Client, trust, now)
}

/// An agent's proof, and the processes that have it.
struct Made {
    /// The certificate it was made with.
    leaf: Fingerprint,
    proof: Bytes,
    /// The processes that have the proof, and the order of the frame that brought it. Earlier frames may still come,
    /// and may be handed over first.
    told: HashMap<Arc<str>, u64>,
}

/// A proof on its way: the agent's number, its certificate, and the receiver.
type UnderWay = (u64, Fingerprint, Arc<str>);

/// The proofs of the agents of this process, and the processes that have them.
pub(crate) struct Proofs {
    channel: BoundConnection,
    /// The proofs by the agent's number. A renewed certificate replaces the former one.
    made: HashMap<u64, Made>,
    /// The proofs on their way, by the order of the frame that carries each.
    under_way: HashMap<u64, UnderWay>,
}

impl Proofs {
    pub(crate) fn new(process: &Identity, level: SecurityLevel) -> Self {
        Self {
            channel: channel(process, level),
            made: HashMap::new(),
            under_way: HashMap::new(),
        }
    }

    /// The proof that goes with a frame of `agent` to `receiver`, published as `order`; `None`: the receiver has the
    /// proof before this frame.
    ///
    /// # Errors
    /// If the agent has no certificate, or cannot sign.
    pub(crate) fn with(
        &mut self,
        order: u64,
        receiver: &Arc<str>,
        agent: &LocalAgent,
    ) -> Result<Option<Bytes>, String> {
        let credential = agent.credential().ok_or("it has no certificate")?;
        let leaf = Fingerprint::of(credential.chain().leaf());
        let proof = match self.made.get(&agent.number()) {
            Some(made) if made.leaf == leaf => {
                if made.told.get(receiver).is_some_and(|told| *told < order) {
                    return Ok(None);
                }
                made.proof.clone()
            }
            _ => {
                let binding = Binding::prove(&credential, &self.channel, Role::Client)
                    .map_err(|error| error.to_string())?;
                let mut proof = Vec::new();
                binding.encode(&mut proof);
                let proof = Bytes::from(proof);
                if agent.mailbox().closed().is_some() {
                    // The agent has left, and nothing would forget what is noted of it.
                    return Ok(Some(proof));
                }
                let made = Made {
                    leaf,
                    proof: proof.clone(),
                    told: HashMap::new(),
                };
                self.made.insert(agent.number(), made);
                proof
            }
        };
        let under_way = (agent.number(), leaf, receiver.clone());
        self.under_way.insert(order, under_way);
        Ok(Some(proof))
    }

    /// Notes that the broker has the frame of that order.
    pub(crate) fn confirmed(&mut self, order: u64) {
        if let Some((agent, leaf, receiver)) = self.under_way.remove(&order)
            && let Some(made) = self.made.get_mut(&agent)
            && made.leaf == leaf
        {
            let told = made.told.entry(receiver).or_insert(order);
            *told = order.min(*told);
        }
    }

    /// Notes that some frames did not arrive at `receiver`, which must get the proofs again.
    pub(crate) fn forget_receiver(&mut self, receiver: &str) {
        for made in self.made.values_mut() {
            made.told.remove(receiver);
        }
        self.under_way.retain(|_, (.., told)| **told != *receiver);
    }

    /// Forgets an agent that has left.
    pub(crate) fn forget_agent(&mut self, number: u64) {
        self.made.remove(&number);
        self.under_way.retain(|_, (agent, ..)| *agent != number);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;
    use sealbus_bus::{Bus, BusConfig, RefusalReason};
    use sealbus_seal::issuance::Grant;
    use sealbus_seal::{
        CLOCK_SKEW, Credential, Identity, IssuingAuthority, KeyPair, PlatformName, ProcessId,
        RootAuthority, SecurityLevel, SigningRequest, Timestamp, Trust, Validity,
    };

    use super::{Proofs, verify};

    const DAY: Duration = Duration::from_secs(86_400);
    const LEVEL: SecurityLevel = SecurityLevel::Auth;

    fn process(platform: &PlatformName, byte: u8) -> Identity {
        Identity::process(platform, "node-1", ProcessId::from_bytes([byte; 16])).unwrap()
    }

    /// An agent with a certificate that is valid for a day, and the trust in it.
    pub(crate) fn certified(platform: &PlatformName, agent: &str) -> (Arc<Credential>, Trust) {
        let now = Timestamp::from(SystemTime::now());
        let root = RootAuthority::create(platform, Validity::starting(now, DAY)).unwrap();
        let issuing = root
            .create_authority("ca-1", Validity::starting(now, DAY))
            .unwrap();
        let roots = [root.certificate().clone()];
        let trust = Trust::new(platform.clone(), &roots, CLOCK_SKEW).unwrap();
        (credential(&issuing, agent), trust)
    }

    fn credential(issuing: &IssuingAuthority, agent: &str) -> Arc<Credential> {
        let now = Timestamp::from(SystemTime::now());
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let identity = Identity::from_agent_name(agent).unwrap();
        let grant = Grant::by_operator(identity, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let issued = issuing
            .issue(&grant, &request, Validity::starting(now, DAY))
            .unwrap();
        Arc::new(Credential::new(key, issued.chain).unwrap())
    }

    fn told(proofs: &Proofs) -> usize {
        proofs.made.values().map(|made| made.told.len()).sum()
    }

    #[tokio::test]
    async fn renewed_certificates_do_not_pile_up() {
        let platform = PlatformName::new("factory").unwrap();
        let now = Timestamp::from(SystemTime::now());
        let root = RootAuthority::create(&platform, Validity::starting(now, DAY)).unwrap();
        let issuing = root
            .create_authority("ca-1", Validity::starting(now, DAY))
            .unwrap();
        let bus = Bus::new(
            BusConfig::new(platform.clone()),
            tokio::runtime::Handle::current(),
        );
        let first = credential(&issuing, "a@factory");
        let _attached = bus.attach("a@factory", Some(first), None).unwrap();
        let agent = bus.agent("a@factory").unwrap();
        let mut proofs = Proofs::new(&process(&platform, 1), LEVEL);
        let b = Arc::from("b");
        for order in 0..5 {
            let renewed = credential(&issuing, "a@factory");
            bus.set_credential("a@factory", renewed).unwrap();
            assert!(proofs.with(order, &b, &agent).unwrap().is_some());
            proofs.confirmed(order);
            assert!(proofs.with(order + 1, &b, &agent).unwrap().is_none());
            assert_eq!(told(&proofs), 1);
        }
        // The agent leaves, and a frame of it goes out afterwards.
        bus.detach("a@factory");
        proofs.forget_agent(agent.number());
        assert!(proofs.with(6, &b, &agent).unwrap().is_some());
        proofs.confirmed(6);
        assert!(proofs.made.is_empty() && proofs.under_way.is_empty());
    }

    #[tokio::test]
    async fn a_proof_goes_until_it_has_arrived_and_serves_one_process() {
        let platform = PlatformName::new("factory").unwrap();
        let (credential, trust) = certified(&platform, "a@factory");
        let bus = Bus::new(
            BusConfig::new(platform.clone()),
            tokio::runtime::Handle::current(),
        );
        let _attached = bus.attach("a@factory", Some(credential), None).unwrap();
        let agent = bus.agent("a@factory").unwrap();
        let (own, other) = (process(&platform, 1), process(&platform, 2));
        let mut proofs = Proofs::new(&own, LEVEL);
        let (b, c) = (Arc::from("b"), Arc::from("c"));
        let proof = proofs.with(1, &b, &agent).unwrap().unwrap();
        // The first frame is not confirmed yet, so the next one carries the proof as well.
        assert_eq!(proofs.with(2, &b, &agent).unwrap(), Some(proof.clone()));
        proofs.confirmed(1);
        assert_eq!(proofs.with(3, &b, &agent).unwrap(), None);
        // The first frame is published again after the second was confirmed, and is handed over before it.
        assert!(proofs.with(4, &c, &agent).unwrap().is_some());
        assert!(proofs.with(5, &c, &agent).unwrap().is_some());
        proofs.confirmed(5);
        assert!(proofs.with(4, &c, &agent).unwrap().is_some());
        assert_eq!(proofs.with(6, &c, &agent).unwrap(), None);
        proofs.forget_receiver("c");
        assert!(proofs.with(4, &c, &agent).unwrap().is_some());
        proofs.forget_receiver("b");
        assert!(proofs.with(5, &b, &agent).unwrap().is_some());

        let now = Timestamp::from(SystemTime::now());
        let verified = verify(&proof, &own, LEVEL, &trust, now).unwrap();
        assert!(verified.identity().is_agent_named("a@factory"));
        for (process, level) in [(&other, LEVEL), (&own, SecurityLevel::Tls)] {
            let error = verify(&proof, process, level, &trust, now).unwrap_err();
            assert_eq!(RefusalReason::from(&error), RefusalReason::NotProved);
        }
        let (_, foreign) = certified(&platform, "a@factory");
        assert!(verify(&proof, &own, LEVEL, &foreign, now).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn any_bytes_are_no_proof(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let platform = PlatformName::new("factory").unwrap();
            let (_, trust) = certified(&platform, "a@factory");
            let now = Timestamp::from(SystemTime::now());
            prop_assert!(verify(&bytes, &process(&platform, 1), LEVEL, &trust, now).is_err());
        }
    }
}
