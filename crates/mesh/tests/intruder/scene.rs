//! The scene of the intrusions.

use std::sync::Arc;
use std::time::Duration;

use sealbus_bus::{Mailbox, RefusalReason};
use sealbus_fipa::{AclMessage, Aid};
use sealbus_mesh::frame::Why;
use sealbus_seal::denylist::{Denial, DenyList, Reason};
use sealbus_seal::issuance::Grant;
use sealbus_seal::{
    Credential, Identity, KeyPair, ProcessId, SecurityLevel, SigningRequest, Validity,
};

use super::{Intruder, Seen};
use crate::support::{self, Authority, Platform, Process, inform, now, soon};

/// A platform with an honest process, which runs the agent `victim`, and the certificate of another process, whose
/// program was written to intrude.
pub(crate) struct Scene {
    pub(crate) platform: Platform,
    pub(crate) process: Process,
    pub(crate) mailbox: Mailbox,
    /// The intruder's process.
    pub(crate) credential: Arc<Credential>,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::at(SecurityLevel::Auth).await
    }

    pub(crate) async fn at(level: SecurityLevel) -> Self {
        let platform = Platform::new(level);
        let process = platform.process("node-1").await;
        let (_, mailbox) = platform.agent(&process, "victim@factory");
        let identity = some_process(&platform.authority);
        let credential = platform.authority.certify(identity);
        Self {
            platform,
            process,
            mailbox,
            credential,
        }
    }

    pub(crate) async fn dial(&self) -> Intruder {
        let address = self.process.endpoint.local_address();
        soon(Intruder::dial_at(
            address,
            &self.credential,
            self.platform.authority.trust(),
            self.platform.level,
        ))
        .await
        .unwrap()
    }

    /// A connection on which `mallory` is bound as 0 and the victim is target 0.
    ///
    /// Once a connection to the intruder's process has ended, the honest process may dial by itself. It then ends
    /// another connection that comes meanwhile, so this function tries again.
    pub(crate) async fn ready(&self, mallory: &Credential) -> Intruder {
        soon(async {
            loop {
                let mut intruder = self.dial().await;
                if intruder.bind(0, mallory).await.is_ok()
                    && intruder.opens_target(0, "victim@factory").await
                {
                    return intruder;
                }
            }
        })
        .await
    }

    pub(crate) fn mallory(&self) -> Arc<Credential> {
        self.platform.authority.agent("mallory@factory")
    }

    pub(crate) fn count(&self, reason: RefusalReason) -> u64 {
        let counts = self.process.bus.refusals().counts();
        counts.into_iter().find(|(of, _)| *of == reason).unwrap().1
    }

    /// Checks the last refusal: it must be for `reason` and an attempt of `tried_by`.
    pub(crate) async fn refused(&self, reason: RefusalReason, tried_by: &str) {
        soon(async {
            while self.count(reason) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let last = self.process.bus.refusals().last();
        let refusal = last
            .iter()
            .rev()
            .find(|refusal| refusal.reason == reason)
            .unwrap();
        assert!(refusal.tried_by.contains(tried_by), "{refusal:?}");
    }

    /// Checks that no harm was done, and that the endpoint serves as before.
    pub(crate) async fn unharmed(mut self) {
        assert!(self.mailbox.try_recv().is_none(), "something was delivered");
        let process = self.platform.process("node-3").await;
        let (honest, _mailbox) = self.platform.agent(&process, "honest@factory");
        honest
            .send(inform("victim@factory", "good day"))
            .await
            .unwrap();
        let received = soon(self.mailbox.recv()).await.unwrap();
        assert_eq!(
            received.message().sender().unwrap().name(),
            "honest@factory"
        );
        assert!(received.provenance().certified().is_some());
        assert!(self.mailbox.try_recv().is_none());
    }
}

pub(crate) fn some_process(authority: &Authority) -> Identity {
    Identity::process(&authority.platform, "node-2", ProcessId::random().unwrap()).unwrap()
}

/// A certificate that ended half a minute ago.
pub(crate) fn expired(authority: &Authority, identity: Identity) -> Credential {
    let key = KeyPair::generate().unwrap();
    let request = SigningRequest::parse(&key.signing_request().unwrap()).unwrap();
    let grant = Grant::by_operator(identity, [127, 0, 0, 1].into());
    let start = now().minus(Duration::from_secs(50));
    let validity = Validity::starting(start, Duration::from_secs(20));
    let issued = authority.issuing.issue(&grant, &request, validity).unwrap();
    Credential::new(key, issued.chain).unwrap()
}

pub(crate) fn from(sender: &str) -> AclMessage {
    let mut message = inform("victim@factory", "hello");
    message.sender = Some(Aid::new(sender).unwrap());
    message
}

pub(crate) fn is_returned(wanted: RefusalReason) -> impl Fn(&Seen) -> bool {
    move |seen| matches!(seen, Seen::Returned { why: Why::Refused(reason) } if *reason == wanted)
}

pub(crate) fn is_refused(wanted: RefusalReason) -> impl Fn(&Seen) -> bool {
    move |seen| matches!(seen, Seen::Refused { reason, .. } if *reason == wanted)
}

pub(crate) fn deny(scene: &Scene, serial: sealbus_seal::Serial) {
    let issuing = &scene.platform.authority.issuing;
    let mut list = DenyList::new(issuing.identity().clone());
    let denial = Denial {
        at: now(),
        reason: Reason::ByOperator,
    };
    list.deny_serial(serial, now().plus(support::DAY), denial)
        .unwrap();
    scene
        .process
        .trust
        .apply_deny_list(&list.sign(issuing).unwrap().whole(), now())
        .unwrap();
    scene.process.endpoint.trust_changed();
}
