//! Certificates for the node's processes: from the CA of the leading Master or, if that does not answer, of another
//! Master.

use std::time::Duration;

use sealbus_control::authority::{IssuedChain, ask_ca};
use sealbus_control::clock::now;
use sealbus_control::names::CA;
use sealbus_control::statement::{Signed, Vouching};
use sealbus_control::word::{Reply, Word};
use sealbus_control::{Blob, Fault, FaultCode, Subject};
use sealbus_enrolment::say;
use sealbus_seal::{CertificateChain, SigningRequest, Timestamp};

use super::shared::Shared;

/// How long the CA may take to answer.
const CERTIFYING: Duration = Duration::from_secs(10);
/// How long the CA of another Master may take to answer.
const RENEWING: Duration = Duration::from_secs(3);

impl Shared {
    /// The node's signed statement for a signing request of one of its processes.
    pub(crate) fn vouch(
        &self,
        process: &str,
        subject: Subject,
        request: Vec<u8>,
    ) -> Result<Signed, Fault> {
        let vouching = Vouching {
            process: process.to_owned(),
            held: self.held.lock().of(process, &subject),
            subject,
            request: Blob(request),
            at: now(),
        };
        Signed::sign(&vouching, &self.credential.load())
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))
    }

    /// Takes a signing request to the CA of the leading Master and, if that does not answer, to those of the others. A
    /// leading Master that has been silent is not waited for first.
    pub(crate) async fn request_certificate(
        &self,
        process: &str,
        subject: Subject,
        request: Vec<u8>,
    ) -> Result<IssuedChain, Fault> {
        let is_silent = self.leaders.are_silent();
        let mut renewed = None;
        if is_silent {
            renewed = self.renew_elsewhere(process, &subject, &request).await;
        }
        let chain = match renewed {
            Some(chain) => chain,
            None => match self.request_on_bus(process, &subject, &request).await {
                Err(fault) if !is_silent && is_away(&fault) => {
                    let renewed = self.renew_elsewhere(process, &subject, &request).await;
                    renewed.ok_or(fault)?
                }
                certified => certified?,
            },
        };
        self.holds(process, subject, &chain);
        Ok(chain)
    }

    /// Notes a certificate that a process of this node gets.
    pub(crate) fn holds(&self, process: &str, subject: Subject, chain: &IssuedChain) {
        if let Some(chain) = chain_of(chain) {
            let now = Timestamp::from_unix_seconds(now() / 1000);
            self.held.lock().note(process, subject, chain, now);
        }
    }

    async fn request_on_bus(
        &self,
        process: &str,
        subject: &Subject,
        request: &[u8],
    ) -> Result<IssuedChain, Fault> {
        let voucher = self.vouch(process, subject.clone(), request.to_vec())?;
        let certify = ask_ca::Certify { voucher };
        self.correspondent()?.ask(CA, certify, CERTIFYING).await
    }

    /// Asks one Master after another to renew the certificate of the process.
    async fn renew_elsewhere(
        &self,
        process: &str,
        subject: &Subject,
        request: &[u8],
    ) -> Option<IssuedChain> {
        self.held.lock().of(process, subject)?;
        let voucher = self.vouch(process, subject.clone(), request.to_vec());
        let word = Word::Renew {
            voucher: voucher.ok()?,
        };
        for address in self.leaders.enrolment().addresses {
            match say(&address, &word, RENEWING).await {
                Ok(Reply::Renewed { chain }) if self.is_believed(&chain, request) => {
                    return Some(chain);
                }
                Ok(reply) => tracing::debug!(address, ?reply, "no certificate was renewed"),
                Err(error) => tracing::debug!(address, %error, "no certificate was renewed"),
            }
        }
        None
    }

    /// Whether a CA of this platform certified the key of the request. The chain came over a connection without TLS.
    fn is_believed(&self, chain: &IssuedChain, request: &[u8]) -> bool {
        let now = Timestamp::from_unix_seconds(now() / 1000);
        let (Some(chain), Ok(request)) = (chain_of(chain), SigningRequest::parse(request)) else {
            return false;
        };
        let verified = self.trust.verify(&chain, now);
        verified.is_ok_and(|leaf| *request.public_key() == *leaf.public_key())
    }
}

fn chain_of(chain: &IssuedChain) -> Option<CertificateChain> {
    chain.clone().try_into().ok()
}

fn is_away(fault: &Fault) -> bool {
    matches!(fault.code, FaultCode::Unavailable | FaultCode::Storage)
}
