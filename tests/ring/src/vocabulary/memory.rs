// SPDX-License-Identifier: GPL-2.0
//! Guest memory: two regions that touch in guest addresses and not in user addresses, and an allocator.

use super::device::Region;
use anyhow::{Context as _, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

/// Guest address of the first byte: above 4 GiB, so that a truncated address shows.
pub const BASE: u64 = 0x1_2000_0000;

/// Bytes of each of the two regions.
pub const REGION: u64 = 48 << 20;

/// Bytes kept free on either side of the seam, for [`Memory::straddle`].
const SEAM: u64 = 256 << 10;

/// The guest's memory. Clones share it.
#[derive(Clone)]
pub struct Memory {
    map: GuestMemoryMmap<()>,
    arena: Rc<RefCell<Arena>>,
}

/// A run of guest memory handed out by [`Memory::alloc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub addr: u64,
    pub len: usize,
}

struct Arena {
    next: u64,
    free: HashMap<usize, Vec<u64>>,
}

impl Memory {
    /// Maps fresh, zeroed memory.
    pub fn new() -> Result<Self> {
        let ranges = [
            (GuestAddress(BASE), REGION as usize),
            (GuestAddress(BASE + REGION), REGION as usize),
        ];
        let map = GuestMemoryMmap::from_ranges(&ranges).context("mapping guest memory")?;
        let arena = Arena {
            next: BASE,
            free: HashMap::new(),
        };
        Ok(Self {
            map,
            arena: Rc::new(RefCell::new(arena)),
        })
    }

    /// The memory table that describes it.
    pub fn table(&self) -> Vec<Region> {
        self.map
            .iter()
            .map(|region| Region {
                guest: region.start_addr().0,
                len: region.len(),
                user: self.user(region.start_addr().0),
            })
            .collect()
    }

    /// User address of a guest address.
    pub fn user(&self, addr: u64) -> u64 {
        self.map
            .get_host_address(GuestAddress(addr))
            .expect("a guest address") as u64
    }

    /// Hands out at least `len` bytes, aligned to the next power of two (4096 at most).
    pub fn alloc(&self, len: usize) -> Block {
        let class = len.max(16).next_power_of_two();
        let mut arena = self.arena.borrow_mut();
        if let Some(addr) = arena.free.get_mut(&class).and_then(Vec::pop) {
            return Block { addr, len };
        }
        let mut addr = arena.next.next_multiple_of(class.min(4096) as u64);
        if addr + class as u64 > BASE + REGION - SEAM && addr < BASE + REGION + SEAM {
            addr = BASE + REGION + SEAM;
        }
        arena.next = addr + class as u64;
        assert!(arena.next <= BASE + 2 * REGION, "guest memory is used up");
        Block { addr, len }
    }

    /// Takes a block back.
    pub fn free(&self, block: Block) {
        let class = block.len.max(16).next_power_of_two();
        self.arena
            .borrow_mut()
            .free
            .entry(class)
            .or_default()
            .push(block.addr);
    }

    /// A block that lies across the seam of the two regions; there is only one such place.
    pub fn straddle(&self, len: usize) -> Block {
        Block {
            addr: BASE + REGION - (len / 2) as u64,
            len,
        }
    }

    pub fn write(&self, addr: u64, bytes: &[u8]) {
        self.map
            .write_slice(bytes, GuestAddress(addr))
            .expect("a write to guest memory");
    }

    pub fn read(&self, addr: u64, bytes: &mut [u8]) {
        self.map
            .read_slice(bytes, GuestAddress(addr))
            .expect("a read of guest memory");
    }

    /// Copies `len` bytes out.
    pub fn bytes(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.read(addr, &mut out);
        out
    }

    pub fn put_u16(&self, addr: u64, value: u16) {
        use std::sync::atomic::Ordering::SeqCst;
        self.map
            .store(value.to_le(), GuestAddress(addr), SeqCst)
            .expect("a store to guest memory");
    }

    pub fn get_u16(&self, addr: u64) -> u16 {
        use std::sync::atomic::Ordering::SeqCst;
        u16::from_le(
            self.map
                .load::<u16>(GuestAddress(addr), SeqCst)
                .expect("a load from guest memory"),
        )
    }

    pub fn get_u32(&self, addr: u64) -> u32 {
        use std::sync::atomic::Ordering::SeqCst;
        u32::from_le(
            self.map
                .load::<u32>(GuestAddress(addr), SeqCst)
                .expect("a load from guest memory"),
        )
    }
}
