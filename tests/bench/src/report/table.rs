// SPDX-License-Identifier: GPL-2.0

//! Tables as reStructuredText, which reads well as plain text too.

use std::fmt::Write;

use super::rows::{BASE, Counted, Timed};
use super::scale::{Memory, Scale};
use super::stats::Ratio;
use super::targets::Target;
use crate::record::{Direction, Kind, Thing};

/// A simple table: a rule, the heads, a rule, the rows, a rule.
fn simple(heads: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = heads
        .iter()
        .enumerate()
        .map(|(column, head)| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.fold(head.len(), usize::max)
        })
        .collect();
    let rule: Vec<String> = widths.iter().map(|width| "=".repeat(*width)).collect();
    let rule = rule.join("  ");
    let mut text = format!("{rule}\n");
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        let _ = writeln!(text, "{}", padded.join("  ").trim_end());
    };
    line(&mut heads.iter().copied());
    line(&mut std::iter::once(rule.as_str()));
    rows.iter()
        .for_each(|row| line(&mut row.iter().map(String::as_str)));
    text + &rule + "\n"
}

/// A number with three significant digits, or as many as the whole part has.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        m if m >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

fn optional(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), number)
}

fn ratio(ratio: Option<Ratio>) -> [String; 3] {
    match ratio {
        Some(r) => [
            format!("{:.2}", r.ratio),
            format!("{:.2} to {:.2}", r.low, r.high),
            format!("{} of {}", r.won, r.pairs),
        ],
        None => ["-", "-", "-"].map(str::to_owned),
    }
}

/// How a direction is called.
pub(crate) fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::ToGuest => "to guest",
        Direction::ToHost => "to host",
    }
}

/// The table of throughput.
pub(crate) fn throughput(rows: &[Timed]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .filter(|row| row.workload.kind == Kind::Throughput)
        .map(|row| {
            let [ratio, interval, won] = ratio(row.ratio);
            vec![
                direction(row.workload.direction).to_owned(),
                row.workload.size.to_string(),
                row.workload.connections.to_string(),
                row.mode.clone(),
                number(row.value),
                ratio,
                interval,
                won,
                optional(row.packets_per_publication),
                number(row.kicks_per_mib),
                optional(row.interrupts_per_mib),
                number(row.worker_seconds_per_gib),
            ]
        })
        .collect();
    simple(
        &[
            "direction",
            "write",
            "conn.",
            "driver",
            "Gbit/s",
            "ratio",
            "95 %",
            "won",
            "pkts/publ.",
            "kicks/MiB",
            "irqs/MiB",
            "worker s/GiB",
        ],
        &cells,
    )
}

/// The table of round trips.
pub(crate) fn round_trips(rows: &[Timed]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .filter(|row| row.workload.kind == Kind::RoundTrip)
        .map(|row| {
            let [middle, interval, won] = ratio(row.ratio);
            let [tail, tail_interval, _] = ratio(row.p99_ratio);
            vec![
                direction(row.workload.direction).to_owned(),
                row.workload.size.to_string(),
                row.mode.clone(),
                number(row.value),
                middle,
                interval,
                won,
                optional(row.p99),
                tail,
                tail_interval,
            ]
        })
        .collect();
    simple(
        &[
            "from", "bytes", "driver", "p50 us", "ratio", "95 %", "won", "p99 us", "ratio", "95 %",
        ],
        &cells,
    )
}

