// SPDX-License-Identifier: GPL-2.0

//! When a worker comes back by itself, and after which time.

use proptest::prelude::*;
use vhost_vsock_logic::linger::*;

const LIMIT: u32 = 500;

/// Microseconds until the worker comes back; 0 if it does not.
fn pause_us(
    pace: &mut Pace,
    now: impl FnOnce() -> u64,
    packets: u32,
    bytes: usize,
    wanted: u32,
    limit: u32,
) -> u32 {
    let pause = pace.pause(now, packets, bytes, wish(wanted, limit));
    pause.map_or(0, |pause| pause.us)
}

/// The same for what a worker usually wishes.
fn usual_us(pace: &mut Pace, now: impl FnOnce() -> u64, packets: u32, bytes: usize) -> u32 {
    pause_us(pace, now, packets, bytes, WANTED_PACKETS, LIMIT)
}

/// A pause that is not the first.
fn next(us: u32, packets: u32) -> Pause {
    Pause {
        us,
        packets,
        is_first: false,
    }
}

fn wish(packets: u32, limit_us: u32) -> Wish {
    Wish {
        packets,
        large: LARGE,
        enough_at_first: ENOUGH_PACKETS,
        limit_us,
    }
}

/// A pace whose first pass begins at `now`.
fn begun(now: u64) -> Pace {
    let mut pace = Pace::new();
    pace.begin(now);
    pace
}

/// A pace that has lingered since `now`.
fn lingered(now: u64) -> Pace {
    let mut pace = begun(now);
    assert_ne!(usual_us(&mut pace, || now, MIN_PACKETS, 0), 0);
    pace
}

#[test]
fn off_means_never_and_needs_no_clock() {
    let mut pace = begun(7);
    assert_eq!(
        pause_us(&mut pace, || unreachable!(), u32::MAX, 1, WANTED_PACKETS, 0),
        0
    );
    assert_eq!(pace, Pace::new());
}

#[test]
fn a_few_packets_never_wait() {
    for packets in 0..MIN_PACKETS {
        let mut pace = begun(7);
        assert_eq!(usual_us(&mut pace, || unreachable!(), packets, 100), 0);
        assert_eq!(pace, Pace::new());
    }
    assert_ne!(usual_us(&mut begun(7), || 20, MIN_PACKETS, 100), 0);
    assert_eq!(usual_us(&mut Pace::new(), || unreachable!(), 100, 100), 0);
}

#[test]
fn a_pace_that_slows_down_ends_later_than_it_begins() {
    for packets in ENOUGH_PACKETS..MIN_PACKETS {
        assert_ne!(usual_us(&mut lingered(7), || 100, packets, 100), 0);
    }
    for packets in 0..ENOUGH_PACKETS {
        let mut pace = lingered(7);
        assert_eq!(usual_us(&mut pace, || unreachable!(), packets, 100), 0);
        assert_eq!(pace, Pace::new());
    }
}

#[test]
fn large_packets_do_not_wait() {
    assert_eq!(
        usual_us(&mut begun(7), || unreachable!(), 10, 10 * LARGE),
        0
    );
    assert_ne!(usual_us(&mut begun(7), || 20, 10, 10 * LARGE - 1), 0);
}

#[test]
fn the_worker_comes_back_for_a_quarter_of_a_ring() {
    // 16 packets in 40 us: 32 in 80.
    assert_eq!(usual_us(&mut lingered(1000), || 1040, 16, 16 * 64), 80);
    // 64 packets in 40 us: 32 in 20.
    assert_eq!(usual_us(&mut lingered(1000), || 1040, 64, 64 * 64), 20);
    // 10 packets of 4 KiB in 40 us: 16 in 64.
    assert_eq!(usual_us(&mut lingered(1000), || 1040, 10, 10 << 12), 64);
    // The clock has wrapped.
    assert_eq!(usual_us(&mut lingered(u64::MAX - 9), || 30, 16, 0), 80);
}

#[test]
fn as_many_packets_are_waited_for_as_the_time_is_for() {
    for (bytes, packets, us) in [
        (16 * 64, 64, 160),
        // 64 KiB are 32 packets of 2 KiB or a little less.
        (16 * 2047, 32, 80),
        // Of nothing there may be any number.
        (0, 64, 160),
    ] {
        let pause = lingered(1000).pause(|| 1040, 16, bytes, Wish::rx(LIMIT));
        assert_eq!(pause, Some(next(us, packets)), "{bytes} bytes");
    }
    // The time is limited, the number is not.
    let pause = lingered(1000).pause(|| 2000, 16, 16, Wish::rx(LIMIT));
    assert_eq!(pause, Some(next(LIMIT, 64)));
}

