// SPDX-License-Identifier: GPL-2.0

//! The vsock core and the common virtio transport.
//!
//! C source: `net/vmw_vsock/af_vsock.c`, `net/vmw_vsock/virtio_transport_common.c`.

mod packet;
mod queue;
mod socket;
mod transport;

pub(crate) use packet::{
    has_tap,
    Packet, //
};
pub(crate) use queue::{
    PacketQueue,
    PacketQueueGuard, //
};
pub(crate) use socket::{
    is_own_cid,
    VsockSock, //
};
pub(crate) use transport::{
    HostTransport,
    Outgoing,
    TransportRegistration, //
};
