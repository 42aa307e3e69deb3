// SPDX-License-Identifier: GPL-2.0
//! What a `vsockmon` capture sees: every byte once, with lengths that are right.

use super::Case;
use crate::vocabulary::packet::{EOM, HEADER};
use crate::vocabulary::tap::Tap;
use crate::vocabulary::{Context, Kind, Op, Packet, Plan, Session};
use anyhow::{Result, ensure};
use nix::sys::socket::MsgFlags;

pub const CASES: &[Case] = &[
    Case::new("tap/split-packets-are-captured-once", split),
    Case::new("tap/packets-that-wait-are-captured-once", waiting),
    Case::new("tap/messages-keep-their-ends", messages),
    Case::new("tap/zerocopy-payload-is-captured", zerocopy),
    Case::new(
        "tap/guest-packets-even-misdirected-but-not-malformed",
        from_guest,
    ),
];

/// Payload of all RW packets from the host, back to back.
fn bytes_to_guest(captured: &[Packet], cid: u64) -> Vec<u8> {
    let to_guest = |packet: &&Packet| packet.op() == Op::RW && packet.header.dst_cid == cid;
    captured
        .iter()
        .filter(to_guest)
        .flat_map(|packet| packet.payload.clone())
        .collect()
}

/// Asserts that the capture holds just the bytes that were sent.
fn holds(tap: &Tap, s: &Session, bytes: &[u8]) -> Result<()> {
    let seen = bytes_to_guest(&tap.packets(s.guest.cid)?, s.guest.cid);
    ensure!(
        seen == bytes,
        "{} bytes captured of {} sent, or others",
        seen.len(),
        bytes.len()
    );
    Ok(())
}

fn split(cx: &mut Context) -> Result<()> {
    let tap = Tap::start()?;
    for (buffer, len) in [(100, 3000), (4096, 4052), (4096, 65_536), (1000, 50_000)] {
        let mut s = cx.session(Kind::STREAM, Plan::default().buffers(64, buffer))?;
        let bytes = cx.bytes(len);
        s.host.send(&bytes)?;
        ensure!(
            s.guest.hear_bytes(&mut s.flow, len)? == bytes,
            "other bytes"
        );
        holds(&tap, &s, &bytes)?;
    }
    Ok(())
}

fn waiting(cx: &mut Context) -> Result<()> {
    let tap = Tap::start()?;
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    let bytes = cx.bytes(10_000);
    for part in bytes.chunks(700) {
        s.host.send(part)?;
    }
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        if s.guest.rx.in_flight() == 0 {
            s.guest.give_buffer(HEADER + 333)?;
        }
        got.extend(s.guest.hear_op(&mut s.flow, Op::RW)?.payload);
    }
    ensure!(got == bytes, "other bytes");
    holds(&tap, &s, &bytes)
}

fn messages(cx: &mut Context) -> Result<()> {
    let tap = Tap::start()?;
    let mut s = cx.session(Kind::SEQPACKET, Plan::default().buffers(64, 500))?;
    let bytes = cx.bytes(6000);
    for message in bytes.chunks(2000) {
        s.host.send(message)?;
    }
    let mut got = 0;
    while got < bytes.len() {
        got += s.guest.hear_op(&mut s.flow, Op::RW)?.payload.len();
    }
    let captured = tap.packets(s.guest.cid)?;
    ensure!(
        bytes_to_guest(&captured, s.guest.cid) == bytes,
        "other bytes"
    );
    let (mut at, mut ends) = (0, Vec::new());
    for packet in captured.iter().filter(|packet| packet.op() == Op::RW) {
        at += packet.payload.len();
        if packet.header.flags & EOM != 0 {
            ends.push(at);
        }
    }
    ensure!(
        ends == [2000, 4000, 6000],
        "message ends captured at {ends:?}"
    );
    Ok(())
}

fn zerocopy(cx: &mut Context) -> Result<()> {
    let tap = Tap::start()?;
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(64, 4096))?;
    super::zerocopy::enable(&s.host)?;
    let bytes = cx.bytes(100_000);
    s.host
        .send_with(&bytes, MsgFlags::from_bits_retain(libc::MSG_ZEROCOPY))?;
    ensure!(
        s.guest.hear_bytes(&mut s.flow, bytes.len())? == bytes,
        "other bytes"
    );
    holds(&tap, &s, &bytes)
}

fn from_guest(cx: &mut Context) -> Result<()> {
    let tap = Tap::start()?;
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    s.guest.drain()?;
    tap.packets(0)?;
    s.guest.say_with(&mut s.flow, Op::RW, 0, b"right")?;
    let mut packet = Packet {
        header: s.guest.header(&s.flow, Op::RW),
        payload: b"misdirected".to_vec(),
    };
    packet.header.len = 11;
    packet.header.dst_cid = 77;
    s.guest.send(&packet)?;
    packet.header.dst_cid = 2;
    packet.header.len = 12;
    s.guest.send(&packet)?;
    ensure!(s.host.recv_exact(5)? == b"right", "other bytes");
    let seen = s.guest.settle()?;
    let captured = tap.packets(s.guest.cid)?;
    let ours: Vec<_> = captured
        .iter()
        .filter(|packet| packet.header.src_cid == s.guest.cid && packet.op() == Op::RW)
        .map(|packet| (packet.header.dst_cid, packet.payload.clone()))
        .collect();
    let want = [(2, b"right".to_vec()), (77, b"misdirected".to_vec())];
    ensure!(ours == want, "captured: {ours:?}; the guest saw {seen:?}");
    Ok(())
}
