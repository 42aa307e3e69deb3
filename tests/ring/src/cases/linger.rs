// SPDX-License-Identifier: GPL-2.0
//! A worker that comes back by itself, and asks to be told when that does not pay.

use super::Case;
use super::ours::{NO_PARAMETERS, in_mode};
use crate::vocabulary::proc::{Parameter, counter, wait_until};
use crate::vocabulary::{Context, Kind, Op, Packet, Plan, Session, patience};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// Enough packets for the worker to come back.
const BURST: usize = 16;

pub const CASES: &[Case] = &[
    Case::new("linger/data-is-exact", |cx| {
        in_mode(cx, &[("tx_linger_us", "1000"), ("rx_linger_us", "1000")])
    })
    .c_differs(NO_PARAMETERS),
    Case::new("linger/tx-comes-back-then-asks-for-kicks", tx_comes_back).c_differs(NO_PARAMETERS),
    Case::new("linger/rx-comes-back-then-is-woken", rx_comes_back).c_differs(NO_PARAMETERS),
    Case::new("linger/no-packet-of-the-guest-is-forgotten", |cx| {
        nothing_forgotten(cx, from_guest)
    })
    .c_differs(NO_PARAMETERS),
    Case::new("linger/no-packet-of-the-host-is-forgotten", |cx| {
        nothing_forgotten(cx, from_host)
    })
    .c_differs(NO_PARAMETERS),
];

/// Puts `count` packets that nobody answers into the TX ring, then kicks once if asked.
fn burst(s: &mut Session, count: usize) -> Result<()> {
    let header = s.guest.header(&s.flow, Op::CREDIT_UPDATE);
    for _ in 0..count {
        let packet = Packet {
            header: header.clone(),
            payload: Vec::new(),
        };
        s.guest.queue(&packet.encode())?;
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

fn tx_comes_back(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    let _set = Parameter::set("tx_linger_us", "1000")?;
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

fn rx_comes_back(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    let _set = Parameter::set("rx_linger_us", "1000")?;
    let _whole = Parameter::set("rx_coalesce", "N")?;
    // They wait for buffers, so that one pass has them all.
    s.guest.drain()?;
    s.guest.plan.buffers = 0;
    while s.guest.rx.in_flight() > 0 {
        s.host.send(b"x")?;
        s.guest.hear_op(&mut s.flow, Op::RW)?;
    }
    for _ in 0..BURST {
        s.host.send(&[1; 64])?;
    }
    let passes = grown(&mut s, "rx_passes", 2, |s| {
        s.guest.plan.buffers = 2 * BURST;
        s.guest.refill()?;
        s.guest.hear_bytes(&mut s.flow, BURST * 64).map(drop)
    })?;
    ensure!(passes >= 2, "{passes} passes: it did not come back");
    s.host.send(b"y")?;
    s.guest.hear_op(&mut s.flow, Op::RW)?;
    Ok(())
}

/// Spins, since a sleep would always be longer than the worker's.
fn spin(us: u64) {
    let until = Instant::now() + Duration::from_micros(us);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

fn from_guest(s: &mut Session, count: usize) -> Result<()> {
    burst(s, count)
}

fn from_host(s: &mut Session, count: usize) -> Result<()> {
    for _ in 0..count {
        s.host.send(&[1; 16])?;
    }
    s.guest.hear_bytes(&mut s.flow, count * 16)?;
    s.guest.give_credit(&mut s.flow)
}

/// Bursts, each followed by one packet at a random moment of the worker's sleep or just behind
/// it: all must come, though nothing follows that would bring them along.
fn nothing_forgotten(cx: &mut Context, send: fn(&mut Session, usize) -> Result<()>) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    let _tx = Parameter::set("tx_linger_us", "30")?;
    let _rx = Parameter::set("rx_linger_us", "30")?;
    for _ in 0..cx.rounds(400, 10_000) {
        send(&mut s, BURST)?;
        spin(cx.number() % 80);
        send(&mut s, 1)?;
    }
    cx.no_reply_is_counted(&s.guest)
}
