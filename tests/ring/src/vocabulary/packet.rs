// SPDX-License-Identifier: GPL-2.0
//! Packets of virtio-vsock (VIRTIO 1.3, section 5.10.6).

use std::fmt;

/// Bytes of a header.
pub const HEADER: usize = 44;

/// `VIRTIO_VSOCK_SEQ_EOM`: the packet ends a message.
pub const EOM: u32 = 1;
/// `VIRTIO_VSOCK_SEQ_EOR`: the sender set `MSG_EOR` on the message.
pub const EOR: u32 = 2;
/// `VIRTIO_VSOCK_SHUTDOWN_RCV`: the sender will receive no more.
pub const NO_RECEIVE: u32 = 1;
/// `VIRTIO_VSOCK_SHUTDOWN_SEND`: the sender will send no more.
pub const NO_SEND: u32 = 2;

/// Kind of connection (`enum virtio_vsock_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u16);

impl Kind {
    pub const STREAM: Kind = Kind(1);
    pub const SEQPACKET: Kind = Kind(2);
}

/// Operation of a packet (`enum virtio_vsock_op`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Op(pub u16);

impl Op {
    pub const INVALID: Op = Op(0);
    pub const REQUEST: Op = Op(1);
    pub const RESPONSE: Op = Op(2);
    pub const RST: Op = Op(3);
    pub const SHUTDOWN: Op = Op(4);
    pub const RW: Op = Op(5);
    pub const CREDIT_UPDATE: Op = Op(6);
    pub const CREDIT_REQUEST: Op = Op(7);
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = [
            "INVALID",
            "REQUEST",
            "RESPONSE",
            "RST",
            "SHUTDOWN",
            "RW",
            "CREDIT_UPDATE",
            "CREDIT_REQUEST",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "OP_{}", self.0),
        }
    }
}

/// `struct virtio_vsock_hdr`, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub src_cid: u64,
    pub dst_cid: u64,
    pub src_port: u32,
    pub dst_port: u32,
    /// Bytes of payload that follow.
    pub len: u32,
    pub kind: Kind,
    pub op: Op,
    pub flags: u32,
    /// The sender's receive window in bytes.
    pub buf_alloc: u32,
    /// Bytes that the sender has taken out of its window since the connection was made, modulo 2^32.
    pub fwd_cnt: u32,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0..8].copy_from_slice(&self.src_cid.to_le_bytes());
        out[8..16].copy_from_slice(&self.dst_cid.to_le_bytes());
        out[16..20].copy_from_slice(&self.src_port.to_le_bytes());
        out[20..24].copy_from_slice(&self.dst_port.to_le_bytes());
        out[24..28].copy_from_slice(&self.len.to_le_bytes());
        out[28..30].copy_from_slice(&self.kind.0.to_le_bytes());
        out[30..32].copy_from_slice(&self.op.0.to_le_bytes());
        out[32..36].copy_from_slice(&self.flags.to_le_bytes());
        out[36..40].copy_from_slice(&self.buf_alloc.to_le_bytes());
        out[40..44].copy_from_slice(&self.fwd_cnt.to_le_bytes());
        out
    }

    /// Decodes the first [`HEADER`] bytes.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn decode(raw: &[u8]) -> Self {
        let u16_at = |at: usize| u16::from_le_bytes(raw[at..at + 2].try_into().expect("2 bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().expect("8 bytes"));
        Self {
            src_cid: u64_at(0),
            dst_cid: u64_at(8),
            src_port: u32_at(16),
            dst_port: u32_at(20),
            len: u32_at(24),
            kind: Kind(u16_at(28)),
            op: Op(u16_at(30)),
            flags: u32_at(32),
            buf_alloc: u32_at(36),
            fwd_cnt: u32_at(40),
        }
    }
}

/// A header and its payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Packet {
    pub header: Header,
    pub payload: Vec<u8>,
}

impl Packet {
    /// The bytes as they go into a buffer.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.header.encode().to_vec();
        out.extend_from_slice(&self.payload);
        out
    }

    pub fn op(&self) -> Op {
        self.header.op
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = &self.header;
        write!(
            f,
            "{:?} type {} {}:{} -> {}:{} len {} flags {} buf_alloc {} fwd_cnt {}",
            h.op,
            h.kind.0,
            h.src_cid,
            h.src_port,
            h.dst_cid,
            h.dst_port,
            h.len,
            h.flags,
            h.buf_alloc,
            h.fwd_cnt
        )
    }
}
