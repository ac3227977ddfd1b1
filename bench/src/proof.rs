//! Proofs of authorship and sealing: the cost of a message to its author and its receiver, alone and in batches, compared
//! with one signature.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sealbus_bus::{OpenedRows, SealedMessage, SealedRow, SessionNumber, aid_of};
use sealbus_fipa::bitefficient::{self, EncodedMessage};
use sealbus_fipa::{AclMessage, Limits, Performative};
use sealbus_mesh::frame::{Frame, SignedMessages};
use sealbus_proof::{
    AuthorEntry, Batch, BatchKey, Hash, Proof, SignError, SignedBatch, Signer, Statement, Verifier,
};
use sealbus_seal::encryption::EncryptionKey;
use sealbus_seal::{
    Credential, Identity, PlatformName, SecurityLevel, SignatureAlgorithm, VerifiedIdentity,
};
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

/// A batch in which each of these authors has `each` messages, and its authors' entries.
fn signed(
    signers: &[Signer],
    each: usize,
    receiver: &str,
    now: u64,
) -> Result<(SignedBatch, Vec<AuthorEntry>), SignError> {
    let mut batch = Batch::new(signers[0].key().clone());
    let entries = signers.iter().map(|signer| {
        let statements: Vec<Hash> = (0..each).map(|_| statement(receiver)).collect();
        batch.add(signer, &statements)
    });
    let entries = entries.collect::<Result<_, _>>()?;
    Ok((batch.sign(now)?, entries))
}

/// Bytes that a batch adds to its messages between two processes.
fn on_the_wire((batch, entries): &(SignedBatch, Vec<AuthorEntry>)) -> f64 {
    let authors: Vec<SignedMessages> = (0..)
        .zip(entries)
        .map(|(sender, entry)| SignedMessages::new(sender, entry))
        .collect();
    let mut bytes = Vec::new();
    Frame::Sign {
        time: batch.time(),
        signature: batch.signature(),
        authors: &authors,
    }
    .encode(0, &mut bytes);
    bytes.len() as f64
}

/// An author on a platform with signatures of one algorithm, and a batch of it.
struct Author {
    credential: Arc<Credential>,
    verified: VerifiedIdentity,
    signers: Vec<Signer>,
    together: (SignedBatch, Vec<AuthorEntry>),
}

impl Author {
    fn new(
        signatures: SignatureAlgorithm,
        platform: &PlatformName,
        receiver: &str,
        now: u64,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let authority = Authority::with(signatures)?;
        let credential = authority.credential(Identity::agent(platform, "author")?)?;
        let trust = authority.trust()?;
        let verified = trust.verify(credential.chain(), SystemTime::now().into())?;
        let batch_key = Arc::new(BatchKey::new(platform.clone(), SecurityLevel::Signed));
        // The same certificate in many places costs as much as many certificates.
        let signer = |_| Signer::new(credential.clone(), batch_key.clone());
        let signers = (0..64).map(signer).collect::<Result<Vec<_>, _>>()?;
        let together = signed(&signers[..1], 64, receiver, now)?;
        Ok(Self {
            credential,
            verified,
            signers,
            together,
        })
    }

    /// The proof of one of the 64 messages.
    fn one(&self, receiver: &str) -> Result<Proof, SignError> {
        let (batch, entries) = &self.together;
        let statements = vec![statement(receiver); 64];
        batch.proof(
            self.signers[0].delegation(),
            &entries[0],
            0,
            &statements,
            17,
        )
    }
}

/// The work of signing `each` messages of so many authors.
fn signing_of<'a>(
    author: &'a Author,
    authors: usize,
    each: usize,
    receiver: &'a str,
    now: u64,
) -> impl FnMut() + 'a {
    let signers = &author.signers[..authors];
    move || {
        let _ = black_box(signed(signers, each, black_box(receiver), now));
    }
}

