// SPDX-License-Identifier: GPL-2.0
//! Making, refusing and ending connections, from both sides.

use super::{Case, request_to_nobody};
use crate::vocabulary::abi::feature;
use crate::vocabulary::host::CLOSED_PORT;
use crate::vocabulary::packet::{NO_RECEIVE, NO_SEND};
use crate::vocabulary::{Context, Flow, Host, Kind, Op, Plan};
use anyhow::{Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::Shutdown;

pub const CASES: &[Case] = &[
    Case::new("connect/host-to-guest-stream", |cx| {
        host_to_guest(cx, Kind::STREAM)
    }),
    Case::new("connect/host-to-guest-seqpacket", |cx| {
        host_to_guest(cx, Kind::SEQPACKET)
    }),
    Case::new("connect/guest-to-host-stream", |cx| {
        guest_to_host(cx, Kind::STREAM)
    }),
    Case::new("connect/guest-to-host-seqpacket", |cx| {
        guest_to_host(cx, Kind::SEQPACKET)
    }),
    Case::new("connect/rst-refuses-the-host", refused_by_guest),
    Case::new(
        "connect/closed-host-port-refuses-the-guest",
        refused_by_host,
    ),
    Case::new("connect/response-comes-before-data", response_first),
    Case::new("connect/seqpacket-needs-the-feature", seqpacket_feature),
    Case::new("connect/rst-is-never-answered", rst_unanswered),
    Case::new("connect/strays-get-one-rst", strays),
    Case::new(
        "connect/wrong-packet-while-connecting",
        wrong_while_connecting,
    ),
    Case::new("connect/timed-out-attempt-leaves-nothing-behind", timed_out),
    Case::new("connect/failed-children-free-the-backlog", backlog),
    Case::new(
        "connect/three-attempts-on-one-socket-then-close",
        three_attempts,
    ),
    Case::new("connect/half-close-by-the-guest", half_close_guest),
    Case::new("connect/half-close-by-the-host", half_close_host),
    Case::new("connect/full-close-keeps-unread-data", full_close),
    Case::new("connect/rst-by-the-guest-ends-the-stream", rst_ends),
    Case::new("connect/port-pair-is-reusable", port_reuse),
    Case::new("connect/device-closed-resets-all", device_closed),
];

fn host_to_guest(cx: &mut Context, kind: Kind) -> Result<()> {
    let mut s = cx.session(kind, Plan::default())?;
    s.host.send(b"question")?;
    let packet = s.guest.hear_op(&mut s.flow, Op::RW)?;
    ensure!(packet.payload == b"question", "other bytes: {packet:?}");
    s.guest.say_with(
        &mut s.flow,
        Op::RW,
        u32::from(kind == Kind::SEQPACKET),
        b"answer",
    )?;
    ensure!(s.host.recv(64)? == b"answer", "other bytes");
    drop(s.host);
    let bye = loop {
        let packet = s.guest.hear(&mut s.flow)?;
        if packet.op() != Op::CREDIT_UPDATE {
            break packet;
        }
    };
    ensure!(
        bye.op() == Op::SHUTDOWN && bye.header.flags == NO_RECEIVE | NO_SEND,
        "at close(): {bye:?}"
    );
    s.guest.say(&mut s.flow, Op::RST)?;
    s.guest.hears_nothing()
}

fn guest_to_host(cx: &mut Context, kind: Kind) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let listener = Host::listener(kind)?;
    let (mut flow, host) = guest.connect(&listener, cx.number() as u32)?;
    guest.say_with(
        &mut flow,
        Op::RW,
        u32::from(kind == Kind::SEQPACKET),
        b"question",
    )?;
    ensure!(host.recv(64)? == b"question", "other bytes");
    host.send(b"answer")?;
    loop {
        let packet = guest.hear(&mut flow)?;
        if packet.op() == Op::RW {
            ensure!(packet.payload == b"answer", "other bytes: {packet:?}");
            break;
        }
        ensure!(packet.op() == Op::CREDIT_UPDATE, "unexpected: {packet:?}");
    }
    guest.say_with(&mut flow, Op::SHUTDOWN, NO_RECEIVE | NO_SEND, &[])?;
    guest.hear_op(&mut flow, Op::RST)?;
    host.ended()
}

fn refused_by_guest(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    for kind in [Kind::STREAM, Kind::SEQPACKET] {
        let port = cx.number() as u32;
        let host = Host::connecting(kind, guest.cid, port)?;
        let mut flow = guest.hear_request(kind, port)?;
        guest.say(&mut flow, Op::RST)?;
        host.refused(Errno::ECONNRESET)?;
    }
    guest.hears_nothing()
}

fn refused_by_host(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    for kind in [Kind::STREAM, Kind::SEQPACKET] {
        let mut flow = Flow::new(kind, cx.number() as u32, CLOSED_PORT);
        guest.say(&mut flow, Op::REQUEST)?;
        guest.hear_op(&mut flow, Op::RST)?;
    }
    guest.hears_nothing()
}

