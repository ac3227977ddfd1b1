//! Verdicts on chains that were verified before.

use std::collections::HashMap;

use rustls_pki_types::{CertificateDer, TrustAnchor};

use crate::certificate::Fingerprint;
use crate::verified::VerifiedIdentity;

/// The number of verified chains remembered in each of two generations. A repeated binding then costs one signature check.
const CACHED_CHAINS: usize = 8192;

/// The number of issuing authorities remembered. Their own signatures are then not checked again for each new leaf.
const CACHED_AUTHORITIES: usize = 64;

#[derive(Default)]
pub(super) struct Cache {
    /// The verified chains, by their [`mark`].
    pub(super) chains: Generations<VerifiedIdentity>,
    /// Facts that a caller checked; see [`Trust::once`](super::Trust::once).
    pub(super) facts: Generations<()>,
    authorities: HashMap<Fingerprint, TrustAnchor<'static>>,
}

/// Values that were used recently.
pub(super) struct Generations<V> {
    young: HashMap<Fingerprint, V>,
    old: HashMap<Fingerprint, V>,
}

/// The mark of a whole chain. Others may show the same leaf with other certificates behind it, such as an earlier one
/// of its CA. A verdict on those says nothing about the ones that its owner shows.
pub(super) fn mark(leaf: Fingerprint, issuers: &[CertificateDer<'_>]) -> Fingerprint {
    let mut all = leaf.as_bytes().to_vec();
    for issuer in issuers {
        all.extend_from_slice(Fingerprint::of(issuer).as_bytes());
    }
    Fingerprint::of(&all)
}

impl Cache {
    /// An authority that was verified before, with which a leaf's chain may end. Its dates and denials are still checked.
    pub(super) fn authority(&self, der: &CertificateDer<'_>) -> Option<TrustAnchor<'static>> {
        self.authorities.get(&Fingerprint::of(der)).cloned()
    }

    pub(super) fn insert_authority(&mut self, der: &CertificateDer<'_>) {
        if self.authorities.len() >= CACHED_AUTHORITIES {
            self.authorities.clear();
        }
        if let Ok(anchor) = webpki::anchor_from_trusted_cert(der) {
            self.authorities
                .insert(Fingerprint::of(der), anchor.to_owned());
        }
    }
}

impl<V> Default for Generations<V> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }
}

impl<V: Clone> Generations<V> {
    pub(super) fn get(&mut self, fingerprint: &Fingerprint) -> Option<V> {
        if let Some(found) = self.young.get(fingerprint) {
            return Some(found.clone());
        }
        let found = self.old.remove(fingerprint)?;
        self.insert(*fingerprint, found.clone());
        Some(found)
    }

    pub(super) fn insert(&mut self, fingerprint: Fingerprint, found: V) {
        if self.young.len() >= CACHED_CHAINS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(fingerprint, found);
    }
}
