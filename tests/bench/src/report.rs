// SPDX-License-Identifier: GPL-2.0

//! Makes tables, plots and one machine-readable file of what was measured.

mod load;
mod plot;
mod rows;
mod scale;
mod stats;
mod table;
mod targets;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::record::{Direction, Kind};
use plot::Line;
use rows::{Counted, Timed};
use scale::{Memory, Scale};
use targets::Target;

/// Where the measurements are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// The report folder: vmfree, scale, exact and pairs in it, as far as they were made
    folder: PathBuf,
}

/// Everything that was found out.
#[derive(Serialize)]
struct Report {
    targets: Vec<Target>,
    /// With a guest under KVM, by the clock.
    timed: Vec<Timed>,
    /// With a guest under KVM, counted.
    under_kvm: Vec<Counted>,
    /// With a guest made of user space, counted.
    vmfree: Vec<Counted>,
    /// With many guests made of user space and many connections, counted.
    scale: Vec<Scale>,
    /// What the kernel holds.
    memory: Vec<Memory>,
}

/// Writes `results.json`, `tables.rst` and the plots, and prints the tables.
pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = &options.folder;
    let timed = rows::timed(&load::samples(&folder.join("pairs/bench/pairs"))?);
    let under_kvm = rows::under_kvm(&load::samples(&folder.join("exact/bench/exact"))?);
    let vmfree = rows::vmfree(&load::records(&folder.join("vmfree/exact.jsonl"))?);
    let many = folder.join("scale/exact.jsonl");
    let scale = scale::scale(&load::records(&many)?);
    let memory = scale::memory(&load::records(&many)?);
    ensure!(
        !(timed.is_empty() && under_kvm.is_empty() && vmfree.is_empty() && scale.is_empty()),
        "nothing was measured in {}",
        folder.display()
    );
    let report = Report {
        targets: targets::targets(&timed, &under_kvm, &scale),
        timed,
        under_kvm,
        vmfree,
        scale,
        memory,
    };
    // What was compared, and where; the script that ran everything knows.
    let about = fs::read_to_string(folder.join("about")).unwrap_or_default();
    let tables = tables(&about, &report);
    write(
        &folder.join("results.json"),
        &serde_json::to_string_pretty(&report)?,
    )?;
    write(&folder.join("tables.rst"), &tables)?;
    plots(folder, &report)?;
    print!("{tables}");
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn tables(about: &str, report: &Report) -> String {
    let title = "Compared with the C driver";
    let rule = "=".repeat(title.len());
    let mut text =
        format!(".. SPDX-License-Identifier: GPL-2.0\n\n{rule}\n{title}\n{rule}\n\n{about}");
    let mut section = |title: &str, empty: bool, table: String| {
        if !empty {
            let rule = "-".repeat(title.len());
            let _ = write!(text, "\n{title}\n{rule}\n\n{table}");
        }
    };
    let timed = |kind| !report.timed.iter().any(|row| row.workload.kind == kind);
    section(
        "Targets",
        report.targets.is_empty(),
        table::targets(&report.targets),
    );
    section(
        "Throughput, real guest",
        timed(Kind::Throughput),
        table::throughput(&report.timed),
    );
    section(
        "Round trips, real guest",
        timed(Kind::RoundTrip),
        table::round_trips(&report.timed),
    );
    section(
        "Instructions, real guest",
        report.under_kvm.is_empty(),
        table::counted(&report.under_kvm, false),
    );
    section(
        "Instructions, guest made of user space",
        report.vmfree.is_empty(),
        table::counted(&report.vmfree, true),
    );
    section(
        "Scale",
        report.scale.is_empty(),
        table::scale(&report.scale),
    );
    section(
        "Memory",
        report.memory.is_empty(),
        table::memory(&report.memory),
    );
    text
}

const BOTH: [Direction; 2] = [Direction::ToGuest, Direction::ToHost];

fn plots(folder: &Path, report: &Report) -> Result<()> {
    for connections in [1, 8, 64] {
        let title = format!("Throughput by the C driver's, connections: {connections}");
        let lines = ratios(&report.timed, Kind::Throughput, connections);
        let path = folder.join(format!("throughput-{connections}.svg"));
        plot::by_size(&path, &title, "ratio, 95 %", &lines, false)?;
    }
    let lines = ratios(&report.timed, Kind::RoundTrip, 1);
    let path = folder.join("round-trips.svg");
    let title = "Speed of round trips by the C driver's";
    plot::by_size(&path, title, "ratio, 95 %", &lines, false)?;
    for direction in BOTH {
        let name = table::direction(direction).replace(' ', "-");
        for (rows, guest, bursts) in [
            (&report.vmfree, "vmfree", &[1, 64][..]),
            (&report.under_kvm, "real", &[0]),
        ] {
            let path = folder.join(format!("instructions-{guest}-{name}.svg"));
            let title = format!(
                "Worker instructions per packet, {}",
                table::direction(direction)
            );
            let lines = instructions(rows, direction, bursts);
            plot::by_size(&path, &title, "instructions", &lines, true)?;
        }
    }
    Ok(())
}

fn ratios(rows: &[Timed], kind: Kind, connections: u32) -> Vec<Line> {
    let mut lines = Vec::new();
    for mode in table::modes(rows, &[]) {
        for direction in BOTH {
            let points = rows
                .iter()
                .filter(|row| {
                    row.mode == mode
                        && row.workload.kind == kind
                        && row.workload.connections == connections
                        && row.workload.direction == direction
                })
                .filter_map(|row| {
                    let ratio = row.ratio?;
                    let ends = Some((ratio.low, ratio.high));
                    Some((f64::from(row.workload.size), ratio.ratio, ends))
                })
                .collect();
            lines.push(Line {
                name: format!("{mode}, {}", table::direction(direction)),
                points,
            });
        }
    }
    lines
}

fn instructions(rows: &[Counted], direction: Direction, bursts: &[u32]) -> Vec<Line> {
    let mut modes = table::modes(&[], rows);
    modes.insert(0, rows::BASE.to_owned());
    let mut lines = Vec::new();
    for burst in bursts {
        for mode in &modes {
            let points = rows
                .iter()
                .filter(|row| {
                    row.mode == *mode && row.direction == direction && row.burst == *burst
                })
                .map(|row| (f64::from(row.size), row.worker, None))
                .collect();
            let name = match burst {
                0 => mode.clone(),
                _ => format!("{mode}, bursts of {burst}"),
            };
            lines.push(Line { name, points });
        }
    }
    lines
}
