// SPDX-License-Identifier: GPL-2.0

//! Measures a vhost-vsock driver, and compares measurements.

mod counter;
mod record;
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
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Vmfree(options) => vmfree::run(&options),
    }
}
