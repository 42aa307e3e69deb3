// SPDX-License-Identifier: GPL-2.0
//! Credit: the host's sends are bounded, the guest's violations end the connection, updates come as often as they must.

use super::Case;
use crate::vocabulary::abi::WINDOW;
use crate::vocabulary::proc::wait_writable;
use crate::vocabulary::{Context, Host, Kind, Op, Plan, patience};
use anyhow::{Result, ensure};
use nix::errno::Errno;
use std::time::Duration;

pub const CASES: &[Case] = &[
    Case::new(
        "credit/a-guest-cannot-make-the-host-queue-without-bound",
        bounded,
    ),
    Case::new("credit/the-guests-window-is-respected", respected),
    Case::new("credit/violation-ends-in-enobufs-and-rst", violation),
    Case::new(
        "credit/updates-while-small-reads-drain-much",
        updates_in_bulk,
    ),
    Case::new("credit/a-request-gets-one-update", request),
    Case::new("credit/late-update-wakes-the-sender", late),
    Case::new("credit/small-packets-under-back-pressure", small_packets),
    Case::new("credit/window-size-is-advertised", advertised),
    Case::new("credit/window-after-window-is-used-in-full", windows),
];

/// Sends pieces of `size` bytes until the socket takes no more; gives how many bytes it took.
fn fill(host: &Host, size: usize) -> Result<usize> {
    let (piece, mut total) = (vec![3; size], 0);
    loop {
        match host.try_send(&piece) {
            Ok(len) => total += len,
            Err(Errno::EAGAIN) => return Ok(total),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn bounded(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default().buffers(1, 4096))?;
    guest.plan.buffers = 0;
    let port = cx.number() as u32;
    let host = Host::connecting(Kind::STREAM, guest.cid, port)?;
    let mut flow = guest.hear_request(Kind::STREAM, port)?;
    flow.buf_alloc = u32::MAX;
    guest.say(&mut flow, Op::RESPONSE)?;
    host.connected()?;
    let total = fill(&host, 4096)?;
    ensure!(
        total <= WINDOW,
        "the host queued {total} bytes for a guest that takes none"
    );
    ensure!(total > WINDOW / 2, "the host took only {total} bytes");
    Ok(())
}

fn respected(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let port = cx.number() as u32;
    for window in [1, 100, 5000, 70_000] {
        let host = Host::connecting(Kind::STREAM, guest.cid, port)?;
        let mut flow = guest.hear_request(Kind::STREAM, port)?;
        flow.buf_alloc = window;
        guest.say(&mut flow, Op::RESPONSE)?;
        host.connected()?;
        let mut received = 0;
        for round in 1..=3 {
            let sent = fill(&host, 64)?;
            ensure!(
                sent == window as usize,
                "round {round}: {sent} bytes into a window of {window}"
            );
            let bytes = loop {
                let packet = guest.hear_op(&mut flow, Op::RW)?;
                received += packet.payload.len();
                if received == round * window as usize {
                    break received;
                }
            };
            ensure!(bytes == flow.received as usize, "miscounted");
            guest.say(&mut flow, Op::CREDIT_UPDATE)?;
            guest.drain()?;
        }
        guest.say(&mut flow, Op::RST)?;
        guest.drain()?;
        drop(host);
        guest.settle()?;
    }
    Ok(())
}

fn violation(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.step("more than the host's window holds");
    for _ in 0..WINDOW / 32768 + 1 {
        s.guest.say_with(&mut s.flow, Op::RW, 0, &vec![1; 32768])?;
    }
    s.guest.hear_op(&mut s.flow, Op::RST)?;
    let error = s.host.error();
    ensure!(
        error == Err(Errno::ENOBUFS),
        "the socket's error is {error:?}"
    );
    s.guest.drain()
}

fn updates_in_bulk(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.step("a full window is read in small pieces");
    let chunk = vec![1; 4096];
    for _ in 0..WINDOW / chunk.len() {
        s.guest.say_with(&mut s.flow, Op::RW, 0, &chunk)?;
    }
    s.guest.drain()?;
    for _ in 0..WINDOW / 128 {
        s.host.recv_exact(128)?;
    }
    let updates = s.guest.settle()?;
    ensure!(
        updates
            .iter()
            .all(|packet| s.flow.owns(packet) && packet.op() == Op::CREDIT_UPDATE),
        "other packets: {updates:?}"
    );
    // One when less than 64 KiB of the window are known to be free, one when the queue is drained.
    ensure!(
        updates.len() == 2,
        "{} updates for {WINDOW} bytes",
        updates.len()
    );
    let last = updates.last().expect("two").header;
    ensure!(
        last.fwd_cnt as usize == WINDOW,
        "the last update says {}",
        last.fwd_cnt
    );
    cx.step("one read per packet: one update per read, as each drains the queue");
    s.flow.peer_fwd_cnt = last.fwd_cnt;
    for round in 0..20 {
        s.guest.say_with(&mut s.flow, Op::RW, 0, &[1; 100])?;
        s.host.recv_exact(100)?;
        let updates = s.guest.settle()?;
        ensure!(updates.len() == 1, "round {round}: {updates:?}");
    }
    Ok(())
}

fn request(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    for _ in 0..10 {
        s.guest.say(&mut s.flow, Op::CREDIT_REQUEST)?;
        let packet = s.guest.hear_op(&mut s.flow, Op::CREDIT_UPDATE)?;
        ensure!(
            packet.header.buf_alloc as usize == WINDOW,
            "another window: {packet:?}"
        );
    }
    s.guest.hears_nothing()
}

fn late(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    let total = fill(&s.host, 8192)?;
    let mut received = 0;
    while received < total {
        received += s.guest.hear_op(&mut s.flow, Op::RW)?.payload.len();
    }
    ensure!(
        !wait_writable(&s.host, Duration::from_millis(100))?,
        "writable without credit"
    );
    s.guest.say(&mut s.flow, Op::CREDIT_UPDATE)?;
    ensure!(
        wait_writable(&s.host, patience())?,
        "the credit did not wake the sender"
    );
    s.host.send(b"on")?;
    s.guest.hear_bytes(&mut s.flow, 2).map(drop)
}

fn small_packets(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.step("a window full of 129-byte packets, nothing read, nothing refused");
    let bytes = cx.bytes(WINDOW / 129 * 129);
    for part in bytes.chunks(129) {
        s.guest.say_with(&mut s.flow, Op::RW, 0, part)?;
    }
    s.guest.drain()?;
    ensure!(s.host.error() == Ok(()), "refused under back-pressure");
    ensure!(s.host.recv_exact(bytes.len())? == bytes, "other bytes");
    Ok(())
}

fn advertised(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let mut hosts = Vec::new();
    for window in [4096, 100_000, 1 << 20] {
        let port = cx.number() as u32;
        let host = Host::new(Kind::STREAM)?;
        host.set_window(window)?;
        host.try_connect(guest.cid, port)?;
        let mut flow = guest.hear_request(Kind::STREAM, port)?;
        ensure!(
            flow.peer_buf_alloc as u64 == window,
            "the REQUEST says {}",
            flow.peer_buf_alloc
        );
        guest.say(&mut flow, Op::RESPONSE)?;
        host.connected()?;
        host.set_window(window / 2)?;
        let packet = guest.hear_op(&mut flow, Op::CREDIT_UPDATE)?;
        ensure!(
            u64::from(packet.header.buf_alloc) == window / 2,
            "after a change: {packet:?}"
        );
        // Closing it would send a packet into the next round.
        hosts.push(host);
    }
    Ok(())
}

fn windows(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    let mut total = 0;
    for round in 0..cx.rounds(40, 2000) {
        cx.step(&format!("window {round}"));
        let sent = fill(&s.host, 60_000)?;
        ensure!(sent == WINDOW, "{sent} bytes fit into the window");
        total += sent;
        while (s.flow.received as usize) < total {
            s.guest.hear_op(&mut s.flow, Op::RW)?;
        }
        s.guest.say(&mut s.flow, Op::CREDIT_UPDATE)?;
        s.guest.drain()?;
    }
    ensure!(s.flow.fwd_cnt == total as u32, "miscounted");
    Ok(())
}
