// SPDX-License-Identifier: GPL-2.0
//! ACCESS_PLATFORM: translations that are missing, late, wrong or taken away.

use super::Case;
use crate::vocabulary::abi::{VHOST_ACCESS_RO, VHOST_ACCESS_RW, VHOST_IOTLB_UPDATE, feature};
use crate::vocabulary::packet::HEADER;
use crate::vocabulary::ring::{Form, Piece};
use crate::vocabulary::{Context, Device, Guest, Host, Kind, Op, Plan, Session, patience};
use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    Case::new("iotlb/misses-are-answered-one-by-one-v1", |cx| {
        one_by_one(cx, false)
    }),
    Case::new("iotlb/misses-are-answered-one-by-one-v2", |cx| {
        one_by_one(cx, true)
    }),
    Case::new("iotlb/late-answer-for-an-rx-buffer-needs-no-kick", late_rx),
    Case::new("iotlb/late-answer-for-a-tx-buffer-needs-no-kick", late_tx),
    Case::new(
        "iotlb/miss-in-the-middle-of-a-buffer-keeps-the-order",
        middle,
    ),
    Case::new("iotlb/invalidated-while-data-flows", invalidated),
    Case::new("iotlb/refused-then-granted", refused),
    Case::new("iotlb/start-without-used-rings-is-refused", no_rings),
    Case::new("iotlb/update-of-nothing-is-refused", nothing),
    Case::new("iotlb/whole-address-space", whole),
    Case::new("iotlb/closed-with-a-miss-pending", closed),
    Case::new("iotlb/feature-dropped-and-taken-again", dropped),
];

const FEATURES: u64 = feature::USUAL | feature::ACCESS_PLATFORM;

/// A guest behind an IOMMU with its rings mapped and nothing else, not yet started.
fn behind_iommu(cx: &mut Context, v2: bool) -> Result<Guest> {
    let dev = Device::open_with(libc::O_NONBLOCK)?;
    dev.set_owner()?;
    dev.set_backend_features(u64::from(v2) << 1)?;
    let mut guest = Guest::furnish(dev, cx.number(), Plan::default().features(FEATURES))?;
    guest.iotlb_v2 = v2;
    guest.map_ring(&guest.rx)?;
    guest.map_ring(&guest.tx)?;
    Ok(guest)
}

/// Answers misses until `done` holds.
fn serve(guest: &mut Guest, mut done: impl FnMut(&mut Guest) -> Result<bool>) -> Result<usize> {
    let (until, mut misses) = (Instant::now() + patience(), 0);
    while !done(guest)? {
        ensure!(Instant::now() < until, "no progress after {misses} misses");
        if let Some(miss) = guest.miss(Duration::from_millis(1))? {
            guest.answer(&miss)?;
            misses += 1;
        }
    }
    Ok(misses)
}

/// A connection over an IOTLB that is filled miss by miss.
fn session(cx: &mut Context, v2: bool) -> Result<Session> {
    let mut guest = behind_iommu(cx, v2)?;
    guest.dev.start().context("SET_RUNNING(1)")?;
    let port = cx.number() as u32;
    let host = Host::connecting(Kind::STREAM, guest.cid, port)?;
    serve(&mut guest, |guest| {
        Ok(guest.rx.used_idx() != guest.rx.used_next())
    })?;
    let flow = guest.answer_request(Kind::STREAM, port)?;
    serve(&mut guest, |guest| {
        Ok(guest.tx.used_idx() == guest.tx.avail_next())
    })?;
    host.connected()?;
    Ok(Session { guest, flow, host })
}

/// Receives `len` bytes, answering misses meanwhile.
fn hear(s: &mut Session, len: usize) -> Result<(Vec<u8>, usize)> {
    let (mut got, mut misses) = (Vec::new(), 0);
    while got.len() < len {
        misses += serve(&mut s.guest, |guest| {
            Ok(guest.rx.used_idx() != guest.rx.used_next())
        })?;
        let packet = s.guest.hear(&mut s.flow)?;
        ensure!(
            matches!(packet.op(), Op::RW | Op::CREDIT_UPDATE),
            "unexpected: {packet:?}"
        );
        got.extend(packet.payload);
    }
    Ok((got, misses))
}

/// Sends bytes to the host, answering misses meanwhile.
fn say(s: &mut Session, bytes: &[u8]) -> Result<usize> {
    s.guest.say_with(&mut s.flow, Op::RW, 0, bytes)?;
    let misses = serve(&mut s.guest, |guest| {
        Ok(guest.tx.used_idx() == guest.tx.avail_next())
    })?;
    ensure!(
        s.host.recv_exact(bytes.len())? == bytes,
        "other bytes came to the host"
    );
    Ok(misses)
}

