// SPDX-License-Identifier: GPL-2.0

//! How long a queue is polled: as asked, never long, never for ever.

use proptest::prelude::*;
use vhost_vsock_logic::busy_poll::{is_over, timeout_us, MAX_US};

#[test]
fn the_queue_comes_first_then_the_module() {
    for (of_queue, default, timeout) in [
        (0, 0, 0),
        (0, 50, 50),
        (30, 0, 30),
        (30, 50, 30),
        (50, 30, 50),
        (1, MAX_US, 1),
        (MAX_US, 0, MAX_US),
        (MAX_US + 1, 0, MAX_US),
        (0, MAX_US + 1, MAX_US),
        (0, u32::MAX, MAX_US),
        (u32::MAX, 1, MAX_US),
    ] {
        assert_eq!(
            timeout_us(of_queue, default),
            timeout,
            "queue {of_queue}, module {default}"
        );
    }
}

#[test]
fn the_worker_is_never_away_for_more_than_ten_milliseconds() {
    assert_eq!(MAX_US, 10_000);
}

proptest! {
    #[test]
    fn off_is_off_and_on_is_on(of_queue in any::<u32>(), default in any::<u32>()) {
        let timeout = timeout_us(of_queue, default);
        prop_assert!(timeout <= MAX_US);
        prop_assert_eq!(timeout == 0, of_queue == 0 && default == 0);
    }

    /// A clock that moves on by any steps, also past the end of its range, ends a poll at the
    /// first look at or after the timeout, and no sooner.
    #[test]
    fn a_poll_ends_on_time(
        start in prop_oneof![any::<u64>(), u64::MAX - 20_000..=u64::MAX],
        steps in prop::collection::vec(0..500u64, 1..200),
        timeout in 0..=MAX_US,
    ) {
        let mut passed = 0u64;
        for step in steps {
            passed += step;
            let over = is_over(start, start.wrapping_add(passed), timeout);
            prop_assert_eq!(over, passed >= u64::from(timeout), "after {} ticks", passed);
        }
    }

    /// The clock of another CPU may be behind: that ends the poll, rather than make it longer.
    #[test]
    fn a_clock_that_goes_back_ends_the_poll(
        start in any::<u64>(),
        back in 1..1_000_000_000u64,
        timeout in 0..=MAX_US,
    ) {
        prop_assert!(is_over(start, start.wrapping_sub(back), timeout));
    }
}
