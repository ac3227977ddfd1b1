//! A platform's CA, agents with certificates, and their keys.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealbus_mls::{Candidate, GroupError, Invitee, Member};
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::encryption::{EncryptionKey, EncryptionKeyId};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    CLOCK_SKEW, Credential, Identity, IssuingAuthority, KeyPair, PlatformName, RootAuthority,
    SigningRequest, Timestamp, Trust, Validity,
};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Platform {
    pub(crate) name: PlatformName,
    pub(crate) authority: IssuingAuthority,
    pub(crate) trust: Arc<Trust>,
    pub(crate) now: Timestamp,
}

/// An agent in a process of its own.
pub(crate) struct Agent {
    pub(crate) identity: Identity,
    pub(crate) credential: Arc<Credential>,
    pub(crate) key: Arc<EncryptionKey>,
    pub(crate) invitee: Invitee,
}

impl Platform {
    pub(crate) fn new() -> Self {
        let now: Timestamp = SystemTime::now().into();
        let name = PlatformName::new("factory").unwrap();
        let root = RootAuthority::create(&name, Validity::starting(now, 10_000 * HOUR)).unwrap();
        let authority = root
            .create_authority("ca-1", Validity::starting(now, 5_000 * HOUR))
            .unwrap();
        let roots = [root.certificate().clone()];
        let trust = Trust::new(name.clone(), &roots, CLOCK_SKEW).unwrap();
        Self {
            name,
            authority,
            trust: Arc::new(trust),
            now,
        }
    }

    pub(crate) fn certify(&self, identity: &Identity) -> Arc<Credential> {
        let key = KeyPair::generate().unwrap();
        let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let grant = Grant::by_operator(identity.clone(), address);
        let validity = Validity::starting(self.now, HOUR);
        let issued = self.authority.issue(&grant, &request, validity).unwrap();
        Arc::new(Credential::new(key, issued.chain).unwrap())
    }

    pub(crate) fn agent(&self, name: &str) -> Agent {
        let identity = Identity::agent(&self.name, name).unwrap();
        let credential = self.certify(&identity);
        Agent {
            invitee: Invitee::new(&credential, self.now.plus(HOUR), self.now),
            identity,
            credential,
            key: Arc::new(EncryptionKey::generate().unwrap()),
        }
    }

    pub(crate) fn candidate(&self, agent: &Agent) -> Candidate {
        let package = agent.invitee.offer(self.now).unwrap();
        self.check(&package, agent, &agent.identity).unwrap()
    }

    pub(crate) fn check(
        &self,
        package: &[u8],
        agent: &Agent,
        wanted: &Identity,
    ) -> Result<Candidate, GroupError> {
        let key = agent.key.public().clone();
        Candidate::verify(package, key, wanted, &self.trust, self.now)
    }

    /// An operator revokes an agent.
    pub(crate) fn deny(&self, agent: &Agent) {
        let mut list = DenyList::new(self.authority.identity().clone());
        let denial = Denial {
            at: self.now,
            reason: Reason::ByOperator,
        };
        let until = self.now.plus(HOUR);
        list.deny_identity(agent.identity.clone(), until, denial)
            .unwrap();
        let list = list.sign(&self.authority).unwrap().whole();
        self.trust.apply_deny_list(&list, self.now).unwrap();
    }

    pub(crate) fn join(
        &self,
        agent: &Agent,
        welcome: &[u8],
        publisher: &Agent,
    ) -> Result<Member, GroupError> {
        let find = |id: EncryptionKeyId| (agent.key.public().id() == id).then(|| agent.key.clone());
        Member::join(
            &agent.invitee,
            welcome,
            &publisher.identity,
            find,
            &self.trust,
            self.now,
        )
    }
}
