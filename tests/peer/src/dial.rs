// SPDX-License-Identifier: GPL-2.0

//! Connects again and again, and tells how the answer changed over time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use nix::errno::Errno;

use crate::report::Line;
use crate::socket::{Connection, Kind};

/// Whom to call, and how often.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// CID of the peer
    #[arg(long)]
    cid: u32,
    /// Port of the peer's streams; seqpacket takes the next one
    #[arg(long)]
    port: u32,
    /// Kind of the sockets
    #[arg(long = "type", value_enum, default_value_t = Kind::Stream)]
    kind: Kind,
    /// Attempts at most
    #[arg(long, default_value_t = 1)]
    attempts: u32,
    /// Milliseconds between attempts
    #[arg(long, default_value_t = 10)]
    interval: u64,
    /// Milliseconds after which no further attempt is made
    #[arg(long, default_value_t = u64::MAX)]
    milliseconds: u64,
}

/// Attempts in a row with the same outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Phase {
    outcome: String,
    count: u32,
    first: Duration,
    last: Duration,
    longest: Duration,
}

/// Connects until it works or the attempts or the time are used up; one line for each run of equal outcomes.
///
/// # Errors
///
/// If no attempt worked.
pub(crate) fn run(options: &Options) -> Result<()> {
    let started = Instant::now();
    let mut phases = Vec::new();
    for _ in 0..options.attempts {
        let begin = started.elapsed();
        if begin.as_millis() >= u128::from(options.milliseconds) {
            break;
        }
        let result =
            Connection::connect(options.kind, options.cid, options.kind.port(options.port));
        let outcome = outcome(result.map(drop));
        let connected = outcome == "OK";
        note(&mut phases, outcome, begin, started.elapsed());
        if connected {
            break;
        }
        thread::sleep(Duration::from_millis(options.interval));
    }
    for phase in &phases {
        Line::new("phase")
            .with("outcome", &phase.outcome)
            .with("count", phase.count)
            .with("first_ms", phase.first.as_millis())
            .with("last_ms", phase.last.as_millis())
            .with("longest_ms", phase.longest.as_millis())
            .print();
    }
    match phases.last() {
        Some(phase) if phase.outcome == "OK" => Ok(()),
        _ => bail!("no connection to {}:{}", options.cid, options.port),
    }
}

/// `OK`, or the name of the errno.
pub(crate) fn outcome(result: std::io::Result<()>) -> String {
    match result.map_err(|error| error.raw_os_error()) {
        Ok(()) => "OK".to_owned(),
        Err(Some(errno)) => format!("{:?}", Errno::from_raw(errno)),
        Err(None) => "unknown".to_owned(),
    }
}

fn note(phases: &mut Vec<Phase>, outcome: String, begin: Duration, end: Duration) {
    match phases.last_mut() {
        Some(phase) if phase.outcome == outcome => {
            phase.count += 1;
            phase.last = begin;
            phase.longest = phase.longest.max(end - begin);
        }
        _ => phases.push(Phase {
            outcome,
            count: 1,
            first: begin,
            last: begin,
            longest: end - begin,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_outcomes_in_a_row_are_one_phase() {
        let mut phases = Vec::new();
        for (at, outcome) in [(0, "ENODEV"), (10, "ENODEV"), (20, "OK"), (30, "ENODEV")] {
            let at = Duration::from_millis(at);
            note(
                &mut phases,
                outcome.to_owned(),
                at,
                at + Duration::from_millis(1),
            );
        }
        let counts: Vec<_> = phases
            .iter()
            .map(|p| (p.outcome.as_str(), p.count))
            .collect();
        assert_eq!(counts, [("ENODEV", 2), ("OK", 1), ("ENODEV", 1)]);
        assert_eq!(phases[0].last, Duration::from_millis(10));
    }

    #[test]
    fn an_errno_is_named() {
        let error = std::io::Error::from_raw_os_error(libc::EHOSTUNREACH);
        assert_eq!(outcome(Err(error)), "EHOSTUNREACH");
    }
}
