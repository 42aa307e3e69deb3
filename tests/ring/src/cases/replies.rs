// SPDX-License-Identifier: GPL-2.0
//! Replies that wait for RX buffers: TX stops at a ring's worth of them, and resumes by itself.

use super::{Case, request_to_nobody};
use crate::vocabulary::abi::feature;
use crate::vocabulary::proc::wait_until;
use crate::vocabulary::{Context, Guest, Op, Plan, patience};
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

pub const CASES: &[Case] = &[
    Case::new("replies/tx-stops-at-a-ring-of-replies-and-resumes", |cx| {
        stops_and_resumes(cx, feature::USUAL)
    }),
    Case::new("replies/tx-stops-and-resumes-without-event-idx", |cx| {
        stops_and_resumes(cx, feature::SEQPACKET)
    }),
    Case::new("replies/none-is-counted-after-a-storm", storm),
    Case::new("replies/none-is-counted-after-malformed-packets", malformed).c_differs(
        "a TX packet that cannot be taken in is dropped without giving its descriptor back",
    ),
    Case::new("replies/none-is-counted-after-a-restart", restart),
];

const SIZE: usize = 32;

fn requests(cx: &mut Context, guest: &mut Guest, count: usize) -> Result<Vec<u32>> {
    let mut ports = Vec::new();
    while ports.len() < count && guest.tx.room() > 0 {
        let port = cx.number() as u32;
        let raw = request_to_nobody(guest, port).encode();
        guest.queue(&raw)?;
        ports.push(port);
    }
    guest.tx.flush();
    Ok(ports)
}

fn stops_and_resumes(cx: &mut Context, features: u64) -> Result<()> {
    let plan = Plan::default()
        .features(features)
        .size(SIZE as u16)
        .buffers(0, 100);
    let mut guest = cx.guest(plan)?;
    let mut ports = requests(cx, &mut guest, SIZE)?;
    guest.drain()?;
    cx.step("with a ring's worth of replies pending, no more TX is taken");
    ports.extend(requests(cx, &mut guest, SIZE)?);
    std::thread::sleep(Duration::from_millis(100));
    let taken = guest.reap()?;
    ensure!(
        taken == 0,
        "{taken} more packets were taken with {SIZE} replies pending"
    );
    let kicks = guest.tx.kicks;
    cx.step("each buffer brings one reply, and TX resumes without a kick");
    // Each is a flow of its own, and flows may be served in any order.
    while !ports.is_empty() {
        guest.give_buffer(100)?;
        let done = guest.rx.take_wait()?;
        let packet = guest.open(&done)?;
        let at = ports
            .iter()
            .position(|port| *port == packet.header.dst_port);
        let at = at.with_context(|| format!("no RST is due to {packet:?}"))?;
        ensure!(packet.op() == Op::RST, "expected a RST: {packet:?}");
        ports.swap_remove(at);
    }
    guest.drain()?;
    ensure!(guest.tx.kicks == kicks, "a kick was given");
    cx.no_reply_is_counted(&guest)
}

fn storm(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default().size(SIZE as u16).buffers(4, 100))?;
    let (mut asked, mut answered) = (0, 0);
    let total = cx.rounds(3000, 100_000);
    while answered < total {
        if asked < total {
            asked += requests(cx, &mut guest, total - asked)?.len();
        }
        let moved = wait_until(patience(), || {
            Ok(guest.rx.used_idx() != guest.rx.used_next())
        })?;
        ensure!(moved, "{answered} of {asked} answered, then nothing");
        while let Some(packet) = guest.try_recv()? {
            ensure!(packet.op() == Op::RST, "not a RST: {packet:?}");
            answered += 1;
        }
        guest.reap()?;
    }
    guest.drain()?;
    cx.no_reply_is_counted(&guest)
}

fn malformed(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default().size(SIZE as u16))?;
    cx.c_differs_here();
    for round in 0..200 {
        guest.queue(&vec![1; 1 + round % 43])?;
        requests(cx, &mut guest, 1)?;
        let packet = guest.recv()?;
        ensure!(packet.op() == Op::RST, "not a RST: {packet:?}");
    }
    cx.no_reply_is_counted(&guest)
}

fn restart(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default().size(SIZE as u16).buffers(0, 100))?;
    for round in 0..5 {
        cx.step(&format!("restart {round} with replies pending"));
        let pending = requests(cx, &mut guest, SIZE)?.len();
        guest.drain()?;
        guest.plan.buffers = SIZE;
        guest.reboot()?;
        for _ in 0..pending {
            guest.recv()?;
        }
        guest.hears_nothing()?;
        cx.no_reply_is_counted(&guest)?;
        guest.plan.buffers = 0;
        guest.reboot()?;
    }
    Ok(())
}
