// SPDX-License-Identifier: GPL-2.0
//! Start, stop and restart of the device, and what becomes of connections and buffers meanwhile.

use super::Case;
use crate::vocabulary::abi::feature;
use crate::vocabulary::{Context, Guest, Host, Kind, Op, Plan};
use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

pub const CASES: &[Case] = &[
    Case::new("start/connect-before-start-is-refused-at-once", before_start),
    Case::new("start/connect-while-stopped-is-refused-at-once", while_stopped),
    Case::new("start/restart-keeps-host-sockets-until-the-guest-resets", keeps_sockets),
    Case::new("start/packets-queued-while-stopped-come-after-restart", queued_over_stop),
    Case::new("start/tx-left-at-a-stop-is-served-event-idx", tx_left_event_idx)
        .c_differs("a start runs the RX queue only, so TX buffers left at a stop wait for a kick that is not owed"),
    Case::new("start/tx-left-at-a-stop-is-served", tx_left_flags)
        .c_differs("a start runs the RX queue only, so TX buffers left at a stop wait for a kick that is not owed"),
    Case::new("start/no-suppression-survives-a-restart", suppression)
        .c_differs("the flag that kicks are off is kept over a stop, so after a stop under reply pressure a guest with larger rings is never told to kick TX"),
    Case::new("start/restart-with-other-rings-and-sizes", other_rings),
    Case::new("start/many-restarts-under-traffic", many_restarts),
];

fn before_start(cx: &mut Context) -> Result<()> {
    let mut guest = Guest::prepare(cx.number(), Plan::default())?;
    let port = cx.number() as u32;
    let answer = Host::probe(Kind::STREAM, guest.cid, port);
    ensure!(
        answer == Err(Errno::EHOSTUNREACH),
        "connect() before the start: {answer:?}"
    );
    let answer = Host::probe(Kind::STREAM, cx.number(), port);
    ensure!(
        answer == Err(Errno::ENODEV),
        "connect() to nobody: {answer:?}"
    );
    guest.dev.start()?;
    guest
        .accept(Kind::STREAM, port)
        .context("after the start")
        .map(drop)
}

fn while_stopped(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let port = cx.number() as u32;
    guest.dev.stop()?;
    let answer = Host::probe(Kind::STREAM, guest.cid, port);
    ensure!(
        answer == Err(Errno::EHOSTUNREACH),
        "connect() while stopped: {answer:?}"
    );
    guest.reboot()?;
    guest
        .accept(Kind::STREAM, port)
        .context("after the restart")
        .map(drop)
}

fn keeps_sockets(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    s.guest.reboot()?;
    ensure!(
        s.host.error() == Ok(()) && !s.host.readable()?,
        "the restart touched the host socket"
    );
    cx.step("the rebooted guest refuses the old connection's next packet");
    s.host.send(b"still there?")?;
    s.guest.hear_op(&mut s.flow, Op::RW)?;
    s.guest.say(&mut s.flow, Op::RST)?;
    ensure!(
        s.host.recv(64).is_err() || s.host.try_recv(&mut [0; 8]) == Ok(0),
        "the host socket goes on"
    );
    cx.step("the device is closed");
    let (_flow, host) = s.guest.accept(Kind::STREAM, cx.number() as u32)?;
    drop(s.guest);
    host.fails_with(Errno::ECONNRESET)
}

fn queued_over_stop(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    s.host.send(b"first")?;
    s.guest.hear_op(&mut s.flow, Op::RW)?;
    cx.step("three packets find no buffer, then the device is stopped and started");
    for part in [&b"one"[..], b"two", b"three"] {
        s.host.send(part)?;
    }
    s.guest.dev.stop()?;
    s.guest.dev.start()?;
    s.guest.plan.buffers = 8;
    s.guest.refill()?;
    let bytes = s.guest.hear_bytes(&mut s.flow, 11)?;
    ensure!(
        bytes == b"onetwothree",
        "other bytes: {:?}",
        String::from_utf8_lossy(&bytes)
    );
    Ok(())
}

