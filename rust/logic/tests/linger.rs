// SPDX-License-Identifier: GPL-2.0

//! When a worker comes back by itself, and after which time.

use proptest::prelude::*;
use vhost_vsock_logic::linger::*;

const LIMIT: u32 = 500;

/// A pace that has seen one pass end at `now`.
fn begun(now: u64) -> Pace {
    let mut pace = Pace::new();
    assert_eq!(pace.pause(|| now, WANTED_PACKETS, 0, LIMIT), LIMIT);
    pace
}

#[test]
fn off_means_never_and_needs_no_clock() {
    let mut pace = begun(7);
    assert_eq!(pace.pause(|| unreachable!(), u32::MAX, 1, 0), 0);
    assert_eq!(pace, Pace::new());
}

#[test]
fn a_few_packets_never_wait() {
    for packets in 0..MIN_PACKETS {
        let mut pace = begun(7);
        assert_eq!(pace.pause(|| unreachable!(), packets, 100, LIMIT), 0);
        assert_eq!(pace, Pace::new(), "{packets} packets end the pace");
    }
    assert_ne!(Pace::new().pause(|| 7, MIN_PACKETS, 100, LIMIT), 0);
}

#[test]
fn what_fills_a_window_does_not_wait() {
    let bytes = WANTED_BYTES as usize;
    assert_eq!(begun(7).pause(|| 20, 100, bytes, LIMIT), 0);
    assert_ne!(begun(7).pause(|| 20, 100, bytes - 1, LIMIT), 0);
}

#[test]
fn the_worker_comes_back_for_a_quarter_of_a_ring() {
    // 16 packets in 40 us: 32 in 80.
    assert_eq!(begun(1000).pause(|| 1040, 16, 16 * 64, LIMIT), 80);
    // 64 packets in 40 us: 32 in 20.
    assert_eq!(begun(1000).pause(|| 1040, 64, 64 * 64, LIMIT), 20);
    // 10 packets of 4 KiB in 40 us: 16 in 64.
    assert_eq!(begun(1000).pause(|| 1040, 10, 10 << 12, LIMIT), 64);
    // The clock has wrapped.
    assert_eq!(begun(u64::MAX - 9).pause(|| 30, 16, 0, LIMIT), 80);
}

#[test]
fn at_a_steady_pace_passes_settle_at_what_is_wanted() {
    for us_per_packet in [1u32, 3, 10] {
        let (mut pace, mut now, mut pause) = (Pace::new(), 0u64, LIMIT);
        let mut packets = 0;
        for _ in 0..20 {
            let elapsed = u64::from(pause) + 4 * u64::from(us_per_packet);
            now += elapsed;
            packets = (elapsed / u64::from(us_per_packet)) as u32;
            pause = pace.pause(|| now, packets, packets as usize * 64, LIMIT);
        }
        let seen = WANTED_PACKETS..WANTED_PACKETS + 6;
        assert!(seen.contains(&packets), "{packets} at {us_per_packet} us");
    }
}

proptest! {
    #[test]
    fn no_pause_is_longer_than_the_limit(
        times in prop::collection::vec((any::<u64>(), any::<u32>(), any::<usize>()), 1..20),
        limit: u32,
    ) {
        let mut pace = Pace::new();
        for (now, packets, bytes) in times {
            let pause = pace.pause(|| now, packets, bytes, limit);
            prop_assert!(pause <= limit.min(MAX_US));
        }
    }

    #[test]
    fn a_pace_always_waits(now: u64, elapsed: u64, packets in MIN_PACKETS.., bytes in 0..WANTED_BYTES as usize) {
        let pause = begun(now).pause(|| now.wrapping_add(elapsed), packets, bytes, LIMIT);
        prop_assert!(pause > 0);
    }
}