fn response_first(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default().buffers(0, 4096))?;
    let listener = Host::listener(Kind::STREAM)?;
    let mut flow = Flow::new(Kind::STREAM, cx.number() as u32, listener.local_port()?);
    guest.say(&mut flow, Op::REQUEST)?;
    let host = listener.accept()?;
    host.send(b"at once")?;
    guest.plan.buffers = 8;
    guest.refill()?;
    guest.hear_op(&mut flow, Op::RESPONSE)?;
    let bytes = guest.hear_bytes(&mut flow, 7)?;
    ensure!(bytes == b"at once", "other bytes");
    Ok(())
}

fn seqpacket_feature(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default().features(0))?;
    let port = cx.number() as u32;
    let without = Host::probe(Kind::SEQPACKET, guest.cid, port);
    ensure!(
        without == Err(Errno::ESOCKTNOSUPPORT),
        "without the feature: {without:?}"
    );
    guest.plan.features |= feature::SEQPACKET;
    guest.reboot()?;
    guest.accept(Kind::SEQPACKET, port)?;
    guest.plan.features &= !feature::SEQPACKET;
    guest.reboot()?;
    let dropped = Host::probe(Kind::SEQPACKET, guest.cid, port);
    ensure!(
        dropped == Err(Errno::ESOCKTNOSUPPORT),
        "after the feature was dropped: {dropped:?}"
    );
    let bare = crate::vocabulary::Device::open()?;
    let cid = cx.number();
    bare.set_cid(cid)?;
    let never = Host::probe(Kind::SEQPACKET, cid, port);
    ensure!(
        never == Err(Errno::ESOCKTNOSUPPORT),
        "features never set: {never:?}"
    );
    Ok(())
}

fn rst_unanswered(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let mut packet = request_to_nobody(&guest, cx.number() as u32);
    packet.header.op = Op::RST;
    for kind in [1, 2, 0, 3, 0xffff] {
        packet.header.kind = Kind(kind);
        guest.send(&packet)?;
    }
    guest.hears_nothing()
}

fn strays(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let listener = Host::listener(Kind::STREAM)?;
    let listening = listener.local_port()?;
    let ops = [
        Op::INVALID,
        Op::RESPONSE,
        Op::SHUTDOWN,
        Op::RW,
        Op::CREDIT_UPDATE,
        Op::CREDIT_REQUEST,
        Op(8),
        Op(0xffff),
    ];
    let mut strays: Vec<(u16, Op, u32)> = Vec::new();
    strays.extend(ops.iter().flat_map(|op| {
        [
            (1, *op, CLOSED_PORT),
            (2, *op, CLOSED_PORT),
            (1, *op, listening),
        ]
    }));
    // A type that does not exist, and a listener of another type.
    strays.extend([
        (0, Op::REQUEST, listening),
        (7, Op::REQUEST, listening),
        (2, Op::REQUEST, listening),
    ]);
    for (kind, op, port) in strays {
        let mut packet = request_to_nobody(&guest, cx.number() as u32);
        packet.header.kind = Kind(kind);
        packet.header.op = op;
        packet.header.dst_port = port;
        guest.send(&packet)?;
        let answer = guest.recv()?;
        ensure!(
            answer.op() == Op::RST
                && answer.header.dst_port == packet.header.src_port
                && answer.header.src_port == port,
            "to {packet:?} came {answer:?}"
        );
    }
    ensure!(!listener.readable()?, "the listener has a connection");
    guest.hears_nothing()
}

fn wrong_while_connecting(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    for op in [Op::RW, Op::REQUEST, Op::SHUTDOWN, Op::CREDIT_UPDATE] {
        let port = cx.number() as u32;
        let host = Host::connecting(Kind::STREAM, guest.cid, port)?;
        let mut flow = guest.hear_request(Kind::STREAM, port)?;
        guest.say(&mut flow, op)?;
        host.refused(Errno::EPROTO)?;
        guest.hear_op(&mut flow, Op::RST)?;
    }
    guest.hears_nothing()
}

fn timed_out(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default().buffers(0, 4096))?;
    let host = Host::new(Kind::STREAM)?;
    host.set_connect_timeout(50)?;
    host.try_connect(guest.cid, cx.number() as u32)?;
    host.refused(Errno::ETIMEDOUT)?;
    cx.step("its REQUEST, which found no buffer, is not sent any more");
    guest.plan.buffers = 8;
    guest.refill()?;
    guest.hears_nothing()?;
    cx.no_reply_is_counted(&guest)
}

