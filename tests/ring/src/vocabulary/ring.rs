// SPDX-License-Identifier: GPL-2.0
//! The driver's side of a split virtqueue (VIRTIO 1.3, section 2.7), thin enough to write wrong rings with.

use super::abi::{feature, vhost_vring_addr};
use super::device::Device;
use super::memory::{Block, Memory};
use super::patience;
use super::proc::wait_readable;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};
use virtio_bindings::virtio_ring::{
    VRING_AVAIL_F_NO_INTERRUPT, VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE,
    VRING_USED_F_NO_NOTIFY,
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Descriptor flags.
pub const NEXT: u16 = VRING_DESC_F_NEXT as u16;
pub const WRITE: u16 = VRING_DESC_F_WRITE as u16;
pub const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;

/// A piece of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub addr: u64,
    pub len: u32,
    /// The device writes it.
    pub write: bool,
}

/// How the pieces of a buffer are described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All pieces in the descriptor table.
    Direct,
    /// The first few in the descriptor table, the rest in an indirect table; 0 means all in it.
    Indirect(usize),
}

/// A buffer in flight.
#[derive(Clone, Debug)]
pub struct Chain {
    pub head: u16,
    pub pieces: Vec<Piece>,
    slots: Vec<u16>,
    table: Option<Block>,
}

/// A buffer that the device has given back.
#[derive(Clone, Debug)]
pub struct Completed {
    pub chain: Chain,
    /// Bytes that the device says it wrote.
    pub len: u32,
}

/// One virtqueue.
pub struct Ring {
    pub mem: Memory,
    pub index: usize,
    pub size: u16,
    pub desc: u64,
    pub avail: u64,
    pub used: u64,
    pub kick: EventFd,
    pub call: EventFd,
    pub err: EventFd,
    /// Signals seen on the call eventfd so far.
    pub signals: u64,
    /// Kicks given so far.
    pub kicks: u64,
    event_idx: bool,
    in_order: bool,
    iommu: bool,
    free: VecDeque<u16>,
    in_flight: VecDeque<Chain>,
    /// With in-order, the used entry whose batch is being taken back.
    batch: Option<(u32, u32)>,
    avail_next: u16,
    published: u16,
    used_next: u16,
}

impl Ring {
    /// Lays out an empty ring of `size` entries.
    pub fn new(mem: &Memory, index: usize, size: u16, features: u64) -> Result<Self> {
        let n = size as usize;
        let desc = mem.alloc((16 * n).max(4096)).addr;
        let avail = mem.alloc((6 + 2 * n).max(4096)).addr;
        let used = mem.alloc((6 + 8 * n).max(4096)).addr;
        let event = || EventFd::new(EFD_NONBLOCK).context("making an eventfd");
        let mut ring = Self {
            mem: mem.clone(),
            index,
            size,
            desc,
            avail,
            used,
            kick: event()?,
            call: event()?,
            err: event()?,
            signals: 0,
            kicks: 0,
            event_idx: false,
            in_order: false,
            iommu: false,
            free: VecDeque::new(),
            in_flight: VecDeque::new(),
            batch: None,
            avail_next: 0,
            published: 0,
            used_next: 0,
        };
        ring.reset(0, features);
        Ok(ring)
    }

    /// Forgets everything and starts anew at available index `base`, as a guest driver does after a reset.
    pub fn reset(&mut self, base: u16, features: u64) {
        let n = self.size as usize;
        self.mem.write(self.desc, &vec![0; 16 * n]);
        self.mem.write(self.avail, &vec![0; 6 + 2 * n]);
        self.mem.write(self.used, &vec![0; 6 + 8 * n]);
        self.event_idx = features & feature::EVENT_IDX != 0;
        self.in_order = features & feature::IN_ORDER != 0;
        self.iommu = features & feature::ACCESS_PLATFORM != 0;
        for chain in std::mem::take(&mut self.in_flight) {
            self.release(&chain);
        }
        let first = base % self.size;
        self.free = (0..self.size).map(|i| (first + i) % self.size).collect();
        self.batch = None;
        self.avail_next = base;
        self.published = base;
        self.used_next = base;
        self.mem.put_u16(self.avail + 2, base);
        self.mem.put_u16(self.used + 2, base);
        self.set_used_event(base);
        self.mem.put_u16(self.avail_event_addr(), base);
    }

    /// `struct vhost_vring_addr` of this ring: user addresses, or I/O addresses behind an IOMMU.
    pub fn addresses(&self) -> vhost_vring_addr {
        let place = |addr| {
            if self.iommu {
                addr
            } else {
                self.mem.user(addr)
            }
        };
        vhost_vring_addr {
            index: self.index as u32,
            flags: 0,
            desc_user_addr: place(self.desc),
            used_user_addr: place(self.used),
            avail_user_addr: place(self.avail),
            log_guest_addr: self.used,
        }
    }

