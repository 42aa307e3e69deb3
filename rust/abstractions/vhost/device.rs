// SPDX-License-Identifier: GPL-2.0

//! A vhost device with its two virtqueues and its work.

use core::{
    marker::PhantomData,
    ptr, //
};

use kernel::{
    alloc::flags::__GFP_ZERO,
    error::to_result,
    ioctl::{
        _IOR,
        _IOW,
        _IOWR, //
    },
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

use super::queue::QueueGuard;
use crate::{
    abstractions::{
        errno,
        synchronize_rcu, //
    },
    bindings, //
};

/// Packets of one pass after which the worker turns to its other work: `VHOST_VSOCK_PKT_WEIGHT`.
pub(crate) const PACKET_WEIGHT: u32 = 256;
/// Bytes of one pass after which the worker turns to its other work: `VHOST_VSOCK_WEIGHT`.
pub(super) const BYTE_WEIGHT: usize = 0x80000;

// Ioctls of the vhost core that the kernel's crates do not name: `include/uapi/linux/vhost.h`.
const VHOST_VIRTIO: u32 = 0xAF;
const VHOST_NEW_WORKER: u32 = _IOR::<bindings::vhost_worker_state>(VHOST_VIRTIO, 0x8);
const VHOST_FREE_WORKER: u32 = _IOW::<bindings::vhost_worker_state>(VHOST_VIRTIO, 0x9);
const VHOST_ATTACH_VRING_WORKER: u32 = _IOW::<bindings::vhost_vring_worker>(VHOST_VIRTIO, 0x15);
const VHOST_GET_VRING_WORKER: u32 = _IOWR::<bindings::vhost_vring_worker>(VHOST_VIRTIO, 0x16);

/// Number of virtqueues of a device; the event queue is the VMM's.
const QUEUES: usize = 2;

/// Which virtqueue, named from the guest's side as in the specification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueId {
    /// Host to guest: `VSOCK_VQ_RX`.
    Rx = 0,
    /// Guest to host: `VSOCK_VQ_TX`.
    Tx = 1,
}

impl QueueId {
    /// Both queues.
    pub(crate) const ALL: [QueueId; QUEUES] = [QueueId::Rx, QueueId::Tx];
}

/// What stands behind a device: the driver's state of one guest.
pub(crate) trait Backend: Send + Sync + Sized + 'static {
    /// The device in it.
    fn device(&self) -> &Device<Self>;

    /// Packets were sent to the guest: [`Device::queue_send_work`].
    ///
    /// Context: the worker of the RX queue, in the owner's address space.
    fn handle_send(&self);

    /// The guest, or [`Device::kick`], kicked a queue.
    ///
    /// Context: the worker of that queue, in the owner's address space.
    fn handle_kick(&self, queue: QueueId);
}

/// What the C core works on, in one piece of memory that never moves.
#[repr(C)]
pub(super) struct RawDevice {
    dev: bindings::vhost_dev,
    vqs: [bindings::vhost_virtqueue; QUEUES],
    vq_ptrs: [*mut bindings::vhost_virtqueue; QUEUES],
    send_work: bindings::vhost_work,
    /// The `T: Backend` that callbacks run on.
    backend: *const c_void,
}

/// A `struct vhost_dev` with two virtqueues, whose callbacks run on a `T`.
///
/// # Invariants
///
/// - `raw` was zeroed and then initialised by `vhost_dev_init()`; `vq_ptrs` point at `vqs`.
/// - From [`Device::bind`] until [`Device::shut_down`] returned, `raw.backend` points at the `T`
///   that holds this device, which lives. Callbacks run in no other time: work is queued by ioctls
///   and eventfds, which need the open file that [`super::file`] binds before and shuts down
///   after, and by others only for a queue that is started, in an RCU section.
pub(crate) struct Device<T> {
    raw: KVBox<Opaque<RawDevice>>,
    _backend: PhantomData<fn(&T)>,
}

// SAFETY: The C structures are made to be used from any thread; `T` is `Send + Sync`.
unsafe impl<T: Backend> Send for Device<T> {}
// SAFETY: All methods on `&self` take the locks that the C core asks for.
unsafe impl<T: Backend> Sync for Device<T> {}

