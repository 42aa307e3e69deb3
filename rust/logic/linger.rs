// SPDX-License-Identifier: GPL-2.0

//! Whether a worker that has emptied a queue in which there was much waits for more, before it
//! asks to be told.
//!
//! Whoever fills the queue pays for telling: the guest with an exit for its kick. A faster worker is
//! told more often, since it finds the queue empty sooner. So one that had enough to do comes back by itself when the queue should have as much
//! again, as a network driver with interrupt moderation does, and asks to be told only when that
//! does not pay.
//!
//! A packet or a few, such as a request and its answer, make no queue busy. Only packets with payload
//! count.

/// Packets of a pass from which on it stays away again. Fewer end it.
pub const ENOUGH_PACKETS: u32 = 4;

/// Packets of a pass from which on it pays to come back for more.
pub const MIN_PACKETS: u32 = 8;

/// Most packets for which the worker comes back.
pub const WANTED_PACKETS: u32 = 32;

/// Payload for which it comes back: a quarter of the usual window, which must not fill up.
pub const WANTED_BYTES: u32 = 64 << 10;

/// Bytes of payload from which on packets are too large, on the average, to wait for several.
pub const LARGE: usize = 8 << 10;

/// Most microseconds that it stays away, whatever was asked for.
pub const MAX_US: u32 = 1_000;

/// Microseconds after which a pace is that of another time.
pub const STALE_US: u64 = 4 * MAX_US as u64;

/// Packets for which the worker comes back to a ring of `ring_size` entries: at most a quarter, as
/// the ring must not fill up. A small ring is not worth it.
#[inline]
pub fn wanted_packets(ring_size: u32) -> u32 {
    let wanted = WANTED_PACKETS.min(ring_size / 4);
    if wanted < MIN_PACKETS {
        0
    } else {
        wanted
    }
}

/// Whether a packet that tells its receiver how much it may send, and nothing else, may wait while
/// the worker lingers: `window` is what it may send in all. Who has little may be waiting for it.
#[inline]
pub fn credit_may_wait(window: u32) -> bool {
    window >= 2 * WANTED_BYTES
}

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
        if matches!(self.since, Some(since) if now.wrapping_sub(since) > STALE_US) {
            *self = Self::new();
        }
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
    /// bytes. The worker would come back for `wanted` packets.
    pub fn pause(
        &mut self,
        now: impl FnOnce() -> u64,
        packets: u32,
        bytes: usize,
        wanted: u32,
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
        if limit == 0 || wanted == 0 || packets < least || bytes / packets as usize >= LARGE {
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
        let wanted = wanted.min(WANTED_PACKETS);
        let by_packets = elapsed * u64::from(wanted) / u64::from(packets);
        let by_bytes = elapsed * u64::from(WANTED_BYTES) / bytes.max(1) as u64;
        // At most MAX_US.
        by_packets.min(by_bytes).max(1).min(limit) as u32
    }
}
