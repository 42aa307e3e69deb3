// SPDX-License-Identifier: GPL-2.0

//! The packets of one case, burst by burst.

use std::cell::Cell;

use anyhow::Result;

use super::pair::Pair;
use crate::record::ScaleCase;

/// What is sent to all guests, or by all of them.
pub(crate) struct Traffic<'a> {
    pub case: ScaleCase,
    pairs: &'a [Pair],
    data: Vec<u8>,
    /// What had arrived before.
    start: Vec<u64>,
    /// Bursts so far.
    done: Cell<u32>,
}

impl<'a> Traffic<'a> {
    /// No packet so far.
    pub(crate) fn new(case: ScaleCase, pairs: &'a [Pair]) -> Self {
        let there = |pair: &Pair| pair.there(case.direction).bytes();
        Self {
            case,
            pairs,
            data: vec![0x5a; case.size as usize],
            start: pairs.iter().map(there).collect(),
            done: Cell::new(0),
        }
    }

    /// Moves `bursts` bursts of each guest, each when the one before has arrived.
    pub(crate) fn transfer(&self, bursts: u32) -> Result<()> {
        for _ in 0..bursts {
            let group = self.case.at_once as usize;
            for (pairs, start) in self.pairs.chunks(group).zip(self.start.chunks(group)) {
                self.queue_burst(pairs)?;
                self.wait(pairs, start)?;
            }
            self.done.set(self.done.get() + 1);
        }
        Ok(())
    }

    fn queue_burst(&self, pairs: &[Pair]) -> Result<()> {
        let runs = self.case.burst / self.case.run;
        for run in 0..runs {
            let index = (self.done.get() * runs + run) as usize;
            for pair in pairs {
                pair.send(self.case, index, &self.data)?;
            }
        }
        pairs.iter().try_for_each(|pair| pair.announce(self.case))
    }

    fn wait(&self, pairs: &[Pair], start: &[u64]) -> Result<()> {
        let bytes = u64::from(self.done.get() + 1) * u64::from(self.case.burst * self.case.size);
        for (pair, start) in pairs.iter().zip(start) {
            pair.there(self.case.direction).wait(start + bytes)?;
        }
        Ok(())
    }
}
