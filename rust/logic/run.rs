// SPDX-License-Identifier: GPL-2.0

//! Which packets may share a buffer: runs of one flow.
//!
//! A stream has no packet boundaries: the receiver of two data packets that follow each other
//! sees the same bytes as the receiver of one packet with both payloads. That holds for plain
//! data only. A packet with flags, another operation or another type ends a run, and seqpacket
//! is left alone, since its packets carry the ends of messages.

use super::header::{Header, OP_RW, TYPE_STREAM};

/// Most packets that one run joins.
pub const MAX_PACKETS: usize = 64;

/// Payload bytes that fit into a linear packet whose memory is two pages, header and all.
pub const TWO_PAGES: usize = 7 * 1024 + 512;
/// The same for four pages.
pub const FOUR_PAGES: usize = 15 * 1024;

/// Most payload bytes that are joined to a packet of `first` bytes.
///
/// Fresh memory is zeroed, so what a run leaves unused costs as much as what it uses. Small packets
/// fill two pages well; of larger ones too few would be joined.
#[inline]
pub fn limit(first: usize) -> usize {
    if first <= 1024 {
        TWO_PAGES
    } else {
        FOUR_PAGES
    }
}

/// Whether `header` is plain stream data, which may be joined with more of its flow.
#[inline]
pub fn is_joinable(header: &Header) -> bool {
    header.ty == TYPE_STREAM && header.op == OP_RW && header.flags == 0
}

/// Whether the packet `next`, directly behind `previous` in its flow's order, may share its buffer.
#[inline]
pub fn may_join(previous: &Header, next: &Header) -> bool {
    is_joinable(previous) && is_joinable(next) && previous.flow == next.flow
}

/// The header of a run that ends with `last` and carries `len` payload bytes in all.
///
/// Credit fields only ever move forward, so those of the last packet stand for all of them.
#[inline]
pub fn joined(last: Header, len: u32) -> Header {
    Header { len, ..last }
}
