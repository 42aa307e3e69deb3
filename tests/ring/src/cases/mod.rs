// SPDX-License-Identifier: GPL-2.0
//! The cases, by subject.

mod abi;
mod connect;
mod credit;
mod dirty_log;
mod hostile;
mod iotlb;
mod lifetime;
mod linger;
mod model;
mod ours;
mod replies;
mod rx;
mod seqpacket;
mod shapes;
mod start;
mod tap;
mod tx;
mod worker;
mod zerocopy;

use crate::vocabulary::Context;
use anyhow::Result;
use std::fmt;

/// How the C driver of Linux 7.3 fares with a case.
#[derive(Clone, Copy, Debug)]
pub enum OverC {
    /// It does the right thing.
    Same,
    /// It does not, for this reason: the case must fail over it.
    Differs(&'static str),
    /// It has a race, which a run may or may not lose.
    Races(&'static str),
}

impl fmt::Display for OverC {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OverC::Same => Ok(()),
            OverC::Differs(why) => write!(f, " (C differs: {why})"),
            OverC::Races(why) => write!(f, " (C races: {why})"),
        }
    }
}

/// One case: a name, what it does, and how long one step of it may take.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub run: fn(&mut Context) -> Result<()>,
    pub over_c: OverC,
    /// Seconds that one step may take.
    pub limit: u64,
}

impl Case {
    const fn new(name: &'static str, run: fn(&mut Context) -> Result<()>) -> Self {
        Self {
            name,
            run,
            over_c: OverC::Same,
            limit: 30,
        }
    }

    /// The C driver fails this case, and why.
    const fn c_differs(mut self, why: &'static str) -> Self {
        self.over_c = OverC::Differs(why);
        self
    }

    /// The C driver may fail this case, and why.
    const fn c_races(mut self, why: &'static str) -> Self {
        self.over_c = OverC::Races(why);
        self
    }
}

/// All cases, in the order in which they run.
pub fn all() -> Vec<Case> {
    [
        lifetime::FIRST,
        abi::CASES,
        start::CASES,
        connect::CASES,
        tx::CASES,
        rx::CASES,
        seqpacket::CASES,
        credit::CASES,
        replies::CASES,
        tap::CASES,
        zerocopy::CASES,
        dirty_log::CASES,
        iotlb::CASES,
        shapes::CASES,
        model::CASES,
        lifetime::CASES,
        linger::CASES,
        hostile::CASES,
        worker::CASES,
        ours::CASES,
    ]
    .concat()
}

/// Runs `what` in a child process and gives its exit status: 0 when it succeeded.
///
/// The child shares all open files with this process, and no memory.
fn in_child(what: impl FnOnce() -> Result<()>) -> Result<i32> {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
    // SAFETY: The child only runs `what` and exits.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let status = match what() {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("# in a child: {error:#}");
                    1
                }
            };
            // SAFETY: Ending this process at once is what is wanted.
            unsafe { libc::_exit(status) }
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, status) => Ok(status),
            other => anyhow::bail!("a child ended with {other:?}"),
        },
    }
}

/// A REQUEST from `port` of the guest to a host port where nobody listens: it asks for a RST.
fn request_to_nobody(guest: &crate::vocabulary::Guest, port: u32) -> crate::vocabulary::Packet {
    use crate::vocabulary::host::CLOSED_PORT;
    use crate::vocabulary::{Flow, Kind, Op, Packet};
    let flow = Flow::new(Kind::STREAM, port, CLOSED_PORT);
    Packet {
        header: guest.header(&flow, Op::REQUEST),
        payload: Vec::new(),
    }
}
