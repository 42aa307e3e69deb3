// SPDX-License-Identifier: GPL-2.0
//! A worker that comes back by itself, and asks to be told when that does not pay.

use super::Case;
use super::ours::NO_PARAMETERS;
use crate::vocabulary::proc::{Parameter, counter, wait_until};
use crate::vocabulary::{Context, Kind, Op, Packet, Plan, Session, patience};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// Enough packets for the worker to come back.
const BURST: usize = 16;
/// Too few for that.
const FEW: usize = 3;

pub const CASES: &[Case] = &[
    Case::new("linger/comes-back-then-asks-for-kicks", comes_back).c_differs(NO_PARAMETERS),
    Case::new("linger/a-few-packets-do-not-bring-it-back", stays_away).c_differs(NO_PARAMETERS),
    Case::new("linger/credit-does-not-bring-it-back", credit_is_no_burst).c_differs(NO_PARAMETERS),
    Case::new("linger/no-packet-of-the-guest-is-forgotten", |cx| {
        nothing_forgotten(cx, burst)
    })
    .c_differs(NO_PARAMETERS),
    Case::new("linger/credit-comes-without-another-packet", |cx| {
        nothing_forgotten(cx, read_all)
    })
    .c_differs(NO_PARAMETERS),
];

/// Puts `count` packets of a byte into the TX ring, then kicks once if asked.
fn burst(s: &mut Session, count: usize) -> Result<()> {
    for _ in 0..count {
        let mut header = s.guest.header(&s.flow, Op::RW);
        header.len = 1;
        s.flow.sent += 1;
        let payload = vec![1];
        s.guest.queue(&Packet { header, payload }.encode())?;
    }
    s.guest.tx.flush();
    s.guest.drain()
}

/// What a counter of the guest grew by while `work` ran and until `enough` is reached.
fn grown(
    s: &mut Session,
    name: &str,
    enough: u64,
    work: impl FnOnce(&mut Session) -> Result<()>,
) -> Result<u64> {
    let cid = s.guest.cid;
    let before = counter(Some(cid), name)?;
    work(s)?;
    wait_until(patience(), || {
        Ok(counter(Some(cid), name)? - before >= enough)
    })?;
    Ok(counter(Some(cid), name)? - before)
}

fn comes_back(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    let _set = Parameter::set("tx_linger_us", "1000")?;
    // A queue that is polled is not lingered for.
    let _poll = Parameter::set("busyloop_us", "0")?;
    let kicks = s.guest.tx.kicks;
    let passes = grown(&mut s, "tx_passes", 2, |s| burst(s, BURST))?;
    ensure!(
        s.guest.tx.kicks == kicks + 1,
        "it was kicked more than once"
    );
    ensure!(passes >= 2, "{passes} passes: it did not come back");
    // The pass without packets asked for kicks: the next packet is told, and taken.
    burst(&mut s, 1)?;
    ensure!(
        s.guest.tx.kicks == kicks + 2,
        "the last packet was taken without a kick"
    );
    Ok(())
}

/// Packets without payload do not bring the worker back, however many they are.
fn credit_is_no_burst(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    let _set = Parameter::set("tx_linger_us", "1000")?;
    let passes = grown(&mut s, "tx_passes", 1, |s| {
        for _ in 0..BURST {
            let header = s.guest.header(&s.flow, Op::CREDIT_UPDATE);
            let payload = Vec::new();
            s.guest.queue(&Packet { header, payload }.encode())?;
        }
        s.guest.tx.flush();
        s.guest.drain()
    })?;
    ensure!(passes == 1, "{passes} passes");
    Ok(())
}

fn stays_away(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    let _set = Parameter::set("tx_linger_us", "1000")?;
    let kicks = s.guest.tx.kicks;
    for round in 1..=20 {
        let passes = grown(&mut s, "tx_passes", 1, |s| burst(s, FEW))?;
        ensure!(passes == 1, "{passes} passes over {FEW} packets");
        // The pass is over, so the next packets need a kick, and get one.
        ensure!(s.guest.tx.kicks == kicks + round, "no kick was asked for");
    }
    Ok(())
}

/// Spins, since a sleep would always be longer than the worker's.
fn spin(us: u64) {
    let until = Instant::now() + Duration::from_micros(us);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Has the guest send `count` packets and the host take them as they come, each time all there is:
/// for that it gives credit, which must reach the guest.
fn read_all(s: &mut Session, count: usize) -> Result<()> {
    for _ in 0..count {
        s.guest.say_with(&mut s.flow, Op::RW, 0, &[1; 16])?;
    }
    s.host.recv_exact(count * 16)?;
    while s.flow.peer_fwd_cnt != s.flow.sent {
        s.guest.hear_op(&mut s.flow, Op::CREDIT_UPDATE)?;
    }
    Ok(())
}

/// Bursts, each followed by one packet at a random moment of the worker's sleep or just behind
/// it: all must come, though nothing follows that would bring them along.
fn nothing_forgotten(cx: &mut Context, send: fn(&mut Session, usize) -> Result<()>) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    let _set = Parameter::set("tx_linger_us", "30")?;
    for _ in 0..cx.rounds(400, 10_000) {
        send(&mut s, BURST)?;
        spin(cx.number() % 80);
        send(&mut s, 1)?;
    }
    cx.no_reply_is_counted(&s.guest)
}
