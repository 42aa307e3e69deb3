// SPDX-License-Identifier: GPL-2.0

//! A started virtqueue whose notifications are off.

use core::ptr;

use kernel::prelude::*;

use super::{
    device::{
        QueueId,
        BYTE_WEIGHT,
        PACKET_WEIGHT, //
    },
    iter::{
        BufferReader,
        BufferWriter, //
    },
    queue::QueueGuard, //
};
use crate::{
    bindings,
    logic::{
        busy_poll,
        used, //
    },
};

/// Entries of the arrays of a queue, `iov`, `heads` and `log`: the `iov_limit` of the device.
pub(crate) const ARRAY_CAPACITY: u32 = bindings::UIO_MAXIOV;

/// Entries of `iov` below which no further buffer is taken beside those that are held.
const SPARE_IOVS: u32 = 128;

/// A buffer of the guest: a chain of descriptors that was taken from the available ring.
///
/// It must be completed or put back. One that is dropped is put back when the ring is left: the
/// [`Ring`] counts those that it gave out.
///
/// Numbers of descriptors and of their parts are small: the former are at most the size of the
/// ring, the latter at most `ARRAY_CAPACITY`.
#[must_use = "a buffer that was taken must be completed or put back"]
pub(crate) struct Chain {
    readable_len: usize,
    writable_len: usize,
    head: u16,
    descriptors: u16,
    first_iov: u16,
    readable_iovs: u16,
    writable_iovs: u16,
    log_entries: u16,
}

impl Chain {
    /// Index of the first descriptor.
    pub(crate) fn head(&self) -> u32 {
        u32::from(self.head)
    }

    /// Bytes of the device-readable part.
    pub(crate) fn readable_len(&self) -> usize {
        self.readable_len
    }

    /// Bytes of the device-writable part.
    pub(crate) fn writable_len(&self) -> usize {
        self.writable_len
    }
}

/// A clock of about a microsecond a tick. Source: `busy_clock()` in `drivers/vhost/net.c`.
pub(crate) fn busy_clock() -> u64 {
    // SAFETY: The shim has no preconditions.
    unsafe { bindings::rs_busy_clock() }
}

/// Why there is no next buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChainError {
    /// An address is not in the IOTLB. The VMM was asked, and its answer kicks the queue.
    Miss,
    /// The next buffer made no sense. It was stepped over and, where it could be named, returned
    /// with length 0. Holds its head, which may be out of range.
    Refused(i32),
    /// The ring itself makes no sense. Nothing can be taken until it is set up anew.
    Broken,
    /// No more buffers can be held at once; complete those that are.
    Full,
}

/// What was done with a ring between its opening and its closing.
#[derive(Clone, Copy, Default)]
pub(crate) struct RingStats {
    /// Buffers that were returned to the guest.
    pub(crate) buffers: u32,
    /// Updates of the used index.
    pub(crate) publishes: u32,
    /// Times that the guest was to be signalled; event-idx or the guest's flags may suppress it.
    pub(crate) signals: u32,
    /// Buffers that were refused.
    pub(crate) refused: u32,
}

/// The outcome of [`Ring::enable_notifications`].
pub(crate) enum Enabled<'a> {
    /// Notifications are on and the ring is empty; the ring was left.
    Idle(RingStats),
    /// A buffer came in between; notifications are off again.
    More(Ring<'a>),
}

/// A started virtqueue whose notifications are off.
///
/// Leaving it, in whichever way, publishes what was completed, puts back what was taken and not
/// completed, and signals the guest once, if anything was published.
///
/// # Invariants
///
/// - The queue is locked and started, so its arrays are allocated.
/// - The first `held` entries of `heads` (and of `nheads`, if `skip`) are used buffers that were
///   not published; `held <= limit <= ARRAY_CAPACITY`.
/// - `taken` buffers with `taken_descriptors` descriptors, the last ones that were taken, are
///   neither completed nor put back; `iovs` entries of `iov` are theirs.
pub(crate) struct Ring<'a> {
    queue: QueueGuard<'a>,
    limit: u32,
    held: u32,
    held_buffers: u32,
    last_held_may_be_skipped: bool,
    taken: u32,
    taken_descriptors: u32,
    iovs: u32,
    unsignalled: bool,
    /// The ring has this machine's byte order; that of a legacy device may be the other.
    native_endian: bool,
    /// Writes into buffers are logged.
    log: bool,
    /// One used entry may stand for several buffers.
    skip: bool,
    stats: RingStats,
}

