// SPDX-License-Identifier: GPL-2.0

//! AF_VSOCK sockets, as far as a transport looks into them.

use core::ptr;

use kernel::{
    prelude::*,
    types::Opaque, //
};

use crate::{
    abstractions::net::Net,
    bindings, //
};

/// A borrowed AF_VSOCK socket.
///
/// # Invariants
///
/// The pointer is valid, and whoever made the reference keeps the socket alive meanwhile.
#[repr(transparent)]
pub(crate) struct VsockSock(Opaque<bindings::vsock_sock>);

impl VsockSock {
    /// Makes a reference from a C pointer.
    ///
    /// # Safety
    ///
    /// `vsk` must be a socket that stays alive for `'a`.
    pub(super) unsafe fn from_raw<'a>(vsk: *mut bindings::vsock_sock) -> &'a Self {
        // SAFETY: By the requirement; the type is a transparent wrapper.
        unsafe { &*vsk.cast() }
    }

    /// The C socket.
    pub(super) fn as_raw(&self) -> *mut bindings::vsock_sock {
        self.0.get()
    }

    /// The `struct sock` in it.
    fn sock(&self) -> *mut bindings::sock {
        // SAFETY: The socket is valid; only an address is taken.
        unsafe { ptr::addr_of_mut!((*self.as_raw()).sk) }
    }

    /// The network namespace of the socket.
    pub(crate) fn net(&self) -> &Net {
        // SAFETY: The socket is valid and holds its namespace.
        unsafe { Net::from_raw(bindings::rs_sock_net(self.sock())) }
    }

    /// CID of the peer. May change while a connection is being made, as in C.
    pub(crate) fn remote_cid(&self) -> u32 {
        // SAFETY: The socket is valid; a volatile read sees a value that the field had.
        unsafe { ptr::addr_of!((*self.as_raw()).remote_addr.svm_cid).read_volatile() }
    }

    /// Ends a connection whose peer is gone: the socket reports ECONNRESET.
    ///
    /// A socket whose close timer runs is left to the timer. Data that was received and not read
    /// yet stays readable: a stream reports errors behind its data, but of messages each attempt to
    /// read would lose one to the error, so a socket that has any just ends behind the last one.
    /// Source: `vhost_vsock_reset_orphans()`.
    ///
    /// Context: the table lock of connected sockets is held, the socket's own lock is not.
    pub(super) fn reset_orphan(&self) {
        let vsk = self.as_raw();
        // SAFETY: The socket is valid, and cannot go away while the table lock is held. Its
        // fields are written without its lock, as in C: the peer will never write them again.
        unsafe {
            if (*vsk).close_work_scheduled {
                return;
            }
            bindings::rs_sock_set_done(self.sock());
            (*vsk).peer_shutdown = bindings::SHUTDOWN_MASK;
            let messages = (*self.sock()).sk_type == bindings::sock_type_SOCK_SEQPACKET as u16
                && bindings::vsock_connectible_has_data(vsk) > 0;
            (*self.sock()).__sk_common.skc_state = bindings::socket_state_SS_UNCONNECTED as u8;
            if !messages {
                (*self.sock()).sk_err = bindings::ECONNRESET as c_int;
            }
            bindings::sk_error_report(self.sock());
        }
    }
}

/// Whether `cid` is one that this machine has as a guest itself. Source: `vsock_find_cid()`.
pub(crate) fn is_own_cid(cid: u32) -> bool {
    // SAFETY: No preconditions.
    unsafe { bindings::vsock_find_cid(cid) }
}
