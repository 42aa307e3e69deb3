// SPDX-License-Identifier: GPL-2.0

//! The rows of the report: what each workload came to over each driver, compared with the C driver.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::load::Sample;
use super::stats::{Ratio, geometric_mean, median, spread};
use crate::record::{Direction, Exact, Workload};

/// The mode that all others are compared with.
pub(crate) const BASE: &str = "c";

const MIB: f64 = (1 << 20) as f64;

/// One workload over one driver, timed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Timed {
    /// What was run.
    pub workload: Workload,
    /// The driver and its settings.
    pub mode: String,
    /// Geometric mean: Gbit/s, or microseconds of the median round trip.
    pub value: f64,
    /// Geometric mean of the 99th percentile of round trips, in microseconds.
    pub p99: Option<f64>,
    /// How much better than the C driver: of throughput, or of the median round trip.
    pub ratio: Option<Ratio>,
    /// The same of the 99th percentile of round trips.
    pub p99_ratio: Option<Ratio>,
    /// Medians from here on. Packets that shared an update of the used index, as our driver counts them.
    pub packets_per_publication: Option<f64>,
    /// Kicks of the guest for each MiB.
    pub kicks_per_mib: f64,
    /// Interrupts that the guest had for each MiB.
    pub interrupts_per_mib: Option<f64>,
    /// Seconds that the worker ran for each GiB.
    pub worker_seconds_per_gib: f64,
}

/// One workload over one driver, counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Counted {
    /// The driver and its settings.
    pub mode: String,
    /// Which way.
    pub direction: Direction,
    /// Bytes of a write.
    pub size: u32,
    /// Packets sent before all have arrived; 0: as many as fit.
    pub burst: u32,
    /// Instructions of the worker for each packet: the median.
    pub worker: f64,
    /// Largest less smallest of it, in per cent.
    pub spread: f64,
    /// `worker` as a part of the C driver's.
    pub worker_part: Option<f64>,
    /// Instructions of all tasks on the host for each packet.
    pub host: f64,
    /// `host` as a part of the C driver's.
    pub host_part: Option<f64>,
    /// Instructions of a guest under KVM for each packet.
    pub guest: f64,
    /// Instructions of the worker for each MiB.
    pub worker_per_mib: f64,
    /// Instructions of all tasks on the host for each MiB.
    pub host_per_mib: f64,
    /// Packets for each update of a used index, on both rings.
    pub packets_per_publication: f64,
    /// Kicks of the guest for each MiB.
    pub kicks_per_mib: f64,
    /// Signals to the guest for each MiB.
    pub signals_per_mib: Option<f64>,
}

/// Rows of the timed workloads, in their order.
pub(crate) fn timed(samples: &[Sample]) -> Vec<Timed> {
    let mut groups: BTreeMap<(Workload, String), Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let key = (sample.workload, sample.mode.clone());
        groups.entry(key).or_default().push(sample);
    }
    groups
        .iter()
        .filter_map(|((workload, mode), group)| {
            let base = groups.get(&(*workload, BASE.to_owned()));
            timed_row(*workload, mode, group, base.filter(|_| mode != BASE))
        })
        .collect()
}

/// The value of a sample of which more is better.
type Merit = fn(&Sample) -> Option<f64>;

fn speed(sample: &Sample) -> Option<f64> {
    sample
        .gbit
        .or(sample.round_trip.map(|(middle, _)| 1.0 / middle))
}

fn tail(sample: &Sample) -> Option<f64> {
    sample.round_trip.map(|(_, high)| 1.0 / high)
}

fn timed_row(
    workload: Workload,
    mode: &str,
    group: &[&Sample],
    base: Option<&Vec<&Sample>>,
) -> Option<Timed> {
    let all = |merit: Merit| group.iter().copied().filter_map(merit).collect::<Vec<_>>();
    let speeds = all(speed);
    let value = geometric_mean(&speeds)?;
    let timed = group[0].gbit.is_some();
    let middle = |part: &dyn Fn(&Sample) -> Option<f64>| {
        median(group.iter().filter_map(|sample| part(sample)))
    };
    Some(Timed {
        workload,
        mode: mode.to_owned(),
        value: if timed { value } else { 1.0 / value },
        p99: geometric_mean(&all(tail)).map(|rate| 1.0 / rate),
        ratio: base.and_then(|base| Ratio::of(&paired(group, base, speed))),
        p99_ratio: base.and_then(|base| Ratio::of(&paired(group, base, tail))),
        packets_per_publication: middle(&|sample| sample.packets_per_publication),
        kicks_per_mib: middle(&|sample| Some(sample.kicks / sample.mib))?,
        interrupts_per_mib: middle(&|sample| Some(sample.interrupts? / sample.mib)),
        worker_seconds_per_gib: middle(&|sample| {
            Some(1024.0 * sample.worker_seconds / sample.mib)
        })?,
    })
}

