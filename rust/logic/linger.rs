// SPDX-License-Identifier: GPL-2.0

//! Whether a worker that has emptied a queue in which there was much waits for more, before it
//! asks to be told, and how long.
//!
//! Being told costs: the guest an exit for its kick, a sender on the host a switch to the worker.
//! A faster worker is told more often, since it finds the queue empty sooner. So one that had
//! enough to do comes back by itself when the queue should have as much again, as a network driver
//! with interrupt moderation does, and asks to be told only when that does not pay.
//!
//! A packet or a few, such as a request and its answer, make no queue busy. What counts are packets
//! of payload behind others of their flow: who sends several in a row does not wait for an answer
//! to each, while of many senders that do each has one packet there. Flows are told apart by their
//! lanes.

use super::{
    header::Header,
    run, //
};

/// Packets from which on it stays away again. Fewer end it.
pub const ENOUGH_PACKETS: u32 = 4;

/// The same behind the first pause for RX, whose length is a guess: it is by the pace of the worker,
/// and a sender may be much slower.
pub const RX_ENOUGH_AT_FIRST: u32 = 2;

/// Packets of a pass from which on it pays to come back for more.
pub const MIN_PACKETS: u32 = 8;

/// Most packets for which the worker comes back to TX.
pub const WANTED_PACKETS: u32 = 32;

/// Packets for which it comes back to RX, where they share buffers: a ring that fills up is no
/// matter.
pub const RX_WANTED_PACKETS: u32 = 64;

/// Payload for which it comes back: a quarter of the usual window, which must not fill up.
pub const WANTED_BYTES: u32 = 64 << 10;

/// Bytes of payload from which on packets of the guest are too large, on the average, to wait for
/// several.
pub const LARGE: usize = 8 << 10;

/// The same for packets to the guest, which are waited for so that they share buffers: of 4 KiB, in
/// Linux.
pub const RX_LARGE: usize = 2 << 10;

/// Most chances to linger that are left out after one that did not pay.
pub const MAX_LEFT_OUT: u32 = 63;

/// Parts of a pause for RX: when nothing comes in one, the sender has stopped, and may be waiting
/// for an answer to what it has sent.
pub const SLICES: u32 = 4;

/// Least microseconds of such a part.
pub const MIN_SLICE_US: u32 = 20;

/// Most microseconds that it stays away, whatever was asked for.
pub const MAX_US: u32 = 1_000;

/// Microseconds after which a pace is that of another time.
pub const STALE_US: u64 = 4 * MAX_US as u64;

/// What a worker would come back for, by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Packets; zero: for none.
    pub packets: u32,
    /// Bytes of payload that they must have less of, on the average.
    pub large: usize,
    /// Packets that are enough behind the first pause.
    pub enough_at_first: u32,
    /// Most microseconds that it stays away; zero: it does not.
    pub limit_us: u32,
}

impl Wish {
    /// For a TX ring of `ring_size` entries: at most a quarter, as it must not fill up. A small ring
    /// is not worth it.
    #[inline]
    pub fn tx(ring_size: u32, limit_us: u32) -> Self {
        let packets = WANTED_PACKETS.min(ring_size / 4);
        Self {
            packets: if packets < MIN_PACKETS { 0 } else { packets },
            large: LARGE,
            enough_at_first: ENOUGH_PACKETS,
            limit_us,
        }
    }

    /// For the send queue.
    #[inline]
    pub fn rx(limit_us: u32) -> Self {
        Self {
            packets: RX_WANTED_PACKETS,
            large: RX_LARGE,
            enough_at_first: RX_ENOUGH_AT_FIRST,
            limit_us,
        }
    }
}

/// Packets of one lane that followed each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The lane.
    pub lane: usize,
    /// Their number.
    pub packets: u32,
    /// Their payload.
    pub bytes: usize,
}

/// The rows of a pass.
#[derive(Clone, Copy, Default)]
pub struct Rows {
    last: Option<Row>,
    longest: Option<Row>,
}

impl Rows {
    /// Notes `packets` packets of `lane` behind those before, and `bytes` of their payload.
    #[inline]
    pub fn add(&mut self, lane: usize, packets: u32, bytes: usize) {
        match &mut self.last {
            Some(row) if row.lane == lane => {
                row.packets = row.packets.saturating_add(packets);
                row.bytes = row.bytes.saturating_add(bytes);
            }
            _ => {
                self.longest = self.longest();
                self.last = Some(Row {
                    lane,
                    packets,
                    bytes,
                });
            }
        }
    }

    /// The row with the most packets, if there is any; of several the first.
    #[inline]
    pub fn longest(&self) -> Option<Row> {
        match (self.longest, self.last) {
            (Some(longest), Some(last)) if last.packets > longest.packets => Some(last),
            (None, last) => last,
            (longest, _) => longest,
        }
    }
}

/// Whether the packet with `header` may wait in the send queue for others: it is plain stream data,
/// and small.
#[inline]
pub fn may_gather(header: &Header) -> bool {
    run::is_joinable(header) && (header.len as usize) < RX_LARGE
}

/// Whether a packet that tells its receiver how much it may send, and nothing else, may wait while
/// the worker lingers: `window` is what it may send in all. Who has little may be waiting for it.
#[inline]
pub fn credit_may_wait(window: u32) -> bool {
    window >= 2 * WANTED_BYTES
}

