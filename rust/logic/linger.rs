// SPDX-License-Identifier: GPL-2.0

//! Whether a worker that has emptied a queue in which there was much waits for more, before it
//! asks to be told.
//!
//! Whoever fills the queue pays for telling: the guest with an exit for its kick, a sender with the
//! wake-up of the worker. A faster worker is told more often, since it finds the queue empty
//! sooner. So one that had enough to do comes back by itself when the queue should have as much
//! again, as a network driver with interrupt moderation does, and asks to be told only when that
//! does not pay.

/// Packets of one pass from which on it pays to come back for more.
///
/// A request and its answer, of a packet or a few each way, never wait.
pub const MIN_PACKETS: u32 = 8;

/// Packets for which the worker comes back: a quarter of the usual ring, which must not fill up.
pub const WANTED_PACKETS: u32 = 32;

/// Payload for which it comes back: a quarter of the usual window, for the same reason.
pub const WANTED_BYTES: u32 = 64 << 10;

/// Most microseconds that it stays away, whatever was asked for.
pub const MAX_US: u32 = 1_000;

/// How fast a queue fills, as the worker sees it from pass to pass.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Pace {
    /// When the queue was found empty before the worker came back by itself, in microseconds of a
    /// clock that may wrap.
    empty_at: Option<u64>,
}

impl Pace {
    /// No pace.
    pub const fn new() -> Self {
        Self { empty_at: None }
    }

    /// Microseconds until the worker comes back; zero: when it is told. At most `limit`, and just
    /// that while the pace is not known.
    ///
    /// The pass that ends now, at `now`, has emptied the queue, of `packets` packets with `bytes`
    /// bytes.
    pub fn pause(
        &mut self,
        now: impl FnOnce() -> u64,
        packets: u32,
        bytes: usize,
        limit: u32,
    ) -> u32 {
        let wanted_bytes = WANTED_BYTES as usize;
        if limit == 0 || packets < MIN_PACKETS || bytes >= wanted_bytes {
            self.empty_at = None;
            return 0;
        }
        let now = now();
        let limit = u64::from(limit.min(MAX_US));
        let pause = match self.empty_at {
            Some(before) => {
                let elapsed = now
                    .wrapping_sub(before)
                    .min(limit * u64::from(WANTED_PACKETS));
                let by_packets = elapsed * u64::from(WANTED_PACKETS) / u64::from(packets);
                let by_bytes = elapsed * u64::from(WANTED_BYTES) / bytes.max(1) as u64;
                by_packets.min(by_bytes).max(1)
            }
            None => limit,
        };
        self.empty_at = Some(now);
        // At most MAX_US.
        pause.min(limit) as u32
    }
}
