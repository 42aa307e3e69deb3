// SPDX-License-Identifier: GPL-2.0
//! MSG_ZEROCOPY on the host socket: pages stay untouched until the completion, which always comes.

use super::Case;
use crate::vocabulary::proc::wait_until;
use crate::vocabulary::{Context, Host, Kind, Op, Plan, patience};
use anyhow::{Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::MsgFlags;
use std::os::fd::AsRawFd as _;

pub const CASES: &[Case] = &[
    Case::new("zerocopy/completion-comes-when-all-is-taken", completes),
    Case::new(
        "zerocopy/buffers-are-not-read-after-their-completion",
        reuse,
    ),
    Case::new(
        "zerocopy/closing-the-device-completes-what-is-queued",
        closing,
    ),
    Case::new("zerocopy/small-sends-behind-a-zerocopy-one", mixed),
];

const ZEROCOPY: MsgFlags = MsgFlags::from_bits_retain(libc::MSG_ZEROCOPY);

/// Allows MSG_ZEROCOPY on a host socket.
pub fn enable(host: &Host) -> Result<()> {
    Ok(host.set_option(libc::SOL_SOCKET, libc::SO_ZEROCOPY, &1i32)?)
}

/// Takes the completions that are there: how many sends they cover.
fn completions(host: &Host) -> Result<u32> {
    #[repr(C, align(8))]
    struct Control([u8; 256]);
    let mut control = Control([0; 256]);
    // SAFETY: All zero is a valid empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = 256;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: The message names `control` for its whole length.
    match Errno::result(unsafe { libc::recvmsg(host.as_raw_fd(), &mut message, flags) }) {
        Err(Errno::EAGAIN) => Ok(0),
        Err(errno) => Err(errno.into()),
        Ok(_) => {
            // The control message is a header of 16 bytes and a `struct sock_extended_err`.
            let field =
                |at: usize| u32::from_ne_bytes(control.0[at..at + 4].try_into().expect("4 bytes"));
            let (errno, info, data) = (field(16), field(24), field(28));
            ensure!(
                errno == 0,
                "a completion with an error: {}",
                Errno::from_raw(errno as i32)
            );
            Ok(data - info + 1)
        }
    }
}

/// Waits until `count` sends are complete.
fn await_completions(host: &Host, count: u32) -> Result<()> {
    let mut seen = 0;
    let all = wait_until(patience(), || {
        seen += completions(host)?;
        Ok(seen >= count)
    })?;
    ensure!(all && seen == count, "{seen} completions of {count}");
    Ok(())
}

fn completes(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    enable(&s.host)?;
    let bytes = cx.bytes(200_000);
    s.host.send_with(&bytes, ZEROCOPY)?;
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        ensure!(
            completions(&s.host)? == 0,
            "complete with {} of {} bytes taken",
            got.len(),
            bytes.len()
        );
        if s.guest.rx.in_flight() == 0 {
            s.guest.give_buffer(8000)?;
        }
        got.extend(s.guest.hear_op(&mut s.flow, Op::RW)?.payload);
    }
    ensure!(got == bytes, "other bytes");
    await_completions(&s.host, 1)
}

fn reuse(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(16, 3000))?;
    enable(&s.host)?;
    let mut buffer = vec![0; 60_000];
    for round in 0..cx.rounds(12, 500) {
        cx.step(&format!("round {round}"));
        let bytes = cx.bytes(buffer.len());
        buffer.copy_from_slice(&bytes);
        s.guest.give_all_credit(&mut s.flow)?;
        s.host.send_with(&buffer, ZEROCOPY)?;
        let (mut got, mut overwritten) = (Vec::new(), false);
        while got.len() < bytes.len() {
            if !overwritten && completions(&s.host)? > 0 {
                buffer.fill(0);
                overwritten = true;
            }
            got.extend(s.guest.hear_op(&mut s.flow, Op::RW)?.payload);
        }
        ensure!(got == bytes, "other bytes in round {round}");
        if !overwritten {
            await_completions(&s.host, 1)?;
        }
    }
    Ok(())
}

fn closing(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    enable(&s.host)?;
    let bytes = cx.bytes(80_000);
    s.host.send_with(&bytes, ZEROCOPY)?;
    s.host.send_with(&bytes, ZEROCOPY)?;
    ensure!(
        completions(&s.host)? == 0,
        "complete although nothing was taken"
    );
    drop(s.guest);
    await_completions(&s.host, 2)
}

fn mixed(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    enable(&s.host)?;
    let (large, small) = (cx.bytes(50_000), cx.bytes(30));
    let mut sent = Vec::new();
    for _ in 0..3 {
        s.host.send_with(&large, ZEROCOPY)?;
        s.host.send(&small)?;
        s.host.send(&small)?;
        sent.extend([&large[..], &small, &small].concat());
    }
    s.guest.plan.buffers = 32;
    s.guest.refill()?;
    let got = s.guest.hear_bytes(&mut s.flow, sent.len())?;
    ensure!(got == sent, "other bytes");
    await_completions(&s.host, 3)
}
