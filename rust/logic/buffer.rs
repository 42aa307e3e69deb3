// SPDX-License-Identifier: GPL-2.0

//! What a buffer of the guest must look like to be used.

use super::header::{HEADER_LEN, MAX_PAYLOAD};

/// Payload bytes that may be put into an RX buffer, or [`None`] if no packet can be: what fits, and
/// no more than one packet may have.
///
/// `readable` and `writable` are the bytes of the device-readable and device-writable parts. An RX
/// buffer has only the latter (virtio 1.3, section 5.10.6.4).
#[inline]
pub fn rx_room(readable: usize, writable: usize) -> Option<usize> {
    if readable != 0 {
        return None;
    }
    let room = writable.checked_sub(HEADER_LEN)?;
    Some(room.min(MAX_PAYLOAD))
}

/// Whether a TX buffer has a shape that can hold a packet, before its header was read.
///
/// It has no device-writable part, holds a header, and is no larger than the largest packet, so
/// that a guest cannot have a buffer of any size walked.
#[inline]
pub fn tx_shape_ok(readable: usize, writable: usize) -> bool {
    writable == 0 && (HEADER_LEN..=HEADER_LEN + MAX_PAYLOAD).contains(&readable)
}

/// Payload bytes of a TX packet, or [`None`] if its header promises more than the buffer holds.
///
/// Bytes of the buffer behind the payload are legal and ignored.
#[inline]
pub fn tx_payload(readable: usize, header_len: u32) -> Option<usize> {
    let payload = usize::try_from(header_len).ok()?;
    (payload <= readable.checked_sub(HEADER_LEN)?).then_some(payload)
}
