// SPDX-License-Identifier: GPL-2.0

//! Traffic over AF_VSOCK with checked content.
//!
//! One end serves, the other asks for what it wants; either may be the guest. Results are lines of
//! `name=value` pairs on standard output, and the exit status says whether all was right.

mod dial;
mod flood;
mod hold;
mod pin;
mod ping;
mod plan;
mod pour;
mod pump;
mod report;
mod serve;
mod socket;
mod target;
mod transfer;
mod wire;

use anyhow::Result;
use clap::Parser;

/// AF_VSOCK traffic with checked content
#[derive(Parser)]
#[command(version)]
enum Command {
    /// Answer connections until killed
    Serve(serve::Options),
    /// Move seeded random data both ways and compare hashes
    Transfer(transfer::Options),
    /// Measure round trips
    Ping(ping::Options),
    /// Write as fast as the peer takes it
    Flood(flood::Options),
    /// Connect repeatedly and print how the outcome changes
    Dial(dial::Options),
    /// Keep connections open and print how they end
    Hold(hold::Options),
    /// Write an endless seeded stream until the connection ends
    Pour(pour::PourOptions),
    /// Take one stream and keep what arrives in a file
    Collect(pour::CollectOptions),
    /// Print the SHA-256 of the beginning of a poured stream
    Digest(pour::DigestOptions),
    /// Try to connect one socket and keep it open, connected or not
    Pin(pin::Options),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Serve(options) => serve::run(options),
        Command::Transfer(options) => transfer::run(options),
        Command::Ping(options) => ping::run(options),
        Command::Flood(options) => flood::run(options),
        Command::Dial(options) => dial::run(&options),
        Command::Hold(options) => hold::run(options),
        Command::Pour(options) => pour::pour(options),
        Command::Collect(options) => pour::collect(&options),
        Command::Digest(options) => pour::digest(options),
        Command::Pin(options) => pin::run(options),
    }
}
