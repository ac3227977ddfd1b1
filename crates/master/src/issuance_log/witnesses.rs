//! The witnesses of the issuance log: every node, and those that the manifest names.

use std::fmt;
use std::time::Duration;

use hyper::{Request, Uri};
use sealbus_control::Blob;
use sealbus_control::clock::{now, timestamp};
use sealbus_control::correspondence::Correspondent;
use sealbus_control::node::{Cosigning, ask_node};
use sealbus_seal::{CertificateChain, Identity, Trust};
use sealbus_transparency::{AddCheckpoint, KeyKind, Note, NoteKey, NoteSignature};
use sealbus_web::Client;
use tokio::net::TcpStream;

/// How long a node may take to cosign.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an outside witness may take to accept the connection, and to answer.
const OUTSIDE_PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer of an outside witness, in bytes.
const LONGEST_ANSWER: usize = 16 * 1024;

/// A witness that is no part of the platform (C2SP tlog-witness).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideWitness {
    /// `host:port`, reached over plain HTTP: requests are public, and answers are signed.
    pub host: String,
    /// The path before `/add-checkpoint`.
    pub path: String,
    /// The witness's name and key.
    pub key: NoteKey,
}

/// The way to a witness. Its text form is the witness's name for people.
pub(super) enum Way {
    Node(String),
    Outside(OutsideWitness),
}

/// A witness's answer.
pub(super) enum WitnessAnswer {
    Cosigned {
        signature: NoteSignature,
        /// The certificates of a node.
        chain: Option<CertificateChain>,
    },
    Seen {
        size: u64,
    },
    Alarm {
        why: String,
    },
    None {
        why: String,
    },
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => f.write_str(name),
            Self::Outside(witness) => f.write_str(witness.key.name()),
        }
    }
}

impl Way {
    /// Asks for a cosignature, and checks it.
    pub(super) async fn ask(
        &self,
        master: &Correspondent,
        request: &AddCheckpoint,
        authority: &CertificateChain,
        trust: &Trust,
    ) -> WitnessAnswer {
        let asked = match self {
            Self::Node(node) => ask_node_of(node, master, request, authority, trust).await,
            Self::Outside(witness) => ask_outside(witness, request).await,
        };
        asked.unwrap_or_else(|why| WitnessAnswer::None { why })
    }
}

async fn ask_node_of(
    node: &str,
    master: &Correspondent,
    request: &AddCheckpoint,
    authority: &CertificateChain,
    trust: &Trust,
) -> Result<WitnessAnswer, String> {
    let mut encoded = Vec::new();
    authority.encode(&mut encoded);
    let asking = ask_node::Cosign {
        request: request.to_string(),
        authority: Blob(encoded),
    };
    let answer = master.ask(node, asking, PATIENCE).await;
    let (signature, chain) = match answer.map_err(|fault| fault.to_string())? {
        Cosigning::Seen { size } => return Ok(WitnessAnswer::Seen { size }),
        Cosigning::Alarm { why } => return Ok(WitnessAnswer::Alarm { why }),
        Cosigning::Cosigned { signature, chain } => (signature, chain),
    };
    let chain = CertificateChain::decode(&chain.0).map_err(|error| error.to_string())?;
    let verified = trust
        .verify(&chain, timestamp(now()))
        .map_err(|error| error.to_string())?;
    let identity = verified.identity();
    if !matches!(identity, Identity::Node { name, .. } if name.as_str() == node) {
        return Err(format!("{identity} answered instead"));
    }
    let name = identity.to_string();
    let key = NoteKey::new(&name, KeyKind::Witness, *verified.public_key());
    let key = key.map_err(|error| error.to_string())?;
    let signature = checked(&request.note, &signature, &key)?;
    let chain = Some(chain);
    Ok(WitnessAnswer::Cosigned { signature, chain })
}

async fn ask_outside(
    witness: &OutsideWitness,
    request: &AddCheckpoint,
) -> Result<WitnessAnswer, String> {
    let url = format!("http://{}{}/add-checkpoint", witness.host, witness.path);
    let post = Request::post(url).body(request.to_string());
    let post = post.map_err(|error| error.to_string())?;
    let http = Client::over(connect);
    let asked = http.fetch(post, LONGEST_ANSWER, OUTSIDE_PATIENCE).await;
    let answer = asked.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(answer.body());
    match answer.status().as_u16() {
        200 => {
            let signatures = text.lines();
            let signature = signatures
                .filter_map(|line| checked(&request.note, line, &witness.key).ok())
                .next()
                .ok_or("its answer has no signature of its key")?;
            let chain = None;
            Ok(WitnessAnswer::Cosigned { signature, chain })
        }
        409 => {
            let size = text.trim_end_matches('\n').parse();
            let size = size.map_err(|_| "it did not say which size it saw last")?;
            Ok(WitnessAnswer::Seen { size })
        }
        422 => Ok(WitnessAnswer::Alarm {
            why: "it does not accept that the log continues the one that it saw before".to_owned(),
        }),
        status => Err(format!("it answered {status}")),
    }
}

/// Connects to the host and port of a URL.
async fn connect(url: Uri) -> Result<TcpStream, String> {
    let host = url.authority().map_or("", |host| host.as_str());
    TcpStream::connect(host)
        .await
        .map_err(|error| error.to_string())
}

/// Reads a signature, and checks that it is the witness's of this checkpoint.
fn checked(note: &Note, line: &str, key: &NoteKey) -> Result<NoteSignature, String> {
    let check = || {
        let signature = NoteSignature::parse(line)?;
        let mut alone = note.clone();
        alone.add(signature.clone());
        alone.verify(key)?;
        // Only this key's signature counts.
        Ok(signature)
    };
    check().map_err(|error: sealbus_transparency::LogError| error.to_string())
}
