//! Any bytes as the first bundle of a log: an audit takes its entries as they are, with the tiles and the root that follow from
//! them and with no others. No proof is believed but the one that the tree has; it is cut at the place that the first byte says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealbus_seal::Timestamp;
use sealbus_transparency::{
    Audit, Checkpoint, Hash, IssuanceRecord, LogFile, TILE_WIDTH, Tiles, consistency_proof,
    inclusion_length, inclusion_proof, leaf_hash, read_bundle, tree_root, verify_consistency,
    verify_inclusion,
};

/// The number of entries that begin in a bundle.
fn count(bundle: &[u8]) -> usize {
    let (mut rest, mut count) = (bundle, 0);
    while let Some((length, after)) = rest.split_first_chunk() {
        rest = after
            .get(usize::from(u16::from_be_bytes(*length))..)
            .unwrap_or_default();
        count += 1;
    }
    count
}

/// Others made the record: its instants are such as certificates have, and it is written so that it is read again.
fn check_record(record: &IssuanceRecord) {
    let instants = [record.not_before, record.not_after, record.issued_at];
    assert!(instants.iter().all(|at| *at <= Timestamp::MAX));
    let leaf = record.to_leaf().expect("it has a form");
    assert_eq!(IssuanceRecord::from_leaf(&leaf).as_ref(), Ok(record));
}

fn check_proofs(leaves: &[Hash], root: &Hash, cut: u64, proof: &[Hash]) {
    let size = leaves.len() as u64;
    let old = cut % (size + 1);
    let old_root = tree_root(&leaves[..old as usize]);
    let right = consistency_proof(leaves, size, old).expect("it is no longer than the tree");
    for (proof, is_right) in [(&right[..], true), (proof, proof == right)] {
        let verified = verify_consistency(old, &old_root, size, root, proof);
        assert_eq!(verified.is_ok(), is_right);
    }
    let index = cut % size;
    let leaf = &leaves[index as usize];
    let right = inclusion_proof(leaves, size, index).expect("it is in the tree");
    assert_eq!(inclusion_length(size, index).ok(), Some(right.len()));
    for (proof, is_right) in [(&right[..], true), (proof, proof == right)] {
        let verified = verify_inclusion(leaf, index, size, root, proof);
        assert_eq!(verified.is_ok(), is_right);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bundle)) = bytes.split_first() else {
        return;
    };
    let width = count(bundle).clamp(1, usize::from(TILE_WIDTH)) as u16;
    let first = LogFile::Entries { index: 0, width };
    let Ok(entries) = read_bundle(first, bundle) else {
        return;
    };
    for entry in &entries {
        if let Ok(record) = IssuanceRecord::from_leaf(entry) {
            check_record(&record);
        }
    }
    let leaves: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
    let mut log = Tiles::default();
    let mut tiles = Vec::new();
    for leaf in &leaves {
        tiles.extend(log.append(*leaf));
    }
    tiles.extend(log.partial());
    let root = log.log().root();
    for is_right in [true, false] {
        let mut target = Checkpoint {
            origin: "log".to_owned(),
            size: width.into(),
            root,
        };
        target.root[0] ^= u8::from(!is_right);
        let mut audit = Audit::new(target);
        let read = audit.give(first, bundle).expect("its entries");
        assert!(
            read.iter()
                .map(|it| &it.leaf[..])
                .eq(entries.iter().copied())
        );
        while let Some(wanted) = audit.wants() {
            let tile = tiles.iter().find(|(file, _)| *file == wanted);
            let (_, hashes) = tile.expect("a tile of the log");
            assert!(audit.give(wanted, hashes).is_ok());
        }
        assert_eq!(audit.finish().is_ok(), is_right);
    }
    let mut audit = Audit::new(Checkpoint {
        origin: "log".to_owned(),
        size: width.into(),
        root,
    });
    let given = audit.give(first, bundle);
    let (tile, hashes) = (audit.wants(), tiles.first().map(|(_, hashes)| &hashes[..]));
    if let (Ok(_), Some(tile)) = (given, tile) {
        assert_eq!(audit.give(tile, bundle).is_ok(), hashes == Some(bundle));
    }
    check_proofs(&leaves, &root, cut.into(), bundle.as_chunks().0);
});