fn one_by_one(cx: &mut Context, v2: bool) -> Result<()> {
    let mut s = session(cx, v2)?;
    let bytes = cx.bytes(60_000);
    s.host.send(&bytes)?;
    let (got, misses) = hear(&mut s, bytes.len())?;
    ensure!(got == bytes, "other bytes came to the guest");
    ensure!(misses >= 14, "only {misses} misses for 15 pages");
    let misses = say(&mut s, &bytes)?;
    ensure!(misses >= 14, "only {misses} misses for 15 pages");
    Ok(())
}

fn late_rx(cx: &mut Context) -> Result<()> {
    let mut s = session(cx, true)?;
    for part in [&b"one"[..], b"two", b"three"] {
        s.host.send(part)?;
    }
    let miss = s.guest.miss(patience())?.context("no miss")?;
    std::thread::sleep(Duration::from_millis(50));
    let kicks = s.guest.rx.kicks;
    s.guest.answer(&miss)?;
    let (got, _) = hear(&mut s, 11)?;
    ensure!(
        got == b"onetwothree",
        "out of order: {:?}",
        String::from_utf8_lossy(&got)
    );
    ensure!(s.guest.rx.kicks <= kicks + 3, "the device was kicked along");
    Ok(())
}

fn late_tx(cx: &mut Context) -> Result<()> {
    let mut s = session(cx, true)?;
    for region in s.guest.mem.table() {
        s.guest.unmap(region.guest, region.len)?;
    }
    for part in [&b"one"[..], b"two", b"three"] {
        s.guest.say_with(&mut s.flow, Op::RW, 0, part)?;
    }
    let miss = s.guest.miss(patience())?.context("no miss")?;
    std::thread::sleep(Duration::from_millis(50));
    let kicks = s.guest.tx.kicks;
    s.guest.answer(&miss)?;
    serve(&mut s.guest, |guest| {
        Ok(guest.tx.used_idx() == guest.tx.avail_next())
    })?;
    ensure!(s.guest.tx.kicks == kicks, "the device was kicked along");
    ensure!(s.host.recv_exact(11)? == b"onetwothree", "out of order");
    Ok(())
}

fn middle(cx: &mut Context) -> Result<()> {
    let mut s = session(cx, true)?;
    s.guest.plan.buffers = 0;
    while s.guest.rx.in_flight() > 0 {
        s.host.send(b"x")?;
        hear(&mut s, 1)?;
    }
    let mut sent = Vec::new();
    for _ in 0..3 {
        let bytes = cx.bytes(7000);
        s.host.send(&bytes)?;
        sent.extend(bytes);
    }
    cx.step("buffers of two pages, of which the second is not mapped");
    for _ in 0..4 {
        let block = s.guest.mem.alloc(8192);
        s.guest.map(block.addr, 4096, VHOST_ACCESS_RW)?;
        let piece = Piece {
            addr: block.addr,
            len: 8192,
            write: true,
        };
        s.guest.rx.add(&[piece], Form::Direct)?;
    }
    s.guest.rx.flush();
    let miss = s.guest.miss(patience())?.context("no miss")?;
    ensure!(miss.iova & 4095 == 0, "a miss at {:#x}", miss.iova);
    s.guest.answer(&miss)?;
    let (got, misses) = hear(&mut s, sent.len())?;
    ensure!(got == sent, "out of order");
    cx.note(&format!("{misses} more misses"));
    Ok(())
}

fn invalidated(cx: &mut Context) -> Result<()> {
    let mut s = session(cx, true)?;
    let table = s.guest.mem.table();
    for round in 0..cx.rounds(20, 500) {
        cx.step(&format!("round {round}"));
        let bytes = cx.bytes(9000);
        s.host.send(&bytes)?;
        for region in &table {
            s.guest.unmap(region.guest, region.len)?;
        }
        let (got, _) = hear(&mut s, bytes.len())?;
        ensure!(got == bytes, "other bytes came to the guest");
        s.guest.unmap(table[0].guest, table[0].len)?;
        say(&mut s, &bytes)?;
        if round % 10 == 9 {
            s.guest.say(&mut s.flow, Op::CREDIT_UPDATE)?;
            serve(&mut s.guest, |guest| {
                Ok(guest.tx.used_idx() == guest.tx.avail_next())
            })?;
        }
    }
    Ok(())
}