fn backlog(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let listener = Host::listener_at(Kind::SEQPACKET, u32::MAX, 2)?;
    guest.plan.features &= !feature::SEQPACKET;
    guest.reboot()?;
    cx.step("children that cannot be made, as the guest has no SEQPACKET");
    for _ in 0..6 {
        let mut flow = Flow::new(Kind::SEQPACKET, cx.number() as u32, listener.local_port()?);
        guest.say(&mut flow, Op::REQUEST)?;
        guest.hear_op(&mut flow, Op::RST)?;
    }
    guest.plan.features |= feature::SEQPACKET;
    guest.reboot()?;
    cx.step("a good one");
    guest.connect(&listener, cx.number() as u32).map(drop)
}

fn three_attempts(cx: &mut Context) -> Result<()> {
    let guest = cx.guest(Plan::default())?;
    let host = Host::new(Kind::STREAM)?;
    host.set_connect_timeout(100)?;
    let port = cx.number() as u32;
    host.try_connect(guest.cid, port)?;
    for _ in 0..2 {
        let again = host.try_connect(guest.cid, port);
        ensure!(again == Err(Errno::EALREADY), "connect() again: {again:?}");
    }
    drop(guest);
    cx.step("the attempt ends although the device is gone");
    let outcome = host.outcome()?;
    ensure!(outcome.is_err(), "connected to a guest that is gone");
    Ok(())
}

fn half_close_guest(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    s.guest.say_with(&mut s.flow, Op::RW, 0, b"last words")?;
    s.guest.say_with(&mut s.flow, Op::SHUTDOWN, NO_SEND, &[])?;
    ensure!(s.host.recv_exact(10)? == b"last words", "other bytes");
    s.host.ended()?;
    s.host.send(b"heard")?;
    let packet = loop {
        let packet = s.guest.hear(&mut s.flow)?;
        if packet.op() != Op::CREDIT_UPDATE {
            break packet;
        }
    };
    ensure!(
        packet.op() == Op::RW && packet.payload == b"heard",
        "after the half close: {packet:?}"
    );
    Ok(())
}

fn half_close_host(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    s.host.shutdown(Shutdown::Write)?;
    let packet = s.guest.hear_op(&mut s.flow, Op::SHUTDOWN)?;
    ensure!(
        packet.header.flags == NO_SEND,
        "shutdown(SHUT_WR): {packet:?}"
    );
    let sent = s.host.try_send(b"no more");
    ensure!(
        sent == Err(Errno::EPIPE),
        "send() after shutdown(): {sent:?}"
    );
    s.guest.say_with(&mut s.flow, Op::RW, 0, b"I can still")?;
    ensure!(s.host.recv_exact(11)? == b"I can still", "other bytes");
    Ok(())
}

fn full_close(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    s.guest.say_with(&mut s.flow, Op::RW, 0, b"unread")?;
    s.guest
        .say_with(&mut s.flow, Op::SHUTDOWN, NO_RECEIVE | NO_SEND, &[])?;
    s.guest.drain()?;
    ensure!(s.host.recv_exact(6)? == b"unread", "other bytes");
    s.host.ended()?;
    drop(s.host);
    loop {
        let packet = s.guest.hear(&mut s.flow)?;
        if packet.op() == Op::RST {
            break;
        }
        ensure!(packet.op() == Op::CREDIT_UPDATE, "unexpected: {packet:?}");
    }
    s.guest.hears_nothing()
}

fn rst_ends(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    s.guest.say(&mut s.flow, Op::RST)?;
    s.host.ended()?;
    let sent = s.host.try_send(b"x");
    ensure!(sent == Err(Errno::EPIPE), "send() after a RST: {sent:?}");
    s.guest.hears_nothing()
}

fn port_reuse(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let listener = Host::listener(Kind::STREAM)?;
    let port = cx.number() as u32;
    for round in 0..cx.rounds(20, 1000) {
        let (mut flow, host) = guest.connect(&listener, port)?;
        guest.say_with(&mut flow, Op::RW, 0, &[round as u8])?;
        ensure!(host.recv_exact(1)? == [round as u8], "other bytes");
        guest.say_with(&mut flow, Op::SHUTDOWN, NO_RECEIVE | NO_SEND, &[])?;
        guest.drain()?;
        drop(host);
        let last = guest.settle()?;
        ensure!(
            last.iter()
                .any(|packet| flow.owns(packet) && packet.op() == Op::RST),
            "no RST after SHUTDOWN: {last:?}"
        );
    }
    Ok(())
}

fn device_closed(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let mut hosts = Vec::new();
    for kind in [Kind::STREAM, Kind::SEQPACKET, Kind::STREAM] {
        hosts.push(guest.accept(kind, cx.number() as u32)?.1);
    }
    let mut other = cx.session(Kind::STREAM, Plan::default())?;
    drop(guest);
    for host in hosts {
        host.fails_with(Errno::ECONNRESET)?;
    }
    other.host.send(b"not me")?;
    other.guest.hear_bytes(&mut other.flow, 6).map(drop)
}
