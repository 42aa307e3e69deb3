// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.
//!
//! C headers: `include/net/net_namespace.h`, `include/net/af_vsock.h`.

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    types::Opaque, //
};

use crate::bindings;

/// A borrowed network namespace.
///
/// # Invariants
///
/// The pointer is valid and the caller of [`Net::from_raw`] keeps the namespace alive for as long
/// as the reference lives.
#[repr(transparent)]
pub(crate) struct Net(Opaque<bindings::net>);

// SAFETY: `struct net` is made to be used from any thread; the methods here only read.
unsafe impl Send for Net {}
// SAFETY: As above.
unsafe impl Sync for Net {}

impl Net {
    /// Makes a reference from a C pointer.
    ///
    /// # Safety
    ///
    /// `net` must point at a namespace that stays alive for `'a`.
    pub(crate) unsafe fn from_raw<'a>(net: *mut bindings::net) -> &'a Self {
        // SAFETY: By the requirements of this function; the type is a transparent wrapper.
        unsafe { &*net.cast() }
    }

    /// The C pointer.
    pub(crate) fn as_raw(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// The number of the namespace in `/proc/PID/ns/net`; [`None`] for the initial namespace.
    pub(crate) fn number(&self) -> Option<u32> {
        // SAFETY: The pointer is valid by the type invariant.
        let number = unsafe { bindings::rs_net_inum(self.as_raw()) };
        (number != 0).then_some(number)
    }

    /// Whether AF_VSOCK sockets of the two namespaces may talk: they are one, or both are global.
    ///
    /// Source: `vsock_net_check_mode()`.
    pub(crate) fn reaches(&self, other: &Net) -> bool {
        // SAFETY: Both pointers are valid by the type invariant; the function only reads.
        unsafe { bindings::rs_vsock_net_check_mode(self.as_raw(), other.as_raw()) }
    }
}

/// An owned, tracked reference to a network namespace.
///
/// # Invariants
///
/// `net` is a namespace on which a reference is held, and `tracker` is the tracker of that one.
#[pin_data(PinnedDrop)]
pub(crate) struct OwnedNet {
    net: NonNull<bindings::net>,
    #[pin]
    tracker: Opaque<bindings::netns_tracker>,
}

// SAFETY: A reference to a namespace may be dropped on any thread.
unsafe impl Send for OwnedNet {}
// SAFETY: `&OwnedNet` only gives out `&Net`, which is `Sync`.
unsafe impl Sync for OwnedNet {}

impl OwnedNet {
    /// Takes a reference to the namespace of the current task, as `vhost_vsock_dev_open()` does.
    ///
    /// Context: process context, of a task that is not exiting; may sleep.
    pub(crate) fn of_current() -> impl PinInit<Self, Error> {
        // SAFETY: On success both fields are initialised: `tracker` by the C function, which is
        // given zeroed memory, and `net` from its result. On failure nothing is held.
        unsafe {
            pin_init::pin_init_from_closure(|slot: *mut Self| {
                let tracker = Opaque::cast_into(core::ptr::addr_of!((*slot).tracker));
                core::ptr::write_bytes(tracker, 0, 1);
                let net = bindings::rs_get_current_net(tracker);
                // INVARIANT: The C function took a reference with that tracker.
                let net = NonNull::new(net).ok_or(EINVAL)?;
                core::ptr::addr_of_mut!((*slot).net).write(net);
                Ok(())
            })
        }
    }
}

impl core::ops::Deref for OwnedNet {
    type Target = Net;

    fn deref(&self) -> &Net {
        // SAFETY: By the type invariant the namespace lives as long as `self`.
        unsafe { Net::from_raw(self.net.as_ptr()) }
    }
}

#[pinned_drop]
impl PinnedDrop for OwnedNet {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant this reference is held with this tracker; it is dropped
        // once, here.
        unsafe { bindings::rs_put_net_track(self.net.as_ptr(), self.tracker.get()) };
    }
}