fn tx_left_event_idx(cx: &mut Context) -> Result<()> {
    tx_left(cx, feature::USUAL)
}

fn tx_left_flags(cx: &mut Context) -> Result<()> {
    tx_left(cx, feature::SEQPACKET)
}

fn tx_left(cx: &mut Context, features: u64) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().features(features))?;
    s.guest.drain()?;
    s.guest.dev.stop()?;
    cx.step("the guest sends and kicks while the device is stopped");
    s.guest.say_with(&mut s.flow, Op::RW, 0, b"left over")?;
    std::thread::sleep(std::time::Duration::from_millis(20));
    s.guest.dev.start()?;
    cx.c_differs_here();
    cx.step("the packet is served after the start without another kick");
    let bytes = s.host.recv_exact(9)?;
    ensure!(bytes == b"left over", "other bytes");
    s.guest.drain()
}

fn suppression(cx: &mut Context) -> Result<()> {
    let plan = Plan::default()
        .features(feature::SEQPACKET)
        .size(8)
        .buffers(0, 4096);
    let mut guest = cx.guest(plan.clone())?;
    cx.step("replies that find no buffer make the device stop taking TX, with kicks off");
    fill_with_requests(cx, &mut guest, 8)?;
    guest.drain()?;
    ensure!(
        guest.tx.no_notify(),
        "kicks are wanted although no TX is taken"
    );
    cx.step("the guest reboots into a driver that uses larger rings");
    let cid = guest.cid;
    guest.dev.stop()?;
    let mut guest = Guest::furnish(guest.dev, cid, plan.size(16).buffers(16, 4096))?;
    guest.dev.start()?;
    for _ in 0..8 {
        guest.recv()?;
    }
    cx.c_differs_here();
    cx.step("its packets are served");
    let packet = request(cx, &guest);
    guest.send(&packet)?;
    guest.recv().map(drop)
}

/// A REQUEST to a host port where nobody listens: it asks for a RST.
fn request(cx: &mut Context, guest: &Guest) -> crate::vocabulary::Packet {
    super::request_to_nobody(guest, cx.number() as u32)
}

fn fill_with_requests(cx: &mut Context, guest: &mut Guest, count: usize) -> Result<()> {
    for _ in 0..count {
        let packet = request(cx, guest);
        guest.send(&packet)?;
    }
    Ok(())
}

fn other_rings(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let mut hosts = Vec::new();
    for (size, base) in [
        (1, 0),
        (2, 0xffff),
        (256, 1000),
        (32768, 0x8000),
        (64, 65000),
    ] {
        cx.step(&format!("ring size {size}, base {base}"));
        guest.dev.stop()?;
        let cid = guest.cid;
        let plan = Plan::default().size(size).base(base);
        guest = Guest::furnish(guest.dev, cid, plan)?;
        guest.dev.start()?;
        let (mut flow, host) = guest.accept(Kind::STREAM, cx.number() as u32)?;
        host.send(b"to the guest")?;
        guest.hear_bytes(&mut flow, 12)?;
        guest.say_with(&mut flow, Op::RW, 0, b"to the host")?;
        ensure!(host.recv_exact(11)? == b"to the host", "other bytes");
        // Closing it would send a packet into the next round.
        hosts.push(host);
        guest.settle()?;
    }
    Ok(())
}

fn many_restarts(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(4, 512))?;
    let mut received = Vec::new();
    let mut sent = Vec::new();
    for round in 0..cx.rounds(60, 3000) {
        cx.step(&format!("restart {round}"));
        let bytes = cx.bytes(700);
        s.host.send(&bytes)?;
        sent.extend_from_slice(&bytes);
        s.guest.dev.stop()?;
        s.guest.dev.start()?;
        while received.len() < sent.len() {
            received.extend(s.guest.hear_op(&mut s.flow, Op::RW)?.payload);
            s.guest.give_credit(&mut s.flow)?;
        }
        ensure!(
            received == sent,
            "the bytes of round {round} are not those sent"
        );
        received.clear();
        sent.clear();
    }
    Ok(())
}
