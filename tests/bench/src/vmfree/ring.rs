// SPDX-License-Identifier: GPL-2.0

//! The driver's side of a split virtqueue with event-idx (VIRTIO 1.3, section 2.7), as fast as memory.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use anyhow::{Context, Result};
use vhost::{VhostBackend, VringConfigData};
use virtio_bindings::virtio_ring::VRING_DESC_F_WRITE;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Entries of a ring: what QEMU's device has.
pub(crate) const SIZE: u16 = 128;

/// Guest memory that a ring takes.
pub(crate) const SPACE: u64 = 3 * PART;

/// Offset of the available ring; the used ring comes twice as far.
const PART: u64 = 4096;

/// One ring, empty at first; each descriptor slot describes one buffer.
pub(crate) struct Ring {
    /// Where the driver sees the ring.
    base: *mut u8,
    kick: EventFd,
    /// Signalled by the device.
    pub call: EventFd,
    /// Kicks given so far.
    pub kicks: u64,
    /// Signals taken from `call` so far.
    pub signals: u64,
    offered: u16,
    published: u16,
    taken: u16,
}

// SAFETY: The memory behind `base` outlives the ring, as the guest that has both sees to, and is no thread's own.
unsafe impl Send for Ring {}

impl Ring {
    /// Lays queue `index` out at `address` in zeroed guest memory and tells the device.
    pub(crate) fn new(
        device: &impl VhostBackend,
        memory: &GuestMemoryMmap<()>,
        index: usize,
        address: u64,
    ) -> Result<Self> {
        let base = memory
            .get_host_address(GuestAddress(address))
            .context("ring memory")?;
        let event = || EventFd::new(EFD_NONBLOCK).context("eventfd");
        let (kick, call) = (event()?, event()?);
        let config = VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: 0,
            desc_table_addr: address,
            avail_ring_addr: address + PART,
            used_ring_addr: address + 2 * PART,
            log_addr: None,
        };
        device.set_vring_num(index, SIZE)?;
        device.set_vring_base(index, 0)?;
        device.set_vring_addr(index, &config)?;
        device.set_vring_kick(index, &kick)?;
        device.set_vring_call(index, &call)?;
        Ok(Self {
            base,
            kick,
            call,
            kicks: 0,
            signals: 0,
            offered: 0,
            published: 0,
            taken: 0,
        })
    }

    fn u16_at(&self, offset: u64) -> &AtomicU16 {
        // SAFETY: All offsets in this file are within the ring's guest memory and aligned.
        unsafe { AtomicU16::from_ptr(self.base.add(offset as usize).cast()) }
    }

    fn u32_at(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: As in `u16_at`.
        unsafe { AtomicU32::from_ptr(self.base.add(offset as usize).cast()) }
    }

    fn u64_at(&self, offset: u64) -> &AtomicU64 {
        // SAFETY: As in `u16_at`.
        unsafe { AtomicU64::from_ptr(self.base.add(offset as usize).cast()) }
    }

    /// Describes the buffer of `slot`, which the device writes or reads.
    pub(crate) fn describe(&self, slot: u16, address: u64, len: u32, device_writes: bool) {
        let at = 16 * u64::from(slot);
        let flags = if device_writes {
            VRING_DESC_F_WRITE as u16
        } else {
            0
        };
        self.u64_at(at).store(address, Ordering::Relaxed);
        self.u32_at(at + 8).store(len, Ordering::Relaxed);
        self.u16_at(at + 12).store(flags, Ordering::Relaxed);
    }

    /// Buffers that the device holds, the unpublished ones included.
    pub(crate) fn in_flight(&self) -> u16 {
        self.offered.wrapping_sub(self.taken)
    }

    /// The slot that comes next where slots are used in turn.
    pub(crate) fn next_slot(&self) -> u16 {
        self.offered % SIZE
    }

    /// Puts the buffer of `slot` into the available ring; it is not yet published.
    pub(crate) fn offer(&mut self, slot: u16) {
        let at = PART + 4 + 2 * u64::from(self.offered % SIZE);
        self.u16_at(at).store(slot, Ordering::Relaxed);
        self.offered = self.offered.wrapping_add(1);
    }

    /// Publishes what was offered, and kicks if the device asks for it.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let new = self.offered;
        let old = std::mem::replace(&mut self.published, new);
        if new == old {
            return Ok(());
        }
        self.u16_at(PART + 2).store(new, Ordering::Release);
        fence(Ordering::SeqCst);
        let wanted = 2 * PART + 4 + 8 * u64::from(SIZE);
        let event = self.u16_at(wanted).load(Ordering::Relaxed);
        if new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old) {
            self.kicks += 1;
            self.kick.write(1).context("kick")?;
        }
        Ok(())
    }

    /// Takes back the next used buffer: its slot and the bytes written.
    pub(crate) fn take(&mut self) -> Option<(u16, u32)> {
        if self.is_drained() {
            return None;
        }
        let at = 2 * PART + 4 + 8 * u64::from(self.taken % SIZE);
        let slot = self.u32_at(at).load(Ordering::Relaxed) as u16;
        let len = self.u32_at(at + 4).load(Ordering::Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some((slot, len))
    }

    fn is_drained(&self) -> bool {
        self.used() == self.taken
    }

    /// Whether the device has used all buffers that were published.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.used() == self.published
    }

    /// The used index.
    fn used(&self) -> u16 {
        self.u16_at(2 * PART + 2).load(Ordering::Acquire)
    }

    /// Asks for a signal at the next used buffer; false if there is one already.
    pub(crate) fn arm(&self) -> bool {
        self.u16_at(PART + 4 + 2 * u64::from(SIZE))
            .store(self.taken, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.is_drained()
    }

    /// Counts the signals that came.
    pub(crate) fn count_signals(&mut self) {
        self.signals += self.call.read().unwrap_or(0);
    }
}
