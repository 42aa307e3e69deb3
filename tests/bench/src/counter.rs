// SPDX-License-Identifier: GPL-2.0

//! The other side of the counting plugin (`plugin/count.c`): orders to it are long nops.

use std::arch::asm;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::record::ExactCounts;
use crate::symbols::Symbols;

/// Written by the plugin, so that its absence shows.
const MAGIC: u64 = 0x74_6e75_6f63;
/// Slot of the function that switches tasks.
const SWITCH: u64 = 0;
/// Slots for events, the one of the switch included.
const SLOTS: usize = 16;

/// A kernel function whose calls are counted.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// An update of a used index.
    Publication = 1,
    /// An interrupt to a guest under KVM by an eventfd.
    Interrupt = 2,
    /// A packet given to a host socket, or found to belong to none.
    Delivery = 3,
}

impl Event {
    const ALL: [Self; 3] = [Self::Publication, Self::Interrupt, Self::Delivery];

    /// The function's name in the kernel.
    fn symbol(self) -> &'static str {
        match self {
            Self::Publication => "vhost_add_used_n",
            Self::Interrupt => "irqfd_wakeup",
            Self::Delivery => "virtio_transport_recv_pkt",
        }
    }
}

/// Counts since the machine was switched on, as the plugin writes them.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Counts {
    magic: u64,
    applied: u64,
    /// Instructions of all tasks but the idle one, without a nested guest's.
    busy: u64,
    /// Instructions of the idle task.
    idle: u64,
    /// Instructions of a nested guest.
    guest: u64,
    task_kernel: u64,
    task_user: u64,
    /// Times that the task was given the processor.
    task_runs: u64,
    /// Entries into a nested guest.
    vmruns: u64,
    events: [u64; SLOTS],
}

impl Counts {
    fn event(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// The counts by their names in the results, the task being the driver's worker.
    pub(crate) fn named(&self) -> ExactCounts {
        ExactCounts {
            worker: self.task_kernel + self.task_user,
            host: self.busy,
            guest: self.guest,
            vmruns: self.vmruns,
            worker_runs: self.task_runs,
            publications: self.event(Event::Publication),
            interrupts: self.event(Event::Interrupt),
            deliveries: self.event(Event::Delivery),
        }
    }

    /// What was counted from `earlier` to here.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut events = self.events;
        events
            .iter_mut()
            .zip(earlier.events)
            .for_each(|(count, before)| *count -= before);
        Self {
            magic: self.magic,
            applied: self.applied,
            busy: self.busy - earlier.busy,
            idle: self.idle - earlier.idle,
            guest: self.guest - earlier.guest,
            task_kernel: self.task_kernel - earlier.task_kernel,
            task_user: self.task_user - earlier.task_user,
            task_runs: self.task_runs - earlier.task_runs,
            vmruns: self.vmruns - earlier.vmruns,
            events,
        }
    }
}

/// Gives order `ORDER` to the plugin; without one nothing happens.
fn order<const ORDER: u32>(first: u64, second: u64) {
    // SAFETY: The instruction is a nop to the processor. The plugin writes at `first` only for the order that reads
    // counts, whose caller passes memory that it owns; that memory counts as clobbered here.
    unsafe {
        asm!(
            ".byte 0x0f, 0x1f, 0x80",
            ".long {order}",
            order = const 0x5653_0000 | ORDER,
            in("rdi") first,
            in("rsi") second,
        );
    }
}

fn watch(address: u64, slot: u64) {
    order::<1>(address, slot);
}

/// The counts now, with those of the task `tid`.
///
/// # Errors
///
/// If there is no plugin.
pub(crate) fn read(tid: u32) -> Result<Counts> {
    let mut counts = Counts::new_zeroed();
    // Written once here, so that the memory is there when the plugin writes to it.
    let place = std::hint::black_box(&mut counts);
    order::<3>(std::ptr::from_mut(place) as u64, tid.into());
    ensure!(
        counts.magic == MAGIC,
        "this machine does not count instructions"
    );
    Ok(counts)
}

/// The same, with the counts of all `tasks` together.
pub(crate) fn read_all(tasks: &[u32]) -> Result<Counts> {
    let mut counts = read(tasks.first().copied().unwrap_or(0))?;
    for &task in tasks.iter().skip(1) {
        let other = read(task)?;
        counts.task_kernel += other.task_kernel;
        counts.task_user += other.task_user;
        counts.task_runs += other.task_runs;
    }
    Ok(counts)
}

/// Tells the plugin which functions to watch, by what the running kernel has, and waits until it does. A function of a
/// module that is not loaded is not counted.
pub(crate) fn set_up() -> Result<()> {
    let symbols = Symbols::read()?;
    let Some(switch) = symbols.address("__switch_to_asm") else {
        bail!("the kernel shows no addresses");
    };
    watch(switch, SWITCH);
    for event in Event::ALL {
        let address = symbols.address(event.symbol()).unwrap_or(0);
        watch(address, event as u64);
    }
    apply(true)
}

/// Stops counting, so that the machine is fast again.
pub(crate) fn stop() -> Result<()> {
    apply(false)
}

/// Makes orders effective, and waits until they are; from then on instructions are counted or not.
fn apply(count: bool) -> Result<()> {
    let before = read(0)?.applied;
    order::<2>(count.into(), 0);
    for _ in 0..1000 {
        if read(0)?.applied != before {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    bail!("the counter did not take its orders");
}

/// Blocks in one answer.
const PAGE_BLOCKS: usize = 255;

/// A part of a profile, as the plugin writes it.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
struct Page {
    next: u64,
    count: u64,
    /// Address of a block, instructions executed in it.
    blocks: [[u64; 2]; PAGE_BLOCKS],
}

/// Counts where the instructions of task `tid` are during `work`, which moves `packets` packets: those of the `most`
/// dearest functions for each packet, most first.
pub(crate) fn profile(
    tid: u32,
    most: usize,
    packets: u32,
    work: impl FnOnce() -> Result<()>,
) -> Result<Vec<(String, f64)>> {
    order::<4>(tid.into(), 0);
    apply(true)?;
    work()?;
    let blocks = blocks();
    order::<4>(u32::MAX.into(), 0);
    apply(true)?;
    let symbols = Symbols::read()?;
    let mut functions = HashMap::new();
    for [address, executed] in blocks {
        *functions.entry(symbols.name(address)).or_insert(0) += executed;
    }
    let mut sorted: Vec<(&str, u64)> = functions.into_iter().collect();
    sorted.sort_by_key(|(_, executed)| Reverse(*executed));
    let each = |executed| (10.0 * executed as f64 / f64::from(packets)).round() / 10.0;
    Ok(sorted
        .into_iter()
        .take(most)
        .map(|(name, executed)| (name.to_owned(), each(executed)))
        .collect())
}

fn blocks() -> Vec<[u64; 2]> {
    let mut blocks = Vec::new();
    let mut page = Page::new_zeroed();
    loop {
        // All of it written, so that the memory is there when the plugin writes to it.
        page.blocks.fill([1; 2]);
        let place = std::hint::black_box(&mut page);
        order::<5>(std::ptr::from_mut(place) as u64, place.next);
        blocks.extend_from_slice(&page.blocks[..page.count as usize]);
        if page.next == 0 {
            return blocks;
        }
    }
}