/// When the worker comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Microseconds.
    pub us: u32,
    /// Packets that should be there by then.
    pub packets: u32,
    /// Its length is a guess, being the first.
    pub is_first: bool,
}

impl Pause {
    /// Microseconds in which something must come. The first pause may be too short for more than
    /// one packet.
    #[inline]
    pub fn slice_us(&self) -> u32 {
        if self.is_first {
            self.us
        } else {
            (self.us / SLICES).max(MIN_SLICE_US).min(self.us)
        }
    }

    /// How many of these the pause has.
    #[inline]
    pub fn slices(&self) -> u32 {
        self.us / self.slice_us().max(1)
    }
}

/// How often the worker has come back by itself, one time after the other.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Pauses {
    #[default]
    None,
    First,
    More,
}

impl Pauses {
    fn and_one(self) -> Self {
        match self {
            Pauses::None => Pauses::First,
            _ => Pauses::More,
        }
    }
}

/// How fast a queue fills, as the worker sees it from pass to pass.
///
/// Times are in microseconds of a clock that may wrap.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Since when what is counted here was taken: the moment when the queue was found empty before
    /// the worker came back by itself, else the beginning of a pass.
    since: Option<u64>,
    pauses: Pauses,
    packets: u32,
    bytes: usize,
    /// Chances to linger that are still to be left out.
    left_out: u32,
    /// How many were left out after the last one that did not pay, less those that paid since.
    doubt: u32,
}

impl Pace {
    /// No pace.
    pub const fn new() -> Self {
        Self {
            since: None,
            pauses: Pauses::None,
            packets: 0,
            bytes: 0,
            left_out: 0,
            doubt: 0,
        }
    }

    /// Notes that a pass begins at `now`.
    pub fn begin(&mut self, now: u64) {
        if matches!(self.since, Some(since) if now.wrapping_sub(since) > STALE_US) {
            self.forget();
        }
        self.since.get_or_insert(now);
    }

    /// Notes that what was seen tells nothing of what follows. What did not pay is not forgotten.
    pub fn forget(&mut self) {
        *self = Self {
            left_out: self.left_out,
            doubt: self.doubt,
            ..Self::new()
        };
    }

    /// Notes that the pass that ends is of another flow than those before.
    pub fn other_flow(&mut self) {
        self.pauses = Pauses::None;
    }

    /// Notes that a pause begins at `now` that was decided on before, as after a first one.
    pub fn go_on(&mut self, now: u64) {
        self.since = Some(now);
        self.pauses = Pauses::First;
    }

    /// Notes that packets came while the worker lingered.
    pub fn paid(&mut self) {
        self.doubt = self.doubt.saturating_sub(1);
    }

    /// Notes that the sender stopped while the worker lingered. A sender of some packets that waits
    /// for an answer to all of them does so each time, and soon only few chances are taken.
    pub fn did_not_pay(&mut self) {
        self.doubt = (2 * self.doubt + 1).min(MAX_LEFT_OUT);
        self.left_out = self.doubt;
        self.forget();
    }

    /// Notes a pass that ended before it had emptied the queue.
    pub fn unfinished(&mut self, packets: u32, bytes: usize) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// When the worker comes back by itself for what it wishes; [`None`]: when it is told.
    ///
    /// The pass that ends now, at `now`, has emptied the queue; `packets` packets with `bytes`
    /// bytes count.
    pub fn pause(
        &mut self,
        now: impl FnOnce() -> u64,
        packets: u32,
        bytes: usize,
        wish: Wish,
    ) -> Option<Pause> {
        let seen = *self;
        self.forget();
        let packets = packets.saturating_add(seen.packets);
        let bytes = bytes.saturating_add(seen.bytes);
        let since = seen.since?;
        let least = match seen.pauses {
            Pauses::None => MIN_PACKETS,
            Pauses::First => wish.enough_at_first,
            Pauses::More => ENOUGH_PACKETS,
        };
        if wish.limit_us == 0 || wish.packets == 0 {
            return None;
        }
        let count = packets.max(1);
        if packets < least || bytes >= wish.large.saturating_mul(count as usize) {
            return None;
        }
        if seen.left_out > 0 {
            self.left_out = seen.left_out - 1;
            return None;
        }
        let now = now();
        self.since = Some(now);
        self.pauses = seen.pauses.and_one();
        let limit = u64::from(wish.limit_us.min(MAX_US));
        // Slower than that is as good as never; and what follows cannot overflow. Clocks of two
        // processors may differ a little.
        let elapsed = (now.wrapping_sub(since) as i64).max(0) as u64;
        let elapsed = elapsed.min(limit << 16);
        // A queue that was emptied fills more slowly than the worker takes.
        let is_first = seen.pauses == Pauses::None;
        let elapsed = if is_first { 2 * elapsed } else { elapsed };
        let fitting = u64::from(WANTED_BYTES) * u64::from(count) / bytes.max(1) as u64;
        let wanted = fitting.max(1).min(u64::from(wish.packets));
        let us = elapsed * wanted / u64::from(count);
        // At most MAX_US, and at most what was wished.
        Some(Pause {
            us: us.max(1).min(limit) as u32,
            packets: wanted as u32,
            is_first,
        })
    }
}
