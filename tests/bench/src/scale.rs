// SPDX-License-Identifier: GPL-2.0

//! Whether a packet costs the same however many guests and connections there are: counts as those of `vmfree`, over
//! several guests made of user space.
//!
//! Each guest gets its packets in bursts. A burst has runs of one connection each, and the connections take turns. So the
//! same [`Pattern`] costs the same, if cost depends on nothing else. Guests take turns too, or have their bursts at once:
//! then more threads want the one processor, and more packets wait.

mod pair;
mod traffic;

use std::num::NonZeroU32;
use std::str::FromStr;
use std::thread;

use anyhow::{Context, Error, Result, bail, ensure};
use nix::sys::resource::{Resource, setrlimit};

use crate::counter::{self, Counts};
use crate::host::workers_of;
use crate::record::{Direction, ScaleCase, ScaleProfile, Scaled};
use crate::vmfree::sched::{self, Urgency};
use crate::vmfree::{CID, REST, on_thread};
use pair::Pair;
use traffic::Traffic;

/// Open files that 10,000 connections need, and then some.
const FILES: u64 = 16 << 10;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Name of the driver and of its settings in the results
    #[arg(long)]
    mode: String,
    /// Directions
    #[arg(long, value_delimiter = ',', default_value = "to-guest,to-host")]
    directions: Vec<Direction>,
    /// Guests, and connections of all of them together: GUESTSxCONNECTIONS, or GUESTSxCONNECTIONSxN if N guests have their
    /// bursts at once
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1x1,1x10,1x100,1x1000,1x10000,4x400,16x1600,16x1600x16"
    )]
    over: Vec<Crowd>,
    /// Packets of a burst, and how many of one connection follow each other: BURSTxRUN
    #[arg(long, value_delimiter = ',', default_value = "8x8,64x8,64x1")]
    patterns: Vec<Pattern>,
    /// Bytes of a packet
    #[arg(long, default_value_t = 256)]
    size: u32,
    /// Packets of a round, of all guests together
    #[arg(long, default_value_t = 8192)]
    packets: u32,
    /// Times that each case is counted
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// Say for this many functions how much of the first worker's instructions they take
    #[arg(long, default_value_t = 0)]
    profile: usize,
}

/// Who is there.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    guests: u32,
    connections: u32,
    at_once: u32,
}

/// How the packets of a guest follow each other.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    burst: u32,
    run: u32,
}

/// Numbers above 0, with an `x` between.
fn numbers(text: &str) -> Result<Vec<u32>> {
    text.split('x')
        .map(|number| Ok(number.parse::<NonZeroU32>()?.get()))
        .collect()
}

impl FromStr for Crowd {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (guests, connections, at_once) = match numbers(text)?[..] {
            [guests, connections] => (guests, connections, 1),
            [guests, connections, at_once] => (guests, connections, at_once),
            _ => bail!("two numbers or three, with x between"),
        };
        ensure!(
            connections % guests == 0 && guests % at_once == 0,
            "guests are not alike"
        );
        Ok(Self {
            guests,
            connections,
            at_once,
        })
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let [burst, run] = numbers(text)?[..] else {
            bail!("two numbers, with x between");
        };
        ensure!(burst % run == 0, "runs are not whole");
        Ok(Self { burst, run })
    }
}

/// Runs all cases over the driver that is loaded, and prints a line of JSON for each round.
pub(crate) fn run(options: &Options) -> Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, FILES, FILES).context("open files")?;
    counter::set_up()?;
    for &crowd in &options.over {
        run_crowd(options, crowd).with_context(|| format!("{crowd:?}"))?;
    }
    Ok(())
}

fn run_crowd(options: &Options, crowd: Crowd) -> Result<()> {
    let pairs = (0..crowd.guests)
        .map(|index| Pair::start(CID + index, crowd.connections / crowd.guests))
        .collect::<Result<Vec<_>>>()?;
    let workers = workers_of(std::process::id())?;
    ensure!(workers.len() == pairs.len(), "not a worker for each guest");
    for pattern in &options.patterns {
        for &direction in &options.directions {
            let case = ScaleCase {
                direction,
                size: options.size,
                burst: pattern.burst,
                run: pattern.run,
                guests: crowd.guests,
                connections: crowd.connections,
                at_once: crowd.at_once,
            };
            run_case(options, case, &pairs, &workers).with_context(|| format!("{case:?}"))?;
        }
    }
    pairs.into_iter().try_for_each(Pair::stop)
}

/// Bursts of a guest in one round.
fn bursts(options: &Options, case: ScaleCase) -> u32 {
    options.packets.div_ceil(case.burst * case.guests)
}

/// Bursts until each connection had its turn: a socket keeps the buffer that its unread byte is in.
fn warm_up(case: ScaleCase) -> u32 {
    match case.direction {
        Direction::ToGuest => 0,
        Direction::ToHost => (case.connections / case.guests).div_ceil(case.burst / case.run),
    }
}

fn run_case(options: &Options, case: ScaleCase, pairs: &[Pair], workers: &[u32]) -> Result<()> {
    let bursts = bursts(options, case);
    let warm_up = warm_up(case).max(bursts.div_ceil(4));
    let profiled = if options.profile > 0 { bursts } else { 0 };
    let all = warm_up + options.rounds * bursts + profiled;
    let traffic = Traffic::new(case, pairs);
    thread::scope(|scope| {
        if case.direction == Direction::ToHost {
            for pair in pairs {
                scope.spawn(move || on_thread(Urgency::Last, || pair.receive(case, all)));
            }
        }
        sched::set(Urgency::First)?;
        traffic.transfer(warm_up)?;
        for round in 0..options.rounds {
            let counts = counted(&traffic, bursts, workers)?;
            let line = Scaled {
                mode: options.mode.clone(),
                case,
                round,
                packets: (bursts * case.burst * case.guests).into(),
                counts: counts.named(),
            };
            println!("{}", serde_json::to_string(&line)?);
        }
        if options.profile > 0 {
            let profile = profile(options, &traffic, bursts, workers[0])?;
            println!("{}", serde_json::to_string(&profile)?);
        }
        sched::set(Urgency::Usual)
    })
}

fn counted(traffic: &Traffic<'_>, bursts: u32, workers: &[u32]) -> Result<Counts> {
    thread::sleep(REST);
    let before = counter::read_all(workers)?;
    traffic.transfer(bursts)?;
    thread::sleep(REST);
    Ok(counter::read_all(workers)?.since(&before))
}

fn profile(
    options: &Options,
    traffic: &Traffic<'_>,
    bursts: u32,
    worker: u32,
) -> Result<ScaleProfile> {
    let work = || {
        thread::sleep(REST);
        traffic.transfer(bursts)?;
        thread::sleep(REST);
        Ok(())
    };
    let packets = bursts * traffic.case.burst;
    Ok(ScaleProfile {
        mode: options.mode.clone(),
        case: traffic.case,
        functions: counter::profile(worker, options.profile, packets, work)?,
    })
}
