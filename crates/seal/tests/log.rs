//! The Merkle log against the definitions of RFC 9162, known answers, and tampering.
#![allow(clippy::unwrap_used)]

mod support;

use proptest::prelude::*;
use sealbus_seal::Validity;
use sealbus_seal::log::{
    Checkpoint, Hash, IssuanceRecord, LogError, MerkleLog, consistency_proof, inclusion_proof,
    leaf_hash, verify_consistency, verify_inclusion,
};
use support::{HOUR, TestPlatform};

/// MTH of RFC 9162 section 2.1.1, word by word.
fn naive_root(leaves: &[Vec<u8>]) -> Hash {
    let hash = |bytes: &[u8]| -> Hash {
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes)
            .as_ref()
            .try_into()
            .unwrap()
    };
    match leaves {
        [] => hash(&[]),
        [leaf] => hash(&[&[0], leaf.as_slice()].concat()),
        leaves => {
            let mut k = 1;
            while k * 2 < leaves.len() {
                k *= 2;
            }
            let (left, right) = (naive_root(&leaves[..k]), naive_root(&leaves[k..]));
            hash(&[&[1], &left[..], &right[..]].concat())
        }
    }
}

fn hashes(leaves: &[Vec<u8>]) -> Vec<Hash> {
    leaves.iter().map(|leaf| leaf_hash(leaf)).collect()
}

/// The test tree of the Certificate Transparency project.
#[test]
fn known_roots() {
    let leaves: [&[u8]; 8] = [
        &[],
        &[0x00],
        &[0x10],
        &[0x20, 0x21],
        &[0x30, 0x31],
        &[0x40, 0x41, 0x42, 0x43],
        &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
        &[
            0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d,
            0x6e, 0x6f,
        ],
    ];
    let roots = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    let mut log = MerkleLog::new();
    for (size, root) in roots.iter().enumerate() {
        let hexadecimal: String = log
            .root()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(&hexadecimal, root, "size {size}");
        if let Some(leaf) = leaves.get(size) {
            assert_eq!(log.append(leaf), size as u64);
        }
    }
}

#[test]
fn every_proof_of_every_small_tree_holds_and_no_altered_one_does() {
    let leaves: Vec<Vec<u8>> = (0..33u8).map(|number| vec![number]).collect();
    let hashes = hashes(&leaves);
    for size in 0..=leaves.len() {
        let tree = &hashes[..size];
        let root = MerkleLog::from_leaf_hashes(tree.iter().copied()).root();
        assert_eq!(root, naive_root(&leaves[..size]));
        for index in 0..size {
            let proof = inclusion_proof(tree, index as u64).unwrap();
            let verify = |leaf, index, proof: &[Hash]| {
                verify_inclusion(leaf, index, size as u64, &root, proof)
            };
            verify(&hashes[index], index as u64, &proof).unwrap();
            for wrong in (0..=size).filter(|wrong| *wrong != index) {
                verify(&hashes[index], wrong as u64, &proof).unwrap_err();
            }
            verify(&hashes[(index + 1) % hashes.len()], index as u64, &proof).unwrap_err();
            for position in 0..proof.len() {
                let mut altered = proof.clone();
                altered[position][0] ^= 1;
                verify(&hashes[index], index as u64, &altered).unwrap_err();
            }
            let higher = 2 * size.next_power_of_two() as u64;
            verify_inclusion(&hashes[index], index as u64, higher, &root, &proof).unwrap_err();
            let mut longer = proof.clone();
            longer.push([0; 32]);
            verify(&hashes[index], index as u64, &longer).unwrap_err();
            if let Some((_, shorter)) = proof.split_last() {
                verify(&hashes[index], index as u64, shorter).unwrap_err();
            }
        }
        for old in 0..=size {
            let old_root = naive_root(&leaves[..old]);
            let proof = consistency_proof(tree, old as u64).unwrap();
            let verify = |old_root, new_root, proof: &[Hash]| {
                verify_consistency(old as u64, old_root, size as u64, new_root, proof)
            };
            verify(&old_root, &root, &proof).unwrap();
            verify(&[9; 32], &root, &proof).unwrap_err();
            if old > 0 {
                verify(&old_root, &[9; 32], &proof).unwrap_err();
            }
            for position in 0..proof.len() {
                let mut altered = proof.clone();
                altered[position][31] ^= 1;
                verify(&old_root, &root, &altered).unwrap_err();
            }
            if old > 0 && old < size {
                // The same hashes do not prove a tree that is one level higher.
                let higher = 2 * size.next_power_of_two() as u64;
                verify_consistency(old as u64, &old_root, higher, &root, &proof).unwrap_err();
            }
            let mut longer = proof;
            longer.push([0; 32]);
            verify(&old_root, &root, &longer).unwrap_err();
        }
        assert!(inclusion_proof(tree, size as u64).is_err());
        assert!(consistency_proof(tree, size as u64 + 1).is_err());
    }
}

