// SPDX-License-Identifier: GPL-2.0

//! Lanes: a flow keeps its order, and nobody waits for more than one round.

use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};
use vhost_vsock_logic::header::Flow;
use vhost_vsock_logic::lanes::{lane_of, next, turn_is_over, LANES, TURN_BYTES};

/// A flow from the host to the guest 42.
fn flow(src_port: u32, dst_port: u32) -> Flow {
    Flow {
        src_cid: 2,
        dst_cid: 42,
        src_port,
        dst_port,
    }
}

/// How many lanes the flows are in.
fn lanes_used(flows: impl Iterator<Item = Flow>) -> usize {
    flows
        .fold(0u64, |used, flow| used | (1 << lane_of(&flow)))
        .count_ones() as usize
}

#[test]
fn the_next_lane_is_the_first_one_behind_the_last() {
    for (waiting, last, lane) in [
        (0, 0, None),
        (0, 63, None),
        (1, 0, Some(0)),
        (1, 63, Some(0)),
        (1 << 63, 63, Some(63)),
        (1 << 63, 0, Some(63)),
        ((1 << 63) | 1, 63, Some(0)),
        ((1 << 63) | 1, 0, Some(63)),
        (0b1110, 1, Some(2)),
        (0b1110, 3, Some(1)),
        (u64::MAX, 17, Some(18)),
        (u64::MAX, 63, Some(0)),
    ] {
        assert_eq!(next(waiting, last), lane, "{waiting:#b} after {last}");
    }
}

#[test]
fn a_turn_ends_by_bytes_if_others_wait() {
    for (bytes, waiting, lane, over) in [
        (0, u64::MAX, 0, false),
        (TURN_BYTES - 1, u64::MAX, 5, false),
        (TURN_BYTES, u64::MAX, 5, true),
        (usize::MAX, u64::MAX, 5, true),
        // Nobody waits, or only the lane itself.
        (TURN_BYTES, 0, 5, false),
        (usize::MAX, 1 << 5, 5, false),
        (usize::MAX, 1 << 63, 63, false),
        // One other does.
        (TURN_BYTES, 1 << 63, 5, true),
        (TURN_BYTES, 1, 63, true),
        (TURN_BYTES, (1 << 5) | 1, 5, true),
    ] {
        assert_eq!(
            turn_is_over(bytes, || waiting, lane),
            over,
            "{bytes} bytes, {waiting:#b} waiting, lane {lane}"
        );
    }
}

/// The module's model: lanes of packets, a bit for each that is not empty.
#[derive(Default)]
struct Model {
    lanes: HashMap<usize, VecDeque<(usize, u32)>>,
    waiting: u64,
    last: usize,
}

impl Model {
    fn push(&mut self, flow: &Flow, packet: (usize, u32)) {
        let lane = lane_of(flow);
        self.lanes.entry(lane).or_default().push_back(packet);
        self.waiting |= 1 << lane;
    }

    fn pop(&mut self) -> Option<(usize, u32)> {
        self.last = next(self.waiting, self.last)?;
        let lane = self.lanes.get_mut(&self.last)?;
        let packet = lane.pop_front();
        if lane.is_empty() {
            self.waiting &= !(1 << self.last);
        }
        packet
    }
}