impl<T: Backend> Device<T> {
    /// Makes a device without owner, rings or worker. Source: `vhost_vsock_dev_open()`.
    ///
    /// Context: process context; may sleep.
    pub(crate) fn new() -> Result<Self> {
        let memory = KVBox::<Opaque<RawDevice>>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: An `Opaque` may hold any bytes, and these are zero.
        let raw = unsafe { memory.assume_init() };
        let this: *mut RawDevice = raw.get();

        // SAFETY: `this` points at zeroed memory that is ours alone and stays where it is. The C
        // function is given pointers into it, which live as long as the device does.
        unsafe {
            let rx = ptr::addr_of_mut!((*this).vqs[QueueId::Rx as usize]);
            let tx = ptr::addr_of_mut!((*this).vqs[QueueId::Tx as usize]);
            (*rx).handle_kick = Some(handle_rx_kick::<T>);
            (*tx).handle_kick = Some(handle_tx_kick::<T>);
            (*this).vq_ptrs = [rx, tx];
            bindings::vhost_dev_init(
                ptr::addr_of_mut!((*this).dev),
                ptr::addr_of_mut!((*this).vq_ptrs).cast(),
                QUEUES as c_int,
                bindings::UIO_MAXIOV as c_int,
                PACKET_WEIGHT as c_int,
                BYTE_WEIGHT as c_int,
                true,
                None,
            );
            bindings::vhost_work_init(
                ptr::addr_of_mut!((*this).send_work),
                Some(handle_send_work::<T>),
            );
        }

        // INVARIANT: Initialised just above; not bound, and no file is open.
        Ok(Self {
            raw,
            _backend: PhantomData,
        })
    }

    /// Lets callbacks run on `backend`. Called by [`super::file`] when the file is opened.
    pub(super) fn bind(backend: &Arc<T>) {
        let this = backend.device().raw.get();
        // SAFETY: The file is being opened, so nothing else reads the field.
        // INVARIANT: `backend` holds the device and outlives the file.
        unsafe { (*this).backend = Arc::as_ptr(backend).cast() };
    }

    /// Stops both queues' polling, waits for the worker, then drops all that the C core holds.
    ///
    /// Called by [`super::file`] when the file is released; no callback runs afterwards.
    /// Source: `vhost_vsock_dev_release()`.
    pub(super) fn shut_down(&self) {
        for id in QueueId::ALL {
            self.lock_queue(id).stop();
        }
        // Nobody queues work for a stopped queue, and nobody starts one any more.
        synchronize_rcu();
        // SAFETY: The device is initialised, and its file is released: no ioctl runs, and work is
        // neither there nor queued any more.
        unsafe {
            bindings::vhost_dev_flush(self.dev());
            bindings::vhost_dev_stop(self.dev());
            bindings::vhost_dev_cleanup(self.dev());
        }
    }

    /// The `struct vhost_dev`.
    pub(super) fn dev(&self) -> *mut bindings::vhost_dev {
        // SAFETY: `raw` is valid; only an address is taken.
        unsafe { ptr::addr_of_mut!((*self.raw.get()).dev) }
    }

    /// The `struct vhost_virtqueue` of a queue.
    pub(super) fn vq(&self, id: QueueId) -> *mut bindings::vhost_virtqueue {
        // SAFETY: As above.
        unsafe { ptr::addr_of_mut!((*self.raw.get()).vqs[id as usize]) }
    }

    /// The `struct vhost_work` for [`Backend::handle_send`].
    fn send_work(&self) -> *mut bindings::vhost_work {
        // SAFETY: As above.
        unsafe { ptr::addr_of_mut!((*self.raw.get()).send_work) }
    }