/// Measures, prints the table, and on request writes the rows as JSON.
pub(crate) fn run(json: Option<&Path>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let platform = platform()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now = u64::try_from(now.as_millis())?;
    let level = SecurityLevel::Signed;
    let receiver = format!("receiver@{platform}");
    let author = |signatures| Author::new(signatures, &platform, &receiver, now);
    let classical = author(SignatureAlgorithm::Ed25519)?;
    let quantum = author(SignatureAlgorithm::MlDsa65)?;
    let alone = signed(&classical.signers[..1], 1, &receiver, now)?;
    let of_many = signed(&classical.signers, 1, &receiver, now)?;
    let (one, quantum_one) = (classical.one(&receiver)?, quantum.one(&receiver)?);
    let key = Arc::new(EncryptionKey::generate()?);
    let message = AclMessage::new(Performative::Inform)
        .with_sender(aid_of(&format!("author@{platform}")))
        .with_receiver(aid_of(&receiver))
        .with_content(&[b'7'; 64][..]);
    let begin = || {
        let begun = Instant::now();
        SealedRow::begin(
            key.public(),
            &format!("author@{platform}"),
            &receiver,
            begun,
        )
    };
    let mut row = begin()?;
    // The first message brings the secret. Later ones name the row.
    let first = row.seal(&message)?;
    first.went_over(SessionNumber::next());
    let sealed = row.seal(&message)?;
    let mut encoded = Vec::new();
    bitefficient::encode(&message, &mut encoded)?;
    let added = |sealed: &SealedMessage| sealed.bytes().len() as f64 - encoded.len() as f64;
    let (added_first, added) = (added(&first), added(&sealed));
    let outer =
        |sealed: &SealedMessage| EncodedMessage::new(sealed.bytes().clone(), &Limits::default());
    let (first, sealed) = (outer(&first)?, outer(&sealed)?);
    let mut opened = OpenedRows::default();
    let mut open = |outer: &EncodedMessage<_>| {
        let key = |_| Ok(key.clone());
        let opened = opened.open(&outer.message(), &receiver, Instant::now(), key);
        if let Err(why) = black_box(opened) {
            panic!("{why}");
        }
    };
    open(&first);
    let bytes = |work: &str| match work {
        "agree on a secret to seal with" => Some(added_first),
        "seal, with a known secret" => Some(added),
        "sign 1" | "verify 1" => Some(on_the_wire(&alone)),
        "sign 64" | "verify 64" => Some(on_the_wire(&classical.together) / 64.0),
        "sign 64 with ML-DSA-65" | "verify 64 with ML-DSA-65" => {
            Some(on_the_wire(&quantum.together) / 64.0)
        }
        "verify 1 of 64 elsewhere with ML-DSA-65" => Some(quantum_one.length() as f64),
        "sign 64 of 64 authors" | "verify 64 of 64 authors" => Some(on_the_wire(&of_many) / 64.0),
        "verify 1 of 64 elsewhere" | "verify 1 of 64 elsewhere, after another" => {
            Some(one.length() as f64)
        }
        _ => None,
    };
    let messages = |work: &str| {
        if work.starts_with("sign 64") || work.starts_with("verify 64") {
            64
        } else {
            1
        }
    };

    let fresh = || Verifier::new(platform.clone(), level);
    let signing = classical.credential.key();
    let signature = signing.sign(&MESSAGE)?;
    let quantum_signature = quantum.credential.sign_proof(&MESSAGE)?;
    let quantum_key = quantum.verified.proof_key().ok_or("no key for proofs")?;
    let sign = |author, authors, each| signing_of(author, authors, each, &receiver, now);
    // The receiver of a batch computes all of it from the messages.
    let verify = |(batch, entries): &(SignedBatch, Vec<AuthorEntry>)| {
        let (batch, entries, receiver) = (batch.clone(), entries.clone(), &receiver);
        move || {
            let leaves = entries.iter().map(|entry| {
                let statements = (0..entry.count).map(|_| statement(black_box(receiver)));
                entry.leaf(&statements.collect::<Vec<_>>())
            });
            let (key, signature) = (batch.key().clone(), batch.signature());
            let arrived =
                SignedBatch::received(level, key, batch.time(), signature, leaves.collect());
            let judged = fresh().signed(&arrived, now);
            assert!(judged.is_ok(), "{judged:?}");
        }
    };
    let verify_elsewhere = |author: &Author, proof: &Proof, mut verifier: Option<Verifier>| {
        let (verified, receiver, proof) = (author.verified.clone(), &receiver, proof.clone());
        move || {
            let said = statement(black_box(receiver));
            let judged = match &mut verifier {
                Some(verifier) => verifier.verify(&verified, &proof, &said, now),
                None => fresh().verify(&verified, &proof, &said, now),
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
        Subject::new("delegate", || {
            let key = classical.signers[0].key().clone();
            let _ = black_box(Signer::new(classical.credential.clone(), key));
        }),
        Subject::new("sign 1", sign(&classical, 1, 1)),
        Subject::new("sign 64", sign(&classical, 1, 64)),
        Subject::new("sign 64 of 64 authors", sign(&classical, 64, 1)),
        Subject::new("verify 1", verify(&alone)),
        Subject::new("verify 64", verify(&classical.together)),
        Subject::new("verify 64 of 64 authors", verify(&of_many)),
        Subject::new(
            "verify 1 of 64 elsewhere",
            verify_elsewhere(&classical, &one, None),
        ),
        Subject::new(
            "verify 1 of 64 elsewhere, after another",
            verify_elsewhere(&classical, &one, Some(fresh())),
        ),
        Subject::new("ML-DSA-65, sign", || {
            let _ = black_box(quantum.credential.sign_proof(black_box(&MESSAGE)));
        }),
        Subject::new("ML-DSA-65, verify", || {
            black_box(quantum_key.verifies(black_box(&MESSAGE), &quantum_signature));
        }),
        Subject::new("sign 64 with ML-DSA-65", sign(&quantum, 1, 64)),
        Subject::new("verify 64 with ML-DSA-65", verify(&quantum.together)),
        Subject::new(
            "verify 1 of 64 elsewhere with ML-DSA-65",
            verify_elsewhere(&quantum, &quantum_one, None),
        ),
        Subject::new("agree on a secret to seal with", || {
            let _ = black_box(begin());
        }),
        Subject::new("seal, with a known secret", || {
            let _ = black_box(row.seal(black_box(&message)));
        }),
        Subject::new("open, with a known secret", || open(black_box(&sealed))),
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
    let of_many = (of("sign 64 of 64 authors") + of("verify 64 of 64 authors")) / 64.0;
    println!("Of 64 authors: {of_many:.2} µs more for each message, at both ends together.");
}
