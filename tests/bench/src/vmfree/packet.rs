// SPDX-License-Identifier: GPL-2.0

//! The header of a packet (VIRTIO 1.3, section 5.10.6).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header.
pub(crate) const HEADER: usize = size_of::<Header>();

/// CID of the host.
pub(crate) const HOST_CID: u32 = 2;

/// `VIRTIO_VSOCK_TYPE_STREAM`.
pub(crate) const STREAM: u16 = 1;

/// Operations (`enum virtio_vsock_op`).
pub(crate) mod op {
    /// A connection is wanted.
    pub(crate) const REQUEST: u16 = 1;
    /// A connection is accepted.
    pub(crate) const RESPONSE: u16 = 2;
    /// A connection is refused or at its end.
    pub(crate) const RST: u16 = 3;
    /// The sender will send or receive no more.
    pub(crate) const SHUTDOWN: u16 = 4;
    /// Payload.
    pub(crate) const RW: u16 = 5;
    /// The sender's receive window.
    pub(crate) const CREDIT_UPDATE: u16 = 6;
    /// The receiver's window is wanted.
    pub(crate) const CREDIT_REQUEST: u16 = 7;
}

/// `struct virtio_vsock_hdr`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub src_cid: U64,
    pub dst_cid: U64,
    pub src_port: U32,
    pub dst_port: U32,
    /// Bytes of payload that follow.
    pub len: U32,
    pub kind: U16,
    pub op: U16,
    pub flags: U32,
    /// The sender's receive window in bytes.
    pub buf_alloc: U32,
    /// Bytes that the sender has taken in, modulo 2^32.
    pub fwd_cnt: U32,
}
