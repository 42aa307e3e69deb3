// SPDX-License-Identifier: GPL-2.0

//! How used buffers are gathered before they are published.

/// Most used entries that are held back before a publication.
///
/// No more than the ring has (a held entry must not be overtaken), than the arrays of the queue
/// hold, or than one pass handles.
#[inline]
pub fn batch_limit(ring_size: u32, array_capacity: u32, packet_budget: u32, batching: bool) -> u32 {
    if !batching {
        return 1;
    }
    let limit = ring_size.min(array_capacity).min(packet_budget);
    limit.max(1)
}

/// Whether a used buffer may be covered by the entry of a later one under VIRTIO_F_IN_ORDER.
///
/// A driver takes a skipped device-writable buffer as filled completely (virtio 1.3, section
/// 2.7.9), so only one that was may be skipped. A device-readable buffer has nothing to fill.
#[inline]
pub fn may_skip(capacity: usize, written: usize) -> bool {
    capacity == written
}
