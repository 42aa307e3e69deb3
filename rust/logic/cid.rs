// SPDX-License-Identifier: GPL-2.0

//! Which context identifiers a guest may have.
//!
//! Source: virtio specification 1.3, section 5.10.4; `vhost_vsock_set_cid()`.

/// CID of the host: `VMADDR_CID_HOST`.
pub const HOST: u32 = 2;
/// CID that stands for any: `VMADDR_CID_ANY`.
pub const ANY: u32 = u32::MAX;

/// The CID that a VMM asked for, if a guest may have it.
///
/// 0 (hypervisor), 1 (local), 2 (host) and [`ANY`] are reserved, and CIDs of more than 32 bits are
/// not supported.
#[inline]
pub fn for_guest(asked: u64) -> Option<u32> {
    let cid = u32::try_from(asked).ok()?;
    (cid > HOST && cid != ANY).then_some(cid)
}

/// The bucket of `cid` in a table of `buckets` buckets, a power of two.
///
/// Managers hand out CIDs in sequence, so a multiplicative hash spreads them evenly.
#[inline]
pub fn bucket(cid: u32, buckets: usize) -> usize {
    let hash = cid.wrapping_mul(0x61C8_8647);
    (hash >> 16) as usize & (buckets - 1)
}