proptest! {
    #[test]
    fn appending_gives_the_tree_of_the_definition(
        leaves in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..8), 0..200),
        cut in any::<prop::sample::Index>(),
    ) {
        // The frontier is stored between the two halves, as on disk.
        let cut = cut.index(leaves.len() + 1);
        let half = MerkleLog::from_leaf_hashes(hashes(&leaves[..cut]));
        let mut log = MerkleLog::from_frontier(half.size(), half.frontier().to_vec()).unwrap();
        for leaf in &leaves[cut..] {
            log.append(leaf);
        }
        prop_assert_eq!(log.size(), leaves.len() as u64);
        prop_assert_eq!(log.root(), naive_root(&leaves));
        let proof = consistency_proof(&hashes(&leaves), cut as u64).unwrap();
        verify_consistency(cut as u64, &half.root(), log.size(), &log.root(), &proof).unwrap();
    }

    #[test]
    fn hostile_proofs_never_panic(
        index in any::<u64>(), old in any::<u64>(), size in any::<u64>(), root in any::<Hash>(),
        proof in prop::collection::vec(any::<Hash>(), 0..70),
    ) {
        prop_assert!(verify_inclusion(&[0; 32], index, size, &root, &proof).is_err());
        if old != size {
            prop_assert!(verify_consistency(old, &[0; 32], size, &root, &proof).is_err());
        }
    }

    #[test]
    fn rewritten_history_is_noticed(
        leaves in prop::collection::vec(any::<[u8; 4]>(), 2..80),
        changed in any::<prop::sample::Index>(), old in any::<prop::sample::Index>(),
    ) {
        let old = 1 + old.index(leaves.len());
        let changed = changed.index(old);
        let honest: Vec<Vec<u8>> = leaves.iter().map(|leaf| leaf.to_vec()).collect();
        let mut rewritten = honest.clone();
        rewritten[changed].push(0);
        let proof = consistency_proof(&hashes(&rewritten), old as u64).unwrap();
        let result = verify_consistency(
            old as u64, &naive_root(&honest[..old]),
            leaves.len() as u64, &naive_root(&rewritten), &proof,
        );
        prop_assert!(result.is_err());
    }
}

#[test]
fn a_frontier_must_fit_its_size() {
    assert!(MerkleLog::from_frontier(0, vec![]).is_ok());
    assert!(matches!(
        MerkleLog::from_frontier(5, vec![[0; 32]]),
        Err(LogError::Frontier {
            size: 5,
            expected: 2,
            found: 1
        })
    ));
}

#[test]
fn an_issuance_is_recorded_and_audited_with_the_data_alone() {
    let platform = TestPlatform::new("factory");
    let mut log = MerkleLog::new();
    let mut leaves = Vec::new();
    for number in 0..5 {
        let identity = platform.agent(&format!("a{number}"));
        let (_, issued) = platform.issue(&identity, Validity::starting(platform.now, HOUR));
        let record = IssuanceRecord::of(
            &issued.certificate,
            issued.chain.leaf(),
            Some(&platform.node("node-1")),
            platform.authority.identity(),
            platform.now,
        );
        let leaf = record.to_leaf().unwrap();
        assert_eq!(
            serde_json::from_slice::<IssuanceRecord>(&leaf).unwrap(),
            record
        );
        log.append(&leaf);
        leaves.push(leaf);
    }
    let note = log.checkpoint(&platform.authority).unwrap();
    let authority = platform.authority.identity();
    let key = platform.authority.certificate().public_key();
    let checkpoint = Checkpoint::open(&note, authority, key).unwrap();
    assert_eq!((checkpoint.size, checkpoint.root), (5, naive_root(&leaves)));
    let proof = inclusion_proof(&hashes(&leaves), 3).unwrap();
    verify_inclusion(
        &leaf_hash(&leaves[3]),
        3,
        checkpoint.size,
        &checkpoint.root,
        &proof,
    )
    .unwrap();
}

#[test]
fn checkpoints_are_signed_notes() {
    let platform = TestPlatform::new("factory");
    let mut log = MerkleLog::new();
    log.append(b"one");
    let note = log.checkpoint(&platform.authority).unwrap();
    let authority = platform.authority.identity();
    let key = platform.authority.certificate().public_key();
    let lines: Vec<_> = note.lines().collect();
    assert_eq!(lines[0], "spiffe://factory/authority/ca-1/issuance");
    assert_eq!(lines[1], "1");
    assert_eq!(lines[3], "");
    assert!(lines[4].starts_with("\u{2014} spiffe://factory/authority/ca-1/issuance "));

    let open = |note: &str| Checkpoint::open(note, authority, key);
    assert!(open(&note).is_ok());
    for (from, to) in [
        ("\n1\n", "\n2\n"),
        ("ca-1", "ca-2"),
        ("\n1\n", "\n01\n"),
        ("\n\n", "\n"),
    ] {
        assert!(open(&note.replacen(from, to, 1)).is_err(), "{from:?}");
    }
    let foreign = TestPlatform::new("factory");
    let forged = log.checkpoint(&foreign.authority).unwrap();
    assert_eq!(open(&forged), Err(LogError::NotSigned(authority.clone())));
    // Another witness's signature beside the true one does no harm.
    let both = format!("{note}{}", forged.lines().last().unwrap());
    assert!(open(&both).is_ok());
}
