// SPDX-License-Identifier: GPL-2.0
//! Host to guest: splitting over buffers, layouts, bad buffers, refills and notifications.

use super::{Case, request_to_nobody};
use crate::vocabulary::abi::{WINDOW, feature};
use crate::vocabulary::packet::HEADER;
use crate::vocabulary::proc::{ran, wait_until, workers};
use crate::vocabulary::ring::{Form, Piece};
use crate::vocabulary::{Context, Guest, Kind, Op, Plan, Session, patience};
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

const LOST: &str = "a bad RX buffer costs the host's packet, and is not given back";

pub const CASES: &[Case] = &[
    Case::new("rx/packets-are-split-over-small-buffers", split),
    Case::new("rx/buffers-of-mixed-sizes", mixed),
    Case::new("rx/header-only-buffers-lose-nothing", header_only),
    Case::new("rx/layouts-all-give-the-same-packet", layouts),
    Case::new("rx/across-two-memory-regions", seam),
    Case::new("rx/used-entries-in-order-with-real-lengths", order),
    Case::new("rx/never-published-before-the-bytes-are-there", published_late),
    Case::new("rx/device-readable-part-costs-only-the-buffer", |cx| bad_buffer(cx, Bad::Readable)).c_differs(LOST),
    Case::new("rx/too-short-buffer-costs-only-the-buffer", |cx| bad_buffer(cx, Bad::Short)).c_differs(LOST),
    Case::new("rx/unwritable-memory-costs-only-the-buffer", |cx| bad_buffer(cx, Bad::ReadOnly)).c_differs(LOST),
    Case::new("rx/unmapped-payload-costs-only-the-buffer", |cx| bad_buffer(cx, Bad::HalfMapped)).c_differs(LOST),
    Case::new("rx/bad-buffers-for-replies-do-not-stop-tx", bad_for_replies)
        .c_differs("a reply dropped with a bad RX buffer is counted as queued for ever: a ring's worth of them stops TX"),
    Case::new("rx/no-spin-without-buffers", no_spin),
    Case::new("rx/no-refill-is-lost-event-idx", |cx| refills(cx, feature::USUAL)),
    Case::new("rx/no-refill-is-lost", |cx| refills(cx, feature::SEQPACKET)),
    Case::new("rx/refill-without-kick-unless-asked", unasked),
    Case::new("rx/signals-only-when-asked", signals),
    Case::new("rx/wraps-around-the-index", wraps),
    Case::new("rx/queued-stream-is-not-cut-more-than-needed", not_cut),
    Case::new("rx/one-buffer-ring", one_buffer),
];

/// Sends `len` random bytes from the host and receives them in the guest.
fn carry(cx: &mut Context, s: &mut Session, len: usize) -> Result<()> {
    let bytes = cx.bytes(len);
    s.guest.give_all_credit(&mut s.flow)?;
    s.host.send(&bytes)?;
    let got = s.guest.hear_bytes(&mut s.flow, len)?;
    ensure!(got == bytes, "{len} bytes were changed on the way");
    Ok(())
}

fn split(cx: &mut Context) -> Result<()> {
    for buffer in [HEADER + 1, 64, 100, 4096, HEADER + 65536] {
        cx.step(&format!("buffers of {buffer} bytes"));
        let mut s = cx.session(Kind::STREAM, Plan::default().buffers(128, buffer))?;
        for len in [1, buffer - HEADER, buffer - HEADER + 1, 3000] {
            carry(cx, &mut s, len.min(65536))?;
        }
    }
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    for len in [4052, 4053, 8104, 65535, 65536, 65537, 200_000] {
        carry(cx, &mut s, len)?;
    }
    Ok(())
}

/// A session without RX buffers.
fn bare(cx: &mut Context, kind: Kind) -> Result<Session> {
    bare_with(cx, kind, Plan::default())
}

fn bare_with(cx: &mut Context, kind: Kind, plan: Plan) -> Result<Session> {
    let mut s = cx.session(kind, plan.buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    s.host.send(b"x")?;
    s.guest.hear_op(&mut s.flow, Op::RW)?;
    s.guest.drain()?;
    Ok(s)
}

fn mixed(cx: &mut Context) -> Result<()> {
    let mut s = bare(cx, Kind::STREAM)?;
    let bytes = cx.bytes(30_000);
    s.host.send(&bytes)?;
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        let len = [45, 64, 4096, 50, 1000, 46][got.len() % 6];
        s.guest.give_buffer(len)?;
        got.extend(s.guest.hear_op(&mut s.flow, Op::RW)?.payload);
    }
    ensure!(got == bytes, "other bytes");
    Ok(())
}

