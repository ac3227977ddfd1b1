//! Proofs of authorship and sealing: the cost of a message to its author and its receiver, alone and in batches, compared
//! with one signature.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sealbus_bus::{SealedRow, aid_of, open_sealed};
use sealbus_fipa::{AclMessage, Performative, bitefficient};
use sealbus_proof::{Hash, Proof, Signer, Statement, Verifier};
use sealbus_seal::encryption::EncryptionKey;
use sealbus_seal::{Identity, SecurityLevel};
use serde::Serialize;

use crate::mesh::credentials::{Authority, platform};
use crate::turns::{Measured, Subject, measure};

/// A line of the table.
#[derive(Debug, Serialize)]
struct Row {
    work: String,
    microseconds: f64,
    /// Messages that the work is for.
    messages: usize,
    /// Bytes of the proofs for each message.
    bytes: Option<f64>,
}

/// Bytes of a small message.
const MESSAGE: [u8; 200] = [7; 200];

fn statement(receiver: &str) -> Hash {
    let statement = Statement {
        channel: None,
        qos: "",
        receivers: &[receiver],
        message: &MESSAGE,
    };
    statement.hash()
}

/// Measures, prints the table, and on request writes the rows as JSON.
pub(crate) fn run(json: Option<&Path>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let authority = Authority::create()?;
    let platform = platform()?;
    let author = Identity::agent(&platform, "author")?;
    let credential = authority.credential(author)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let verified = authority
        .trust()?
        .verify(credential.chain(), SystemTime::now().into())?;
    let now = u64::try_from(now.as_millis())?;
    let level = SecurityLevel::Signed;
    let signer = Signer::new(credential.clone(), level)?;
    let receiver = format!("receiver@{platform}");

    let proof =
        |size: usize, places: std::ops::Range<usize>| -> Result<Proof, sealbus_proof::SignError> {
            signer
                .sign(vec![statement(&receiver); size], now)?
                .proof(&places)
        };
    let (alone, together, one) = (proof(1, 0..1)?, proof(64, 0..64)?, proof(64, 17..18)?);
    let key = EncryptionKey::generate()?;
    let message = AclMessage::new(Performative::Inform)
        .with_sender(aid_of(&format!("author@{platform}")))
        .with_receiver(aid_of(&receiver))
        .with_content(&[b'7'; 64][..]);
    let begin = || SealedRow::begin(key.public(), &format!("author@{platform}"), &receiver);
    let mut row = begin()?;
    let sealed = row.seal(&message)?;
    let mut secret = None;
    let length = |message: &AclMessage| -> Result<f64, sealbus_fipa::EncodeError> {
        let mut bytes = Vec::new();
        bitefficient::encode(message, &mut bytes)?;
        Ok(bytes.len() as f64)
    };
    let added = length(&sealed)? - length(&message)?;
    let bytes = |work: &str| match work {
        "seal, with a known secret" => Some(added),
        "sign 1" | "verify 1" => Some(alone.length() as f64),
        "sign 64" | "verify 64" => Some(together.length() as f64 / 64.0),
        "verify 1 of 64, seen before" => Some(one.length() as f64),
        _ => None,
    };
    let messages = |work: &str| {
        if matches!(work, "sign 64" | "verify 64") {
            64
        } else {
            1
        }
    };

    let fresh = || Verifier::new(platform.clone(), level);
    let signing = credential.key();
    let signature = signing.sign(&MESSAGE)?;
    let sign = |size: usize| {
        let (signer, receiver) = (&signer, &receiver);
        move || {
            let statements = (0..size).map(|_| statement(black_box(receiver))).collect();
            let proof = signer
                .sign(statements, now)
                .and_then(|batch| batch.proof(&(0..size)));
            let _ = black_box(proof);
        }
    };
    let verify = |proof: &Proof, mut verifier: Option<Verifier>| {
        let (verified, receiver, proof) = (&verified, &receiver, proof.clone());
        move || {
            let count = proof.numbers().end - proof.numbers().start;
            let statements: Vec<Hash> =
                (0..count).map(|_| statement(black_box(receiver))).collect();
            let judged = match &mut verifier {
                Some(verifier) => verifier.verify(verified, &proof, &statements, now),
                None => fresh().verify(verified, &proof, &statements, now),
            };
            assert!(judged.is_ok(), "{judged:?}");
        }
    };
    let measured = measure(vec![
        Subject::new("Ed25519, sign", || {
            let _ = black_box(signing.sign(black_box(&MESSAGE)));
        }),
        Subject::new("Ed25519, verify", || {
            black_box(
                signing
                    .public_key()
                    .verifies(black_box(&MESSAGE), &signature),
            );
        }),
        Subject::new("hash a statement", || {
            black_box(statement(black_box(&receiver)));
        }),
        Subject::new("sign 1", sign(1)),
        Subject::new("sign 64", sign(64)),
        Subject::new("verify 1", verify(&alone, None)),
        Subject::new("verify 64", verify(&together, None)),
        Subject::new("verify 1 of 64, seen before", verify(&one, Some(fresh()))),
        Subject::new("agree on a secret to seal with", || {
            let _ = black_box(begin());
        }),
        Subject::new("seal, with a known secret", || {
            let _ = black_box(row.seal(black_box(&message)));
        }),
        Subject::new("open, with a known secret", || {
            let opened = open_sealed(&black_box(&sealed).view(), |envelope, sender| {
                let known = secret.take();
                let taken = || envelope.opening(&key, sender, &receiver);
                let opening = known.map_or_else(taken, Ok);
                opening.map_err(|error| error.to_string())
            });
            match opened {
                Ok((opened, opening)) => {
                    black_box(opened);
                    secret = Some(opening);
                }
                Err(why) => panic!("{why}"),
            }
        }),
    ]);
    let rows: Vec<Row> = measured
        .into_iter()
        .map(|Measured { name, nanoseconds }| Row {
            messages: messages(&name),
            bytes: bytes(&name),
            microseconds: nanoseconds / 1000.0,
            work: name,
        })
        .collect();
    print_table(&rows);
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

fn print_table(rows: &[Row]) {
    println!("\n| work | µs | µs a message | bytes a message |");
    println!("|---|---:|---:|---:|");
    for row in rows {
        let bytes = row
            .bytes
            .map_or("–".to_owned(), |bytes| format!("{bytes:.1}"));
        let each = row.microseconds / row.messages as f64;
        println!(
            "| {} | {:.2} | {each:.2} | {bytes} |",
            row.work, row.microseconds
        );
    }
    let of = |work: &str| {
        let row = rows.iter().find(|row| row.work == work);
        row.map_or(f64::NAN, |row| row.microseconds)
    };
    let alone = of("sign 1") + of("verify 1");
    println!("\nOne message at a time: {alone:.1} µs more (the goal: 60).");
    let together = (of("sign 64") + of("verify 64")) / 64.0;
    let sealed = of("seal, with a known secret") + of("open, with a known secret");
    println!("Sealed: {sealed:.2} µs more for each message, besides its proof.");
    println!("In batches of 64: {together:.2} µs more for each message, at both ends together.");
}
