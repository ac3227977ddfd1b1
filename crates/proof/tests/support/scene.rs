//! A log, an author in it, and files of evidence about the author's messages.

use aws_lc_rs::digest::{SHA256, digest};
use sealbus_fipa::{AclMessage, Aid, Performative, bitefficient};
use sealbus_proof::{
    Blob, CertificateLine, Demands, EarlierLine, EvidenceHead, EvidenceLine, FILE_VERSION, Hash,
    LogLine, MessageLine, Report, Statement, inspect, write_file,
};
use sealbus_seal::denylist::DenyList;
use sealbus_seal::encryption::{Commitment, Salt};
use sealbus_seal::{Certificate, KeyPair, Timestamp};
use sealbus_transparency::{
    Checkpoint, IssuanceRecord, MerkleLog, Note, WholeTree, consistency_proof, inclusion_proof,
    leaf_hash,
};

use super::{Author, NOW, Said, TestPlatform, encoded};

/// A platform, its log, and an author with three messages.
pub(crate) struct Scene {
    pub(crate) platform: TestPlatform,
    pub(crate) author: Author,
    beside: Author,
    entries: Vec<Vec<u8>>,
    pub(crate) deny_list: DenyList,
}

fn base64(hashes: Vec<Hash>) -> Vec<Blob> {
    hashes.into_iter().map(|hash| Blob(hash.to_vec())).collect()
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(|platform| platform.author("buyer-1"))
    }

    pub(crate) fn with(author: impl FnOnce(&TestPlatform) -> Author) -> Self {
        let platform = TestPlatform::new("factory");
        let author = author(&platform);
        let beside = platform.author("buyer-2");
        let others = ["seller-1", "seller-2"].map(|name| platform.author(name));
        let entry = |author: &Author| {
            let der = author.credential.chain().leaf();
            let certificate = Certificate::parse(der).unwrap();
            let authority = platform.authority.identity();
            let at = Timestamp::from_unix_seconds(NOW / 1000);
            let record = IssuanceRecord::of(&certificate, der, None, authority, at);
            record.to_leaf().unwrap()
        };
        Self {
            entries: vec![entry(&others[0]), entry(&author), entry(&others[1])],
            deny_list: DenyList::new(platform.authority.identity().clone()),
            platform,
            author,
            beside,
        }
    }

    fn tree(&self, size: usize) -> WholeTree {
        let leaves = self.entries[..size].iter();
        WholeTree::new(leaves.map(|leaf| leaf_hash(leaf)).collect())
    }

    /// The checkpoint of the first entries.
    pub(crate) fn checkpoint(&self, size: usize) -> Note {
        let leaves = self.entries[..size].iter();
        let log = MerkleLog::from_leaf_hashes(leaves.map(|leaf| leaf_hash(leaf)));
        let authority = &self.platform.authority;
        let checkpoint = Checkpoint::of(authority.identity(), &log);
        let mut note = checkpoint.sign(authority).unwrap();
        let witness = KeyPair::generate().unwrap();
        let at = Timestamp::from_unix_seconds(NOW / 1000);
        // Somebody unknown cosigned it, too.
        note.add(checkpoint.cosign("w.example", &witness, at).unwrap());
        note
    }

    /// The message with this content, as `sender` writes it.
    pub(crate) fn message(sender: &str, content: &str) -> Vec<u8> {
        let message = AclMessage::new(Performative::Inform)
            .with_sender(Aid::new(sender).unwrap())
            .with_receiver(Aid::new("seller-1@factory").unwrap())
            .with_conversation_id("order-17")
            .with_content(content);
        let mut bytes = Vec::new();
        bitefficient::encode(&message, &mut bytes).unwrap();
        bytes
    }

    /// A file with the log as it was with `size` entries.
    pub(crate) fn lines(&self, size: usize, sender: &str) -> Vec<EvidenceLine> {
        let messages = ["one", "two", "three"].map(|content| Self::message(sender, content));
        self.lines_of(size, messages.into())
    }

    pub(crate) fn lines_of(&self, size: usize, messages: Vec<Vec<u8>>) -> Vec<EvidenceLine> {
        let authority = &self.platform.authority;
        let tree = self.tree(size);
        let mut chain = Vec::new();
        let certificates = self.author.credential.chain().clone();
        certificates.without_inclusion().encode(&mut chain);
        let index = 1;
        let proof = inclusion_proof(&tree, tree.size(), index).unwrap_or_default();
        let mut lines = vec![
            EvidenceLine::Evidence(EvidenceHead {
                version: FILE_VERSION,
                platform: "factory".to_owned(),
                exported: NOW,
                asked: "conversation order-17".to_owned(),
                gaps: Vec::new(),
            }),
            EvidenceLine::Root(Blob(self.platform.root.clone())),
            EvidenceLine::Log(LogLine {
                authority: Blob(authority.chain().leaf().to_vec()),
                checkpoint: self.checkpoint(size).to_string(),
                witnesses: Vec::new(),
                earlier: vec![EarlierLine {
                    checkpoint: self.checkpoint(1).to_string(),
                    proof: base64(consistency_proof(&tree, tree.size(), 1).unwrap()),
                }],
            }),
            EvidenceLine::Denied(Blob(self.deny_list.sign(authority).unwrap().whole())),
            EvidenceLine::Certificate(CertificateLine {
                chain: Blob(chain),
                entry: Blob(self.entries[1].clone()),
                index,
                proof: base64(proof),
            }),
        ];
        let statement = |message| Statement::direct("seller-1@factory", message);
        let said = messages.iter().map(|message| statement(message)).collect();
        // Another agent of its process speaks in the same batch.
        let beside = (&self.beside.signer, vec![[7; 32]]);
        let batch = Said::of(&[beside, (&self.author.signer, said)], NOW).unwrap();
        for (place, message) in messages.into_iter().enumerate() {
            let proof = encoded(&batch.proof(1, place).unwrap());
            lines.push(EvidenceLine::Message(MessageLine {
                certificate: 0,
                channel: None,
                qos: String::new(),
                receivers: vec!["seller-1@factory".to_owned()],
                message: Blob(message),
                proof: Blob(proof),
            }));
        }
        lines
    }

    pub(crate) fn file(&self) -> Vec<u8> {
        write_file(&self.lines(3, "buyer-1@factory")).unwrap()
    }

    pub(crate) fn demands(&self) -> Demands {
        Demands {
            root: Some(self.platform.root.clone()),
            now: NOW,
            ..Demands::default()
        }
    }

    pub(crate) fn judged(&self, file: &[u8]) -> Result<Report, String> {
        inspect(file, &self.demands()).map_err(|error| error.to_string())
    }
}

