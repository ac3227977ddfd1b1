//! Inclusion proofs of trees whose leaves are all known, and the roots to which they lead.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use sealbus_transparency::{
    Hash, LogError, MerkleLog, WholeTree, inclusion_length, inclusion_proof, inclusion_root,
    leaf_hash, tree_root,
};

fn leaves(size: u64) -> Vec<Hash> {
    (0..size)
        .map(|leaf| leaf_hash(&leaf.to_be_bytes()))
        .collect()
}

proptest! {
    #[test]
    fn the_proof_of_any_leaf_leads_to_the_root(size in 1u64..300, index in any::<prop::sample::Index>()) {
        let all = leaves(size);
        let index = index.index(all.len()) as u64;
        let root = MerkleLog::from_leaf_hashes(all.iter().copied()).root();
        let tree = WholeTree::new(all.clone());
        prop_assert_eq!(tree.root(), root);
        prop_assert_eq!(tree_root(&all), root);
        let proof = inclusion_proof(&tree, size, index).unwrap();
        prop_assert_eq!(&proof, &inclusion_proof(&all[..], size, index).unwrap());
        prop_assert_eq!(proof.len(), inclusion_length(size, index).unwrap());
        let leaf = &all[index as usize];
        prop_assert_eq!(inclusion_root(leaf, index, size, &proof), Ok(root));
        // Another leaf, place, hash or length leads elsewhere.
        let elsewhere = |leaf: &Hash, index, proof: &[Hash]| {
            inclusion_root(leaf, index, size, proof) != Ok(root)
        };
        let mut changed = *leaf;
        changed[7] ^= 1;
        prop_assert!(elsewhere(&changed, index, &proof));
        prop_assert!(elsewhere(leaf, index + 1, &proof));
        prop_assert!(elsewhere(leaf, index.wrapping_sub(1), &proof));
        prop_assert!(elsewhere(leaf, index, &[&proof[..], &[root]].concat()));
        for at in 0..proof.len() {
            let mut changed = proof.clone();
            changed[at][31] ^= 0x80;
            prop_assert!(elsewhere(leaf, index, &changed));
            prop_assert!(elsewhere(leaf, index, &proof[..at]));
        }
    }
}

#[test]
fn impossible_places_are_refused() {
    let all = leaves(6);
    let tree = WholeTree::new(all.clone());
    for index in [6, 7, u64::MAX] {
        let beyond = |error| matches!(error, LogError::Beyond { .. });
        assert!(inclusion_proof(&tree, 6, index).is_err_and(beyond));
        assert!(inclusion_length(6, index).is_err_and(beyond));
        assert!(inclusion_root(&all[0], index, 6, &[]).is_err());
    }
    // A tree of the greatest size is walked, not built.
    assert_eq!(inclusion_length(u64::MAX, 7), Ok(64));
    assert_eq!(WholeTree::new(Vec::new()).root(), MerkleLog::new().root());
    assert_eq!(tree_root(&[]), MerkleLog::new().root());
}
