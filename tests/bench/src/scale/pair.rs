// SPDX-License-Identifier: GPL-2.0

//! A guest and the host's sockets that are connected to it.

use std::io::{Read, Write};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use socket2::Socket;

use crate::record::{Direction, ScaleCase};
use crate::vmfree::guest::Guest;
use crate::vmfree::sched::Urgency;
use crate::vmfree::tally::Tally;
use crate::vmfree::{WIDE, on_thread, socket};

/// Distance of two connections that take turns. Neighbours were made one after the other and are alike in what they are
/// filed by; a prime beside all numbers of connections goes through all of them before it comes back to one.
const STRIDE: usize = 7919;

/// A guest and its connections.
pub(crate) struct Pair {
    // The guest is dropped first, and resets what is connected: no socket waits for its answer then.
    guest: Arc<Guest>,
    handler: JoinHandle<()>,
    /// The host's ends, and their ports.
    ends: Vec<(Socket, u32)>,
    /// What they will receive: nobody looks before, and takes the last byte of a socket.
    queued: Tally,
    /// What they have received.
    arrived: Tally,
}

impl Pair {
    /// Starts a guest with that CID and connects to it.
    pub(crate) fn start(cid: u32, connections: u32) -> Result<Self> {
        let guest = Arc::new(Guest::start(cid, WIDE)?);
        let running = guest.clone();
        let handler = thread::spawn(move || on_thread(Urgency::Last, || running.run()));
        let ends = (0..connections)
            .map(|_| {
                let socket = socket::new(WIDE)?;
                socket::connect(&socket, cid)?;
                let port = socket::port(&socket)?;
                // The byte is not taken in, nor the last one from then on. A socket that is emptied tells its window
                // at once, and what is counted would depend on who runs then.
                guest.send(port, 1)?;
                Ok((socket, port))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            guest,
            handler,
            ends,
            queued: Tally::new()?,
            arrived: Tally::new()?,
        })
    }

    /// Ends everything.
    pub(crate) fn stop(self) -> Result<()> {
        self.guest.stop()?;
        self.handler
            .join()
            .map_err(|_| anyhow!("the guest panicked"))
    }

    /// What has come to the end that receives.
    pub(crate) fn there(&self, direction: Direction) -> &Tally {
        match direction {
            Direction::ToGuest => &self.guest.received,
            Direction::ToHost => &self.arrived,
        }
    }

    /// Whose turn it is in run `index`.
    fn end(&self, index: usize) -> &(Socket, u32) {
        &self.ends[index * STRIDE % self.ends.len()]
    }

    /// Sends run `index`.
    pub(crate) fn send(&self, case: ScaleCase, index: usize, data: &[u8]) -> Result<()> {
        let (socket, port) = self.end(index);
        for _ in 0..case.run {
            match case.direction {
                Direction::ToGuest => (&mut &*socket).write_all(data).context("send")?,
                Direction::ToHost => self.guest.send(*port, case.size)?,
            }
        }
        Ok(())
    }

    /// Says that a burst is on its way.
    pub(crate) fn announce(&self, case: ScaleCase) -> Result<()> {
        if case.direction == Direction::ToHost {
            self.queued.add((case.burst * case.size).into())?;
        }
        Ok(())
    }

    /// Receives `bursts` bursts at the host, run by run in the order in which they are sent.
    pub(crate) fn receive(&self, case: ScaleCase, bursts: u32) -> Result<()> {
        let mut run = vec![0; (case.run * case.size) as usize];
        let runs = case.burst / case.run;
        for burst in 0..bursts {
            self.queued
                .wait(self.arrived.bytes() + u64::from(case.burst * case.size))?;
            for index in burst * runs..(burst + 1) * runs {
                let (socket, _) = self.end(index as usize);
                (&mut &*socket).read_exact(&mut run).context("recv")?;
                self.arrived.add(run.len() as u64)?;
            }
        }
        Ok(())
    }
}