impl<'a> Ring<'a> {
    /// Turns notifications off. `queue` must be started, with its rings mapped.
    pub(super) fn new(queue: QueueGuard<'a>, limit: u32) -> Self {
        let log = queue.has_feature(bindings::VHOST_F_LOG_ALL);
        // The core's logging of in-order entries does not cover what it wrote; see
        // Documentation/design.rst.
        let skip = queue.has_feature(bindings::VIRTIO_F_IN_ORDER) && !log;
        // SAFETY: The queue is valid, locked and started.
        let native_endian = unsafe {
            bindings::vhost_disable_notify((*queue.as_raw()).dev, queue.as_raw());
            bindings::rs_cpu_to_vhost32(queue.as_raw(), 1) == 1
        };
        // INVARIANT: Nothing was taken or completed.
        Self {
            log: log && queue.id() == QueueId::Rx,
            queue,
            limit: limit.clamp(1, ARRAY_CAPACITY),
            held: 0,
            held_buffers: 0,
            last_held_may_be_skipped: false,
            taken: 0,
            taken_descriptors: 0,
            iovs: 0,
            unsignalled: false,
            native_endian,
            skip,
            stats: RingStats::default(),
        }
    }

    /// The C queue.
    fn vq(&self) -> *mut bindings::vhost_virtqueue {
        self.queue.as_raw()
    }

    /// Takes the next buffer; [`None`] if the guest has made no more available.
    ///
    /// Source: `vhost_get_vq_desc_n()`.
    pub(crate) fn next_chain(&mut self) -> Result<Option<Chain>, ChainError> {
        if self.iovs + SPARE_IOVS > ARRAY_CAPACITY {
            return Err(ChainError::Full);
        }
        if self.is_available_index_wild() {
            return Err(ChainError::Broken);
        }

        let (mut readable, mut writable, mut log_entries, mut descriptors) = (0, 0, 0, 0);
        let vq = self.vq();
        // SAFETY: The queue is valid, locked and started, and notifications are off. `iovs` is
        // less than the length of `iov`, so the part that is handed out is in bounds; `log` has
        // `ARRAY_CAPACITY` entries, as many as a buffer may have parts.
        let head = unsafe {
            let iov = ptr::addr_of_mut!((*vq).iov).cast::<bindings::iovec>();
            let (log, log_num) = if self.log {
                ((*vq).log, ptr::addr_of_mut!(log_entries))
            } else {
                (ptr::null_mut(), ptr::null_mut())
            };
            bindings::vhost_get_vq_desc_n(
                vq,
                iov.add(self.iovs as usize),
                ARRAY_CAPACITY - self.iovs,
                &mut readable,
                &mut writable,
                log,
                log_num,
                &mut descriptors,
            )
        };

        let Ok(head) = u32::try_from(head) else {
            return Err(self.refuse(head));
        };
        // SAFETY: The queue is valid and locked.
        if head == unsafe { (*vq).num } {
            return Ok(None);
        }

        let first_iov = self.iovs;
        self.taken += 1;
        self.taken_descriptors += descriptors;
        self.iovs += readable + writable;
        // All of these are in bounds, see `Chain`.
        Ok(Some(Chain {
            readable_len: self.iov_len(first_iov, readable),
            writable_len: self.iov_len(first_iov + readable, writable),
            head: head as u16,
            descriptors: descriptors as u16,
            first_iov: first_iov as u16,
            readable_iovs: readable as u16,
            writable_iovs: writable as u16,
            log_entries: log_entries as u16,
        }))
    }

    /// Whether the guest's available index, as last read, promises more buffers than the ring has.
    fn is_available_index_wild(&self) -> bool {
        // SAFETY: The queue is valid and locked.
        let (read, taken, num) = unsafe {
            (
                (*self.vq()).avail_idx,
                (*self.vq()).last_avail_idx,
                (*self.vq()).num,
            )
        };
        u32::from(read.wrapping_sub(taken)) > num
    }

