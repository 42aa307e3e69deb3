// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of the module, defined in `rust/helpers/events.h`.

use kernel::prelude::*;

use crate::bindings;

/// Fires the tracepoint `$name` if it is enabled.
macro_rules! fire {
    ($tracepoint:ident, $do_trace:ident, ($($arg:expr),*)) => {
        // SAFETY: The tracepoint is a static that C defines and that lives as long as the module.
        if unsafe {
            kernel::jump_label::static_branch_unlikely!(
                crate::bindings::$tracepoint,
                kernel::bindings::tracepoint,
                key
            )
        } {
            // SAFETY: The function takes values only.
            unsafe { bindings::$do_trace($($arg),*) };
        }
    };
}

/// What one pass of the worker over one queue did.
#[derive(Clone, Copy, Default)]
pub(crate) struct Pass {
    /// Packets taken from or given to sockets.
    pub(crate) packets: u32,
    /// Guest buffers used.
    pub(crate) buffers: u32,
    /// Payload bytes.
    pub(crate) bytes: u64,
    /// Updates of the used index.
    pub(crate) publishes: u32,
}

/// Traces the end of an RX pass.
#[inline]
pub(crate) fn rx_pass(cid: u32, pass: &Pass) {
    fire!(
        __tracepoint_vhost_vsock_rs_rx_pass,
        rust_do_trace_vhost_vsock_rs_rx_pass,
        (cid, pass.packets, pass.buffers, pass.bytes, pass.publishes)
    );
}

/// Traces the end of a TX pass.
#[inline]
pub(crate) fn tx_pass(cid: u32, pass: &Pass) {
    fire!(
        __tracepoint_vhost_vsock_rs_tx_pass,
        rust_do_trace_vhost_vsock_rs_tx_pass,
        (cid, pass.packets, pass.buffers, pass.bytes, pass.publishes)
    );
}

/// Traces that a guest was started or stopped.
pub(crate) fn running(cid: u32, running: bool) {
    fire!(
        __tracepoint_vhost_vsock_rs_running,
        rust_do_trace_vhost_vsock_rs_running,
        (cid, running)
    );
}

/// Traces a guest buffer that was refused; `head` may be out of range of the ring.
pub(crate) fn bad_buffer(cid: u32, queue: u32, head: c_int) {
    fire!(
        __tracepoint_vhost_vsock_rs_bad_buffer,
        rust_do_trace_vhost_vsock_rs_bad_buffer,
        (cid, queue, head)
    );
}