/// The table of counts; `bursts` where packets were sent in bursts.
pub(crate) fn counted(rows: &[Counted], bursts: bool) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![
                direction(row.direction).to_owned(),
                row.size.to_string(),
                row.mode.clone(),
                format!("{:.0}", row.worker),
                row.worker_part
                    .map_or("-".to_owned(), |part| format!("{part:.2}")),
                format!("{:.2}", row.spread),
                format!("{:.0}", row.host),
                row.host_part
                    .map_or("-".to_owned(), |part| format!("{part:.2}")),
                number(row.worker_per_mib / 1e6),
                number(row.host_per_mib / 1e6),
                number(row.packets_per_publication),
                number(row.kicks_per_mib),
                optional(row.signals_per_mib),
            ];
            if bursts {
                let burst = if row.burst == 0 {
                    "free".to_owned()
                } else {
                    row.burst.to_string()
                };
                cells.insert(2, burst);
            } else {
                cells.push(format!("{:.0}", row.guest));
            }
            cells
        })
        .collect();
    let mut heads = vec![
        "direction",
        "write",
        "driver",
        "worker/pkt",
        "of C",
        "spread %",
        "host/pkt",
        "of C",
        "worker M/MiB",
        "host M/MiB",
        "pkts/publ.",
        "kicks/MiB",
        "signals/MiB",
    ];
    if bursts {
        heads.insert(2, "burst");
    } else {
        heads.push("guest/pkt");
    }
    simple(&heads, &cells)
}

/// The table of many guests and connections.
pub(crate) fn scale(rows: &[Scale]) -> String {
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                direction(row.case.direction).to_owned(),
                row.case.burst.to_string(),
                row.case.run.to_string(),
                row.mode.clone(),
                row.case.guests.to_string(),
                row.case.connections.to_string(),
                row.case.at_once.to_string(),
                format!("{:.0}", row.worker.each),
                ratio(row.worker.growth),
                ratio(row.worker.part),
                format!("{:.2}", row.worker.spread),
                format!("{:.0}", row.host.each),
                ratio(row.host.growth),
                ratio(row.host.part),
                number(row.packets_per_publication),
            ]
        })
        .collect();
    simple(
        &[
            "direction",
            "burst",
            "run",
            "driver",
            "guests",
            "conn.",
            "at once",
            "worker/pkt",
            "of few",
            "of C",
            "spread %",
            "host/pkt",
            "of few",
            "of C",
            "pkts/publ.",
        ],
        &cells,
    )
}

/// How a thing is called.
fn thing(thing: Thing) -> &'static str {
    match thing {
        Thing::OpenDevice => "device, open",
        Thing::StartedDevice => "device, started",
        Thing::Connection => "connection",
        Thing::QueuedPacket => "packet that waits",
    }
}

/// The table of memory.
pub(crate) fn memory(rows: &[Memory]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                thing(row.thing).to_owned(),
                match row.payload {
                    0 => "-".to_owned(),
                    payload => payload.to_string(),
                },
                row.mode.clone(),
                format!("{:.0}", row.each),
                row.charged
                    .map_or("-".to_owned(), |charged| format!("{charged:.0}")),
                optional(row.per_byte),
            ]
        })
        .collect();
    simple(
        &[
            "what",
            "payload",
            "driver",
            "bytes held",
            "charged",
            "held/payload",
        ],
        &cells,
    )
}

/// The table of targets.
pub(crate) fn targets(targets: &[Target]) -> String {
    let cells: Vec<Vec<String>> = targets
        .iter()
        .map(|target| {
            vec![
                target.what.clone(),
                target.wanted.clone(),
                target.seen.clone(),
                if target.met { "met" } else { "missed" }.to_owned(),
            ]
        })
        .collect();
    simple(&["what", "target", "seen", "verdict"], &cells)
}

/// The drivers that were compared.
pub(crate) fn modes(timed: &[Timed], counted: &[Counted]) -> Vec<String> {
    let mut modes: Vec<String> = timed
        .iter()
        .map(|row| &row.mode)
        .chain(counted.iter().map(|row| &row.mode))
        .filter(|mode| *mode != BASE)
        .cloned()
        .collect();
    modes.sort();
    modes.dedup();
    modes
}

#[cfg(test)]
mod tests {
    use super::{number, simple};

    #[test]
    fn columns_fit_their_cells() {
        let table = simple(&["a", "long"], &[vec!["wide".into(), "x".into()]]);
        assert_eq!(
            table,
            "====  ====\na     long\n====  ====\nwide  x\n====  ====\n"
        );
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(number(1234.5), "1234");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(0.02634), "0.0263");
    }
}
