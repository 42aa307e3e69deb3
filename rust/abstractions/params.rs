// SPDX-License-Identifier: GPL-2.0

//! Module parameters, which can be written at any time.

use crate::bindings;

/// Reads a parameter once.
macro_rules! read_param {
    ($(#[$doc:meta])* $name:ident, $ty:ty, $param:ident) => {
        $(#[$doc])*
        pub(crate) fn $name() -> $ty {
            // SAFETY: The parameter is a static of that type, initialised at compile time. It is
            // written by `kernel/params.c` only, with a store of its full width, so a volatile
            // read sees one of the values that it had.
            unsafe { core::ptr::addr_of!(bindings::$param).read_volatile() }
        }
    };
}

read_param!(
    /// Whether used RX buffers are published in batches.
    rx_batch,
    bool,
    vhost_vsock_rs_rx_batch
);
read_param!(
    /// Whether used TX buffers are published in batches.
    tx_batch,
    bool,
    vhost_vsock_rs_tx_batch
);
read_param!(
    /// Whether queued packets of one flow may share an RX buffer.
    rx_coalesce,
    bool,
    vhost_vsock_rs_rx_coalesce
);
read_param!(
    /// Whether TX packets of one flow are delivered as one.
    tx_coalesce,
    bool,
    vhost_vsock_rs_tx_coalesce
);
read_param!(
    /// Whether VIRTIO_F_IN_ORDER is shown in VHOST_GET_FEATURES.
    offer_in_order,
    bool,
    vhost_vsock_rs_offer_in_order
);
read_param!(
    /// Microseconds to poll before notifications are enabled, for queues without a value of their
    /// own.
    busyloop_us,
    u32,
    vhost_vsock_rs_busyloop_us
);
read_param!(
    /// Microseconds that the worker leaves a sender to add more packets for the guest.
    rx_linger_us,
    u32,
    vhost_vsock_rs_rx_linger_us
);
read_param!(
    /// Microseconds after which the worker looks for more packets of the guest by itself.
    tx_linger_us,
    u32,
    vhost_vsock_rs_tx_linger_us
);
