// SPDX-License-Identifier: GPL-2.0

//! Packets that gather in the send queue, without waking the worker.
//!
//! While they may, the worker comes by itself: it is in a pass over RX, it lingers behind one, or
//! its send work is queued. Whatever ends that has to call [`Gather::end`] and look at the queue.

use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};

/// Which packets need not wake the worker, and how many of them: those of one lane.
pub(super) struct Gather(Atomic<u32>);

/// Bits of the number of packets; the lane is above them.
const COUNT_BITS: u32 = 16;

impl Gather {
    /// More packets than a pass leaves behind.
    const ANY: u32 = (1 << COUNT_BITS) - 1;

    /// All packets wake the worker.
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// The next packets of `lane` do not wake the worker, until there are `packets`, at most
    /// [`Gather::ANY`].
    pub(super) fn begin(&self, lane: usize, packets: u32) {
        // There are 64 lanes.
        let lane = lane as u32;
        self.0
            .store(lane << COUNT_BITS | packets.min(Self::ANY), Relaxed);
    }

    /// However many packets of the lane come, if any may, they do not wake the worker: it is here.
    pub(super) fn hold(&self) {
        if let Some(lane) = self.lane() {
            self.begin(lane, Self::ANY);
        }
    }

    /// The lane whose packets need not wake the worker.
    #[inline]
    pub(super) fn lane(&self) -> Option<usize> {
        let seen = self.0.load(Relaxed);
        (seen != 0).then_some((seen >> COUNT_BITS) as usize)
    }

    /// How many packets are waited for: the last of them wakes the worker.
    pub(super) fn left(&self) -> u32 {
        self.0.load(Relaxed) & Self::ANY
    }

    /// Counts a packet that was added to `lane`; whether it need not wake the worker.
    ///
    /// Adding to an empty lane is fully ordered, and so is the end: either the worker sees the
    /// packet then, or this sees the end. What is added behind others follows them under the
    /// lane's lock: they were seen, so it is found with them.
    #[inline]
    pub(super) fn takes(&self, lane: usize) -> bool {
        let seen = self.0.load(Relaxed);
        seen & Self::ANY > 1
            && (seen >> COUNT_BITS) as usize == lane
            && self.0.cmpxchg(seen, seen - 1, Relaxed).is_ok()
    }

    /// All packets wake the worker again; whether some did not. Fully ordered, if so.
    #[inline]
    pub(super) fn end(&self) -> bool {
        self.lane().is_some() && self.0.xchg(0, Full) != 0
    }
}