fn header_only(cx: &mut Context) -> Result<()> {
    let mut s = bare(cx, Kind::SEQPACKET)?;
    let bytes = cx.bytes(500);
    s.host.send(&bytes)?;
    for len in [HEADER, HEADER, 100, HEADER, 1000] {
        s.guest.add_buffer(len)?;
    }
    s.guest.rx.flush();
    let (mut got, mut ends) = (Vec::new(), 0);
    while ends == 0 {
        let done = s.guest.rx.take_wait()?;
        if done.len == 0 {
            continue;
        }
        let packet = s.guest.open(&done)?;
        ends += packet.header.flags & 1;
        got.extend(packet.payload);
    }
    ensure!(got == bytes, "{} of 500 bytes came, or others", got.len());
    Ok(())
}

fn layouts(cx: &mut Context) -> Result<()> {
    let mut s = bare(cx, Kind::STREAM)?;
    let one: &[usize] = &[4096];
    let cuts = [
        one,
        &[44, 4052],
        &[1; 60],
        &[43, 1, 4000],
        &[1, 43, 1, 1, 1, 4000],
        &[10, 100, 10, 1000],
    ];
    for cut in cuts {
        for form in [Form::Direct, Form::Indirect(0), Form::Indirect(1)] {
            let bytes = cx.bytes(cut.iter().sum::<usize>() - HEADER);
            s.host.send(&bytes)?;
            let pieces = empty_pieces(&s.guest, cut);
            s.guest.rx.add(&pieces, form)?;
            s.guest.rx.flush();
            let packet = s.guest.hear_op(&mut s.flow, Op::RW)?;
            ensure!(packet.payload == bytes, "other bytes in {cut:?}, {form:?}");
            s.guest.give_credit(&mut s.flow)?;
        }
    }
    Ok(())
}

fn empty_pieces(guest: &Guest, cut: &[usize]) -> Vec<Piece> {
    cut.iter()
        .map(|len| Piece {
            addr: guest.mem.alloc(*len).addr,
            len: *len as u32,
            write: true,
        })
        .collect()
}

fn seam(cx: &mut Context) -> Result<()> {
    let mut s = bare(cx, Kind::STREAM)?;
    for (len, at) in [(4096, 2048), (4096, 20), (4096, 44), (100, 70)] {
        let bytes = cx.bytes(len as usize - HEADER);
        s.host.send(&bytes)?;
        let addr = s.guest.mem.straddle(0).addr - at;
        let piece = Piece {
            addr,
            len,
            write: true,
        };
        s.guest.rx.add(&[piece], Form::Direct)?;
        s.guest.rx.flush();
        let done = s.guest.rx.take_wait()?;
        ensure!(
            s.guest.contents(&done)[HEADER..] == bytes,
            "other bytes {at} before the seam"
        );
    }
    Ok(())
}

fn order(cx: &mut Context) -> Result<()> {
    let mut s = bare(cx, Kind::SEQPACKET)?;
    let mut heads = Vec::new();
    for round in 0..60 {
        heads.push(s.guest.add_buffer(300)?);
        s.host.send(&vec![round; 10 + round as usize])?;
    }
    s.guest.rx.flush();
    for (round, head) in heads.into_iter().enumerate() {
        let done = s.guest.rx.take_wait()?;
        ensure!(
            done.chain.head == head,
            "buffer {} came back before {head}",
            done.chain.head
        );
        ensure!(
            done.len as usize == HEADER + 10 + round,
            "used length {} for message {round}",
            done.len
        );
        s.guest.open(&done)?;
    }
    Ok(())
}

fn published_late(cx: &mut Context) -> Result<()> {
    let mut s = bare(cx, Kind::STREAM)?;
    for round in 0..cx.rounds(400, 20_000) {
        let len = 40_000;
        let fill = round as u8 | 1;
        let head = s.guest.add_buffer(HEADER + len)?;
        s.guest.rx.flush();
        s.host.send(&vec![fill; len])?;
        let until = s.guest.rx.used_next().wrapping_add(1);
        // Look at nothing but the index, and at the last byte as soon as it has moved.
        while s.guest.rx.used_idx() != until {
            std::hint::spin_loop();
        }
        let done = s.guest.rx.take()?.context("a used entry")?;
        let raw = s.guest.contents(&done);
        ensure!(
            done.chain.head == head && raw.len() == HEADER + len,
            "another buffer"
        );
        ensure!(
            raw[HEADER..].iter().all(|byte| *byte == fill),
            "published before the bytes were there"
        );
        let packet = s.guest.open(&done)?;
        s.guest
            .mem
            .write(done.chain.pieces[0].addr, &vec![0; HEADER + len]);
        s.flow.note(&packet);
        s.guest.give_credit(&mut s.flow)?;
    }
    Ok(())
}

