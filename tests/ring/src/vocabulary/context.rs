// SPDX-License-Identifier: GPL-2.0
//! What a case is given: numbers of its own, randomness, and a line to the watchdog.

use super::guest::{Guest, Plan};
use super::packet::Kind;
use super::{Session, proc};
use anyhow::{Result, ensure};
use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::fs::File;
use std::io::Write as _;

/// Which driver owns the device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// The kernel's own `vhost_vsock`.
    C,
    /// `vhost_vsock_rs`.
    Rust,
}

/// How many rounds a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A quarter of the usual ones.
    Short,
    Usual,
    Long,
}

/// The surroundings of one case.
pub struct Context {
    pub driver: Driver,
    pub length: Length,
    pub rng: SmallRng,
    /// Feature bits that each guest has besides those of its plan.
    pub features: u64,
    report: File,
    next: u64,
}

impl Context {
    /// A context for the case `name`, whose numbers follow `number`, and which reports on `report`.
    pub fn new(
        driver: Driver,
        length: Length,
        seed: u64,
        name: &str,
        number: u64,
        report: File,
    ) -> Self {
        // The same seed gives a case the same numbers whichever others are run.
        let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Self {
            driver,
            length,
            rng: SmallRng::seed_from_u64(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix)),
            features: 0,
            report,
            next: number,
        }
    }

    fn line(&mut self, letter: char, text: &str) {
        let text = text.replace('\n', "; ");
        writeln!(self.report, "{letter} {text}").expect("a line to the watchdog");
    }

    /// Says what comes next. The watchdog allows each step its time and names the step that is stuck.
    pub fn step(&mut self, what: &str) {
        self.line('S', what);
    }

    /// From here on the C driver is known to differ: only a failure after this is an explained one.
    pub fn c_differs_here(&mut self) {
        self.line('D', "");
        if self.driver == Driver::C {
            super::lose_patience();
        }
    }

    /// Adds a remark to the report.
    pub fn note(&mut self, text: &str) {
        self.line('N', text);
    }

    /// Says that the case cannot be run here, and why; it then ends.
    pub fn skip(&mut self, why: &str) {
        self.line('K', why);
    }

    /// Reports the verdict.
    pub fn verdict(&mut self, result: &Result<()>) {
        match result {
            Ok(()) => self.line('P', ""),
            Err(error) => self.line('F', &format!("{error:#}")),
        }
    }

    /// A CID, or a guest port, that is used for nothing else.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// `few` rounds, or `many` in a long run.
    pub fn rounds(&self, few: usize, many: usize) -> usize {
        match self.length {
            Length::Short => few.div_ceil(4),
            Length::Usual => few,
            Length::Long => many,
        }
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill(&mut bytes[..]);
        bytes
    }

    /// A guest that runs.
    pub fn guest(&mut self, plan: Plan) -> Result<Guest> {
        let cid = self.number();
        self.guest_with(cid, plan)
    }

    /// A guest that runs and has this CID.
    pub fn guest_with(&self, cid: u64, mut plan: Plan) -> Result<Guest> {
        plan.features |= self.features;
        Guest::start(cid, plan)
    }

    /// A guest that runs, and a connection that the host made to it.
    pub fn session(&mut self, kind: Kind, plan: Plan) -> Result<Session> {
        let mut guest = self.guest(plan)?;
        let (flow, host) = guest.accept(kind, self.number() as u32)?;
        Ok(Session { guest, flow, host })
    }

    /// With our driver, asserts that no reply to `guest` is counted as queued. A pass counts those that it took when
    /// it has let go of the queue, which may be after the guest has them.
    pub fn no_reply_is_counted(&self, guest: &Guest) -> Result<()> {
        if self.driver == Driver::Rust {
            let count = || proc::counter(Some(guest.cid), "queued_replies");
            let none = proc::wait_until(super::patience(), || Ok(count()? == 0))?;
            ensure!(none, "queued_replies is {} after the storm", count()?);
        }
        Ok(())
    }
}
