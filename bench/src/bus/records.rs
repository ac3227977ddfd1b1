//! The cost of TLS beyond the sockets: the rate at which one processor encrypts and decrypts full records, without a
//! network. A transport cannot be faster than the slower of the two.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, NONCE_LEN, OutboundChunks, OutboundPlainMessage,
};
use rustls::{CipherSuite, ContentType, ProtocolVersion, SupportedCipherSuite};
use sealbus_seal::tls;

use crate::papers::PapersError;

/// The most content of a record (RFC 8446 section 5.1).
const RECORD: usize = 16 << 10;
/// The number of the record that is decrypted. Numbers only grow where records are encrypted.
const LAST: u64 = 1 << 32;
/// How long encryption and decryption are each measured.
const TIME: Duration = Duration::from_millis(300);
/// The length of a key of AES-256.
const KEY: usize = 32;
/// Length of a record's header, which `encode` puts before the encrypted bytes.
const HEADER: usize = 5;

/// Bytes of content in full records that one processor handles in a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records {
    pub(crate) encrypted_per_s: f64,
    pub(crate) decrypted_per_s: f64,
}

/// Measures the cipher that two processes agree on, AES-256-GCM, as the mesh and raw TLS use it here.
pub(crate) fn measure() -> Result<Records, PapersError> {
    let provider = tls::provider();
    let suite = (provider.cipher_suites.iter())
        .find_map(|suite| match suite {
            SupportedCipherSuite::Tls13(suite)
                if suite.common.suite == CipherSuite::TLS13_AES_256_GCM_SHA384 =>
            {
                Some(suite)
            }
            _ => None,
        })
        .ok_or_else(|| PapersError::Failed("TLS has no AES-256-GCM here".to_owned()))?;
    let key = || AeadKey::from([7; KEY]);
    let iv = || Iv::from([9; NONCE_LEN]);
    let mut encrypter = suite.aead_alg.encrypter(key(), iv());
    let mut decrypter = suite.aead_alg.decrypter(key(), iv());
    let failed = |error: rustls::Error| PapersError::Failed(error.to_string());
    let content = vec![b'x'; RECORD];
    let mut seal = |number| {
        let message = OutboundPlainMessage {
            typ: ContentType::ApplicationData,
            version: ProtocolVersion::TLSv1_3,
            payload: OutboundChunks::Single(&content),
        };
        encrypter.encrypt(message, number).map_err(failed)
    };
    let encrypted_per_s = rate(|number| {
        black_box(seal(number)?);
        Ok(())
    })?;
    // Decryption is in place, so each record must first be copied there.
    let sealed = seal(LAST)?.encode();
    let mut record = sealed.clone();
    let decrypted_per_s = rate(|_| {
        record.copy_from_slice(&sealed);
        let message = InboundOpaqueMessage::new(
            ContentType::ApplicationData,
            ProtocolVersion::TLSv1_2,
            record.get_mut(HEADER..).unwrap_or_default(),
        );
        black_box(decrypter.decrypt(message, LAST).map_err(failed)?);
        Ok(())
    })?;
    Ok(Records {
        encrypted_per_s,
        decrypted_per_s,
    })
}

/// Bytes a second, where each call of `step` handles a record.
fn rate(mut step: impl FnMut(u64) -> Result<(), PapersError>) -> Result<f64, PapersError> {
    for number in 0..100 {
        step(number)?;
    }
    let (start, mut number) = (Instant::now(), 100);
    while start.elapsed() < TIME {
        for _ in 0..100 {
            step(number)?;
            number += 1;
        }
    }
    let records = (number - 100) as f64;
    Ok(records * RECORD as f64 / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_encrypted_and_decrypted() -> Result<(), PapersError> {
        let records = measure()?;
        assert!(records.encrypted_per_s > 0.0 && records.decrypted_per_s > 0.0);
        Ok(())
    }
}