    /// Takes the device mutex. Context: process context; may sleep. Outside the queue mutexes.
    pub(crate) fn lock(&self) -> DeviceGuard<'_, T> {
        // SAFETY: The mutex was initialised by `vhost_dev_init()`.
        unsafe { bindings::mutex_lock(ptr::addr_of_mut!((*self.dev()).mutex)) };
        // INVARIANT: Just taken.
        DeviceGuard {
            device: self,
            _not_send: NotThreadSafe,
        }
    }

    /// Takes the mutex of a queue. Context: process context; may sleep. Inside the device mutex.
    pub(crate) fn lock_queue(&self, id: QueueId) -> QueueGuard<'_> {
        // SAFETY: The queue belongs to this device, which was initialised and lives for the
        // lifetime of the guard.
        unsafe { QueueGuard::lock(self.vq(id), id, self.send_work()) }
    }

    /// Whether a queue is started. A hint: without the queue's mutex it may change at once.
    #[inline]
    pub(crate) fn is_started(&self, id: QueueId) -> bool {
        // SAFETY: The queue is valid; the shim reads the field as a data race that is meant.
        !unsafe { bindings::rs_vhost_vq_get_backend(self.vq(id)) }.is_null()
    }

    /// Entries of a queue's ring. Without the queue's mutex it may change at once.
    #[inline]
    pub(crate) fn ring_size(&self, id: QueueId) -> u32 {
        // SAFETY: The queue is valid; a volatile read sees one of the values that the field had.
        unsafe { ptr::addr_of!((*self.vq(id)).num).read_volatile() }
    }

    /// Has the worker of the RX queue run [`Backend::handle_send`]; false if the queue is stopped
    /// or has no worker.
    ///
    /// Context: any. Whoever stops a queue and waits for a grace period knows that no work is
    /// queued for it: hence `_guard`.
    #[inline]
    pub(crate) fn queue_send_work(&self, _guard: &rcu::Guard) -> bool {
        if !self.is_started(QueueId::Rx) {
            return false;
        }
        // SAFETY: Both are parts of this device and initialised.
        unsafe { bindings::vhost_vq_work_queue(self.vq(QueueId::Rx), self.send_work()) }
    }

    /// Has the worker of a queue run its handler as if the guest had kicked it; false if the queue
    /// is stopped or has no worker. Context: as for [`Device::queue_send_work`].
    pub(crate) fn kick(&self, id: QueueId, _guard: &rcu::Guard) -> bool {
        if !self.is_started(id) {
            return false;
        }
        let vq = self.vq(id);
        // SAFETY: The queue and its poll work are valid and initialised.
        unsafe { bindings::vhost_vq_work_queue(vq, ptr::addr_of_mut!((*vq).poll.work)) }
    }

    /// Whether one worker runs both queues. It may change at once.
    pub(crate) fn is_worker_shared(&self) -> bool {
        // SAFETY: Both queues are valid.
        unsafe { bindings::rs_vhost_share_worker(self.vq(QueueId::Rx), self.vq(QueueId::Tx)) }
    }

    /// Whether [`Backend::handle_send`] is to be run. It may change at once, but only the worker
    /// makes it false.
    pub(crate) fn is_send_work_queued(&self) -> bool {
        // SAFETY: The work is valid.
        unsafe { bindings::rs_vhost_work_is_queued(self.send_work()) }
    }

    /// Sleeps for at most `us` microseconds, less if there is other work for the worker of the
    /// queue; whether there is.
    ///
    /// Context: that worker; no lock held.
    pub(crate) fn linger(&self, id: QueueId, us: u32) -> bool {
        // SAFETY: The queue and the work are valid and initialised. The shim leaves the task in
        // the state in which it found it.
        unsafe { bindings::rs_vhost_linger(self.vq(id), self.send_work(), us) }
    }

    /// Sets the backend features of both queues. Takes the device mutex.
    pub(crate) fn set_backend_features(&self, features: u64) {
        // SAFETY: The device is initialised.
        unsafe { bindings::vhost_set_backend_features(self.dev(), features) };
    }

    /// Runs `run` on `backend` in the address space of the device's owner, in another thread, and
    /// waits for its end. For what the worker would do, when it was killed with its process.
    ///
    /// Nothing is run if the device has no owner.
    /// Context: process context, the file is being released; sleeps; no lock held.
    pub(crate) fn run_as_owner(backend: &T, run: fn(&T)) {
        let mut job = OwnerJob { backend, run };
        // SAFETY: The file is being released, so no ioctl changes the owner, and the device holds a
        // reference to its address space until `shut_down()`. `job` is what the function takes, and
        // lives until the shim has waited for its end.
        unsafe {
            let mm = (*backend.device().dev()).mm;
            if !mm.is_null() {
                let job = ptr::addr_of_mut!(job).cast();
                bindings::rs_run_in_mm(mm, Some(run_owner_job::<T>), job);
            }
        }
    }
}

