// SPDX-License-Identifier: GPL-2.0

//! The rows about many guests and connections, and about memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rows::BASE;
use super::stats::{median, spread};
use crate::record::{Held, ScaleCase, Scaled, Thing};

/// What a packet costs over one driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scale {
    /// The driver and its settings.
    pub mode: String,
    /// What was done.
    #[serde(flatten)]
    pub case: ScaleCase,
    /// Instructions of all workers for each packet.
    pub worker: Cost,
    /// Instructions of all tasks, the guests included, for each packet.
    pub host: Cost,
    /// Packets for each update of a used index, on both rings.
    pub packets_per_publication: f64,
}

/// Instructions for each packet.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// The median.
    pub each: f64,
    /// Largest less smallest, in per cent.
    pub spread: f64,
    /// `each` as a part of the C driver's.
    pub part: Option<f64>,
    /// How many times as much as with the fewest guests and connections that have the same bursts.
    pub growth: Option<f64>,
}

impl Cost {
    fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            each: median(values.iter().copied())?,
            spread: spread(values),
            part: None,
            growth: None,
        })
    }

    fn compare(&mut self, base: Option<f64>, few: Option<f64>) {
        self.part = base.map(|base| self.each / base);
        self.growth = few.map(|few| self.each / few);
    }
}

/// Whether each run of a burst is of another connection. Otherwise runs of one follow each other, and cost less.
fn is_whole(case: ScaleCase) -> bool {
    case.connections / case.guests >= case.burst / case.run
}

/// The same with nobody in it.
fn pattern(case: ScaleCase) -> ScaleCase {
    ScaleCase {
        guests: 0,
        connections: 0,
        at_once: 0,
        ..case
    }
}

/// Rows of all cases, for each pattern and driver from few to many.
pub(crate) fn scale(records: &[Scaled]) -> Vec<Scale> {
    let mut groups: BTreeMap<_, Vec<&Scaled>> = BTreeMap::new();
    for record in records {
        let case = record.case;
        let key = (pattern(case), record.mode.clone(), case);
        groups.entry(key).or_default().push(record);
    }
    let mut rows: Vec<Scale> = groups.values().filter_map(|group| row(group)).collect();
    let costs: Vec<_> = rows
        .iter()
        .map(|row| (row.mode.clone(), row.case, [row.worker.each, row.host.each]))
        .collect();
    for row in &mut rows {
        let base = costs
            .iter()
            .find(|(mode, case, _)| mode == BASE && *case == row.case && row.mode != BASE);
        // Rows are in order, so the first one is that of the fewest.
        let few = costs.iter().find(|(mode, case, _)| {
            *mode == row.mode && pattern(*case) == pattern(row.case) && is_whole(*case)
        });
        let few = few.filter(|_| is_whole(row.case));
        for (cost, which) in [(&mut row.worker, 0), (&mut row.host, 1)] {
            let pick = |other: &(String, ScaleCase, [f64; 2])| other.2[which];
            cost.compare(base.map(pick), few.map(pick));
        }
    }
    rows
}

fn row(group: &[&Scaled]) -> Option<Scale> {
    let first = group.first()?;
    let each = |count: &dyn Fn(&Scaled) -> u64| -> Vec<f64> {
        let part = |record: &&Scaled| count(record) as f64 / record.packets as f64;
        group.iter().map(part).collect()
    };
    let publications = median(each(&|record| record.counts.publications.max(1)))?;
    Some(Scale {
        mode: first.mode.clone(),
        case: first.case,
        worker: Cost::of(&each(&|record| record.counts.worker))?,
        host: Cost::of(&each(&|record| record.counts.host))?,
        packets_per_publication: 1.0 / publications,
    })
}

/// Memory of one thing over one driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// The kind of thing.
    pub thing: Thing,
    /// Bytes of payload in it; 0: it is no packet.
    pub payload: u32,
    /// The driver and its settings.
    pub mode: String,
    /// Bytes of memory.
    pub each: f64,
    /// Bytes charged to the socket.
    pub charged: Option<f64>,
    /// Bytes of memory for each byte of payload.
    pub per_byte: Option<f64>,
}

/// Rows of the memory that is held.
pub(crate) fn memory(records: &[Held]) -> Vec<Memory> {
    let mut groups: BTreeMap<_, Vec<&Held>> = BTreeMap::new();
    for record in records {
        let key = (record.thing, record.payload, record.mode.clone());
        groups.entry(key).or_default().push(record);
    }
    groups
        .iter()
        .filter_map(|((thing, payload, mode), group)| {
            let of_one = |bytes: u64, held: &Held| bytes as f64 / f64::from(held.count);
            let each = median(group.iter().map(|held| of_one(held.bytes, held)))?;
            let charged = group
                .iter()
                .filter_map(|held| Some(of_one(held.charged?, held)));
            Some(Memory {
                thing: *thing,
                payload: *payload,
                mode: mode.clone(),
                each,
                charged: median(charged),
                per_byte: (*payload > 0).then(|| each / f64::from(*payload)),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::scale;
    use crate::record::{Direction, ExactCounts, ScaleCase, Scaled};

    fn scaled(mode: &str, connections: u32, worker: u64) -> Scaled {
        Scaled {
            mode: mode.to_owned(),
            case: ScaleCase {
                direction: Direction::ToHost,
                size: 256,
                burst: 64,
                run: 8,
                guests: 1,
                connections,
                at_once: 1,
            },
            round: 0,
            packets: 10,
            counts: ExactCounts {
                worker,
                host: 2 * worker,
                guest: 0,
                vmruns: 0,
                worker_runs: 0,
                publications: 5,
                interrupts: 0,
                deliveries: 0,
            },
        }
    }

    #[test]
    fn growth_is_over_the_fewest_with_whole_bursts() {
        let rows = scale(&[
            scaled("c", 100, 2200),
            scaled("ours", 1, 400),
            scaled("ours", 10, 1000),
            scaled("ours", 100, 1100),
        ]);
        let ours: Vec<_> = rows.iter().filter(|row| row.mode == "ours").collect();
        let growths: Vec<_> = ours.iter().map(|row| row.worker.growth).collect();
        assert_eq!(growths, [None, Some(1.0), Some(1.1)]);
        assert_eq!(ours[2].worker.part, Some(0.5));
        assert_eq!(ours[2].host.each, 220.0);
        assert_eq!(ours[2].packets_per_publication, 2.0);
    }
}