/// The values of both in the same pair.
fn paired(new: &[&Sample], old: &[&Sample], merit: Merit) -> Vec<(f64, f64)> {
    new.iter()
        .filter_map(|sample| {
            let other = old.iter().find(|other| other.pair == sample.pair)?;
            merit(sample).zip(merit(other))
        })
        .collect()
}

/// What is counted, whichever guest there was.
struct Count {
    mode: String,
    direction: Direction,
    size: u32,
    burst: u32,
    packets: f64,
    worker: f64,
    host: f64,
    guest: f64,
    publications: f64,
    kicks: f64,
    signals: Option<f64>,
}

/// Rows of the counts with a guest made of user space.
pub(crate) fn vmfree(records: &[Exact]) -> Vec<Counted> {
    counted(records.iter().map(|record| Count {
        mode: record.mode.clone(),
        direction: record.direction,
        size: record.size,
        burst: record.burst,
        packets: record.packets as f64,
        worker: record.counts.worker as f64,
        host: record.counts.host as f64,
        guest: record.counts.guest as f64,
        publications: record.counts.publications as f64,
        kicks: record.kicks as f64,
        signals: Some(record.signals as f64),
    }))
}

/// Rows of the counts with a guest under KVM.
pub(crate) fn under_kvm(samples: &[Sample]) -> Vec<Counted> {
    counted(samples.iter().filter_map(|sample| {
        let [worker, host, guest, publications] = sample.exact?;
        Some(Count {
            mode: sample.mode.clone(),
            direction: sample.workload.direction,
            size: sample.workload.size,
            burst: 0,
            packets: sample.packets,
            worker,
            host,
            guest,
            publications,
            kicks: sample.kicks,
            signals: sample.interrupts,
        })
    }))
}

fn counted(counts: impl Iterator<Item = Count>) -> Vec<Counted> {
    let mut groups: BTreeMap<(Direction, u32, u32, String), Vec<Count>> = BTreeMap::new();
    for count in counts {
        let key = (count.direction, count.size, count.burst, count.mode.clone());
        groups.entry(key).or_default().push(count);
    }
    let mut rows: Vec<Counted> = groups
        .values()
        .filter_map(|group| counted_row(group))
        .collect();
    let base: BTreeMap<_, _> = rows
        .iter()
        .filter(|row| row.mode == BASE)
        .map(|row| ((row.direction, row.size, row.burst), (row.worker, row.host)))
        .collect();
    for row in rows.iter_mut().filter(|row| row.mode != BASE) {
        if let Some((worker, host)) = base.get(&(row.direction, row.size, row.burst)) {
            row.worker_part = Some(row.worker / worker);
            row.host_part = Some(row.host / host);
        }
    }
    rows
}

fn counted_row(group: &[Count]) -> Option<Counted> {
    let first = group.first()?;
    let middle = |part: &dyn Fn(&Count) -> Option<f64>| median(group.iter().filter_map(part));
    let worker: Vec<f64> = group
        .iter()
        .map(|count| count.worker / count.packets)
        .collect();
    let per_mib = MIB / f64::from(first.size);
    let worker_median = median(worker.iter().copied())?;
    let host = middle(&|count| Some(count.host / count.packets))?;
    Some(Counted {
        mode: first.mode.clone(),
        direction: first.direction,
        size: first.size,
        burst: first.burst,
        worker: worker_median,
        spread: spread(&worker),
        worker_part: None,
        host,
        host_part: None,
        guest: middle(&|count| Some(count.guest / count.packets))?,
        worker_per_mib: worker_median * per_mib,
        host_per_mib: host * per_mib,
        packets_per_publication: middle(&|count| {
            Some(count.packets / count.publications.max(1.0))
        })?,
        kicks_per_mib: middle(&|count| Some(count.kicks / count.packets * per_mib))?,
        signals_per_mib: middle(&|count| Some(count.signals? / count.packets * per_mib)),
    })
}
