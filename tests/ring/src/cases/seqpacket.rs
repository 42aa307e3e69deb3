// SPDX-License-Identifier: GPL-2.0
//! SOCK_SEQPACKET: message ends are neither lost nor made up nor moved.

use super::Case;
use crate::vocabulary::packet::{EOM, EOR, HEADER};
use crate::vocabulary::{Context, Kind, Length, Op, Plan, Session};
use anyhow::{Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::MsgFlags;

pub const CASES: &[Case] = &[
    Case::new("seqpacket/ends-are-on-the-last-piece-only", ends),
    Case::new("seqpacket/small-messages-are-never-merged", not_merged),
    Case::new("seqpacket/queued-messages-keep-their-ends", queued),
    Case::new("seqpacket/guest-messages-arrive-whole", from_guest),
    Case::new("seqpacket/empty-messages-are-bounded", empty_flood),
    Case::new("seqpacket/too-large-a-message-is-refused", too_large),
    Case::new("seqpacket/messages-of-all-sizes", all_sizes),
];

/// Receives one message: its bytes and its flags. Every packet but the last must have no flag.
fn hear_message(s: &mut Session) -> Result<(Vec<u8>, u32)> {
    let mut bytes = Vec::new();
    loop {
        let packet = s.guest.hear_op(&mut s.flow, Op::RW)?;
        bytes.extend_from_slice(&packet.payload);
        s.guest.give_credit(&mut s.flow)?;
        let flags = packet.header.flags;
        if flags & EOM != 0 {
            return Ok((bytes, flags));
        }
        ensure!(flags == 0, "flags {flags} without an end: {packet:?}");
    }
}

fn ends(cx: &mut Context) -> Result<()> {
    let room = 4096 - HEADER;
    let mut s = cx.session(Kind::SEQPACKET, Plan::default())?;
    for len in [
        1,
        room - 1,
        room,
        room + 1,
        10_000,
        2 * room,
        65_536,
        65_537,
        200_000,
    ] {
        for (flag, want) in [(MsgFlags::empty(), EOM), (MsgFlags::MSG_EOR, EOM | EOR)] {
            let bytes = cx.bytes(len);
            s.guest.give_all_credit(&mut s.flow)?;
            s.host.send_with(&bytes, flag)?;
            let (got, flags) = hear_message(&mut s)?;
            ensure!(
                got == bytes,
                "{len} bytes were changed or cut: {}",
                got.len()
            );
            ensure!(
                flags == want,
                "flags {flags} at the end of {len} bytes, expected {want}"
            );
        }
    }
    s.guest.hears_nothing()
}

fn not_merged(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::SEQPACKET, Plan::default().buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    s.host.send(b"takes the buffer")?;
    let messages: Vec<Vec<u8>> = (0..100).map(|at| cx.bytes(1 + at % 40)).collect();
    for message in &messages {
        s.host.send(message)?;
    }
    s.guest.plan.buffers = 64;
    s.guest.refill()?;
    hear_message(&mut s)?;
    for (at, message) in messages.iter().enumerate() {
        let packet = s.guest.hear_op(&mut s.flow, Op::RW)?;
        ensure!(
            packet.payload == *message && packet.header.flags == EOM,
            "message {at}: {packet:?}"
        );
    }
    Ok(())
}

fn queued(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::SEQPACKET, Plan::default().buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    s.host.send(b"takes the buffer")?;
    let messages: Vec<Vec<u8>> = [900, 40, 3000, 1, 956, 955, 957, 2000]
        .iter()
        .map(|len| cx.bytes(*len))
        .collect();
    for (at, message) in messages.iter().enumerate() {
        let flag = if at % 2 == 0 {
            MsgFlags::MSG_EOR
        } else {
            MsgFlags::empty()
        };
        s.host.send_with(message, flag)?;
    }
    s.guest.plan.buffer = 1000;
    s.guest.plan.buffers = 3;
    s.guest.refill()?;
    hear_message(&mut s)?;
    for (at, message) in messages.iter().enumerate() {
        let (got, flags) = hear_message(&mut s)?;
        let want = if at % 2 == 0 { EOM | EOR } else { EOM };
        ensure!(
            got == *message && flags == want,
            "message {at}: {} bytes, flags {flags}",
            got.len()
        );
    }
    Ok(())
}

fn from_guest(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::SEQPACKET, Plan::default())?;
    for (parts, end) in [(1, EOM), (3, EOM), (5, EOM | EOR), (1, EOM | EOR), (2, EOM)] {
        let message = cx.bytes(parts * 1000);
        for (at, part) in message.chunks(1000).enumerate() {
            let flags = if at + 1 == parts { end } else { 0 };
            s.guest.say_with(&mut s.flow, Op::RW, flags, part)?;
            if at + 1 < parts {
                s.guest.drain()?;
                let early = s.host.try_recv(&mut [0; 8]);
                ensure!(
                    early == Err(Errno::EAGAIN),
                    "recv() before the message's end: {early:?}"
                );
            }
        }
        let (got, flags) = s.host.recv_message(100_000)?;
        ensure!(got == message, "{} of {} bytes", got.len(), message.len());
        ensure!(
            flags.contains(MsgFlags::MSG_EOR) == (end & EOR != 0),
            "MSG_EOR: {flags:?} for {end}"
        );
    }
    cx.step("many messages at once");
    for at in 0..50u8 {
        s.guest
            .say_with(&mut s.flow, Op::RW, EOM, &vec![at; 1 + at as usize])?;
    }
    for at in 0..50u8 {
        let (got, _) = s.host.recv_message(1000)?;
        ensure!(
            got == vec![at; 1 + at as usize],
            "message {at} was merged or cut: {} bytes",
            got.len()
        );
    }
    cx.step("a message longer than the reader's buffer is cut, the next one whole");
    s.guest.say_with(&mut s.flow, Op::RW, EOM, &[1; 500])?;
    s.guest.say_with(&mut s.flow, Op::RW, EOM, &[2; 20])?;
    ensure!(s.host.recv_message(100)?.0 == vec![1; 100], "other bytes");
    ensure!(s.host.recv_message(100)?.0 == vec![2; 20], "other bytes");
    Ok(())
}

