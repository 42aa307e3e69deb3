// SPDX-License-Identifier: GPL-2.0

//! Reads what the runs left in a report folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

use crate::record::{Direction, GuestSide, Kind, Measured, Workload};
use crate::results;

const MIB: f64 = (1 << 20) as f64;

/// One workload over one driver, from both sides, in the units of the report.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The driver and its settings.
    pub mode: String,
    /// Number of the pair.
    pub pair: u32,
    /// What was run.
    pub workload: Workload,
    /// Writes.
    pub packets: f64,
    /// Payload in MiB.
    pub mib: f64,
    /// Gbit/s as the receiver sees it.
    pub gbit: Option<f64>,
    /// Microseconds of a round trip: median and 99th percentile.
    pub round_trip: Option<(f64, f64)>,
    /// Kicks of the guest.
    pub kicks: f64,
    /// Interrupts that the guest had.
    pub interrupts: Option<f64>,
    /// Packets that shared an update of the used index, in the workload's direction.
    pub packets_per_publication: Option<f64>,
    /// Seconds that the worker ran.
    pub worker_seconds: f64,
    /// Instructions of the worker, the host and the guest, and packets per publication.
    pub exact: Option<[f64; 4]>,
}

/// Records of one kind, one a line; none if there is no such file. Lines of another kind are left out.
pub(crate) fn records<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

/// Samples of a suite whose results are in `folder`.
pub(crate) fn samples(folder: &Path) -> Result<Vec<Sample>> {
    let measured: Vec<Measured> = records(&folder.join("measured.jsonl"))?;
    let mut notes = BTreeMap::new();
    measured
        .into_iter()
        .map(|measured| {
            let key = format!("{}-{}", measured.pair, measured.mode);
            if !notes.contains_key(&key) {
                let path = folder.join("notes").join(&key);
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                notes.insert(key.clone(), results::guest_side(&text));
            }
            Ok(sample(&measured, &notes[&key]))
        })
        .collect()
}

fn sample(measured: &Measured, notes: &BTreeMap<u32, GuestSide>) -> Sample {
    let workload = measured.workload;
    let packets = measured.bytes as f64 / f64::from(workload.size);
    let note = notes.get(&measured.port);
    let received = match workload.direction {
        Direction::ToGuest => note.and_then(|note| note.results.get("rx_performance")),
        Direction::ToHost => measured.results.get("rx_performance"),
    };
    let round_trip = measured
        .results
        .get("p50_us")
        .zip(measured.results.get("p99_us"));
    // What the guest noted after this port, less what it had noted before.
    let interrupts = note.map(|note| note.interrupts - note.interrupts_before);
    Sample {
        mode: measured.mode.clone(),
        pair: measured.pair,
        workload,
        packets,
        mib: measured.bytes as f64 / MIB,
        gbit: received
            .or(measured.results.get("gbit_per_s"))
            .filter(|_| workload.kind == Kind::Throughput)
            .copied(),
        round_trip: round_trip.map(|(middle, high)| (*middle, *high)),
        kicks: measured.kicks as f64,
        interrupts: interrupts.map(|count| count as f64),
        packets_per_publication: batching(measured),
        worker_seconds: measured.worker_ns as f64 / 1e9,
        exact: measured.exact.map(|counts| {
            [
                counts.worker,
                counts.host,
                counts.guest,
                counts.publications,
            ]
            .map(|count| count as f64)
        }),
    }
}

fn batching(measured: &Measured) -> Option<f64> {
    let queue = match measured.workload.direction {
        Direction::ToGuest => "rx",
        Direction::ToHost => "tx",
    };
    let counter = |what: &str| measured.counters.get(&format!("{queue}_{what}"));
    let (packets, publications) = (counter("packets")?, counter("publishes")?);
    (*publications > 0).then(|| *packets as f64 / *publications as f64)
}
