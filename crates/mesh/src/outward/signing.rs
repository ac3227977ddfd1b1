//! Level `signed`: the agents of this process sign their messages. A batch is all messages that are ready when bytes
//! are written.

use std::sync::Arc;

use sealbus_bus::{LocalAgent, NoSigner};
use sealbus_proof::{Hash, MAX_BATCH, MAX_PROOF_LENGTH};
use sealbus_seal::{Credential, SecurityLevel};

use super::Outward;
use crate::frame::Frame;
use crate::statement::milliseconds;

/// The statements that an agent has to sign, and the proofs that it has made.
#[derive(Default)]
pub(super) struct Signing {
    /// The statements of its messages in the session that it has not signed yet.
    unsigned: Vec<Hash>,
    /// The credentials of its proofs in the session, the latest last, and the number of the frame behind the last proof
    /// of each.
    credentials: Vec<(Arc<Credential>, u64)>,
}

impl Signing {
    /// A proof was made with this credential; the frame `next` follows it. Acknowledged proofs are forgotten.
    fn note(&mut self, credential: Arc<Credential>, next: u64, acknowledged: u64) {
        match self.credentials.last_mut() {
            Some((last, end)) if Arc::ptr_eq(last, &credential) => *end = next,
            _ => {
                self.credentials.retain(|(_, end)| *end > acknowledged);
                self.credentials.push((credential, next));
            }
        }
    }
}

impl Outward {
    /// Whether messages are signed.
    pub(super) fn signs(&self) -> bool {
        self.level >= SecurityLevel::Signed
    }

    /// A message of the agent of `handle` stands in the session. The agent signs it before anything is written.
    pub(super) fn note_unsigned(&mut self, handle: u32, statement: Hash) {
        let Some(Some(bound)) = self.bound.get_mut(handle as usize) else {
            return;
        };
        let unsigned = &mut bound.signing.unsigned;
        if unsigned.is_empty() {
            self.to_sign.push(handle);
        }
        unsigned.push(statement);
        // Without a connection there is time: the agent may get another certificate before the peer hears of this one.
        if unsigned.len() >= MAX_BATCH && self.connection != 0 {
            self.sign(handle);
        }
    }

    /// All agents sign the messages that they have sent.
    pub(super) fn sign_all(&mut self) {
        for handle in std::mem::take(&mut self.to_sign) {
            self.sign(handle);
        }
    }

    /// The agent of `handle` signs its messages that it has not signed yet. The others wait for nothing.
    pub(super) fn sign(&mut self, handle: u32) {
        let Some(Some(bound)) = self.bound.get_mut(handle as usize) else {
            return;
        };
        let unsigned = std::mem::take(&mut bound.signing.unsigned);
        if unsigned.is_empty() {
            return;
        }
        let agent = bound.agent.clone();
        let _ = self.prove(handle);
        for statements in unsigned.chunks(MAX_BATCH) {
            let made = prove(&agent, statements);
            let proof = match &made {
                Ok((_, proof)) => proof.as_slice(),
                Err(error) => {
                    tracing::error!(agent = %agent.name(), %error, "cannot sign messages: they will be refused");
                    // The receiver refuses all messages that wait for an empty proof, and so their sender is told.
                    &[]
                }
            };
            self.session.append(&Frame::Sign {
                sender: handle,
                proof,
            });
            let Ok((credential, _)) = made else { return };
            let (next, acknowledged) = (self.session.next(), self.session.acknowledged());
            if let Some(Some(bound)) = self.bound.get_mut(handle as usize) {
                bound.signing.note(credential, next, acknowledged);
            }
        }
    }

    /// Shows the peer of a new connection the earlier credentials of an agent whose proofs are sent again.
    pub(super) fn prove_former(&mut self, handle: u32) {
        let acknowledged = self.session.acknowledged();
        let Some(Some(bound)) = self.bound.get(handle as usize) else {
            return;
        };
        if bound.connection == self.connection {
            return;
        }
        let Some(connection) = &self.proof else {
            return;
        };
        let present = bound.agent.credential();
        for (credential, end) in &bound.signing.credentials {
            let is_present = present
                .as_ref()
                .is_some_and(|it| Arc::ptr_eq(it, credential));
            if *end > acknowledged
                && !is_present
                && let Ok(proof) = connection.bind(credential)
            {
                let proof = proof.as_slice();
                Frame::Bind { handle, proof }.encode(0, &mut self.control);
            }
        }
    }
}

/// The proof of these statements, and the credential with which it was made.
fn prove(agent: &LocalAgent, statements: &[Hash]) -> Result<(Arc<Credential>, Vec<u8>), NoSigner> {
    let signer = agent.signer()?;
    let batch = signer.sign(statements.to_vec(), milliseconds())?;
    let proof = batch.proof(&(0..statements.len()))?;
    let mut out = Vec::with_capacity(MAX_PROOF_LENGTH);
    proof.encode(&mut out);
    Ok((signer.credential().clone(), out))
}
