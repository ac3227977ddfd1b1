//! Level `signed`: the agents of this process sign their messages. A batch is all messages of all agents that are ready
//! when bytes are written.

use std::sync::Arc;

use sealbus_bus::NoSigner;
use sealbus_proof::{Batch, Hash, MAX_BATCH, SignError, Signer};
use sealbus_seal::SecurityLevel;

use super::Outward;
use crate::frame::{Frame, SignedMessages};
use crate::statement::milliseconds;

/// The signers of one agent on the link.
#[derive(Default)]
pub(super) struct Signing {
    /// The signers of its messages in the session, the latest last, and the number of the frame behind the last
    /// signature of each.
    signers: Vec<(Arc<Signer>, u64)>,
    /// The connection on which the agent showed its delegation last, and the signer that holds this delegation.
    shown: Option<(u64, Arc<Signer>)>,
}

impl Signing {
    /// Messages were signed; the frame `next` follows the signature. Acknowledged signatures are forgotten.
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

impl Outward {
    /// Whether messages are signed.
    pub(super) fn signs(&self) -> bool {
        self.level >= SecurityLevel::Signed
    }

    /// A message of the agent of `handle` stands in the session. It is signed before anything is written.
    pub(super) fn note_unsigned(&mut self, handle: u32, statement: Hash) {
        self.unsigned.push((handle, statement));
        // Without a connection there is time: agents may get other certificates before the peer hears of these.
        if self.unsigned.len() >= MAX_BATCH && self.connection != 0 {
            self.sign_all();
        }
    }

    /// Signs if messages of the agent of `handle` are not signed yet.
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
        let mut unsigned = std::mem::take(&mut self.unsigned);
        for unsigned in unsigned.chunks_mut(MAX_BATCH) {
            self.sign_batch(unsigned);
        }
        unsigned.clear();
        unsigned.shrink_to(MAX_BATCH);
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
                    // The receiver refuses them, and so their sender is told. A batch has at most MAX_BATCH.
                    SignedMessages::unsigned(sender, said.len() as u16)
                }
            });
        }
        let signed = batch.map(|batch| batch.sign(milliseconds())).transpose();
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
        for (sender, signer) in signers {
            if let Some(Some(bound)) = self.bound.get_mut(sender as usize) {
                bound.signing.note(signer, next, acknowledged);
            }
        }
    }

    /// The signer of the agent of `handle`, whose delegation the peer knows.
    fn signer(&mut self, handle: u32) -> Result<Arc<Signer>, NoSigner> {
        let _ = self.prove(handle);
        let Some(Some(bound)) = self.bound.get_mut(handle as usize) else {
            return Err(NoSigner::Unusable(SignError::NoAuthor));
        };
        let signer = bound.agent.signer()?;
        let connection = self.connection;
        let is_shown = bound
            .signing
            .shown
            .as_ref()
            .is_some_and(|(on, shown)| *on == connection && Arc::ptr_eq(shown, &signer));
        if connection != 0 && !is_shown {
            bound.signing.shown = Some((connection, signer.clone()));
            show(handle, &signer, &mut self.control);
        }
        Ok(signer)
    }

    /// Binds an agent whose frames are sent again to a new connection. Shows the peer the earlier certificates of its
    /// signatures, too, and its delegations.
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
        let present = bound.agent.credential();
        for signer in &signers {
            let credential = signer.credential();
            let is_present = present
                .as_ref()
                .is_some_and(|it| Arc::ptr_eq(it, credential));
            if !is_present
                && let Some(connection) = &self.proof
                && let Ok(proof) = connection.bind(credential)
            {
                let proof = proof.as_slice();
                Frame::Bind { handle, proof }.encode(0, &mut self.control);
            }
        }
        let _ = self.prove(handle);
        for signer in &signers {
            show(handle, signer, &mut self.control);
        }
    }
}

/// Shows the peer the delegation of the agent of `handle`.
fn show(handle: u32, signer: &Signer, control: &mut Vec<u8>) {
    let mut delegation = Vec::with_capacity(signer.delegation().length());
    signer.delegation().encode(&mut delegation);
    Frame::Delegate {
        handle,
        serial: *signer.serial().as_bytes(),
        delegation: &delegation,
    }
    .encode(0, control);
}
