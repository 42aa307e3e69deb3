// SPDX-License-Identifier: GPL-2.0

//! A locked virtqueue.

use core::{
    marker::PhantomData,
    ptr, //
};

use kernel::{
    error::to_result,
    prelude::*,
    types::NotThreadSafe, //
};

use super::{
    device::QueueId,
    ring::Ring, //
};
use crate::bindings;

/// A virtqueue whose mutex is held.
///
/// # Invariants
///
/// - `vq` is a queue of an initialised device that lives for `'a`, and so does `send_work`, which
///   is initialised, too.
/// - Its mutex is held by the current task while this exists.
pub(crate) struct QueueGuard<'a> {
    vq: *mut bindings::vhost_virtqueue,
    id: QueueId,
    send_work: *mut bindings::vhost_work,
    _device: PhantomData<&'a ()>,
    _not_send: NotThreadSafe,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the current task holds the mutex.
        unsafe { bindings::mutex_unlock(ptr::addr_of_mut!((*self.vq).mutex)) };
    }
}

impl<'a> QueueGuard<'a> {
    /// Takes the mutex of `vq`.
    ///
    /// # Safety
    ///
    /// `vq` must be the queue `id` of an initialised device that lives for `'a`, and `send_work`
    /// the device's own work.
    pub(super) unsafe fn lock(
        vq: *mut bindings::vhost_virtqueue,
        id: QueueId,
        send_work: *mut bindings::vhost_work,
    ) -> Self {
        // SAFETY: By the requirement the mutex is initialised.
        unsafe { bindings::mutex_lock(ptr::addr_of_mut!((*vq).mutex)) };
        // INVARIANT: Just taken; the rest is required.
        Self {
            vq,
            id,
            send_work,
            _device: PhantomData,
            _not_send: NotThreadSafe,
        }
    }

    /// The C queue.
    pub(super) fn as_raw(&self) -> *mut bindings::vhost_virtqueue {
        self.vq
    }

    /// Which queue this is.
    pub(super) fn id(&self) -> QueueId {
        self.id
    }

    /// Whether other work waits for the worker that runs this queue.
    pub(super) fn work_waits(&self) -> bool {
        // SAFETY: By the type invariant both are valid and initialised.
        unsafe { bindings::rs_vhost_work_waits(self.vq, self.send_work) }
    }

    /// Whether the queue is started.
    pub(crate) fn is_started(&self) -> bool {
        // SAFETY: The queue is valid and locked.
        !unsafe { bindings::rs_vhost_vq_get_backend(self.vq) }.is_null()
    }

    /// Whether a feature was agreed on.
    pub(super) fn has_feature(&self, bit: u32) -> bool {
        // SAFETY: The queue is valid and locked.
        unsafe { bindings::rs_vhost_has_feature(self.vq, bit as c_int) }
    }

    /// Microseconds of `VHOST_SET_VRING_BUSYLOOP_TIMEOUT`; 0 if it was not set.
    pub(crate) fn busyloop_timeout(&self) -> u32 {
        // SAFETY: The queue is valid and locked.
        unsafe { (*self.vq).busyloop_timeout }
    }

    /// Starts the queue with `backend`, which is only compared with null.
    ///
    /// A queue that was stopped forgets that its notifications were off and which available index
    /// it had read: nothing of the earlier run may keep the next one from being told.
    ///
    /// # Safety
    ///
    /// The device mutex must be held.
    pub(super) unsafe fn start(&mut self, backend: *mut c_void) -> Result {
        // SAFETY: The queue is valid and both mutexes are held.
        if !unsafe { bindings::vhost_vq_access_ok(self.vq) } {
            self.stop();
            return Err(EFAULT);
        }
        if self.is_started() {
            return Ok(());
        }
        // SAFETY: The queue is valid and both mutexes are held; its rings were just checked.
        let ret = unsafe {
            bindings::rs_vhost_vq_set_backend(self.vq, backend);
            (*self.vq).used_flags &= !(bindings::VRING_USED_F_NO_NOTIFY as u16);
            (*self.vq).avail_idx = (*self.vq).last_avail_idx;
            bindings::vhost_vq_init_access(self.vq)
        };
        to_result(ret).inspect_err(|_| self.stop())
    }

    /// Stops the queue: no buffer is taken from it until it is started again.
    pub(crate) fn stop(&self) {
        // SAFETY: The queue is valid and locked.
        unsafe { bindings::rs_vhost_vq_set_backend(self.vq, ptr::null_mut()) };
    }

    /// Sets the features that were agreed on.
    pub(super) fn set_features(&mut self, features: u64) {
        // SAFETY: The queue is valid and locked.
        unsafe { bindings::rs_vhost_set_acked_features(self.vq, features) };
    }

    /// A ring to take buffers from, with notifications off, if the queue is started and its rings
    /// are mapped. If they are not, the VMM was asked for them and its answer kicks the queue.
    ///
    /// `batch` gives the most used buffers that are held back, from the size of the ring.
    pub(crate) fn poll_ring(self, batch: impl FnOnce(u32) -> u32) -> Option<Ring<'a>> {
        if !self.is_started() {
            return None;
        }
        // SAFETY: The queue is valid and locked.
        if unsafe { bindings::vq_meta_prefetch(self.vq) } == 0 {
            return None;
        }
        // SAFETY: The queue is valid and locked.
        let size = unsafe { (*self.vq).num };
        Some(Ring::new(self, batch(size)))
    }
}