fn empty_flood(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::SEQPACKET, Plan::default())?;
    cx.step("empty messages that the host does not read, until it ends the connection");
    for count in 0..100_000 {
        s.guest.say_with(&mut s.flow, Op::RW, EOM, &[])?;
        if let Some(packet) = s.guest.try_recv()? {
            ensure!(
                s.flow.owns(&packet) && packet.op() == Op::RST,
                "after {count}: {packet:?}"
            );
            cx.note(&format!("{count} empty messages were held"));
            let error = s.host.error();
            ensure!(
                error == Err(Errno::ENOBUFS),
                "the socket's error is {error:?}"
            );
            return Ok(());
        }
    }
    anyhow::bail!("100000 empty messages were taken in")
}

fn too_large(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::SEQPACKET, Plan::default())?;
    let sent = s.host.try_send(&vec![1; 300_000]);
    ensure!(
        sent == Err(Errno::EMSGSIZE),
        "a message larger than the window: {sent:?}"
    );
    s.host.send(b"fits")?;
    ensure!(hear_message(&mut s)?.0 == b"fits", "other bytes");
    Ok(())
}

fn all_sizes(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::SEQPACKET, Plan::default().buffers(64, 300))?;
    for len in (1..800).step_by(if cx.length == Length::Long { 1 } else { 7 }) {
        let bytes = cx.bytes(len);
        s.host.send(&bytes)?;
        ensure!(
            hear_message(&mut s)?.0 == bytes,
            "a message of {len} bytes was changed"
        );
    }
    Ok(())
}
