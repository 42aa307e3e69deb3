// SPDX-License-Identifier: GPL-2.0

//! What the driver is to reach, and whether it did.

use serde::{Deserialize, Serialize};

use super::rows::{BASE, Counted, Timed};
use super::scale::Scale;
use super::table;
use crate::record::{Direction, Kind, ScaleCase};

/// The mode that the targets are about: our driver as it is by default.
pub(crate) const OURS: &str = "ours";
/// Our driver with busy polling.
pub(crate) const POLLING: &str = "polling";

/// One target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    /// What is compared.
    pub what: String,
    /// What is to be reached.
    pub wanted: String,
    /// What was.
    pub seen: String,
    /// Whether it is enough.
    pub met: bool,
}

const BOTH: [Direction; 2] = [Direction::ToGuest, Direction::ToHost];

/// Smallest ratio of throughput with one connection, to the guest and to the host.
fn throughput_wanted(size: u32) -> [f64; 2] {
    match size {
        64 => [3.0, 1.0],
        256 => [2.0, 1.0],
        1024 => [1.3, 1.0],
        _ => [1.0, 1.0],
    }
}

/// All targets that something was measured for: throughput and round trips by the lower end of the interval, counts with
/// a guest under KVM by their medians.
pub(crate) fn targets(timed: &[Timed], counted: &[Counted], scale: &[Scale]) -> Vec<Target> {
    let mut targets: Vec<Target> = timed.iter().filter_map(throughput).collect();
    targets.extend(timed.iter().filter_map(round_trip));
    for direction in BOTH {
        targets.extend(worker(counted, direction));
        targets.extend(publications(timed, direction));
        targets.extend(kicks(timed, direction));
        targets.extend(flat(scale, direction));
    }
    targets
}

/// Whether a case is one of those that a target is about.
type Who = fn(&ScaleCase) -> bool;

/// The largest growth of the worker's instructions for a packet, over all patterns, with many connections of one guest
/// and with many guests that take turns. With all at once more tasks share the processor and more packets wait.
fn flat(rows: &[Scale], direction: Direction) -> Vec<Target> {
    let whos: [(&str, Who); 2] = [
        ("connections", |case| case.guests == 1),
        ("guests", |case| case.guests > 1 && case.at_once == 1),
    ];
    let largest = |mode: &str, who: Who| {
        rows.iter()
            .filter(|row| row.mode == mode && row.case.direction == direction && who(&row.case))
            .filter_map(|row| row.worker.growth)
            .max_by(f64::total_cmp)
    };
    whos.iter()
        .filter_map(|(name, who)| {
            let (ours, base) = (largest(OURS, *who)?, largest(BASE, *who)?);
            Some(Target {
                what: format!(
                    "worker/packet, many {name}, {}",
                    table::direction(direction)
                ),
                wanted: "1.10 x few or less".to_owned(),
                seen: format!("{ours:.2} x, C {base:.2} x"),
                met: ours <= 1.1,
            })
        })
        .collect()
}

fn at_least(what: String, wanted: f64, ratio: super::stats::Ratio) -> Target {
    Target {
        what,
        wanted: format!("{wanted:.1} x or more"),
        seen: format!("{:.2} x, from {:.2} on", ratio.ratio, ratio.low),
        met: ratio.low >= wanted,
    }
}

fn throughput(row: &Timed) -> Option<Target> {
    let workload = row.workload;
    let counts = matches!(workload.size, 64 | 256 | 1024 | 4096..);
    if row.mode != OURS || workload.kind != Kind::Throughput || workload.connections != 1 || !counts
    {
        return None;
    }
    let wanted = throughput_wanted(workload.size)[workload.direction as usize];
    let what = format!(
        "{} B {}",
        workload.size,
        table::direction(workload.direction)
    );
    Some(at_least(what, wanted, row.ratio?))
}

fn round_trip(row: &Timed) -> Option<Target> {
    let workload = row.workload;
    if workload.kind != Kind::RoundTrip || workload.size != 64 {
        return None;
    }
    let (name, wanted) = match row.mode.as_str() {
        OURS => ("", 1.0),
        POLLING => (" with busy polling", 1.2),
        _ => return None,
    };
    let from = match workload.direction {
        Direction::ToGuest => "host",
        Direction::ToHost => "guest",
    };
    Some(at_least(
        format!("round trip, 64 B, from the {from}{name}"),
        wanted,
        row.ratio?,
    ))
}

fn worker(counted: &[Counted], direction: Direction) -> Option<Target> {
    let row = counted
        .iter()
        .find(|row| row.mode == OURS && row.size == 256 && row.direction == direction)?;
    let wanted = [0.5, 0.55][direction as usize];
    let part = row.worker_part?;
    Some(Target {
        what: format!("worker instructions, 256 B {}", table::direction(direction)),
        wanted: format!("{wanted} x or less"),
        seen: format!("{part:.2} x"),
        met: part <= wanted,
    })
}

fn single<'a>(timed: &'a [Timed], mode: &str, direction: Direction) -> Option<&'a Timed> {
    timed.iter().find(|row| {
        row.mode == mode
            && row.workload.kind == Kind::Throughput
            && (row.workload.size, row.workload.connections) == (256, 1)
            && row.workload.direction == direction
    })
}

fn publications(timed: &[Timed], direction: Direction) -> Option<Target> {
    let seen = single(timed, OURS, direction)?.packets_per_publication?;
    let wanted = [64.0, 32.0][direction as usize];
    Some(Target {
        what: format!(
            "packets per publication, 256 B {}",
            table::direction(direction)
        ),
        wanted: format!("{wanted} or more"),
        seen: format!("{seen:.1}"),
        met: seen >= wanted,
    })
}

fn kicks(timed: &[Timed], direction: Direction) -> Option<Target> {
    let ours = single(timed, OURS, direction)?.kicks_per_mib;
    let base = single(timed, BASE, direction)?.kicks_per_mib;
    Some(Target {
        what: format!("kicks per MiB, 256 B {}", table::direction(direction)),
        wanted: format!("C's {base:.1} or less"),
        seen: format!("{ours:.1}"),
        met: ours <= base,
    })
}
