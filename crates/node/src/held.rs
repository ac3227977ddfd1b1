//! The certificates of a node's processes.

use std::collections::HashMap;

use sealbus_control::{Blob, Subject};
use sealbus_seal::{CertificateChain, Timestamp};

/// After this many certificates, and later after twice as many as were left, expired ones are forgotten.
const FEW: usize = 256;

/// The certificates of the node's processes, as far as they came through this node. A CA that does not know the
/// platform's state renews nothing else.
#[derive(Default)]
pub(crate) struct HeldCertificates {
    chains: HashMap<(String, Subject), (Timestamp, CertificateChain)>,
    full: usize,
}

impl HeldCertificates {
    /// Notes a certificate that a process gets.
    pub(crate) fn note(
        &mut self,
        process: &str,
        subject: Subject,
        chain: CertificateChain,
        now: Timestamp,
    ) {
        let Ok(certificate) = chain.certificate() else {
            return;
        };
        if self.chains.len() >= self.full.max(FEW) {
            self.chains.retain(|_, (end, _)| *end >= now);
            self.full = self.chains.len() * 2;
        }
        let key = (process.to_owned(), subject);
        self.chains.insert(key, (certificate.not_after(), chain));
    }

    /// The chain that a process holds, in its wire form.
    pub(crate) fn of(&self, process: &str, subject: &Subject) -> Option<Blob> {
        let key = (process.to_owned(), subject.clone());
        let (_, chain) = self.chains.get(&key)?;
        let mut bytes = Vec::new();
        chain.encode(&mut bytes);
        Some(Blob(bytes))
    }
}