proptest! {
    #[test]
    fn a_lane_is_in_range(
        cids in any::<(u64, u64)>(),
        ports in any::<(u32, u32)>(),
    ) {
        let flow = Flow {
            src_cid: cids.0,
            dst_cid: cids.1,
            src_port: ports.0,
            dst_port: ports.1,
        };
        prop_assert!(lane_of(&flow) < LANES);
    }

    /// Only lanes that wait are served, and none of them is passed over.
    #[test]
    fn the_nearest_waiting_lane_is_served(waiting in any::<u64>(), last in 0..LANES) {
        match next(waiting, last) {
            None => prop_assert_eq!(waiting, 0),
            Some(lane) => {
                prop_assert!(lane < LANES && (waiting >> lane) & 1 == 1);
                let mut passed = (last + 1) % LANES;
                while passed != lane {
                    prop_assert_eq!((waiting >> passed) & 1, 0, "lane {} was passed over", passed);
                    passed = (passed + 1) % LANES;
                }
            }
        }
    }

    /// However the others come and go: a lane that waits is served within one round, and within
    /// as many turns as there were ever others.
    #[test]
    fn a_waiting_lane_is_served_within_a_round(
        lane in 0..LANES,
        last in 0..LANES,
        others in prop::collection::vec(any::<u64>(), LANES),
    ) {
        let mut at = last;
        let mut turns = 0;
        for other in &others {
            turns += 1;
            at = next(other | (1 << lane), at).unwrap();
            if at == lane {
                break;
            }
        }
        prop_assert_eq!(at, lane, "not served in {} turns", LANES);
        let rivals = others.iter().fold(0, |all, other| all | other) & !(1 << lane);
        prop_assert!(turns <= rivals.count_ones() as usize + 1);
    }

    /// Packets of a flow come out as they went in, all of them, whatever else is sent when.
    #[test]
    fn a_flow_keeps_its_order(
        ports in prop::collection::vec(any::<(u32, u32)>(), 1..200),
        steps in prop::collection::vec(prop::option::weighted(0.6, any::<prop::sample::Index>()), 0..600),
    ) {
        let mut model = Model::default();
        let mut sent = vec![0; ports.len()];
        let mut received = vec![0; ports.len()];
        let mut receive = |packet: Option<(usize, u32)>| -> Result<bool, TestCaseError> {
            let Some((of, number)) = packet else { return Ok(false) };
            prop_assert_eq!(number, received[of], "out of order");
            received[of] += 1;
            Ok(true)
        };
        for step in steps {
            match step {
                Some(index) => {
                    let of = index.index(ports.len());
                    model.push(&flow(ports[of].0, ports[of].1), (of, sent[of]));
                    sent[of] += 1;
                }
                None => drop(receive(model.pop())?),
            }
        }
        while receive(model.pop())? {}
        prop_assert_eq!(received, sent);
    }

    /// One flow that always has more does not keep a packet of another lane for more than a turn
    /// of each lane.
    #[test]
    fn a_flood_does_not_hold_up_others(
        flood in any::<(u32, u32)>(),
        quiet in prop::collection::vec(any::<(u32, u32)>(), 1..100),
    ) {
        let flood = flow(flood.0, flood.1);
        let mut model = Model::default();
        for _ in 0..10_000 {
            model.push(&flood, (usize::MAX, 0));
        }
        let quiet: Vec<Flow> = quiet
            .into_iter()
            .map(|ports| flow(ports.0, ports.1))
            .filter(|quiet| lane_of(quiet) != lane_of(&flood))
            .collect();
        for (of, flow) in quiet.iter().enumerate() {
            model.push(flow, (of, 0));
        }
        let deepest = model.lanes.iter()
            .filter(|(lane, _)| **lane != lane_of(&flood))
            .map(|(_, packets)| packets.len())
            .max()
            .unwrap_or(0);
        let served = (0..LANES * deepest)
            .filter_map(|_| model.pop())
            .filter(|(of, _)| *of != usize::MAX)
            .count();
        prop_assert_eq!(served, quiet.len());
    }

    /// Lanes that never run out take turns: between two turns of a lane each other one sends at most
    /// a turn and the buffer with which it ends.
    #[test]
    fn a_lane_waits_for_one_turn_of_each_other(
        waiting in 1..=u64::MAX,
        buffer in 1..=65536usize,
        turns in 1..500usize,
    ) {
        let others = waiting.count_ones() as usize - 1;
        prop_assume!(others > 0);
        let mut lane = 0;
        let mut waited = [0usize; LANES];
        for _ in 0..turns {
            lane = next(waiting, lane).unwrap();
            waited[lane] = 0;
            let mut sent = 0;
            while !turn_is_over(sent, || waiting, lane) {
                sent += buffer;
            }
            for other in (0..LANES).filter(|other| *other != lane && (waiting >> other) & 1 == 1) {
                waited[other] += sent;
                prop_assert!(waited[other] < others * (TURN_BYTES + buffer));
            }
        }
    }

    /// Connections of one server to clients with ports in sequence, of one client to many servers,
    /// and of ports in sequence at both ends are spread over most of the lanes.
    #[test]
    fn flows_spread_over_lanes(port in any::<u32>(), first in 0..0x7fff_0000u32) {
        let count = 4 * LANES as u32;
        prop_assert!(lanes_used((0..count).map(|i| flow(port, first + i))) >= LANES * 7 / 8);
        prop_assert!(lanes_used((0..count).map(|i| flow(first + i, port))) >= LANES / 2);
        let both = (0..count).map(|i| flow(first + i, port.wrapping_add(i)));
        prop_assert!(lanes_used(both) >= LANES / 2);
    }
}
