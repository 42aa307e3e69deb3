// SPDX-License-Identifier: GPL-2.0

//! Round trips of a fixed size, one at a time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};

use crate::plan::Sizes;
use crate::report::Line;
use crate::socket::Kind;
use crate::target::Target;
use crate::wire::{Operation, Request};

/// What to send, and how often.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,
    /// Kind of the socket
    #[arg(long = "type", value_enum, default_value_t = Kind::Stream)]
    kind: Kind,
    /// Round trips at most
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Bytes each way
    #[arg(long, default_value_t = 64)]
    size: u32,
    /// Milliseconds after which no further round trip is begun
    #[arg(long, default_value_t = u64::MAX)]
    milliseconds: u64,
    /// Milliseconds between round trips
    #[arg(long, default_value_t = 0)]
    interval: u64,
}

/// Makes the round trips, checks what comes back, and prints one line of microseconds.
pub(crate) fn run(options: Options) -> Result<()> {
    let sizes = Sizes::new(options.size, options.size).context("size")?;
    let connection = options.target.connect(options.kind)?;
    let request = Request {
        operation: Operation::Echo,
        seed: 0,
        up: 0,
        down: 0,
        connection: 0,
        sizes,
    };
    connection.send(&request.encode()).context("request")?;
    Line::new("connected").print();
    let mut sent = vec![0; options.size as usize];
    let mut got = vec![0; options.size as usize];
    let mut micros = Vec::with_capacity(options.count as usize);
    let begin = Instant::now();
    for round in 0..options.count {
        if round != 0 && begin.elapsed().as_millis() >= u128::from(options.milliseconds) {
            break;
        }
        sent.fill(round as u8);
        let started = Instant::now();
        connection
            .send(&sent)
            .and_then(|()| connection.recv_exact(&mut got))
            .with_context(|| format!("round trip {round}"))?;
        micros.push(started.elapsed().as_micros() as u64);
        ensure!(sent == got, "round trip {round}: other bytes came back");
        thread::sleep(Duration::from_millis(options.interval));
    }
    micros.sort_unstable();
    Line::new("ping")
        .with("type", options.kind.name())
        .with("count", micros.len())
        .with("size", options.size)
        .with("min_us", micros[0])
        .with("p50_us", percentile(&micros, 50))
        .with("p99_us", percentile(&micros, 99))
        .with("max_us", micros[micros.len() - 1])
        .print();
    Ok(())
}

/// The smallest value that at least `percent` of the sorted, non-empty `values` do not exceed.
fn percentile(values: &[u64], percent: usize) -> u64 {
    values[(values.len() * percent).div_ceil(100).max(1) - 1]
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&values, 50), 50);
        assert_eq!(percentile(&values, 99), 99);
        assert_eq!(percentile(&values[..1], 99), 1);
        assert_eq!(percentile(&values[..3], 50), 2);
        assert_eq!(percentile(&values[..3], 0), 1);
    }
}