    /// Tells the device size, base, addresses and eventfds.
    pub fn attach(&self, dev: &Device) -> Result<()> {
        dev.set_vring_num(self.index, self.size.into())
            .context("SET_VRING_NUM")?;
        dev.set_vring_base(self.index, self.avail_next.into())
            .context("SET_VRING_BASE")?;
        dev.set_vring_addr(&self.addresses())
            .context("SET_VRING_ADDR")?;
        self.attach_events(dev)
    }

    /// Tells the device the eventfds.
    pub fn attach_events(&self, dev: &Device) -> Result<()> {
        dev.set_kick(self.index, self.kick.as_raw_fd())
            .context("SET_VRING_KICK")?;
        dev.set_call(self.index, self.call.as_raw_fd())
            .context("SET_VRING_CALL")?;
        dev.set_err(self.index, self.err.as_raw_fd())
            .context("SET_VRING_ERR")?;
        Ok(())
    }

    /// Free descriptors.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Buffers that the device has not given back.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Index that the next published buffer will get.
    pub fn avail_next(&self) -> u16 {
        self.avail_next
    }

    /// Index of the used ring up to which buffers were taken back.
    pub fn used_next(&self) -> u16 {
        self.used_next
    }

    /// The device's used index as it stands in memory.
    pub fn used_idx(&self) -> u16 {
        self.mem.get_u16(self.used + 2)
    }

    /// The device wants no kicks (without event-idx).
    pub fn no_notify(&self) -> bool {
        self.mem.get_u16(self.used) & VRING_USED_F_NO_NOTIFY as u16 != 0
    }

    /// Index at which the device wants a kick (with event-idx).
    pub fn avail_event(&self) -> u16 {
        self.mem.get_u16(self.avail_event_addr())
    }

    fn avail_event_addr(&self) -> u64 {
        self.used + 4 + 8 * self.size as u64
    }

    fn used_event_addr(&self) -> u64 {
        self.avail + 4 + 2 * self.size as u64
    }

    /// Asks for a signal once entry `at` of the used ring is published (with event-idx).
    pub fn set_used_event(&self, at: u16) {
        self.mem.put_u16(self.used_event_addr(), at);
    }

    /// Asks for no signals, or for them again (without event-idx).
    pub fn set_no_interrupt(&self, off: bool) {
        let flag = if off {
            VRING_AVAIL_F_NO_INTERRUPT as u16
        } else {
            0
        };
        self.mem.put_u16(self.avail, flag);
    }

    /// Writes one descriptor as it is told.
    pub fn write_desc(&self, slot: u16, addr: u64, len: u32, flags: u16, next: u16) {
        write_desc_at(
            &self.mem,
            self.desc + 16 * slot as u64,
            addr,
            len,
            flags,
            next,
        );
    }

    /// Adds a buffer and gives its head; it is not yet published.
    ///
    /// # Errors
    ///
    /// If there are too few free descriptors.
    pub fn add(&mut self, pieces: &[Piece], form: Form) -> Result<u16> {
        let direct = match form {
            Form::Direct => pieces.len(),
            Form::Indirect(direct) => direct.min(pieces.len().saturating_sub(1)),
        };
        let needed = if direct == pieces.len() {
            direct
        } else {
            direct + 1
        };
        ensure!(
            self.free.len() >= needed,
            "ring {} is full: {} free, {needed} needed",
            self.index,
            self.free.len()
        );
        let slots: Vec<u16> = self.free.drain(..needed).collect();
        for (at, piece) in pieces[..direct].iter().enumerate() {
            let next = slots.get(at + 1).copied();
            self.write_desc(
                slots[at],
                piece.addr,
                piece.len,
                flags(piece, next),
                next.unwrap_or(0),
            );
        }
        let table =
            (direct < pieces.len()).then(|| self.write_table(&pieces[direct..], slots[direct]));
        let head = slots[0];
        self.offer(head);
        self.in_flight.push_back(Chain {
            head,
            pieces: pieces.to_vec(),
            slots,
            table,
        });
        Ok(head)
    }

    fn write_table(&self, pieces: &[Piece], slot: u16) -> Block {
        let table = self.mem.alloc(16 * pieces.len());
        for (at, piece) in pieces.iter().enumerate() {
            let next = (at + 1 < pieces.len()).then_some(at as u16 + 1);
            let addr = table.addr + 16 * at as u64;
            write_desc_at(
                &self.mem,
                addr,
                piece.addr,
                piece.len,
                flags(piece, next),
                next.unwrap_or(0),
            );
        }
        self.write_desc(slot, table.addr, 16 * pieces.len() as u32, INDIRECT, 0);
        table
    }

    /// Puts `head` into the next entry of the available ring, whatever it names.
    pub fn offer(&mut self, head: u16) {
        let slot = self.avail + 4 + 2 * (self.avail_next % self.size) as u64;
        self.mem.put_u16(slot, head);
        self.avail_next = self.avail_next.wrapping_add(1);
    }

