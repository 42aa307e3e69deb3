// SPDX-License-Identifier: GPL-2.0

//! Feature bits.

/// `VHOST_F_LOG_ALL`: log every write into guest memory.
pub const LOG_ALL: u64 = 1 << 26;
/// `VIRTIO_F_ACCESS_PLATFORM`: addresses go through the device IOTLB.
pub const ACCESS_PLATFORM: u64 = 1 << 33;
/// `VIRTIO_F_IN_ORDER`: buffers are used in the order in which they were made available.
pub const IN_ORDER: u64 = 1 << 35;
/// `VIRTIO_VSOCK_F_SEQPACKET`: seqpacket sockets.
pub const SEQPACKET: u64 = 1 << 1;

/// Backend feature bits: `VHOST_BACKEND_F_IOTLB_MSG_V2` alone.
pub const BACKEND: u64 = 1 << 1;

/// The bits of `VHOST_GET_FEATURES`: those of the C driver, and [`IN_ORDER`] if it is to be shown.
#[inline]
pub fn offered(of_c_driver: u64, offer_in_order: bool) -> u64 {
    if offer_in_order {
        of_c_driver | IN_ORDER
    } else {
        of_c_driver
    }
}

/// Whether `asked` may be set by `VHOST_SET_FEATURES`.
///
/// [`IN_ORDER`] always may: QEMU passes it on without having asked whether it is offered.
#[inline]
pub fn acceptable(of_c_driver: u64, asked: u64) -> bool {
    asked & !(of_c_driver | IN_ORDER) == 0
}
