// SPDX-License-Identifier: GPL-2.0

//! How long a queue is polled before its notifications are enabled.

/// Most microseconds that one poll lasts, whatever was asked for: the worker must stay answerable.
pub const MAX_US: u32 = 10_000;

/// Microseconds to poll: what the VMM set for the queue, else the module's default, within
/// [`MAX_US`]. Zero: do not poll.
#[inline]
pub fn timeout_us(of_queue: u32, default: u32) -> u32 {
    let asked = if of_queue != 0 { of_queue } else { default };
    if asked > MAX_US {
        MAX_US
    } else {
        asked
    }
}

/// Whether a poll that began at `start` is over at `now`, both in ticks of a clock that may wrap.
#[inline]
pub fn is_over(start: u64, now: u64, timeout_us: u32) -> bool {
    now.wrapping_sub(start) >= u64::from(timeout_us)
}