    /// Makes everything added visible to the device; kicks it not.
    pub fn publish(&mut self) {
        self.publish_at(self.avail_next);
    }

    /// Writes any available index.
    pub fn publish_at(&mut self, index: u16) {
        fence(Ordering::Release);
        self.mem.put_u16(self.avail + 2, index);
        fence(Ordering::SeqCst);
    }

    /// Whether the device asked to be kicked about what was published since the last call.
    pub fn wants_kick(&mut self) -> bool {
        let old = std::mem::replace(&mut self.published, self.avail_next);
        if old == self.avail_next {
            return false;
        }
        if self.event_idx {
            let passed = self
                .avail_next
                .wrapping_sub(self.avail_event())
                .wrapping_sub(1);
            passed < self.avail_next.wrapping_sub(old)
        } else {
            !self.no_notify()
        }
    }

    /// Kicks the device whether it asked or not.
    pub fn kick(&mut self) {
        self.kicks += 1;
        self.kick.write(1).expect("a kick");
    }

    /// Publishes what was added, and kicks if the device asked for it: what a good guest does.
    pub fn flush(&mut self) {
        self.publish();
        if self.wants_kick() {
            self.kick();
        }
    }

    /// Takes back the next buffer that the device has used, if there is one.
    ///
    /// # Errors
    ///
    /// If the device names a buffer that it does not hold.
    pub fn take(&mut self) -> Result<Option<Completed>> {
        if self.used_idx() == self.used_next {
            return Ok(None);
        }
        let (id, len) = self
            .batch
            .take()
            .unwrap_or_else(|| self.used_entry(self.used_next));
        let at = self
            .in_flight
            .iter()
            .position(|chain| u32::from(chain.head) == id);
        let Some(at) = at else {
            bail!(
                "ring {}: used entry {} names {id}, which is not in flight",
                self.index,
                self.used_next
            );
        };
        self.used_next = self.used_next.wrapping_add(1);
        if self.in_order && at > 0 {
            // In-order: a buffer that the entry skips was used completely.
            self.batch = Some((id, len));
            let chain = self.in_flight.pop_front().expect("a skipped buffer");
            let len = chain.pieces.iter().filter(|p| p.write).map(|p| p.len).sum();
            self.release(&chain);
            return Ok(Some(Completed { chain, len }));
        }
        let chain = self.in_flight.remove(at).expect("the position found");
        self.release(&chain);
        Ok(Some(Completed { chain, len }))
    }

    /// Head and length in entry `index` of the used ring.
    pub fn used_entry(&self, index: u16) -> (u32, u32) {
        fence(Ordering::Acquire);
        let entry = self.used + 4 + 8 * (index % self.size) as u64;
        (self.mem.get_u32(entry), self.mem.get_u32(entry + 4))
    }

    fn release(&mut self, chain: &Chain) {
        self.free.extend(&chain.slots);
        if let Some(table) = chain.table {
            self.mem.free(table);
        }
    }

    /// Counts the signals that came since the last call.
    pub fn count_signals(&mut self) -> u64 {
        let new = self.call.read().unwrap_or(0);
        self.signals = self.signals.wrapping_add(new);
        new
    }

    /// Whether an error was signalled since the last call.
    pub fn erred(&self) -> bool {
        self.err.read().is_ok()
    }

    /// Waits, as an interrupt-driven guest does, until the used index moves on.
    ///
    /// # Errors
    ///
    /// If it does not in time, or if it did and the signal that was asked for never came.
    pub fn wait(&mut self, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        loop {
            self.set_used_event(self.used_next);
            fence(Ordering::SeqCst);
            if self.used_idx() != self.used_next {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if !wait_readable(&self.call, left)? {
                ensure!(
                    self.used_idx() == self.used_next,
                    "ring {}: the signal for used entry {} was lost",
                    self.index,
                    self.used_next
                );
                bail!("ring {}: nothing used within {limit:?}", self.index);
            }
            self.count_signals();
        }
    }

    /// Takes back the next buffer, waiting for it.
    pub fn take_wait(&mut self) -> Result<Completed> {
        self.wait(patience())?;
        Ok(self.take()?.expect("a used entry"))
    }
}

fn flags(piece: &Piece, next: Option<u16>) -> u16 {
    let write = if piece.write { WRITE } else { 0 };
    write | if next.is_some() { NEXT } else { 0 }
}

/// Writes a descriptor at any guest address.
pub fn write_desc_at(mem: &Memory, at: u64, addr: u64, len: u32, flags: u16, next: u16) {
    let mut raw = [0; 16];
    raw[0..8].copy_from_slice(&addr.to_le_bytes());
    raw[8..12].copy_from_slice(&len.to_le_bytes());
    raw[12..14].copy_from_slice(&flags.to_le_bytes());
    raw[14..16].copy_from_slice(&next.to_le_bytes());
    mem.write(at, &raw);
}
