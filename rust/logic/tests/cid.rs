// SPDX-License-Identifier: GPL-2.0

//! Which CIDs a guest may have, and how the table spreads them.

use proptest::prelude::*;
use vhost_vsock_logic::cid::{bucket, for_guest, ANY, HOST};

/// Buckets of the module's table.
const BUCKETS: usize = 256;

#[test]
fn reserved_and_wide_cids_are_refused() {
    for (asked, cid) in [
        (0, None),
        (1, None),
        (2, None),
        (3, Some(3)),
        (4, Some(4)),
        (42, Some(42)),
        (0x7fff_ffff, Some(0x7fff_ffff)),
        (0x8000_0000, Some(0x8000_0000)),
        (0xffff_fffe, Some(0xffff_fffe)),
        (0xffff_ffff, None),
        (0x1_0000_0000, None),
        // 3 and 42, if the upper half were dropped.
        (0x1_0000_0003, None),
        (0x8000_0000_0000_002a, None),
        (u64::MAX, None),
    ] {
        assert_eq!(for_guest(asked), cid, "{asked:#x}");
    }
}

#[test]
fn well_known_cids_are_those_of_the_uapi() {
    assert_eq!(HOST, 2);
    assert_eq!(ANY, 0xffff_ffff);
}

/// The longest chain of a table that holds `cids`.
fn longest_chain(cids: impl Iterator<Item = u32>) -> usize {
    let mut chains = [0; BUCKETS];
    for cid in cids {
        chains[bucket(cid, BUCKETS)] += 1;
    }
    chains.into_iter().max().unwrap_or(0)
}

proptest! {
    /// A guest gets the CID that was asked for or none, never a part of it.
    #[test]
    fn a_cid_is_what_was_asked_for(asked in prop_oneof![any::<u64>(), 0..0x2_0000_0000u64]) {
        let legal = (3..0xffff_ffffu64).contains(&asked);
        prop_assert_eq!(for_guest(asked).map(u64::from), legal.then_some(asked));
    }

    #[test]
    fn a_bucket_is_in_the_table(cid in any::<u32>(), shift in 0..=16u32) {
        let buckets = 1usize << shift;
        prop_assert!(bucket(cid, buckets) < buckets);
    }

    /// Managers count CIDs up, from anywhere, in any small step: a lookup stays short.
    #[test]
    fn cids_in_sequence_spread(first in 3..0xfff0_0000u32, step in 1..=16u32) {
        let cids = (0..1024).map(|i| first + i * step);
        prop_assert!(longest_chain(cids) <= 3 * 1024 / BUCKETS);
    }

    /// So do CIDs that are drawn at random.
    #[test]
    fn random_cids_spread(cids in prop::collection::hash_set(any::<u32>(), 1024)) {
        prop_assert!(longest_chain(cids.into_iter()) <= 6 * 1024 / BUCKETS);
    }
}
