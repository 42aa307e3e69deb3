// SPDX-License-Identifier: GPL-2.0

//! How many used buffers are held back, and which may share an entry.

use proptest::prelude::*;
use vhost_vsock_logic::used::{batch_limit, may_skip};

/// All sizes that a split ring may have.
fn ring_sizes() -> impl Iterator<Item = u32> {
    (0..=15).map(|shift| 1 << shift)
}

/// With the module's own numbers: arrays of 1024 entries, 256 packets a pass.
#[test]
fn a_batch_is_the_ring_or_a_pass() {
    for size in ring_sizes() {
        assert_eq!(
            batch_limit(size, 1024, 256, true),
            if size < 256 { size } else { 256 },
            "ring of {size}"
        );
        assert_eq!(
            batch_limit(size, 1024, 256, false),
            1,
            "ring of {size}, no batches"
        );
    }
}

#[test]
fn a_batch_is_as_large_as_its_bounds_allow() {
    for size in ring_sizes() {
        for capacity in [1, 2, 127, 1024, u32::MAX] {
            for budget in [1, 2, 255, 256, u32::MAX] {
                let limit = batch_limit(size, capacity, budget, true);
                assert!(limit >= 1);
                for bound in [size, capacity, budget] {
                    assert!(limit <= bound, "{limit} of {size}, {capacity}, {budget}");
                }
                assert!(
                    [size, capacity, budget].contains(&limit),
                    "{limit} could be more: {size}, {capacity}, {budget}"
                );
            }
        }
    }
}

/// Even numbers that make no sense leave a limit with which a pass gets on.
#[test]
fn a_batch_is_never_empty() {
    for (size, capacity, budget) in [(0, 1024, 256), (128, 0, 256), (128, 1024, 0), (0, 0, 0)] {
        for batching in [false, true] {
            assert_eq!(batch_limit(size, capacity, budget, batching), 1);
        }
    }
}

/// A used entry of an in-order ring: the last buffer that it covers, and what was written there.
struct Entry {
    last: usize,
    written: usize,
}

/// The device: gives one entry for several buffers where the rule allows it.
fn report(buffers: &[(usize, usize)]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut may_replace = false;
    for (last, &(capacity, written)) in buffers.iter().enumerate() {
        if may_replace {
            entries.pop();
        }
        entries.push(Entry { last, written });
        may_replace = may_skip(capacity, written);
    }
    entries
}

/// The driver of the guest: a buffer that was skipped counts as filled (virtio 1.3, 2.7.9).
fn understand(entries: &[Entry], buffers: &[(usize, usize)]) -> Vec<usize> {
    let mut written = Vec::new();
    for entry in entries {
        while written.len() < entry.last {
            written.push(buffers[written.len()].0);
        }
        written.push(entry.written);
    }
    written
}

proptest! {
    /// However RX buffers were filled, the guest understands how much is in each.
    #[test]
    fn a_guest_understands_skipped_entries(
        buffers in prop::collection::vec(
            (0..5000usize, prop_oneof![2 => Just(usize::MAX), 1 => 0..5000usize]), 0..300,
        ),
    ) {
        let buffers: Vec<(usize, usize)> = buffers
            .into_iter()
            .map(|(capacity, written)| (capacity, written.min(capacity)))
            .collect();
        let truth: Vec<usize> = buffers.iter().map(|(_, written)| *written).collect();
        prop_assert_eq!(understand(&report(&buffers), &buffers), truth);
    }

    /// TX buffers have nothing to fill: any number of them is told by one entry.
    #[test]
    fn tx_buffers_share_one_entry(count in 1..1000usize) {
        prop_assert_eq!(report(&vec![(0, 0); count]).len(), 1);
    }
}
