// SPDX-License-Identifier: GPL-2.0

//! Writes of one size as fast as the peer takes them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use zerocopy::FromBytes;

use crate::plan::Sizes;
use crate::report::{gbit_per_second, Line};
use crate::socket::Kind;
use crate::target::Target;
use crate::wire::{Operation, Request, Verdict};

/// What to write, and for how long.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,
    /// Kind of the sockets
    #[arg(long = "type", value_enum, default_value_t = Kind::Stream)]
    kind: Kind,
    /// Connections at once
    #[arg(long, default_value_t = 1)]
    connections: u32,
    /// Bytes of one write
    #[arg(long)]
    size: u32,
    /// Bytes in total on each connection; 0: no limit
    #[arg(long, default_value_t = 0)]
    bytes: u64,
    /// Seconds; 0: no limit
    #[arg(long, default_value_t = 0, required_unless_present = "bytes")]
    seconds: u64,
}

/// Writes on all connections and prints one line; fails unless all that was written arrived.
pub(crate) fn run(options: Options) -> Result<()> {
    let started = Instant::now();
    let bytes = thread::scope(|scope| {
        let running: Vec<_> = (0..options.connections)
            .map(|_| scope.spawn(|| one(&options)))
            .collect();
        running
            .into_iter()
            .map(|one| one.join().expect("a writer does not panic"))
            .sum::<Result<u64>>()
    })?;
    let seconds = started.elapsed().as_secs_f64();
    Line::new("flood")
        .with("type", options.kind.name())
        .with("connections", options.connections)
        .with("size", options.size)
        .with("bytes", bytes)
        .with("seconds", format!("{seconds:.3}"))
        .with("gbit_per_s", gbit_per_second(bytes, seconds))
        .print();
    Ok(())
}

fn one(options: &Options) -> Result<u64> {
    let sizes = Sizes::new(options.size, options.size).context("size")?;
    let connection = options.target.connect(options.kind)?;
    let request = Request {
        operation: Operation::Sink,
        seed: 0,
        up: options.bytes,
        down: 0,
        connection: 0,
        sizes,
    };
    connection.send(&request.encode()).context("request")?;
    let data = vec![0x5a; options.size as usize];
    let deadline = Instant::now() + Duration::from_secs(options.seconds);
    let mut sent = 0;
    while (options.bytes == 0 || sent < options.bytes)
        && (options.seconds == 0 || Instant::now() < deadline)
    {
        connection.send(&data).context("write")?;
        sent += u64::from(options.size);
    }
    connection.finish_sending()?;
    let mut bytes = [0; Verdict::LEN];
    connection.recv_exact(&mut bytes).context("verdict")?;
    let verdict = Verdict::read_from_bytes(&bytes).expect("the length is the verdict's");
    ensure!(
        verdict.bytes.get() == sent,
        "the peer received {} of {sent} bytes",
        verdict.bytes
    );
    Ok(sent)
}
