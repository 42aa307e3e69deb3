// SPDX-License-Identifier: GPL-2.0
//! A worker that comes back by itself, and asks to be told when that does not pay.

use super::Case;
use super::ours::NO_PARAMETERS;
use crate::vocabulary::packet::HEADER;
use crate::vocabulary::proc::{Parameter, counter, wait_until};
use crate::vocabulary::{Context, Guest, Kind, Op, Plan, Session, patience};
use anyhow::{Result, ensure};
use std::thread::sleep;
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
    Case::new("linger/many-packets-for-the-guest-let-more-gather", gathers)
        .c_differs(NO_PARAMETERS),
    Case::new("linger/senders-that-take-turns-do-not", turns).c_differs(NO_PARAMETERS),
    Case::new("linger/no-packet-for-the-guest-is-forgotten", |cx| {
        follow_up(cx, 400, |s| send_small(s, 1))
    })
    .c_differs(NO_PARAMETERS),
    Case::new(
        "linger/no-connection-to-the-guest-is-forgotten",
        connect_another,
    )
    .c_differs(NO_PARAMETERS),
];

/// Payload of a small packet for the guest.
const SMALL: [u8; 16] = [3; 16];
/// Sockets that take turns.
const CROWD: usize = 16;

/// Puts `count` packets of a byte into the TX ring, then kicks once if asked.
fn burst(s: &mut Session, count: usize) -> Result<()> {
    for _ in 0..count {
        s.guest.hold_with(&mut s.flow, Op::RW, 0, &[1])?;
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
            s.guest.hold_with(&mut s.flow, Op::CREDIT_UPDATE, 0, &[])?;
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

/// A session whose guest has no RX buffers.
fn without_buffers(cx: &mut Context, kind: Kind) -> Result<Session> {
    let mut s = cx.session(kind, Plan::default().buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    use_up_buffers(&mut s)?;
    cx.c_differs_here();
    Ok(s)
}

/// Gives enough buffers for `packets` packets at once, and receives `bytes` bytes on all flows.
fn hear_bytes(guest: &mut Guest, packets: usize, bytes: usize) -> Result<()> {
    guest.plan.buffers = 2 * packets;
    guest.refill()?;
    guest.plan.buffers = 0;
    let mut heard = 0;
    while heard < bytes {
        heard += guest.recv()?.payload.len();
    }
    ensure!(heard == bytes, "{heard} bytes, not {bytes}");
    Ok(())
}

/// Has the host fill the buffers that are left, each with one packet.
fn use_up_buffers(s: &mut Session) -> Result<()> {
    while s.guest.rx.in_flight() > 0 {
        s.host.send(&[9; 4096 - HEADER])?;
        s.guest.hear_bytes(&mut s.flow, 4096 - HEADER)?;
    }
    s.guest.give_all_credit(&mut s.flow)
}

/// Sends `count` small packets, then has the guest receive them in as few buffers as may be.
fn send_small(s: &mut Session, count: usize) -> Result<()> {
    for _ in 0..count {
        s.host.send(&SMALL)?;
    }
    let mut heard = 0;
    while heard < count * SMALL.len() {
        s.guest.give_buffer(4096)?;
        heard += s.guest.hear_op(&mut s.flow, Op::RW)?.payload.len();
    }
    ensure!(heard == count * SMALL.len(), "{heard} bytes");
    s.guest.give_credit(&mut s.flow)
}

/// How often the worker lingered for a queue, "rx" or "tx", while `work` had it move `packets`
/// packets; `wanted` times are waited for.
fn lingers(
    guest: &mut Guest,
    side: &str,
    packets: usize,
    wanted: u64,
    work: impl FnOnce(&mut Guest) -> Result<()>,
) -> Result<u64> {
    let cid = Some(guest.cid);
    let (lingers, moved) = (format!("{side}_lingers"), format!("{side}_packets"));
    let (lingered, before) = (counter(cid, &lingers)?, counter(cid, &moved)?);
    work(guest)?;
    let done = wait_until(patience(), || {
        Ok(counter(cid, &moved)? - before >= packets as u64)
    })?;
    ensure!(done, "{packets} packets were not counted in {moved}");
    // A pause is counted behind the pass.
    wait_until(patience(), || {
        Ok(counter(cid, &lingers)? - lingered >= wanted)
    })?;
    sleep(Duration::from_millis(20));
    Ok(counter(cid, &lingers)? - lingered)
}

/// The parameters with which the worker lingers for RX, for at most `rx_us` microseconds.
fn lingering(rx_us: &str) -> Result<[Parameter; 4]> {
    Ok([
        Parameter::set("busyloop_us", "0")?,
        Parameter::set("rx_coalesce", "Y")?,
        Parameter::set("rx_linger_us", rx_us)?,
        Parameter::set("tx_linger_us", "1000")?,
    ])
}

/// Packets that wait when the guest gives buffers for them.
fn gathers(cx: &mut Context) -> Result<()> {
    for (limit, kind, count, len, wanted) in [
        ("1000", Kind::STREAM, BURST, 16, 1),
        ("0", Kind::STREAM, BURST, 16, 0),
        // Few, large ones, messages.
        ("1000", Kind::STREAM, FEW, 16, 0),
        ("1000", Kind::STREAM, BURST, 2048, 0),
        ("1000", Kind::SEQPACKET, BURST, 16, 0),
    ] {
        let mut s = without_buffers(cx, kind)?;
        let _set = lingering(limit)?;
        for _ in 0..count {
            s.host.send(&vec![7; len])?;
        }
        let seen = lingers(&mut s.guest, "rx", count, wanted, |guest| {
            hear_bytes(guest, count, count * len)
        })?;
        ensure!(
            seen == wanted,
            "rx_linger_us={limit}: lingered {seen} times after {count} packets of {len} bytes, {kind:?}"
        );
    }
    Ok(())
}

/// A packet of each of many sockets, as of those that wait for answers.
fn turns(cx: &mut Context) -> Result<()> {
    let Session {
        mut guest,
        flow,
        host,
    } = cx.session(Kind::STREAM, Plan::default().buffers(1, 4096))?;
    cx.c_differs_here();
    let _set = lingering("1000")?;
    let (mut flows, mut hosts) = (vec![flow], vec![host]);
    while flows.len() < CROWD {
        let (flow, host) = guest.accept(Kind::STREAM, cx.number() as u32)?;
        flows.push(flow);
        hosts.push(host);
    }
    guest.drain()?;

    let seen = lingers(&mut guest, "tx", CROWD, 0, |guest| {
        for flow in &mut flows {
            guest.hold_with(flow, Op::RW, 0, &[1])?;
        }
        guest.tx.flush();
        guest.drain()
    })?;
    ensure!(seen == 0, "TX: lingered {seen} times");

    // The buffer that is there takes the first; the others wait for the next ones.
    guest.plan.buffers = 0;
    let seen = lingers(&mut guest, "rx", CROWD, 0, |guest| {
        for host in &hosts {
            host.send(&SMALL)?;
        }
        hear_bytes(guest, CROWD, CROWD * SMALL.len())
    })?;
    ensure!(seen == 0, "RX: lingered {seen} times");
    Ok(())
}

/// Bursts, each followed by something else at some moment of the worker's sleep or just behind it,
/// which must come though nothing follows that would bring it along.
fn follow_up(
    cx: &mut Context,
    rounds: usize,
    mut send: impl FnMut(&mut Session) -> Result<()>,
) -> Result<()> {
    let mut s = without_buffers(cx, Kind::STREAM)?;
    let _set = lingering("60")?;
    for _ in 0..cx.rounds(rounds, 5 * rounds) {
        send_small(&mut s, BURST)?;
        spin(cx.number() % 100);
        send(&mut s)?;
    }
    cx.no_reply_is_counted(&s.guest)
}

/// Another socket connects to the guest; both are kept.
fn connect_another(cx: &mut Context) -> Result<()> {
    let mut others = Vec::new();
    follow_up(cx, 40, |s| {
        s.guest.give_buffer(4096)?;
        let port = s.flow.guest_port + 1 + others.len() as u32;
        others.push(s.guest.accept(Kind::STREAM, port)?);
        s.guest.drain()
    })
}