#[test]
fn only_packets_that_share_buffers_are_waited_for() {
    for (bytes, waits) in [(16 * RX_LARGE - 1, true), (16 * RX_LARGE, false)] {
        let pause = lingered(7).pause(|| 100, 16, bytes, Wish::rx(LIMIT));
        assert_eq!(pause.is_some(), waits, "{bytes} bytes");
    }
}

#[test]
fn behind_the_first_pause_few_packets_tell_the_pace() {
    let rx = Wish::rx(LIMIT);
    for (packets, us) in [(1, 0), (2, LIMIT), (8, 160)] {
        let mut pace = begun(1000);
        let first = pace.pause(|| 1010, 16, 0, rx);
        assert!(first.is_some_and(|pause| pause.is_first && pause.us == 80));
        pace.begin(1030);
        let second = pace.pause(|| 1030, packets, 0, rx);
        assert_eq!(second.map_or(0, |pause| pause.us), us, "{packets} packets");
        assert!(second.is_none_or(|pause| !pause.is_first));
    }
    // Later they do not.
    let mut pace = lingered(1000);
    assert!(pace.pause(|| 1040, 16, 0, rx).is_some());
    assert_eq!(pace.pause(|| unreachable!(), 3, 0, rx), None);
}

/// Chances that are left out until one is taken.
fn left_out(pace: &mut Pace) -> u32 {
    let mut chances = 0;
    loop {
        // Neither a pass of little nor time makes the worker forget.
        pace.begin(2000);
        assert_eq!(pause_us(pace, || unreachable!(), 1, 1, 64, LIMIT), 0);
        pace.begin(1_000_000 * u64::from(chances));
        let now = 1_000_000 * u64::from(chances) + 40;
        if pause_us(pace, || now, 100, 100, 64, LIMIT) > 0 {
            return chances;
        }
        chances += 1;
    }
}

#[test]
fn what_does_not_pay_is_tried_more_and_more_seldom() {
    let mut pace = Pace::new();
    for chances in [1, 3, 7, 15, 31, MAX_LEFT_OUT, MAX_LEFT_OUT] {
        pace.did_not_pay();
        assert_eq!(left_out(&mut pace), chances);
    }
    // Each time that pays makes up for one of these.
    for _ in 0..MAX_LEFT_OUT - 1 {
        pace.paid();
    }
    pace.did_not_pay();
    assert_eq!(left_out(&mut pace), 3);
    for _ in 0..9 {
        pace.paid();
    }
    pace.did_not_pay();
    assert_eq!(left_out(&mut pace), 1);
}

#[test]
fn a_pause_is_ended_when_nothing_comes_in_a_part_of_it() {
    for (us, slice_us, slices) in [
        (400, 100, 4),
        (83, 20, 4),
        (50, MIN_SLICE_US, 2),
        (MIN_SLICE_US, MIN_SLICE_US, 1),
        (7, 7, 1),
        (1, 1, 1),
    ] {
        let pause = next(us, 64);
        assert_eq!((pause.slice_us(), pause.slices()), (slice_us, slices));
        assert!(slice_us * slices <= us, "longer than {us} us");
    }
    let mut first = next(400, 64);
    first.is_first = true;
    assert_eq!((first.slice_us(), first.slices()), (400, 1));
}

#[test]
fn a_pause_that_was_cut_comes_later() {
    let rx = Wish::rx(LIMIT);
    let mut pace = begun(1000);
    assert!(pace.pause(|| 1010, 16, 0, rx).is_some());
    pace.begin(1020);
    assert_eq!(pace.pause(|| unreachable!(), 1, 0, rx), None);
    pace.go_on(1030);
    // As behind a first pause: 4 packets in 40 us.
    pace.begin(1070);
    assert_eq!(pace.pause(|| 1070, 4, 0, rx), Some(next(LIMIT, 64)));
}

#[test]
fn another_flow_begins_anew() {
    let mut pace = lingered(1000);
    pace.other_flow();
    let few = MIN_PACKETS - 1;
    assert_eq!(pace.pause(|| unreachable!(), few, 0, Wish::rx(LIMIT)), None);
    let mut pace = lingered(1000);
    pace.other_flow();
    let pause = pace.pause(|| 1010, MIN_PACKETS, 0, Wish::rx(LIMIT));
    assert!(pause.is_some_and(|pause| pause.is_first));
}