/// What is wrong with a buffer.
enum Bad {
    /// It begins with a part that the device may only read.
    Readable,
    /// It cannot hold a header.
    Short,
    /// The process may not write to it.
    ReadOnly,
    /// Its payload part lies in memory that is mapped no more.
    HalfMapped,
}

fn add_bad(guest: &mut Guest, bad: &Bad) -> Result<u16> {
    let block = guest.mem.alloc(8192);
    let piece = |at: u64, len, write| Piece {
        addr: block.addr + at,
        len,
        write,
    };
    let pieces = match bad {
        Bad::Readable => vec![piece(0, 44, false), piece(44, 1000, true)],
        Bad::Short => vec![piece(0, 43, true)],
        Bad::ReadOnly => vec![piece(0, 4096, true)],
        Bad::HalfMapped => vec![piece(0, 44, true), piece(4096, 4096, true)],
    };
    let (at, prot) = match bad {
        Bad::ReadOnly => (0, libc::PROT_READ),
        Bad::HalfMapped => (4096, libc::PROT_NONE),
        _ => (0, libc::PROT_READ | libc::PROT_WRITE),
    };
    let user = guest.mem.user(block.addr + at) as *mut libc::c_void;
    // SAFETY: The page belongs to the guest's memory and nothing here touches it any more.
    nix::errno::Errno::result(unsafe { libc::mprotect(user, 4096, prot) })?;
    guest.rx.add(&pieces, Form::Direct)
}

fn bad_buffer(cx: &mut Context, bad: Bad) -> Result<()> {
    let mut s = bare(cx, Kind::STREAM)?;
    let heads = [add_bad(&mut s.guest, &bad)?, add_bad(&mut s.guest, &bad)?];
    s.guest.rx.flush();
    cx.c_differs_here();
    s.host.send(b"not lost")?;
    cx.step("the bad buffers come back empty");
    for head in heads {
        let done = s.guest.rx.take_wait()?;
        ensure!(
            done.chain.head == head && done.len == 0,
            "{} came back with {}",
            done.chain.head,
            done.len
        );
    }
    cx.step("the packet comes in the next good buffer");
    s.guest.plan.buffers = 8;
    s.guest.refill()?;
    let bytes = s.guest.hear_bytes(&mut s.flow, 8)?;
    ensure!(bytes == b"not lost", "other bytes");
    Ok(())
}

fn bad_for_replies(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default().size(16).buffers(0, 4096))?;
    cx.c_differs_here();
    for round in 0..40 {
        cx.step(&format!("reply {round} finds a bad buffer"));
        add_bad(&mut guest, &Bad::Short)?;
        guest.rx.flush();
        let packet = request_to_nobody(&guest, cx.number() as u32);
        guest.send(&packet)?;
        guest.drain()?;
        let done = guest.rx.take_wait()?;
        ensure!(done.len == 0, "a reply was written into 43 bytes");
        guest.give_buffer(4096)?;
        let answer = guest.recv()?;
        ensure!(answer.op() == Op::RST, "not the reply: {answer:?}");
    }
    cx.no_reply_is_counted(&guest)
}

fn no_spin(cx: &mut Context) -> Result<()> {
    let s = bare(cx, Kind::STREAM)?;
    for _ in 0..50 {
        s.host.send(b"waits for a buffer")?;
    }
    let worker = *workers()?.first().context("no worker thread")?;
    std::thread::sleep(Duration::from_millis(50));
    let (before, slices) = ran(worker)?;
    std::thread::sleep(Duration::from_millis(400));
    let (after, more) = ran(worker)?;
    ensure!(
        more == slices && after == before,
        "with nothing to do the worker ran {} times, {} us",
        more - slices,
        (after - before) / 1000
    );
    Ok(())
}

