// SPDX-License-Identifier: GPL-2.0
//! A well-behaved guest that goes on exchanging data while another one misbehaves.

use super::{Flow, Guest, Host, Kind, Op, Plan, patience, proc::wait_until};
use anyhow::{Context as _, Result, bail, ensure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The polite guest, in a thread of its own, with a host socket of its own.
pub struct Polite {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    rounds: AtomicU64,
    stop: AtomicBool,
    error: Mutex<Option<String>>,
}

impl Polite {
    /// Starts the guest with this CID.
    pub fn start(cid: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::spawn(move || {
            if let Err(error) = live(cid, &theirs) {
                *theirs.error.lock().expect("the lock") = Some(format!("{error:#}"));
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// Asserts that the polite guest's data was exact so far and goes on moving.
    pub fn check(&self) -> Result<()> {
        let begin = self.shared.rounds.load(Ordering::Relaxed);
        let moved = wait_until(patience(), || {
            if let Some(error) = &*self.shared.error.lock().expect("the lock") {
                bail!("the polite guest: {error}");
            }
            Ok(self.shared.rounds.load(Ordering::Relaxed) >= begin + 2)
        })?;
        ensure!(moved, "the polite guest makes no progress");
        Ok(())
    }

    /// Ends it, with a last check; gives how many exchanges it had.
    pub fn finish(mut self) -> Result<u64> {
        self.check()?;
        self.shared.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("its thread");
        ensure!(thread.join().is_ok(), "the polite guest panicked");
        Ok(self.shared.rounds.load(Ordering::Relaxed))
    }
}

fn live(cid: u64, shared: &Shared) -> Result<()> {
    let mut guest = Guest::start(cid, Plan::default()).context("starting")?;
    let (mut flow, host) = guest.accept(Kind::STREAM, 1)?;
    let mut round = 0u64;
    while !shared.stop.load(Ordering::Relaxed) {
        exchange(&mut guest, &mut flow, &host, round)
            .with_context(|| format!("exchange {round}"))?;
        round = shared.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
    Ok(())
}

/// Sends a numbered pattern each way.
fn exchange(guest: &mut Guest, flow: &mut Flow, host: &Host, round: u64) -> Result<()> {
    let pattern: Vec<u8> = (0..600u64)
        .map(|at| (at.wrapping_mul(31) + round) as u8)
        .collect();
    host.send(&pattern)?;
    let mut got = Vec::new();
    while got.len() < pattern.len() {
        let packet = guest.hear(flow)?;
        ensure!(
            matches!(packet.op(), Op::RW | Op::CREDIT_UPDATE),
            "unexpected: {packet:?}"
        );
        got.extend_from_slice(&packet.payload);
        guest.give_credit(flow)?;
    }
    ensure!(got == pattern, "other bytes came to the guest");
    guest.say_with(flow, Op::RW, 0, &pattern)?;
    ensure!(
        host.recv_exact(pattern.len())? == pattern,
        "other bytes came to the host"
    );
    Ok(())
}
