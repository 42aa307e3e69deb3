// SPDX-License-Identifier: GPL-2.0
//! A vhost-vsock guest made of user space.
//!
//! The program opens `/dev/vhost-vsock`, plays the guest on rings of its own and has ordinary AF_VSOCK sockets as the
//! host's end. Each case runs in a child process under a watchdog. The report on standard output is KTAP.

mod cases;
mod runner;
mod vocabulary;

use clap::Parser;
use runner::Options;
use std::process::ExitCode;
use vocabulary::{Driver, Length};

/// Ring-level conformance cases for vhost-vsock.
#[derive(Parser)]
struct Args {
    /// Which driver owns /dev/vhost-vsock.
    #[arg(long, value_enum, default_value = "c")]
    driver: Driver,
    /// Seed of everything random; chosen from the clock and printed when not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Only the cases whose name contains this; may be given again.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Name the cases and what differs over C, and run none.
    #[arg(long)]
    list: bool,
    /// More seeds and rounds.
    #[arg(long)]
    long: bool,
    /// Fewer of them.
    #[arg(long, conflicts_with = "long")]
    short: bool,
    /// Which run this is on one host: each has CIDs of its own, as sockets that a run left may speak to a CID for
    /// seconds yet.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..4095))]
    run: u64,
    /// How many times longer than usual a step may take.
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    slow: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let cases: Vec<_> = cases::all()
        .into_iter()
        .filter(|case| {
            args.only.is_empty()
                || args
                    .only
                    .iter()
                    .any(|part| case.name.contains(part.as_str()))
        })
        .collect();
    if args.list {
        for case in &cases {
            println!("{}{}", case.name, case.over_c);
        }
        return ExitCode::SUCCESS;
    }
    let options = Options {
        driver: args.driver,
        seed: args.seed.unwrap_or_else(runner::fresh_seed),
        length: match (args.short, args.long) {
            (true, _) => Length::Short,
            (_, true) => Length::Long,
            _ => Length::Usual,
        },
        run: args.run,
        slow: args.slow,
    };
    runner::run(&cases, &options)
}
