// SPDX-License-Identifier: GPL-2.0

//! One workload, run by a command between two readings of the counters.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::counter::{self, Counts};
use crate::host;
use crate::record::{Measured, Workload};
use crate::results;

/// The worker is at rest when it has not run for so long.
const REST: Duration = Duration::from_millis(60);

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Name of the driver and of its settings
    #[arg(long)]
    mode: String,
    /// Number of the pair
    #[arg(long)]
    pair: u32,
    #[command(flatten)]
    workload: Workload,
    /// Names the workload in what the guest notes
    #[arg(long)]
    port: u32,
    /// Bytes of payload that the command moves
    #[arg(long)]
    bytes: u64,
    /// Process id of the guest's QEMU
    #[arg(long)]
    pid: u32,
    /// Count instructions: the machine has one processor and the plugin
    #[arg(long)]
    exact: bool,
    /// Runs the workload on the host
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// A reading of all counters.
struct Reading {
    kicks: u64,
    worker_ns: u64,
    counters: BTreeMap<String, u64>,
    exact: Option<Counts>,
}

impl Reading {
    fn take(options: &Options, worker: u32) -> Result<Self> {
        Ok(Self {
            kicks: host::kicks(options.pid)?,
            counters: host::driver_counters()?,
            worker_ns: host::run_time(worker)?,
            exact: options.exact.then(|| counter::read(worker)).transpose()?,
        })
    }
}

/// Runs the command and prints a line of JSON.
pub(crate) fn run(options: &Options) -> Result<()> {
    let worker = host::worker_of(options.pid)?;
    let before = Reading::take(options, worker)?;
    let (program, arguments) = options.command.split_first().context("a command")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| program.clone())?;
    ensure!(output.status.success(), "{program}: {}", output.status);
    wait_for_rest(worker)?;
    let after = Reading::take(options, worker)?;
    let counts = before.exact.zip(after.exact);
    let measured = Measured {
        mode: options.mode.clone(),
        pair: options.pair,
        workload: options.workload,
        port: options.port,
        bytes: options.bytes,
        results: results::parse(&String::from_utf8_lossy(&output.stdout)),
        kicks: after.kicks - before.kicks,
        worker_ns: after.worker_ns - before.worker_ns,
        counters: growth(&before.counters, &after.counters),
        exact: counts.map(|(before, after)| after.since(&before).named()),
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// What a sender has left is still on its way when its process has ended.
fn wait_for_rest(worker: u32) -> Result<()> {
    let mut last = host::run_time(worker)?;
    loop {
        thread::sleep(REST);
        let now = host::run_time(worker)?;
        if now == last {
            return Ok(());
        }
        last = now;
    }
}

fn growth(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    after
        .iter()
        .map(|(name, value)| (name.clone(), value - before.get(name).unwrap_or(&0)))
        .collect()
}