    /// Handles an error of the C core in place of a buffer.
    fn refuse(&mut self, error: c_int) -> ChainError {
        if error == -(bindings::EAGAIN as c_int) {
            return ChainError::Miss;
        }
        if self.taken > 0 {
            // Perhaps only the rest of `iov` was too short for it, and entries are returned in
            // order anyway: it is seen again when those that are held are done.
            return ChainError::Full;
        }
        // SAFETY: The queue is valid and locked, and this thread runs in the owner's mm.
        let head = unsafe { bindings::rs_vhost_skip_avail(self.vq()) };
        let Ok(named) = u32::try_from(head) else {
            return ChainError::Broken;
        };
        self.stats.refused += 1;
        // SAFETY: The queue is valid and locked.
        if named < unsafe { (*self.vq()).num } {
            self.hold(named, 0, false);
        }
        ChainError::Refused(head)
    }

    /// Bytes of `count` entries of `iov` from `first`.
    fn iov_len(&self, first: u32, count: u32) -> usize {
        let mut len = 0usize;
        for iov in self.iov(first, count) {
            len = len.saturating_add(iov.iov_len);
        }
        len
    }

    /// `count` entries of `iov` from `first`.
    fn iov(&self, first: u32, count: u32) -> &[bindings::iovec] {
        // SAFETY: The queue is valid and locked, so nobody else writes the array.
        let all = unsafe { &(*self.vq()).iov };
        let first = first as usize;
        all.get(first..first + count as usize).unwrap_or(&[])
    }

    /// Moves the parts of `chain` to the front of `iov`, if no other buffer is held.
    pub(crate) fn settle(&mut self, mut chain: Chain) -> Chain {
        let count = u32::from(chain.readable_iovs + chain.writable_iovs);
        if self.taken != 1 || chain.first_iov == 0 {
            return chain;
        }
        let first = usize::from(chain.first_iov);
        // SAFETY: The queue is valid and locked, so nobody else uses the array. `next_chain()` put
        // `count` entries from `first` into it; the two places may overlap.
        unsafe {
            let iov = ptr::addr_of_mut!((*self.vq()).iov).cast::<bindings::iovec>();
            ptr::copy(iov.add(first), iov, count as usize);
        }
        chain.first_iov = 0;
        self.iovs = count;
        chain
    }

