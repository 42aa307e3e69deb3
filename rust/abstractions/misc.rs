// SPDX-License-Identifier: GPL-2.0

//! A misc device with a fixed minor number.
//!
//! `kernel::miscdevice` knows dynamic minors only, and no `poll`.

use core::marker::PhantomData;

use kernel::{
    error::to_result,
    prelude::*,
    types::Opaque, //
};

use super::vhost::{
    CharDevice,
    CharDeviceFops, //
};
use crate::bindings;

/// Minor number of `/dev/vhost-vsock`: `VHOST_VSOCK_MINOR`.
const VHOST_VSOCK_MINOR: c_int = 241;

/// The registered device node `/dev/vhost-vsock`.
///
/// # Invariants
///
/// `misc` is registered and points at `fops`; both stay where they are until it is deregistered.
#[pin_data(PinnedDrop)]
pub(crate) struct MiscRegistration<T> {
    #[pin]
    fops: Opaque<bindings::file_operations>,
    #[pin]
    misc: Opaque<bindings::miscdevice>,
    _device: PhantomData<T>,
}

// SAFETY: A misc device may be deregistered on any thread.
unsafe impl<T> Send for MiscRegistration<T> {}
// SAFETY: There are no methods on `&self`.
unsafe impl<T> Sync for MiscRegistration<T> {}

impl<T: CharDevice> MiscRegistration<T> {
    /// Registers the node; EBUSY if its minor is taken. Open files pin `module`.
    pub(crate) fn register(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(&this in Self {
            fops <- Opaque::ffi_init(|slot: *mut bindings::file_operations| {
                // SAFETY: The initialiser may write to the slot.
                unsafe { slot.write(CharDeviceFops::<T>::build(module)) };
            }),
            misc <- Opaque::try_ffi_init(|slot: *mut bindings::miscdevice| {
                // SAFETY: The initialiser may write to the slot; `fops` was initialised before.
                // The memory is pinned, and the destructor deregisters before it is gone.
                // INVARIANT: Registered if this succeeds.
                unsafe {
                    slot.write(bindings::miscdevice {
                        minor: VHOST_VSOCK_MINOR,
                        name: c"vhost-vsock".as_char_ptr(),
                        fops: Opaque::cast_into(core::ptr::addr_of!((*this.as_ptr()).fops)),
                        ..pin_init::zeroed()
                    });
                    to_result(bindings::misc_register(slot))
                }
            }),
            _device: PhantomData,
        })
    }
}

#[pinned_drop]
impl<T> PinnedDrop for MiscRegistration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is registered.
        unsafe { bindings::misc_deregister(self.misc.get()) };
    }
}