/// What [`Device::run_as_owner`] hands to the other thread.
struct OwnerJob<'a, T> {
    backend: &'a T,
    run: fn(&T),
}

/// # Safety
///
/// `job` must point at an [`OwnerJob<T>`], which is not used elsewhere meanwhile.
unsafe extern "C" fn run_owner_job<T: Backend>(job: *mut c_void) {
    // SAFETY: By the requirement.
    let job = unsafe { &*job.cast::<OwnerJob<'_, T>>() };
    (job.run)(job.backend);
}

/// The device mutex, held.
///
/// # Invariants
///
/// `device.mutex` is held by the current task while this exists.
pub(crate) struct DeviceGuard<'a, T: Backend> {
    device: &'a Device<T>,
    _not_send: NotThreadSafe,
}

impl<T: Backend> Drop for DeviceGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the current task holds the mutex.
        unsafe { bindings::mutex_unlock(ptr::addr_of_mut!((*self.device.dev()).mutex)) };
    }
}

impl<T: Backend> DeviceGuard<'_, T> {
    /// EPERM unless the current process owns the device. Source: `vhost_dev_check_owner()`.
    pub(crate) fn check_owner(&self) -> Result {
        // SAFETY: The device is initialised and its mutex held.
        let ret = unsafe { bindings::vhost_dev_check_owner(self.device.dev()) };
        long_result(ret).map(drop)
    }

    /// Starts a queue: checks that its rings are accessible, then sets the backend.
    ///
    /// EFAULT if they are not. The queue is stopped after a failure.
    pub(crate) fn start_queue(&self, id: QueueId) -> Result {
        let mut queue = self.device.lock_queue(id);
        // SAFETY: `self` shows that the device mutex is held.
        unsafe { queue.start(self.device.dev().cast()) }
    }

    /// Waits until all work that was queued has run. Context: process context; sleeps.
    pub(crate) fn flush(&self) {
        // SAFETY: The device is initialised, and its mutex held, so no worker is freed meanwhile.
        // Work takes the mutexes of queues, but not that of the device.
        unsafe { bindings::vhost_dev_flush(self.device.dev()) };
    }

    /// Whether the dirty log can be written. Source: `vhost_log_access_ok()`.
    pub(crate) fn log_access_ok(&self) -> bool {
        // SAFETY: The device is initialised and its mutex held; no queue mutex is.
        unsafe { bindings::vhost_log_access_ok(self.device.dev()) }
    }

    /// Gives the device an empty IOTLB, or takes it away. Source: `vhost_init_device_iotlb()`.
    pub(crate) fn set_iotlb(&self, wanted: bool) -> Result {
        if wanted {
            // SAFETY: The device is initialised and its mutex held; no queue mutex is.
            return to_result(unsafe { bindings::vhost_init_device_iotlb(self.device.dev()) });
        }
        // SAFETY: As above.
        unsafe { bindings::vhost_clear_device_iotlb(self.device.dev()) };
        Ok(())
    }

    /// Sets the features that the driver of the guest and the VMM agreed on, for both queues.
    pub(crate) fn set_features(&self, features: u64) {
        for id in QueueId::ALL {
            self.device.lock_queue(id).set_features(features);
        }
    }

    /// The ioctls that are the vhost core's own: of the device, of its workers, then of its rings.
    ///
    /// Returns what C returns, ENOIOCTLCMD for a command that nobody knows.
    pub(crate) fn ioctl(&self, cmd: u32, arg: usize) -> Result<isize> {
        let argp = ptr::without_provenance_mut::<c_void>(arg);
        match cmd {
            VHOST_NEW_WORKER
            | VHOST_FREE_WORKER
            | VHOST_ATTACH_VRING_WORKER
            | VHOST_GET_VRING_WORKER => self.worker_ioctl(cmd, argp),
            _ => self.core_ioctl(cmd, argp),
        }
    }

    fn core_ioctl(&self, cmd: u32, argp: *mut c_void) -> Result<isize> {
        let dev = self.device.dev();
        // SAFETY: The device is initialised and its mutex held; `argp` is checked by the callee as
        // any pointer from user space.
        let ret = unsafe { bindings::vhost_dev_ioctl(dev, cmd, argp) };
        if ret == -(bindings::ENOIOCTLCMD as c_long) {
            // SAFETY: As above.
            return long_result(unsafe { bindings::vhost_vring_ioctl(dev, cmd, argp) });
        }
        self.flush();
        long_result(ret)
    }

    /// The worker ioctls, which the C driver does not have.
    fn worker_ioctl(&self, cmd: u32, argp: *mut c_void) -> Result<isize> {
        if cmd == VHOST_ATTACH_VRING_WORKER {
            // Whoever saw a started queue may still be about to queue work on the old worker, and a
            // stopped queue's work may wait there; `__vhost_vq_attach_worker()` takes it for
            // granted that a queue without a backend has none. Work is queued in RCU sections, and
            // no queue can be started while the device mutex is held.
            synchronize_rcu();
            self.flush();
        }
        // SAFETY: The device is initialised and its mutex held; `argp` is checked by the callee.
        long_result(unsafe { bindings::vhost_worker_ioctl(self.device.dev(), cmd, argp) })
    }
}

