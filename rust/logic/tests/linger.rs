// SPDX-License-Identifier: GPL-2.0

//! When a worker comes back by itself, and after which time.

use proptest::prelude::*;
use vhost_vsock_logic::linger::*;

const LIMIT: u32 = 500;

/// A pace whose first pass begins at `now`.
fn begun(now: u64) -> Pace {
    let mut pace = Pace::new();
    pace.begin(now);
    pace
}

/// A pace that has lingered since `now`.
fn lingered(now: u64) -> Pace {
    let mut pace = begun(now);
    assert_ne!(pace.pause(|| now, MIN_PACKETS, 0, WANTED_PACKETS, LIMIT), 0);
    pace
}

#[test]
fn off_means_never_and_needs_no_clock() {
    let mut pace = begun(7);
    assert_eq!(
        pace.pause(|| unreachable!(), u32::MAX, 1, WANTED_PACKETS, 0),
        0
    );
    assert_eq!(pace, Pace::new());
}

#[test]
fn a_few_packets_never_wait() {
    for packets in 0..MIN_PACKETS {
        let mut pace = begun(7);
        assert_eq!(
            pace.pause(|| unreachable!(), packets, 100, WANTED_PACKETS, LIMIT),
            0
        );
        assert_eq!(pace, Pace::new());
    }
    assert_ne!(
        begun(7).pause(|| 20, MIN_PACKETS, 100, WANTED_PACKETS, LIMIT),
        0
    );
    assert_eq!(
        Pace::new().pause(|| unreachable!(), 100, 100, WANTED_PACKETS, LIMIT),
        0
    );
}

#[test]
fn a_pace_that_slows_down_ends_later_than_it_begins() {
    for packets in ENOUGH_PACKETS..MIN_PACKETS {
        assert_ne!(
            lingered(7).pause(|| 100, packets, 100, WANTED_PACKETS, LIMIT),
            0
        );
    }
    for packets in 0..ENOUGH_PACKETS {
        let mut pace = lingered(7);
        assert_eq!(
            pace.pause(|| unreachable!(), packets, 100, WANTED_PACKETS, LIMIT),
            0
        );
        assert_eq!(pace, Pace::new());
    }
}

#[test]
fn large_packets_do_not_wait() {
    assert_eq!(
        begun(7).pause(|| unreachable!(), 10, 10 * LARGE, WANTED_PACKETS, LIMIT),
        0
    );
    assert_ne!(
        begun(7).pause(|| 20, 10, 10 * LARGE - 1, WANTED_PACKETS, LIMIT),
        0
    );
}

#[test]
fn the_worker_comes_back_for_a_quarter_of_a_ring() {
    // 16 packets in 40 us: 32 in 80.
    assert_eq!(
        lingered(1000).pause(|| 1040, 16, 16 * 64, WANTED_PACKETS, LIMIT),
        80
    );
    // 64 packets in 40 us: 32 in 20.
    assert_eq!(
        lingered(1000).pause(|| 1040, 64, 64 * 64, WANTED_PACKETS, LIMIT),
        20
    );
    // 10 packets of 4 KiB in 40 us: 16 in 64.
    assert_eq!(
        lingered(1000).pause(|| 1040, 10, 10 << 12, WANTED_PACKETS, LIMIT),
        64
    );
    // The clock has wrapped.
    assert_eq!(
        lingered(u64::MAX - 9).pause(|| 30, 16, 0, WANTED_PACKETS, LIMIT),
        80
    );
}

#[test]
fn at_first_it_goes_by_the_pass_itself() {
    // 16 packets taken in 40 us: they came in 80 at least.
    let mut pace = begun(1000);
    assert_eq!(pace.pause(|| 1040, 16, 0, WANTED_PACKETS, LIMIT), 160);
    // The pass that begins later is part of the same pace: 40 in 200 us.
    pace.begin(1200);
    assert_eq!(pace.pause(|| 1240, 40, 0, WANTED_PACKETS, LIMIT), 160);
}

#[test]
fn a_small_ring_is_left_alone_and_none_fills_up() {
    for (ring_size, wanted) in [
        (1, 0),
        (16, 0),
        (31, 0),
        (32, 8),
        (64, 16),
        (128, 32),
        (32768, WANTED_PACKETS),
    ] {
        assert_eq!(wanted_packets(ring_size), wanted, "a ring of {ring_size}");
    }
    assert_eq!(begun(7).pause(|| unreachable!(), 100, 100, 0, LIMIT), 0);
    assert_eq!(lingered(1000).pause(|| 1040, 16, 0, 8, LIMIT), 20);
}

#[test]
fn a_pace_of_another_time_is_forgotten() {
    let mut pace = lingered(1000);
    pace.unfinished(100, 100);
    pace.begin(1000 + STALE_US);
    assert_ne!(pace, begun(1000 + STALE_US));
    pace.begin(1001 + STALE_US);
    assert_eq!(pace, begun(1001 + STALE_US));
}

#[test]
fn credit_of_a_small_window_does_not_wait() {
    assert!(credit_may_wait(256 << 10));
    assert!(credit_may_wait(2 * WANTED_BYTES));
    assert!(!credit_may_wait(2 * WANTED_BYTES - 1));
    assert!(!credit_may_wait(0));
}

#[test]
fn at_a_steady_pace_it_comes_back_for_what_is_wanted() {
    for us_per_packet in [1u32, 3, 10, 30] {
        let (mut pace, mut now, mut pause, mut waiting) = (Pace::new(), 0u64, 0, 12);
        for _ in 0..5 {
            pace.begin(now);
            // While a packet is taken, half of another comes.
            let packets = 2 * waiting;
            now += u64::from(waiting * us_per_packet);
            pause = pace.pause(|| now, packets, packets as usize * 64, WANTED_PACKETS, 1000);
            now += u64::from(pause);
            waiting = pause / us_per_packet;
        }
        assert_eq!(pause, WANTED_PACKETS * us_per_packet);
    }
}

#[test]
fn passes_that_used_up_their_budget_count() {
    let mut pace = lingered(1000);
    pace.unfinished(246, 246 * 64);
    // 256 packets in 80 us, though only ten in the last pass: 32 in 10.
    assert_eq!(pace.pause(|| 1080, 10, 10 * 64, WANTED_PACKETS, LIMIT), 10);
    pace.unfinished(256, 0);
    assert_ne!(
        pace.pause(|| 1100, 0, 0, WANTED_PACKETS, LIMIT),
        0,
        "256 packets"
    );
    assert_eq!(
        pace.pause(|| unreachable!(), 0, 0, WANTED_PACKETS, LIMIT),
        0
    );
    assert_eq!(pace, Pace::new());
}

proptest! {
    #[test]
    fn no_pause_is_longer_than_the_limit(
        times in prop::collection::vec((any::<u64>(), any::<u32>(), any::<usize>()), 1..20),
        wanted: u32,
        limit: u32,
    ) {
        let mut pace = Pace::new();
        for (now, packets, bytes) in times {
            let pause = pace.pause(|| now, packets, bytes, wanted, limit);
            prop_assert!(pause <= limit.min(MAX_US));
        }
    }

    #[test]
    fn a_pace_always_waits(now: u64, elapsed: u64, packets in MIN_PACKETS.., bytes in 0..MIN_PACKETS as usize * LARGE) {
        let pause = begun(now).pause(|| now.wrapping_add(elapsed), packets, bytes, WANTED_PACKETS, LIMIT);
        prop_assert!(pause > 0);
    }
}