    /// Reads at most `len` bytes of the device-readable part of a buffer, from `offset` on.
    pub(crate) fn reader<'r>(
        &'r self,
        chain: &Chain,
        offset: usize,
        len: usize,
    ) -> BufferReader<'r> {
        BufferReader::new(
            self.iov(chain.first_iov.into(), chain.readable_iovs.into()),
            offset,
            len.min(chain.readable_len.saturating_sub(offset)),
        )
    }

    /// Writes the device-writable part of a buffer.
    pub(crate) fn writer<'r>(&'r self, chain: &Chain) -> BufferWriter<'r> {
        let first = chain.first_iov + chain.readable_iovs;
        BufferWriter::new(
            self.iov(first.into(), chain.writable_iovs.into()),
            chain.writable_len,
        )
    }

    /// Logs the first `len` bytes of the device-writable part as dirty, if writes are logged.
    ///
    /// Source: `vhost_log_write()`, of which `drivers/vhost/net.c` is the model.
    pub(crate) fn log_dirty(&mut self, chain: &Chain, len: usize) {
        if !self.log || len == 0 {
            return;
        }
        let count = self.truncate_iov(chain, len);
        let first = usize::from(chain.first_iov + chain.readable_iovs);
        // SAFETY: The queue is valid and locked. `log` holds `log_entries` entries, which the last
        // `next_chain()` wrote, and `iov` has `count` entries from `first`.
        unsafe {
            let iov = ptr::addr_of_mut!((*self.vq()).iov).cast::<bindings::iovec>();
            bindings::vhost_log_write(
                self.vq(),
                (*self.vq()).log,
                chain.log_entries.into(),
                len as u64,
                iov.add(first),
                count as c_int,
            );
        }
    }

    /// Cuts the device-writable entries of `chain` to `len` bytes in all; returns how many are left.
    fn truncate_iov(&mut self, chain: &Chain, mut len: usize) -> u32 {
        let first = usize::from(chain.first_iov + chain.readable_iovs);
        // SAFETY: The queue is valid and locked, so nobody else uses the array.
        let all = unsafe { &mut (*self.vq()).iov };
        let mut count = 0;
        for iov in all
            .iter_mut()
            .skip(first)
            .take(usize::from(chain.writable_iovs))
        {
            if len == 0 {
                break;
            }
            iov.iov_len = iov.iov_len.min(len);
            len -= iov.iov_len;
            count += 1;
        }
        count
    }

    /// Completes a buffer into whose device-writable part `written` bytes were written.
    ///
    /// Buffers must be completed in the order in which they were taken.
    pub(crate) fn complete(&mut self, chain: Chain, written: usize) {
        // INVARIANT: The oldest of those that are taken is so no more.
        self.taken = self.taken.saturating_sub(1);
        let descriptors = u32::from(chain.descriptors);
        self.taken_descriptors = self.taken_descriptors.saturating_sub(descriptors);
        if self.taken == 0 {
            self.iovs = 0;
        }
        let may_be_skipped = used::may_skip(chain.writable_len, written);
        // A packet is at most 64 KiB and a header.
        self.hold(
            chain.head.into(),
            u32::try_from(written).unwrap_or(0),
            may_be_skipped,
        );
    }

    /// Completes a buffer that cannot be used, with length 0.
    pub(crate) fn refuse_chain(&mut self, chain: Chain, why: &'static CStr) {
        self.report(why);
        self.stats.refused += 1;
        self.complete(chain, 0);
    }

    /// Tells the VMM by its error eventfd, and the log at debug level. Source: `vq_err()`.
    fn report(&self, why: &'static CStr) {
        // SAFETY: The queue is valid and locked; the string is a C string.
        unsafe { bindings::rs_vq_err(self.vq(), why.as_char_ptr()) };
    }

    /// A number in the byte order of the ring: `cpu_to_vhost32()`.
    fn to_ring(&self, value: u32) -> u32 {
        if self.native_endian {
            value
        } else {
            value.swap_bytes()
        }
    }

    /// Adds an entry to those that wait for publication.
    fn hold(&mut self, head: u32, len: u32, may_be_skipped: bool) {
        let replaces_last = self.skip && self.held > 0 && self.last_held_may_be_skipped;
        if !replaces_last {
            self.held += 1;
        }
        let at = (self.held - 1) as usize;
        // SAFETY: The queue is valid, locked and started, so `heads` and `nheads` have
        // `ARRAY_CAPACITY` entries; `at < limit <= ARRAY_CAPACITY`.
        unsafe {
            let entry = (*self.vq()).heads.add(at);
            (*entry).id = self.to_ring(head);
            (*entry).len = self.to_ring(len);
            let covers = (*self.vq()).nheads.add(at);
            *covers = if replaces_last { *covers + 1 } else { 1 };
        }
        self.last_held_may_be_skipped = may_be_skipped;
        self.held_buffers += 1;
        self.stats.buffers += 1;
        if self.held_buffers >= self.limit {
            self.publish();
        }
    }

    /// Publishes the used buffers that are held, with one update of the used index.
    ///
    /// Source: `vhost_add_used_n()`.
    pub(crate) fn publish(&mut self) {
        if self.held == 0 {
            return;
        }
        // SAFETY: The queue is valid, locked and started; the first `held` entries are valid.
        let ret = unsafe {
            let nheads = if self.skip {
                (*self.vq()).nheads
            } else {
                ptr::null_mut()
            };
            bindings::vhost_add_used_n(self.vq(), (*self.vq()).heads, nheads, self.held)
        };
        self.held = 0;
        self.held_buffers = 0;
        // A guest whose used ring cannot be written has lost its buffers; the core has told the
        // VMM, and there is nothing to signal.
        if ret >= 0 {
            self.stats.publishes += 1;
            self.unsignalled = true;
        }
    }

    /// Puts back all buffers that were taken and not completed.
    pub(crate) fn put_back(&mut self) {
        if self.taken == 0 {
            return;
        }
        // SAFETY: The queue is valid and locked, and the last `taken` buffers are not completed.
        unsafe {
            bindings::vhost_discard_vq_desc(self.vq(), self.taken as c_int, self.taken_descriptors)
        };
        self.taken = 0;
        self.taken_descriptors = 0;
        self.iovs = 0;
    }

    /// Publishes, and signals the guest if anything was published since the last signal.
    pub(crate) fn publish_and_signal(&mut self) {
        self.publish();
        if self.unsignalled {
            self.unsignalled = false;
            self.stats.signals += 1;
            // SAFETY: The queue is valid and locked.
            unsafe { bindings::vhost_signal((*self.vq()).dev, self.vq()) };
        }
    }

    /// Whether the pass has done enough; if so, the queue was kicked, so that another follows.
    ///
    /// Source: `vhost_exceeds_weight()`.
    #[inline]
    pub(crate) fn exceeds_weight(&self, packets: u32, bytes: usize) -> bool {
        if packets < PACKET_WEIGHT && bytes < BYTE_WEIGHT {
            return false;
        }
        // SAFETY: The queue is valid and locked, and its poll work is initialised.
        unsafe { bindings::vhost_poll_queue(ptr::addr_of_mut!((*self.vq()).poll)) };
        true
    }

    /// Microseconds to poll before notifications are enabled; see [`busy_poll::timeout_us`].
    pub(crate) fn poll_timeout(&self, default: u32) -> u32 {
        busy_poll::timeout_us(self.queue.busyloop_timeout(), default)
    }

    /// Whether the guest has made no buffer available. Source: `vhost_vq_avail_empty()`.
    fn is_empty(&self) -> bool {
        // SAFETY: The queue is valid and locked.
        unsafe { bindings::vhost_vq_avail_empty((*self.vq()).dev, self.vq()) }
    }

    /// Waits for at most `timeout` microseconds until the guest has made a buffer available;
    /// whether it has. What was used is published and signalled first.
    ///
    /// Ends early when the CPU or the worker is wanted elsewhere.
    pub(crate) fn poll_for_buffer(&mut self, timeout: u32) -> bool {
        if timeout == 0 {
            return false;
        }
        self.publish_and_signal();
        self.poll_until(timeout, Self::has_buffer)
    }

    /// Waits for at most `timeout` microseconds until `ready` is true; whether it is.
    pub(crate) fn poll_until(&mut self, timeout: u32, ready: impl Fn(&Self) -> bool) -> bool {
        let start = busy_clock();
        while !ready(self) {
            // SAFETY: The shim has no preconditions.
            let wanted = unsafe { bindings::rs_should_stop_polling() };
            if wanted || self.queue.work_waits() || busy_poll::is_over(start, busy_clock(), timeout)
            {
                return ready(self);
            }
            // SAFETY: As above.
            unsafe { bindings::rs_cpu_relax() };
        }
        true
    }

    /// Whether the guest has made a buffer available.
    pub(crate) fn has_buffer(&self) -> bool {
        !self.is_empty()
    }

    /// Publishes what was used, turns notifications on and looks at the ring once more.
    ///
    /// The only way to leave a ring so that the next buffer of the guest is told.
    /// Source: `vhost_enable_notify()`.
    pub(crate) fn enable_notifications(mut self) -> Enabled<'a> {
        if self.taken > 0 {
            // The C core only looks whether the guest's index has moved since.
            self.put_back();
            return Enabled::More(self);
        }
        self.publish();
        // SAFETY: The queue is valid and locked.
        unsafe {
            let dev = (*self.vq()).dev;
            if bindings::vhost_enable_notify(dev, self.vq()) {
                bindings::vhost_disable_notify(dev, self.vq());
                return Enabled::More(self);
            }
        }
        Enabled::Idle(self.leave())
    }

    /// Leaves the ring with notifications off: something else will run the queue again.
    pub(crate) fn leave(mut self) -> RingStats {
        self.close();
        self.stats
    }

    fn close(&mut self) {
        self.put_back();
        self.publish_and_signal();
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
