// SPDX-License-Identifier: GPL-2.0

//! A count of bytes that one thread raises and another may wait for.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use anyhow::{Context, Result};
use vmm_sys_util::eventfd::EventFd;

/// Bytes that have come.
pub(crate) struct Tally {
    bytes: AtomicU64,
    /// Who waits is woken at this count; 0: nobody waits.
    wanted: AtomicU64,
    reached: EventFd,
}

impl Tally {
    /// A tally of nothing.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            bytes: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            reached: EventFd::new(0).context("eventfd")?,
        })
    }

    /// The count.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    /// Adds bytes and gives the new count; wakes who waits for it.
    pub(crate) fn add(&self, bytes: u64) -> Result<u64> {
        let now = self.bytes.fetch_add(bytes, SeqCst) + bytes;
        let wanted = self.wanted.load(SeqCst);
        if wanted != 0 && now >= wanted && self.stop_wanting(wanted) {
            self.reached.write(1).context("eventfd")?;
        }
        Ok(now)
    }

    /// Waits until the count is at least `bytes`. One thread at a time may wait.
    pub(crate) fn wait(&self, bytes: u64) -> Result<()> {
        self.wanted.store(bytes, SeqCst);
        if self.bytes() < bytes || !self.stop_wanting(bytes) {
            self.reached.read().context("eventfd")?;
        }
        Ok(())
    }

    /// True for the one that ends the waiting: the other has to wait for it, or has not to wake.
    fn stop_wanting(&self, wanted: u64) -> bool {
        self.wanted
            .compare_exchange(wanted, 0, SeqCst, SeqCst)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;
    use std::thread;

    #[test]
    fn waits_end_whoever_is_first() {
        let tally = Tally::new().unwrap();
        tally.add(5).unwrap();
        tally.wait(5).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| (0..100_000).try_for_each(|_| tally.add(1).map(|_| ())));
            (0..1000).for_each(|round| tally.wait(5 + 100 * round).unwrap());
        });
        assert_eq!(tally.bytes(), 100_005);
    }
}
