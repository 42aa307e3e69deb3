// SPDX-License-Identifier: GPL-2.0

//! The vhost core: devices, virtqueues and the character device.
//!
//! C source: `drivers/vhost/vhost.c`.
//!
//! # States of a virtqueue
//!
//! ```text
//! Device --lock_queue()--> QueueGuard --poll_ring()--> Ring
//!                          mutex held                  started and mapped, notifications off
//! ```
//!
//! Buffers can be taken only from a [`Ring`]. The ways out of it publish what was used, put back
//! what was not and signal the guest; the way that turns notifications on looks at the ring again.

mod device;
mod file;
mod iter;
mod queue;
mod ring;

pub(crate) use device::{
    c_driver_features,
    Backend,
    Device,
    QueueId,
    PACKET_WEIGHT, //
};
pub(crate) use file::{
    CharDevice,
    CharDeviceFops, //
};
pub(crate) use ring::{
    busy_clock,
    Chain,
    ChainError,
    Enabled,
    Ring,
    RingStats,
    ARRAY_CAPACITY as RING_ARRAY_CAPACITY, //
};
