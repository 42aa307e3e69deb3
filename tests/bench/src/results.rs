// SPDX-License-Identifier: GPL-2.0

//! What the traffic programs print.

use std::collections::BTreeMap;

use crate::record::GuestSide;

/// Numbers by name: `name=value` pairs of `peer`, and the lines "what: number unit" of `vsock_perf`, whose blanks become
/// underscores.
pub(crate) fn parse(text: &str) -> BTreeMap<String, f64> {
    text.lines()
        .flat_map(|line| match line.split_once(": ") {
            Some((name, rest)) => vec![(name.trim().replace(' ', "_"), first_word(rest))],
            None => line
                .split_whitespace()
                .filter_map(|word| word.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.parse().ok()))
                .collect(),
        })
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

fn first_word(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// What a guest has noted about its workloads, by port: a line "port=N", what the command printed, and a line
/// "interrupts=N". A first note, of port 0, has the interrupts before all workloads.
pub(crate) fn guest_side(text: &str) -> BTreeMap<u32, GuestSide> {
    let mut sides = BTreeMap::new();
    let mut before = 0;
    for part in text.split("port=").skip(1) {
        let (port, rest) = part.split_once('\n').unwrap_or((part, ""));
        let results = parse(rest);
        let (Ok(port), Some(interrupts)) = (port.trim().parse(), results.get("interrupts")) else {
            continue;
        };
        let side = GuestSide {
            interrupts: *interrupts as u64,
            interrupts_before: before,
            results,
        };
        before = side.interrupts;
        sides.insert(port, side);
    }
    sides
}

#[cfg(test)]
mod tests {
    use super::{guest_side, parse};

    #[test]
    fn both_programs() {
        let perf =
            parse("Run as receiver\ntotal bytes received: 4096\nrx performance: 0.026 Gbits/s\n");
        assert_eq!(perf["rx_performance"], 0.026);
        assert_eq!(perf["total_bytes_received"], 4096.0);
        let peer = parse("connected\nping type=stream count=9 p50_us=12\n");
        assert_eq!(peer["p50_us"], 12.0);
        assert!(!peer.contains_key("type"));
    }

    #[test]
    fn a_guest_notes_several_ports() {
        let notes = "port=0\ninterrupts=2\nport=7\nrx performance: 1.5 Gbits/s\ninterrupts=3\nport=8\nbroken";
        let sides = guest_side(notes);
        assert_eq!(sides.len(), 2);
        assert_eq!((sides[&7].interrupts_before, sides[&7].interrupts), (2, 3));
        assert_eq!(sides[&7].results["rx_performance"], 1.5);
    }
}