fn refills(cx: &mut Context, features: u64) -> Result<()> {
    let mut s = bare_with(cx, Kind::STREAM, Plan::default().features(features))?;
    for round in 0..cx.rounds(1500, 200_000) as u32 {
        if round % 128 == 0 {
            cx.step(&format!("round {round}"));
            // Several packets wait for buffers at each time.
            for at in 0..128u32 {
                s.host.send(&(round + at).to_le_bytes())?;
            }
        }
        s.guest.give_buffer(HEADER + 4)?;
        let packet = s.guest.hear_op(&mut s.flow, Op::RW)?;
        ensure!(
            packet.payload == round.to_le_bytes(),
            "packet {round} is out of order: {:?}",
            packet.payload
        );
        s.guest.give_credit(&mut s.flow)?;
    }
    Ok(())
}

fn unasked(cx: &mut Context) -> Result<()> {
    let mut s = bare(cx, Kind::STREAM)?;
    s.host.send(b"one")?;
    let asked = |guest: &Guest| guest.rx.avail_event() == guest.rx.avail_next();
    ensure!(
        wait_until(patience(), || Ok(asked(&s.guest)))?,
        "no kick is asked for although a packet waits: avail_event {}, next {}",
        s.guest.rx.avail_event(),
        s.guest.rx.avail_next()
    );
    s.guest.give_buffer(100)?;
    s.guest.hear_bytes(&mut s.flow, 3).map(drop)
}

fn signals(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().features(0))?;
    s.guest.rx.set_no_interrupt(true);
    s.guest.rx.count_signals();
    let mut got = 0;
    for _ in 0..40 {
        s.host.send(b"silent")?;
        let arrived = wait_until(patience(), || {
            Ok(s.guest.rx.used_idx() != s.guest.rx.used_next())
        })?;
        ensure!(arrived, "nothing came");
        while let Some(packet) = s.guest.try_recv()? {
            got += packet.payload.len();
        }
    }
    let seen = s.guest.rx.count_signals();
    ensure!(
        seen == 0,
        "{seen} signals although none was wanted, {got} bytes"
    );
    let mut s = bare(cx, Kind::SEQPACKET)?;
    let next = s.guest.rx.used_next();
    s.guest.rx.count_signals();
    s.guest.rx.set_used_event(next.wrapping_add(20));
    for count in 1..=40 {
        s.guest.give_buffer(100)?;
        s.host.send(b"message")?;
        let until = next.wrapping_add(count);
        let used = wait_until(patience(), || Ok(s.guest.rx.used_idx() == until))?;
        ensure!(used, "message {count} did not come");
    }
    // The signal follows the index; a packet through TX and back lies after it.
    std::thread::sleep(Duration::from_millis(20));
    let seen = s.guest.rx.count_signals();
    ensure!(seen == 1, "{seen} signals where one entry was asked for");
    Ok(())
}

fn wraps(cx: &mut Context) -> Result<()> {
    for (size, base) in [(1, 0xfff0), (2, 0xfff0), (8, 0xffe0), (256, 0xff80)] {
        cx.step(&format!("ring size {size}, base {base:#x}"));
        let plan = Plan::default()
            .size(size)
            .base(base)
            .buffers(size.into(), 200);
        let mut s = cx.session(Kind::STREAM, plan)?;
        for _ in 0..40 {
            carry(cx, &mut s, 700)?;
        }
        ensure!(s.guest.rx.used_next() < base, "the index did not wrap");
    }
    Ok(())
}

fn not_cut(cx: &mut Context) -> Result<()> {
    let mut s = bare(cx, Kind::STREAM)?;
    for _ in 0..500 {
        s.host.send(&[5; 129])?;
    }
    s.guest.plan.buffers = 64;
    s.guest.refill()?;
    let (mut bytes, mut packets) = (0, 0);
    while bytes < 500 * 129 {
        bytes += s.guest.hear_op(&mut s.flow, Op::RW)?.payload.len();
        packets += 1;
    }
    ensure!(
        packets <= 500,
        "500 packets that fit came in {packets} pieces"
    );
    cx.note(&format!(
        "500 packets of 129 bytes came in {packets} buffers"
    ));
    Ok(())
}

fn one_buffer(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(1, 4096))?;
    for _ in 0..30 {
        carry(cx, &mut s, 10_000)?;
        s.guest.say_with(&mut s.flow, Op::RW, 0, &[9; 10])?;
        ensure!(s.host.recv_exact(10)? == [9; 10], "other bytes");
        for packet in s.guest.settle()? {
            s.flow.note(&packet);
        }
    }
    carry(cx, &mut s, WINDOW / 2)
}
