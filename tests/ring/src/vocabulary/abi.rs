// SPDX-License-Identifier: GPL-2.0
//! Numbers of the vhost and AF_VSOCK interfaces that the crates used here do not name.

use std::os::raw::{c_uchar, c_uint};
use vmm_sys_util::{ioctl_ior_nr, ioctl_iow_nr, ioctl_iowr_nr};

pub use vhost::vhost_kern::vhost_binding::*;

/// `struct vhost_worker_state` of `include/uapi/linux/vhost_types.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct WorkerState {
    pub worker_id: c_uint,
}

/// `struct vhost_vring_worker` of `include/uapi/linux/vhost_types.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct VringWorker {
    pub index: c_uint,
    pub worker_id: c_uint,
}

ioctl_ior_nr!(VHOST_NEW_WORKER, VHOST, 0x8, WorkerState);
ioctl_iow_nr!(VHOST_FREE_WORKER, VHOST, 0x9, WorkerState);
ioctl_iow_nr!(VHOST_SET_VRING_ENDIAN, VHOST, 0x13, vhost_vring_state);
ioctl_iow_nr!(VHOST_ATTACH_VRING_WORKER, VHOST, 0x15, VringWorker);
ioctl_iowr_nr!(VHOST_GET_VRING_WORKER, VHOST, 0x16, VringWorker);
ioctl_iow_nr!(
    VHOST_SET_VRING_BUSYLOOP_TIMEOUT,
    VHOST,
    0x23,
    vhost_vring_state
);
ioctl_iow_nr!(
    VHOST_GET_VRING_BUSYLOOP_TIMEOUT,
    VHOST,
    0x24,
    vhost_vring_state
);
ioctl_iow_nr!(VHOST_SET_FORK_FROM_OWNER, VHOST, 0x84, c_uchar);
ioctl_ior_nr!(VHOST_GET_FORK_FROM_OWNER, VHOST, 0x85, c_uchar);

/// Feature bits, as `1 << bit`.
pub mod feature {
    /// `VIRTIO_VSOCK_F_SEQPACKET`.
    pub const SEQPACKET: u64 = 1 << 1;
    /// `VIRTIO_F_NOTIFY_ON_EMPTY`.
    pub const NOTIFY_ON_EMPTY: u64 = 1 << 24;
    /// `VHOST_F_LOG_ALL`.
    pub const LOG_ALL: u64 = 1 << 26;
    /// `VIRTIO_F_ANY_LAYOUT`.
    pub const ANY_LAYOUT: u64 = 1 << 27;
    /// `VIRTIO_RING_F_INDIRECT_DESC`.
    pub const INDIRECT: u64 = 1 << 28;
    /// `VIRTIO_RING_F_EVENT_IDX`.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// `VIRTIO_F_VERSION_1`.
    pub const VERSION_1: u64 = 1 << 32;
    /// `VIRTIO_F_ACCESS_PLATFORM`.
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    /// `VIRTIO_F_IN_ORDER`.
    pub const IN_ORDER: u64 = 1 << 35;

    /// What the C driver of Linux 7.3 offers.
    pub const OF_C: u64 = SEQPACKET
        | NOTIFY_ON_EMPTY
        | LOG_ALL
        | ANY_LAYOUT
        | INDIRECT
        | EVENT_IDX
        | VERSION_1
        | ACCESS_PLATFORM;

    /// What a present day guest negotiates.
    pub const USUAL: u64 = SEQPACKET | INDIRECT | EVENT_IDX | VERSION_1;
}

/// The CID by which guests name the host (`VMADDR_CID_HOST`).
pub const HOST_CID: u64 = 2;

/// Largest payload of one packet (`VIRTIO_VSOCK_MAX_PKT_BUF_SIZE`), in bytes.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// Default receive window of a host socket (`VSOCK_DEFAULT_BUFFER_SIZE`), in bytes.
pub const WINDOW: usize = 256 * 1024;

/// Packets that one pass over a queue may handle (`VHOST_VSOCK_PKT_WEIGHT`).
pub const WEIGHT: usize = 256;

/// Index of the queue that carries packets from the host to the guest.
pub const RX: usize = 0;

/// Index of the queue that carries packets from the guest to the host.
pub const TX: usize = 1;
