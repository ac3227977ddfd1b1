//! Proofs for successive leaves.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use sealbus_transparency::{
    Hash, LogError, MerkleLog, TreeRange, WholeTree, inclusion_proof, leaf_hash, range_proof,
    range_proof_length,
};

fn leaves(size: u64) -> Vec<Hash> {
    (0..size)
        .map(|leaf| leaf_hash(&leaf.to_be_bytes()))
        .collect()
}

fn within(leaves: &[Hash], range: &std::ops::Range<u64>) -> Vec<Hash> {
    leaves[range.start as usize..range.end as usize].to_vec()
}

/// A tree of up to 300 leaves and a part of them.
fn tree_and_range() -> impl Strategy<Value = (u64, std::ops::Range<u64>)> {
    (1u64..300).prop_flat_map(|size| {
        (0..size, 1..=size)
            .prop_map(move |(start, length)| (size, start..(start + length).min(size)))
    })
}

proptest! {
    #[test]
    fn the_proof_of_any_range_leads_to_the_root((size, range) in tree_and_range()) {
        let all = leaves(size);
        let root = MerkleLog::from_leaf_hashes(all.iter().copied()).root();
        let tree = WholeTree::new(all.clone());
        prop_assert_eq!(tree.root(), root);
        let proof = range_proof(&tree, size, &range).unwrap();
        prop_assert_eq!(&proof, &range_proof(&all[..], size, &range).unwrap());
        prop_assert_eq!(proof.len(), range_proof_length(size, &range).unwrap());
        let part = within(&all, &range);
        let found = TreeRange::new(size, range.start, &part, &proof).unwrap();
        prop_assert_eq!(found.root().unwrap(), root);
    }

    #[test]
    fn one_leaf_has_the_hashes_of_its_inclusion_proof(size in 1u64..300, index in any::<prop::sample::Index>()) {
        let all = leaves(size);
        let index = index.index(size as usize) as u64;
        let mut proof = range_proof(&WholeTree::new(all.clone()), size, &(index..index + 1)).unwrap();
        let mut inclusion = inclusion_proof(&all[..], size, index).unwrap();
        proof.sort_unstable();
        inclusion.sort_unstable();
        prop_assert_eq!(proof, inclusion);
    }

    #[test]
    fn a_range_gives_the_proofs_of_its_parts((size, range) in tree_and_range(), from in any::<prop::sample::Index>()) {
        let all = leaves(size);
        let tree = WholeTree::new(all.clone());
        let proof = range_proof(&tree, size, &range).unwrap();
        let part = within(&all, &range);
        let known = TreeRange::new(size, range.start, &part, &proof).unwrap();
        let start = range.start + from.index(part.len()) as u64;
        for narrower in [start..start + 1, start..range.end, range.start..start + 1] {
            prop_assert_eq!(
                range_proof(&known, size, &narrower).unwrap(),
                range_proof(&tree, size, &narrower).unwrap()
            );
        }
    }

    #[test]
    fn another_leaf_place_or_hash_leads_elsewhere((size, range) in tree_and_range(), at in any::<prop::sample::Index>()) {
        let all = leaves(size);
        let tree = WholeTree::new(all.clone());
        let proof = range_proof(&tree, size, &range).unwrap();
        let part = within(&all, &range);
        let root = |size, start, leaves: &[Hash], proof: &[Hash]| {
            TreeRange::new(size, start, leaves, proof).and_then(|it| it.root())
        };
        let mut changed = part.clone();
        changed[at.index(part.len())][7] ^= 1;
        prop_assert_ne!(root(size, range.start, &changed, &proof), Ok(tree.root()));
        if !proof.is_empty() {
            let mut changed = proof.clone();
            changed[at.index(proof.len())][31] ^= 0x80;
            prop_assert_ne!(root(size, range.start, &part, &changed), Ok(tree.root()));
        }
        for start in [range.start + 1, range.start.wrapping_sub(1)] {
            prop_assert_ne!(root(size, start, &part, &proof), Ok(tree.root()));
        }
    }
}

#[test]
fn impossible_ranges_are_refused() {
    let all = leaves(6);
    let tree = WholeTree::new(all.clone());
    for range in [0..0, 3..3, 5..7, 6..7, 0..7] {
        assert!(matches!(
            range_proof(&tree, 6, &range),
            Err(LogError::Beyond { .. })
        ));
        assert!(range_proof_length(6, &range).is_err());
    }
    let proof = range_proof(&tree, 6, &(2..4)).unwrap();
    assert_eq!(proof.len(), 2);
    assert!(TreeRange::new(6, 2, &all[2..4], &proof[..1]).is_err());
    assert!(TreeRange::new(6, 2, &all[2..4], &[proof[0]; 3]).is_err());
    assert!(TreeRange::new(6, u64::MAX, &all[2..4], &proof).is_err());
    assert!(TreeRange::new(6, 2, &[], &proof).is_err());
    // A tree of the greatest size is walked, not built.
    assert_eq!(range_proof_length(u64::MAX, &(7..8)).unwrap(), 64);
    assert_eq!(WholeTree::new(Vec::new()).root(), MerkleLog::new().root());
}
