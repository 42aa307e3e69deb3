// SPDX-License-Identifier: GPL-2.0

//! Measures a vhost-vsock driver, and compares measurements.

mod counter;
mod host;
mod measure;
mod memory;
mod record;
mod report;
mod results;
mod scale;
mod symbols;
mod vmfree;

use anyhow::Result;
use clap::Parser;

/// Measures a vhost-vsock driver, and compares measurements
#[derive(Parser)]
#[command(version)]
enum Command {
    /// Count instructions with a guest made of user space
    Vmfree(vmfree::Options),
    /// The same over many guests and connections
    Scale(scale::Options),
    /// Tell what memory the kernel holds for guests, connections and packets that wait
    Memory(memory::Options),
    /// Tell a machine that counts instructions what to count, and to begin or to stop
    Counter {
        /// Stop: the machine is faster then
        #[arg(long)]
        stop: bool,
    },
    /// Run a command that moves data, and print what it cost
    Measure(measure::Options),
    /// Make tables and plots of what was measured
    Report(report::Options),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Vmfree(options) => vmfree::run(&options),
        Command::Scale(options) => scale::run(&options),
        Command::Memory(options) => memory::run(&options),
        Command::Counter { stop: true } => counter::stop(),
        Command::Counter { stop: false } => counter::set_up(),
        Command::Measure(options) => measure::run(&options),
        Command::Report(options) => report::run(&options),
    }
}
