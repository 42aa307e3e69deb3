// SPDX-License-Identifier: GPL-2.0

//! The packet header, `struct virtio_vsock_hdr`.
//!
//! Source: virtio specification 1.3, section 5.10.6; `include/uapi/linux/virtio_vsock.h`.

/// Bytes of a packet header on the ring.
pub const HEADER_LEN: usize = 44;

/// Most payload bytes that one packet may carry: `VIRTIO_VSOCK_MAX_PKT_BUF_SIZE`.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// Packet type of stream sockets: `VIRTIO_VSOCK_TYPE_STREAM`.
pub const TYPE_STREAM: u16 = 1;

/// Operation that carries payload: `VIRTIO_VSOCK_OP_RW`.
pub const OP_RW: u16 = 5;

/// Operation that tells how much may be sent, and nothing else: `VIRTIO_VSOCK_OP_CREDIT_UPDATE`.
pub const OP_CREDIT_UPDATE: u16 = 6;

/// Flag of the last packet of a message: `VIRTIO_VSOCK_SEQ_EOM`.
pub const SEQ_EOM: u32 = 1 << 0;
/// Flag of the last packet of a record, set only beside [`SEQ_EOM`]: `VIRTIO_VSOCK_SEQ_EOR`.
pub const SEQ_EOR: u32 = 1 << 1;

/// What tells one connection from another: both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// CID of the sender.
    pub src_cid: u64,
    /// CID of the receiver.
    pub dst_cid: u64,
    /// Port of the sender.
    pub src_port: u32,
    /// Port of the receiver.
    pub dst_port: u32,
}

/// A packet header in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Both ends of the connection.
    pub flow: Flow,
    /// Bytes of payload behind the header.
    pub len: u32,
    /// Socket type: [`TYPE_STREAM`], or 2 for seqpacket.
    pub ty: u16,
    /// Operation, for example [`OP_RW`].
    pub op: u16,
    /// Flags, whose meaning depends on type and operation.
    pub flags: u32,
    /// Receive buffer of the sender in bytes.
    pub buf_alloc: u32,
    /// Bytes that the sender has taken out of its receive buffer, modulo 2^32.
    pub fwd_cnt: u32,
}

/// Copies the `N` bytes at `at` out of `bytes`; the compiler checks the bounds.
fn field<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl Header {
    /// Reads a header from the bytes on the ring.
    #[inline]
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Self {
        Self {
            flow: Flow {
                src_cid: u64::from_le_bytes(field(bytes, 0)),
                dst_cid: u64::from_le_bytes(field(bytes, 8)),
                src_port: u32::from_le_bytes(field(bytes, 16)),
                dst_port: u32::from_le_bytes(field(bytes, 20)),
            },
            len: u32::from_le_bytes(field(bytes, 24)),
            ty: u16::from_le_bytes(field(bytes, 28)),
            op: u16::from_le_bytes(field(bytes, 30)),
            flags: u32::from_le_bytes(field(bytes, 32)),
            buf_alloc: u32::from_le_bytes(field(bytes, 36)),
            fwd_cnt: u32::from_le_bytes(field(bytes, 40)),
        }
    }

    /// The bytes of this header as they stand on the ring.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..8].copy_from_slice(&self.flow.src_cid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.flow.dst_cid.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.flow.src_port.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.flow.dst_port.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.ty.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.op.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.flags.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.buf_alloc.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.fwd_cnt.to_le_bytes());
        bytes
    }

    /// The header of a fragment of `len` payload bytes.
    ///
    /// The marks of a message's end stand on its last fragment only. On other packets the same
    /// bits mean something else (for example the directions of a SHUTDOWN), but those carry no
    /// payload and are never split.
    #[inline]
    pub fn fragment(mut self, len: u32, last: bool) -> Self {
        self.len = len;
        if !last && self.flags & SEQ_EOM != 0 {
            self.flags &= !(SEQ_EOM | SEQ_EOR);
        }
        self
    }
}