/// The file with a last line that fits it: what a forger would write.
pub(crate) fn sealed_again(file: &[u8]) -> Vec<u8> {
    let body = &file[..file[..file.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap()
        + 1];
    let hash = data_encoding::HEXLOWER.encode(digest(&SHA256, body).as_ref());
    [body, format!("{{\"sha256\":\"{hash}\"}}\n").as_bytes()].concat()
}

/// The bytes of a sealed message before the commitment, if it brings its secret, and if it names it.
pub(crate) const WHOLE: (u8, usize) = (3, 16 + 1120 + 4);
pub(crate) const SHORT: (u8, usize) = (4, 8 + 4);

/// A message as its author seals it. Only the holder of the receiver's key can read the end.
pub(crate) fn sealed(inside: &[u8], salt: &Salt) -> Vec<u8> {
    sealed_as(WHOLE, inside, salt)
}

pub(crate) fn sealed_as((version, before): (u8, usize), inside: &[u8], salt: &Salt) -> Vec<u8> {
    let limits = sealbus_fipa::Limits::default();
    let inside_of = bitefficient::decode_ref(inside, &limits)
        .unwrap()
        .to_owned();
    let mut outer = AclMessage::new(Performative::from("sealed"));
    outer.sender.clone_from(&inside_of.sender);
    outer.receivers.clone_from(&inside_of.receivers);
    outer.conversation_id.clone_from(&inside_of.conversation_id);
    let mut content = vec![version];
    content.resize(1 + before, 7);
    content.extend_from_slice(Commitment::new(salt, inside).as_bytes());
    content.extend_from_slice(&[9; 99]);
    outer.content = Some(sealbus_fipa::Content::Bytes(content));
    let mut bytes = Vec::new();
    bitefficient::encode(&outer, &mut bytes).unwrap();
    bytes
}