#[test]
fn a_clock_that_steps_back_is_no_long_time() {
    let pause = lingered(1000).pause(|| 990, 16, 0, Wish::rx(LIMIT));
    assert_eq!(pause, Some(next(1, 64)));
}

fn longest(adds: &[(usize, u32, usize)]) -> Option<(usize, u32, usize)> {
    let mut rows = Rows::default();
    for &(lane, packets, bytes) in adds {
        rows.add(lane, packets, bytes);
    }
    rows.longest().map(|row| (row.lane, row.packets, row.bytes))
}

#[test]
fn a_row_is_of_one_lane() {
    assert_eq!(longest(&[]), None);
    assert_eq!(longest(&[(3, 1, 10)]), Some((3, 1, 10)));
    assert_eq!(longest(&[(3, 1, 10), (3, 2, 5)]), Some((3, 3, 15)));
    // The other flow's packet ends it; the longest counts, not the last or all.
    assert_eq!(
        longest(&[(3, 5, 10), (4, 1, 7), (3, 4, 9)]),
        Some((3, 5, 10))
    );
    assert_eq!(
        longest(&[(3, 5, 10), (4, 6, 7), (3, 1, 9)]),
        Some((4, 6, 7))
    );
    assert_eq!(longest(&[(3, 5, 10), (4, 6, 7)]), Some((4, 6, 7)));
    // Who takes turns has a row of one.
    let crowd: Vec<_> = (0..16).map(|lane| (lane, 1, 100)).collect();
    assert_eq!(longest(&crowd), Some((0, 1, 100)));
    assert_eq!(
        longest(&[(1, u32::MAX, usize::MAX), (1, 1, 1)]),
        Some((1, u32::MAX, usize::MAX))
    );
}

#[test]
fn at_first_it_goes_by_the_pass_itself() {
    // 16 packets taken in 40 us: they came in 80 at least.
    let mut pace = begun(1000);
    assert_eq!(usual_us(&mut pace, || 1040, 16, 0), 160);
    // The pass that begins later is part of the same pace: 40 in 200 us.
    pace.begin(1200);
    assert_eq!(usual_us(&mut pace, || 1240, 40, 0), 160);
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
        assert_eq!(
            Wish::tx(ring_size, LIMIT),
            wish(wanted, LIMIT),
            "a ring of {ring_size}"
        );
    }
    assert_eq!(
        pause_us(&mut begun(7), || unreachable!(), 100, 100, 0, LIMIT),
        0
    );
    assert_eq!(pause_us(&mut lingered(1000), || 1040, 16, 0, 8, LIMIT), 20);
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
            pause = pause_us(
                &mut pace,
                || now,
                packets,
                packets as usize * 64,
                WANTED_PACKETS,
                1000,
            );
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
    assert_eq!(usual_us(&mut pace, || 1080, 10, 10 * 64), 10);
    pace.unfinished(256, 0);
    assert_ne!(usual_us(&mut pace, || 1100, 0, 0), 0, "256 packets");
    assert_eq!(usual_us(&mut pace, || unreachable!(), 0, 0), 0);
    assert_eq!(pace, Pace::new());
}

proptest! {
    #[test]
    fn no_pause_is_longer_than_the_limit(
        passes in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u32>(), any::<usize>(), 0..6), 1..40),
        wanted: u32,
        limit: u32,
    ) {
        let mut pace = Pace::new();
        for (begin, now, packets, bytes, other) in passes {
            match other {
                0 => pace.did_not_pay(),
                1 => pace.unfinished(packets, bytes),
                2 => pace.go_on(now),
                3 => pace.other_flow(),
                _ => pace.paid(),
            }
            pace.begin(begin);
            if let Some(pause) = pace.pause(|| now, packets, bytes, wish(wanted, limit)) {
                prop_assert!((1..=limit.min(MAX_US)).contains(&pause.us));
                prop_assert!((1..=wanted).contains(&pause.packets));
            }
        }
    }

    #[test]
    fn a_pace_always_waits(now: u64, elapsed: u64, packets in MIN_PACKETS.., bytes in 0..MIN_PACKETS as usize * LARGE) {
        let pause = usual_us(&mut begun(now), || now.wrapping_add(elapsed), packets, bytes);
        prop_assert!(pause > 0);
    }
}
