// SPDX-License-Identifier: GPL-2.0

//! Instruction counts of the driver with a guest made of user space: everything that runs is counted, and under
//! `-icount` the same run gives the same counts.

pub(crate) mod guest;
mod packet;
mod ring;
pub(crate) mod sched;
pub(crate) mod socket;
pub(crate) mod tally;

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::Socket;

use crate::counter;
use crate::host::worker_of;
use crate::record::{Direction, Exact, Profile};
use guest::Guest;
use sched::Urgency;
use tally::Tally;

/// Receive window of both ends while packets come in bursts, in bytes: no burst waits for credit.
pub(crate) const WIDE: u32 = 64 << 20;
/// Receive window of both ends otherwise: the kernel's default.
const USUAL: u32 = 256 << 10;
/// Time for everything to come to rest, of which none is counted but as idle.
pub(crate) const REST: Duration = Duration::from_millis(20);
/// CID of the guest, or of the first one.
pub(crate) const CID: u32 = 42;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Name of the driver and of its settings in the results
    #[arg(long)]
    mode: String,
    /// Directions
    #[arg(long, value_delimiter = ',', default_value = "to-guest,to-host")]
    directions: Vec<Direction>,
    /// Bytes of a packet
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024,4096,65536")]
    sizes: Vec<u32>,
    /// Packets sent before all have arrived; 0: as many as fit
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,0")]
    bursts: Vec<u32>,
    /// Times that each case is counted
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Say for this many functions how much of the worker's instructions they take
    #[arg(long, default_value_t = 0)]
    profile: usize,
}

/// One combination.
#[derive(Clone, Copy, Debug)]
struct Case {
    direction: Direction,
    size: u32,
    burst: u32,
}

impl Case {
    /// Packets of one round.
    fn packets(self) -> u32 {
        let large = self.size > 16 << 10;
        match (self.burst, large) {
            (1, false) => 512,
            (1, true) => 128,
            (8, false) => 2048,
            (8, true) => 256,
            (_, false) => 6400,
            (_, true) => 640,
        }
    }

    fn window(self) -> u32 {
        if self.burst == 0 { USUAL } else { WIDE }
    }
}

/// Runs all cases over the driver that is loaded, and prints a line of JSON for each round.
pub(crate) fn run(options: &Options) -> Result<()> {
    counter::set_up()?;
    for &direction in &options.directions {
        for &size in &options.sizes {
            for &burst in &options.bursts {
                let case = Case {
                    direction,
                    size,
                    burst,
                };
                run_case(options, case).with_context(|| format!("{case:?}"))?;
            }
        }
    }
    Ok(())
}

fn run_case(options: &Options, case: Case) -> Result<()> {
    let guest = Guest::start(CID, case.window())?;
    let worker = worker_of(std::process::id())?;
    let arrived = Tally::new()?;
    let socket = socket::new(case.window())?;
    let others = if case.burst == 0 {
        Urgency::Usual
    } else {
        Urgency::Last
    };
    thread::scope(|scope| {
        scope.spawn(|| on_thread(others, || guest.run()));
        socket::connect(&socket, CID)?;
        scope.spawn(|| on_thread(others, || drain(&socket, &arrived)));
        let ends = Ends {
            guest: &guest,
            socket: &socket,
            port: socket::port(&socket)?,
            arrived: &arrived,
        };
        let answer = rounds(options, case, &ends, worker);
        socket.shutdown(std::net::Shutdown::Both)?;
        // The guest confirms the end, so that nothing of the connection is left for the next guest.
        thread::sleep(REST);
        guest.stop()?;
        answer
    })
}

/// What a thread beside the sender does. One that cannot go on would leave the others waiting for ever.
pub(crate) fn on_thread(urgency: Urgency, task: impl FnOnce() -> Result<()>) {
    if let Err(error) = sched::set(urgency).and_then(|()| task()) {
        eprintln!("{error:#}");
        std::process::exit(1);
    }
}

fn rounds(options: &Options, case: Case, ends: &Ends<'_>, worker: u32) -> Result<()> {
    if case.burst != 0 {
        sched::set(Urgency::First)?;
    }
    ends.transfer(case, case.packets() / 4)?;
    for round in 0..options.rounds {
        thread::sleep(REST);
        let before = (counter::read(worker)?, ends.guest.notifications());
        ends.transfer(case, case.packets())?;
        thread::sleep(REST);
        let after = (counter::read(worker)?, ends.guest.notifications());
        let line = Exact {
            mode: options.mode.clone(),
            direction: case.direction,
            size: case.size,
            burst: case.burst,
            round,
            packets: case.packets().into(),
            counts: after.0.since(&before.0).named(),
            kicks: after.1.kicks - before.1.kicks,
            signals: after.1.signals - before.1.signals,
        };
        println!("{}", serde_json::to_string(&line)?);
    }
    if options.profile > 0 {
        let profile = profile(options, case, ends, worker)?;
        println!("{}", serde_json::to_string(&profile)?);
    }
    sched::set(Urgency::Usual)
}

fn profile(options: &Options, case: Case, ends: &Ends<'_>, worker: u32) -> Result<Profile> {
    let work = || {
        thread::sleep(REST);
        ends.transfer(case, case.packets())?;
        thread::sleep(REST);
        Ok(())
    };
    let functions = counter::profile(worker, options.profile, case.packets(), work)?;
    Ok(Profile {
        mode: options.mode.clone(),
        direction: case.direction,
        size: case.size,
        burst: case.burst,
        functions,
    })
}

/// Both ends of the one connection.
struct Ends<'a> {
    guest: &'a Guest,
    socket: &'a Socket,
    /// The host's port.
    port: u32,
    /// What the host's end has received.
    arrived: &'a Tally,
}

impl Ends<'_> {
    /// Moves `packets` packets and waits until the last has arrived.
    fn transfer(&self, case: Case, packets: u32) -> Result<()> {
        let data = vec![0x5a; case.size as usize];
        let there = match case.direction {
            Direction::ToGuest => &self.guest.received,
            Direction::ToHost => self.arrived,
        };
        let start = there.bytes();
        for packet in 1..=packets {
            match case.direction {
                Direction::ToGuest => (&mut &*self.socket).write_all(&data).context("send")?,
                Direction::ToHost => self.guest.send(self.port, case.size)?,
            }
            if case.burst != 0 && packet % case.burst == 0 || packet == packets {
                there.wait(start + u64::from(packet) * u64::from(case.size))?;
            }
        }
        Ok(())
    }
}

/// Reads to the end of the stream.
fn drain(mut socket: &Socket, arrived: &Tally) -> Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match socket.read(&mut buffer).context("recv")? {
            0 => return Ok(()),
            more => arrived.add(more as u64)?,
        };
    }
}
