// SPDX-License-Identifier: GPL-2.0

//! The connecting end of a transfer: several connections at once, data both ways, hashes compared.

use std::thread;
use std::time::Instant;

use anyhow::{ensure, Context, Result};
use zerocopy::FromBytes;

use crate::plan::{Direction, Sizes, MAX_WRITE};
use crate::pump;
use crate::report::{gbit_per_second, Line};
use crate::socket::{Connection, Kind};
use crate::target::Target;
use crate::wire::{Operation, Request, Verdict};

/// What to transfer.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,
    /// Kind of the sockets
    #[arg(long = "type", value_enum)]
    kind: Kind,
    /// Connections at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Bytes to send, all connections together
    #[arg(long, default_value_t = 0)]
    up: u64,
    /// Bytes to receive, all connections together
    #[arg(long, default_value_t = 0)]
    down: u64,
    /// Smallest write in bytes
    #[arg(long, default_value_t = 1)]
    min_write: u32,
    /// Largest write in bytes
    #[arg(long, default_value_t = MAX_WRITE)]
    max_write: u32,
    /// Seed of content and sizes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the transfer and prints one line; fails on the first connection that failed.
pub(crate) fn run(options: Options) -> Result<()> {
    let sizes = Sizes::new(options.min_write, options.max_write).context("bounds of writes")?;
    let requests: Vec<Request> = (0..options.connections)
        .map(|connection| Request {
            operation: Operation::Transfer,
            seed: options.seed,
            up: share(options.up, options.connections, connection),
            down: share(options.down, options.connections, connection),
            connection,
            sizes,
        })
        .collect();
    let connections = requests
        .iter()
        .map(|_| options.target.connect(options.kind))
        .collect::<Result<Vec<_>>>()?;
    let started = Instant::now();
    thread::scope(|scope| {
        let running: Vec<_> = connections
            .iter()
            .zip(&requests)
            .map(|(connection, request)| scope.spawn(|| one(connection, request)))
            .collect();
        running
            .into_iter()
            .enumerate()
            .try_for_each(|(index, one)| {
                one.join()
                    .expect("a connection's thread does not panic")
                    .with_context(|| format!("connection {index}"))
            })
    })?;
    let seconds = started.elapsed().as_secs_f64();
    Line::new("transfer")
        .with("type", options.kind.name())
        .with("connections", options.connections)
        .with("seed", options.seed)
        .with("up_bytes", options.up)
        .with("down_bytes", options.down)
        .with("seconds", format!("{seconds:.3}"))
        .with(
            "gbit_per_s",
            gbit_per_second(options.up + options.down, seconds),
        )
        .print();
    Ok(())
}

/// The part of `total` that connection `index` of `count` carries; the parts add up.
fn share(total: u64, count: u32, index: u32) -> u64 {
    let (count, index) = (u64::from(count), u64::from(index));
    total / count + u64::from(index < total % count)
}

fn one(connection: &Connection, request: &Request) -> Result<()> {
    connection.send(&request.encode()).context("request")?;
    let (sent, _) = pump::both_ways(
        connection,
        &request.plan(Direction::Up),
        &request.plan(Direction::Down),
    )?;
    let mut bytes = [0; Verdict::LEN];
    connection.recv_exact(&mut bytes).context("verdict")?;
    let verdict = Verdict::read_from_bytes(&bytes).expect("the length is the verdict's");
    ensure!(
        (verdict.bytes.get(), verdict.digest) == (sent.bytes, sent.digest),
        "the peer received {} of {} bytes, or others than were sent",
        verdict.bytes,
        sent.bytes
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::share;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_add_up_and_differ_by_one_at_most(total: u64, count in 1_u32..64) {
            let shares: Vec<u64> = (0..count).map(|i| share(total, count, i)).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), total);
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }
    }
}
