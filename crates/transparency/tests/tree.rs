//! The Merkle log against the definitions of RFC 9162, known answers, and tampering.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use sealbus_transparency::{
    Hash, LogError, LogFile, MerkleLog, TileReader, Tiles, consistency_proof, inclusion_proof,
    leaf_hash, verify_consistency, verify_inclusion,
};

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
            let proof = inclusion_proof(tree, size as u64, index as u64).unwrap();
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
            let proof = consistency_proof(tree, size as u64, old as u64).unwrap();
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
        assert!(inclusion_proof(tree, size as u64, size as u64).is_err());
        assert!(consistency_proof(tree, size as u64, size as u64 + 1).is_err());
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
        let proof = consistency_proof(&*hashes(&leaves), log.size(), cut as u64).unwrap();
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
        let proof = consistency_proof(&*hashes(&rewritten), rewritten.len() as u64, old as u64).unwrap();
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

/// All tiles that a log of these hashes ever had.
fn tiles_of(hashes: &[Hash]) -> (Tiles, std::collections::BTreeMap<LogFile, Vec<u8>>) {
    let mut tiles = Tiles::default();
    let mut files = std::collections::BTreeMap::new();
    for hash in hashes {
        files.extend(tiles.append(*hash));
    }
    files.extend(tiles.partial());
    (tiles, files)
}

fn many(count: u32) -> Vec<Hash> {
    (0..count)
        .map(|number| leaf_hash(&number.to_be_bytes()))
        .collect()
}

#[test]
fn tiles_hold_the_hashes_of_their_level() {
    let hashes = many(256 * 256 + 256 + 3);
    let (tiles, files) = tiles_of(&hashes);
    let levels: Vec<String> = tiles.partial().map(|(file, _)| file.to_string()).collect();
    assert_eq!(
        levels,
        ["tile/0/257.p/3", "tile/1/001.p/1", "tile/2/000.p/1"]
    );
    let file = |path: &str| &files[&path.parse().unwrap()];
    assert_eq!(*file("tile/0/005"), hashes[5 * 256..6 * 256].concat());
    let root = |range: std::ops::Range<usize>| {
        MerkleLog::from_leaf_hashes(hashes[range].iter().copied()).root()
    };
    assert_eq!(file("tile/1/000")[7 * 32..8 * 32], root(7 * 256..8 * 256));
    assert_eq!(**file("tile/2/000.p/1"), root(0..65536));
}

#[test]
fn a_tree_is_restored_from_its_right_edge_and_from_no_other() {
    for count in [0, 1, 255, 256, 257, 65536, 65536 + 512, 70_000] {
        let (tiles, files) = tiles_of(&many(count));
        let read = |file: LogFile| Ok(files[&file].clone());
        let restored = Tiles::restore(tiles.log().clone(), read).unwrap();
        assert_eq!(restored, tiles, "{count}");
        for changed in Tiles::partial_of(count.into()) {
            let read = |file: LogFile| {
                let mut bytes = files[&file].clone();
                if file == changed {
                    bytes[31] ^= 1;
                }
                Ok(bytes)
            };
            let error = Tiles::restore(tiles.log().clone(), read).unwrap_err();
            assert!(
                matches!(error, LogError::Damaged { file, .. } if file == changed),
                "{error}"
            );
        }
    }
}

#[test]
fn proofs_from_tiles_are_those_from_all_hashes() {
    let hashes = many(66_000);
    for size in [1_u64, 255, 256, 257, 700, 65_535, 65_536, 66_000] {
        let tree = &hashes[..size as usize];
        let (_, files) = tiles_of(tree);
        let reader = || TileReader::new(size, |file: LogFile| Ok(files[&file].clone()));
        for index in [0, 1, 254, 255, 256, 300, 699, 65_535].map(|at| at % size) {
            let proof = inclusion_proof(reader(), size, index).unwrap();
            assert_eq!(
                proof,
                inclusion_proof(tree, size, index).unwrap(),
                "{index} in {size}"
            );
            let proof = consistency_proof(reader(), size, index).unwrap();
            assert_eq!(
                proof,
                consistency_proof(tree, size, index).unwrap(),
                "{index} to {size}"
            );
        }
    }
}

/// A million entries keep the memory of the tree below 30 kB.
#[test]
fn a_long_log_needs_its_right_edge_alone() {
    let mut tiles = Tiles::default();
    let hash = leaf_hash(b"one");
    let written: usize = (0..1_000_000).map(|_| tiles.append(hash).len()).sum();
    assert_eq!(written, 1_000_000 / 256 + 1_000_000 / 65_536);
    let held: usize = tiles.partial().map(|(_, bytes)| bytes.len()).sum();
    assert!(held <= 3 * 255 * 32, "{held}");
}
