// SPDX-License-Identifier: GPL-2.0

//! Whether a worker that has emptied a queue in which there was much waits for more, before it
//! asks to be told.
//!
//! Whoever fills the queue pays for telling: the guest with an exit for its kick, a sender with the
//! wake-up of the worker. A faster worker is told more often, since it finds the queue empty
//! sooner. So one that had enough to do comes back by itself when the queue should have as much
//! again, as a network driver with interrupt moderation does, and asks to be told only when that
//! does not pay.
//!
//! A packet or a few, such as a request and its answer, make no queue busy.

/// Packets of a pass from which on it stays away again. Fewer end it.
pub const ENOUGH_PACKETS: u32 = 4;

/// Packets of a pass from which on it pays to come back for more.
pub const MIN_PACKETS: u32 = 8;

/// Packets for which the worker comes back: a quarter of the usual ring, which must not fill up.
pub const WANTED_PACKETS: u32 = 32;

/// Payload for which it comes back: a quarter of the usual window, for the same reason.
pub const WANTED_BYTES: u32 = 64 << 10;

/// Bytes of payload from which on packets are too large, on the average, to wait for several.
pub const LARGE: usize = 8 << 10;

/// Most microseconds that it stays away, whatever was asked for.
pub const MAX_US: u32 = 1_000;

/// How fast a queue fills, as the worker sees it from pass to pass.
///
/// Times are in microseconds of a clock that may wrap.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Since when what is counted here was taken: the moment when the queue was found empty before
    /// the worker came back by itself, else the beginning of a pass.
    since: Option<u64>,
    /// The worker has come back by itself.
    lingers: bool,
    packets: u32,
    bytes: usize,
}

impl Pace {
    /// No pace.
    pub const fn new() -> Self {
        Self {
            since: None,
            lingers: false,
            packets: 0,
            bytes: 0,
        }
    }

    /// Notes that a pass begins at `now`.
    pub fn begin(&mut self, now: u64) {
        self.since.get_or_insert(now);
    }

    /// Notes a pass that ended before it had emptied the queue.
    pub fn unfinished(&mut self, packets: u32, bytes: usize) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Microseconds until the worker comes back, at most `limit`; zero: when it is told.
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
        let seen = core::mem::take(self);
        let packets = packets.saturating_add(seen.packets);
        let bytes = bytes.saturating_add(seen.bytes);
        let Some(since) = seen.since else {
            return 0;
        };
        let least = if seen.lingers {
            ENOUGH_PACKETS
        } else {
            MIN_PACKETS
        };
        if limit == 0 || packets < least || bytes / packets as usize >= LARGE {
            return 0;
        }
        let now = now();
        self.since = Some(now);
        self.lingers = true;
        let limit = u64::from(limit.min(MAX_US));
        let elapsed = now
            .wrapping_sub(since)
            .min(limit * u64::from(WANTED_PACKETS));
        // A queue that was emptied fills more slowly than the worker takes.
        let elapsed = if seen.lingers { elapsed } else { 2 * elapsed };
        let by_packets = elapsed * u64::from(WANTED_PACKETS) / u64::from(packets);
        let by_bytes = elapsed * u64::from(WANTED_BYTES) / bytes.max(1) as u64;
        // At most MAX_US.
        by_packets.min(by_bytes).max(1).min(limit) as u32
    }
}