fn refused(cx: &mut Context) -> Result<()> {
    let mut s = session(cx, true)?;
    s.guest.plan.buffers = 0;
    while s.guest.rx.in_flight() > 0 {
        s.host.send(b"x")?;
        hear(&mut s, 1)?;
    }
    let block = s.guest.mem.alloc(4096);
    s.guest.mem.write(block.addr, &[0; 4096]);
    s.guest.unmap(block.addr, 4096)?;
    s.guest.map(block.addr, 4096, VHOST_ACCESS_RO)?;
    let piece = Piece {
        addr: block.addr,
        len: 4096,
        write: true,
    };
    s.guest.rx.add(&[piece], Form::Direct)?;
    s.guest.rx.flush();
    s.host.send(b"granted")?;
    std::thread::sleep(Duration::from_millis(50));
    ensure!(
        s.guest.mem.bytes(block.addr, 100) == [0; 100],
        "written to memory that may only be read"
    );
    cx.step("the right is granted, and the device kicked");
    s.guest.unmap(block.addr, 4096)?;
    s.guest.map(block.addr, 4096, VHOST_ACCESS_RW)?;
    s.guest.plan.buffers = 4;
    s.guest.refill()?;
    s.guest.rx.kick();
    let mut got = Vec::new();
    while got.len() < 7 {
        serve(&mut s.guest, |guest| {
            Ok(guest.rx.used_idx() != guest.rx.used_next())
        })?;
        let done = s.guest.rx.take_wait()?;
        // The refused buffer may have been given back empty.
        if done.len > 0 {
            got.extend_from_slice(&s.guest.contents(&done)[HEADER..]);
        }
    }
    ensure!(got == b"granted", "other bytes");
    Ok(())
}

fn no_rings(cx: &mut Context) -> Result<()> {
    let dev = Device::open_with(libc::O_NONBLOCK)?;
    dev.set_owner()?;
    let guest = Guest::furnish(dev, cx.number(), Plan::default().features(FEATURES))?;
    let answer = guest.dev.start();
    ensure!(answer == Err(Errno::EFAULT), "SET_RUNNING(1): {answer:?}");
    let answer = Host::probe(Kind::STREAM, guest.cid, 1);
    ensure!(answer == Err(Errno::EHOSTUNREACH), "connect(): {answer:?}");
    guest.map_ring(&guest.rx)?;
    guest.map_ring(&guest.tx)?;
    ensure!(
        guest.dev.start() == Ok(0),
        "and with them it does not start"
    );
    Ok(())
}

fn nothing(cx: &mut Context) -> Result<()> {
    let guest = behind_iommu(cx, false)?;
    guest.dev.start()?;
    let answer = guest.tell_iotlb(0, 0, 0, 0, VHOST_IOTLB_UPDATE);
    ensure!(
        answer == Err(Errno::EINVAL),
        "an update of size 0: {answer:?}"
    );
    let answer = guest.tell_iotlb(
        0x1000,
        0x1000,
        0xffff_8000_0000_0000,
        VHOST_ACCESS_RW,
        VHOST_IOTLB_UPDATE,
    );
    ensure!(
        answer == Err(Errno::EFAULT),
        "an update to kernel memory: {answer:?}"
    );
    let answer = guest.tell_iotlb(0, 4096, 0, 0, 99);
    ensure!(
        answer == Err(Errno::EFAULT),
        "a message of type 99: {answer:?}"
    );
    Host::probe(Kind::STREAM, guest.cid, 1)?;
    cx.step("closing");
    drop(guest);
    Ok(())
}

fn whole(cx: &mut Context) -> Result<()> {
    let guest = behind_iommu(cx, false)?;
    guest.dev.start()?;
    let answer = guest.tell_iotlb(0, u64::MAX, 0, 0, VHOST_IOTLB_UPDATE);
    ensure!(answer == Ok(()), "a mapping of all addresses: {answer:?}");
    Host::probe(Kind::STREAM, guest.cid, 1)?;
    cx.step("closing");
    drop(guest);
    Ok(())
}

fn closed(cx: &mut Context) -> Result<()> {
    for _ in 0..5 {
        let s = session(cx, true)?;
        s.host.send(b"will miss")?;
        s.guest.miss(patience())?.context("no miss")?;
        drop(s.guest);
        s.host.fails_with(Errno::ECONNRESET)?;
    }
    Ok(())
}

fn dropped(cx: &mut Context) -> Result<()> {
    let s = session(cx, true)?;
    s.guest.dev.stop()?;
    let (dev, cid) = (s.guest.dev, s.guest.cid);
    let mut guest = Guest::furnish(dev, cid, Plan::default())?;
    guest.dev.start()?;
    let (mut flow, host) = guest.accept(Kind::STREAM, cx.number() as u32)?;
    host.send(b"without")?;
    ensure!(guest.hear_bytes(&mut flow, 7)? == b"without", "other bytes");
    Ok(())
}