/// The feature bits that the C driver offers on this kernel: `VHOST_VSOCK_FEATURES`.
pub(crate) fn c_driver_features() -> u64 {
    // SAFETY: The shim has no preconditions.
    unsafe { bindings::rs_vhost_vsock_features() }
}

/// A C `long` that is a value or a negative errno.
fn long_result(ret: c_long) -> Result<isize> {
    if ret < 0 {
        return match u32::try_from(-ret) {
            Ok(code) => Err(errno(code)),
            Err(_) => Err(EINVAL),
        };
    }
    Ok(ret)
}

/// The backend of the device whose part `vq` is.
///
/// # Safety
///
/// `vq` must be a queue of a [`Device<T>`] that is bound.
unsafe fn backend_of<'a, T: Backend>(vq: *mut bindings::vhost_virtqueue) -> &'a T {
    // SAFETY: By the requirement, `vq->dev` is the `dev` of a `RawDevice` whose `backend` is valid
    // for as long as callbacks run.
    unsafe {
        let raw = kernel::container_of!((*vq).dev, RawDevice, dev);
        &*(*raw).backend.cast::<T>()
    }
}

/// # Safety
///
/// `work` must be the poll work of the RX queue of a bound [`Device<T>`].
unsafe extern "C" fn handle_rx_kick<T: Backend>(work: *mut bindings::vhost_work) {
    // SAFETY: By the requirement.
    unsafe {
        let vq = kernel::container_of!(work, bindings::vhost_virtqueue, poll.work);
        backend_of::<T>(vq).handle_kick(QueueId::Rx);
    }
}

/// # Safety
///
/// `work` must be the poll work of the TX queue of a bound [`Device<T>`].
unsafe extern "C" fn handle_tx_kick<T: Backend>(work: *mut bindings::vhost_work) {
    // SAFETY: By the requirement.
    unsafe {
        let vq = kernel::container_of!(work, bindings::vhost_virtqueue, poll.work);
        backend_of::<T>(vq).handle_kick(QueueId::Tx);
    }
}

/// # Safety
///
/// `work` must be the send work of a bound [`Device<T>`].
unsafe extern "C" fn handle_send_work<T: Backend>(work: *mut bindings::vhost_work) {
    // SAFETY: By the requirement, and since `backend` is valid as long as callbacks run.
    unsafe {
        let raw = kernel::container_of!(work, RawDevice, send_work);
        (*(*raw).backend.cast::<T>()).handle_send();
    }
}
