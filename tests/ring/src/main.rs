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
use vocabulary::Driver;

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
        long: args.long,
    };
    runner::run(&cases, &options)
}
