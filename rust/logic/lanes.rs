// SPDX-License-Identifier: GPL-2.0

//! How the send queue is shared among flows.
//!
//! Waiting packets are kept in lanes; a flow always has the same lane, so its order is that of one
//! FIFO, and lanes are served in turn, so one flow does not hold up all others.

use super::header::Flow;

/// Number of lanes of a guest: as many as a `u64` has bits.
pub const LANES: usize = 64;

/// Bytes after which a flow lets others go first.
///
/// Some buffers' worth: fewer would wake the guest's sockets in turn for every buffer, and many
/// more would hold up a flow that has little to say.
pub const TURN_BYTES: usize = 16 * 1024;

/// The lane of a flow.
///
/// Both ports are mixed, since a server has many flows from one port, a client many to one, and
/// ports are given out in sequence at both ends.
#[inline]
pub fn lane_of(flow: &Flow) -> usize {
    let mixed = flow.src_port.wrapping_mul(0x9E37_79B1) ^ flow.dst_port;
    (mixed.wrapping_mul(0x61C8_8647) >> 26) as usize
}

/// Whether a flow that has sent `bytes` bytes in its turn makes way for those in `waiting`, the
/// lanes that have packets; its own is `lane`.
#[inline]
pub fn turn_is_over(bytes: usize, waiting: impl FnOnce() -> u64, lane: usize) -> bool {
    bytes >= TURN_BYTES && waiting() & !(1 << lane) != 0
}

/// The first lane after `last`, in a circle, whose bit is set in `waiting`.
#[inline]
pub fn next(waiting: u64, last: usize) -> Option<usize> {
    if waiting == 0 {
        return None;
    }
    let first = (last + 1) % LANES;
    let turned = waiting.rotate_right(first as u32);
    Some((first + turned.trailing_zeros() as usize) % LANES)
}
