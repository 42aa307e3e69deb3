// SPDX-License-Identifier: GPL-2.0

//! How the send queue is shared among flows.
//!
//! Waiting packets are kept in lanes; a flow always has the same lane, so its order is that of one
//! FIFO, and lanes are served in turn, so one flow does not hold up all others.

use super::header::Flow;

/// Number of lanes of a guest: as many as a `u64` has bits.
pub const LANES: usize = 64;

/// The lane of a flow.
///
/// Both ports are mixed, since a server has many flows from one port and a client many to one.
#[inline]
pub fn lane_of(flow: &Flow) -> usize {
    let mixed = (flow.src_port ^ flow.dst_port.rotate_left(16)).wrapping_mul(0x61C8_8647);
    (mixed >> 26) as usize
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
