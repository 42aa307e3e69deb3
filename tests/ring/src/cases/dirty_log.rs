// SPDX-License-Identifier: GPL-2.0
//! Dirty logging: the set bits are exactly the pages that the device wrote.

use super::Case;
use crate::vocabulary::abi::{RX, TX, feature};
use crate::vocabulary::memory::{BASE, REGION};
use crate::vocabulary::packet::HEADER;
use crate::vocabulary::ring::{Completed, Ring};
use crate::vocabulary::{Context, Guest, Kind, Op, Plan, Session};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, Ordering};

const NO_PAYLOAD: &str = "only the used ring is logged, not what is written into RX buffers";

pub const CASES: &[Case] = &[
    Case::new("dirty-log/guest-to-host-marks-the-used-ring", guest_to_host),
    Case::new("dirty-log/used-ring-pages-of-rx", rx_used_ring),
    Case::new("dirty-log/rx-payload-and-header-pages", |cx| {
        rx_payload(cx, feature::USUAL)
    })
    .c_differs(NO_PAYLOAD),
    Case::new("dirty-log/rx-payload-without-event-idx", |cx| {
        rx_payload(cx, feature::SEQPACKET)
    })
    .c_differs(NO_PAYLOAD),
    Case::new("dirty-log/rx-payload-in-pieces", rx_pieces).c_differs(NO_PAYLOAD),
    Case::new("dirty-log/nothing-is-logged-unless-asked", unasked),
];

/// The dirty bitmap.
struct Log(Vec<AtomicU8>);

impl Log {
    fn new() -> Self {
        let pages = (BASE + 2 * REGION) / 4096;
        Self(
            (0..pages.div_ceil(8) + 8)
                .map(|_| AtomicU8::new(0))
                .collect(),
        )
    }

    /// Takes the set bits, as page numbers.
    fn take(&self) -> BTreeSet<u64> {
        let mut set = BTreeSet::new();
        for (at, byte) in self.0.iter().enumerate() {
            let bits = byte.swap(0, Ordering::SeqCst);
            set.extend(
                (0..8)
                    .filter(|bit| (bits >> bit) & 1 != 0)
                    .map(|bit| at as u64 * 8 + bit),
            );
        }
        set
    }
}

fn pages(addr: u64, len: u64) -> impl Iterator<Item = u64> {
    (addr / 4096)..=((addr + len - 1) / 4096)
}

/// Pages of what the device writes when it publishes entries `from..to` of the used ring.
fn used_pages(ring: &Ring, from: u16, to: u16) -> BTreeSet<u64> {
    let mut set: BTreeSet<u64> = pages(ring.used, 4).collect();
    let mut at = from;
    while at != to {
        set.extend(pages(ring.used + 4 + 8 * (at % ring.size) as u64, 8));
        at = at.wrapping_add(1);
    }
    set
}

/// Pages of the available-event field, which may be written at any time.
fn event_pages(ring: &Ring) -> BTreeSet<u64> {
    pages(ring.used + 4 + 8 * ring.size as u64, 2)
        .chain(pages(ring.used, 4))
        .collect()
}

/// A session whose device logs into a bitmap. The rings are so large that their parts lie in several pages.
fn logged(cx: &mut Context, features: u64) -> Result<(Session, Log)> {
    let log = Log::new();
    let plan = Plan::default()
        .features(features | feature::LOG_ALL)
        .size(2048)
        .base(600)
        .buffers(16, 9000);
    let mut guest = Guest::prepare(cx.number(), plan)?;
    for ring in [&guest.rx, &guest.tx] {
        let mut addr = ring.addresses();
        addr.flags = 1;
        guest.dev.set_vring_addr(&addr)?;
    }
    guest
        .dev
        .set_log_base(log.0.as_ptr() as u64)
        .context("SET_LOG_BASE")?;
    guest.dev.start()?;
    let (flow, host) = guest.accept(Kind::STREAM, cx.number() as u32)?;
    guest.drain()?;
    log.take();
    Ok((Session { guest, flow, host }, log))
}

/// Asserts that the bits are all of `must` and nothing outside of `must` and `may`.
fn exactly(log: &Log, must: &BTreeSet<u64>, may: &BTreeSet<u64>) -> Result<()> {
    let seen = log.take();
    let missing: Vec<_> = must.difference(&seen).collect();
    let excess: Vec<_> = seen
        .difference(must)
        .filter(|page| !may.contains(page))
        .collect();
    ensure!(
        missing.is_empty() && excess.is_empty(),
        "pages not logged: {missing:x?}, logged and not written: {excess:x?}"
    );
    Ok(())
}

fn guest_to_host(cx: &mut Context) -> Result<()> {
    let (mut s, log) = logged(cx, feature::USUAL)?;
    for len in [1, 100, 5000, 60_000] {
        let from = s.guest.tx.used_next();
        s.guest.say_with(&mut s.flow, Op::RW, 0, &vec![1; len])?;
        s.guest.drain()?;
        std::thread::sleep(std::time::Duration::from_millis(5));
        let must = used_pages(&s.guest.tx, from, s.guest.tx.used_next());
        exactly(&log, &must, &event_pages(&s.guest.tx)).with_context(|| format!("{len} bytes"))?;
    }
    Ok(())
}

/// Sends `len` bytes to the guest; gives the used entries' range and the buffers.
fn receive(s: &mut Session, len: usize) -> Result<(u16, u16, Vec<Completed>)> {
    let from = s.guest.rx.used_next();
    s.host.send(&vec![7; len])?;
    let (mut got, mut buffers) = (0, Vec::new());
    while got < len {
        let done = s.guest.rx.take_wait()?;
        got += done.len as usize - HEADER;
        s.flow.fwd_cnt += done.len - HEADER as u32;
        buffers.push(done);
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    Ok((from, s.guest.rx.used_next(), buffers))
}

/// Pages of the first `len` bytes of the pieces.
fn written_pages(done: &Completed) -> BTreeSet<u64> {
    let (mut set, mut left) = (BTreeSet::new(), done.len as u64);
    for piece in &done.chain.pieces {
        let len = left.min(piece.len as u64);
        if len > 0 {
            set.extend(pages(piece.addr, len));
        }
        left -= len;
    }
    set
}

fn rx_used_ring(cx: &mut Context) -> Result<()> {
    let (mut s, log) = logged(cx, feature::USUAL)?;
    let (from, to, buffers) = receive(&mut s, 100)?;
    let must = used_pages(&s.guest.rx, from, to);
    let may = &event_pages(&s.guest.rx) | &written_pages(&buffers[0]);
    exactly(&log, &must, &may)
}

fn rx_payload(cx: &mut Context, features: u64) -> Result<()> {
    let (mut s, log) = logged(cx, features)?;
    cx.c_differs_here();
    for len in [1, 4052, 4053, 8956, 8957, 20_000] {
        let (from, to, buffers) = receive(&mut s, len)?;
        let mut must = used_pages(&s.guest.rx, from, to);
        buffers
            .iter()
            .for_each(|done| must.extend(written_pages(done)));
        exactly(&log, &must, &event_pages(&s.guest.rx)).with_context(|| format!("{len} bytes"))?;
        s.guest.refill()?;
        std::thread::sleep(std::time::Duration::from_millis(5));
        log.take();
    }
    Ok(())
}

fn rx_pieces(cx: &mut Context) -> Result<()> {
    use crate::vocabulary::ring::{Form, Piece};
    let (mut s, log) = logged(cx, feature::USUAL)?;
    cx.c_differs_here();
    while s.guest.rx.in_flight() > 0 {
        receive(&mut s, 1)?;
    }
    for cut in [
        &[44, 10_000][..],
        &[1, 43, 5000, 5000],
        &[4000, 4000, 4000],
        &[20, 24, 1, 1, 9000],
    ] {
        let pieces: Vec<Piece> = cut
            .iter()
            .map(|len| Piece {
                addr: s.guest.mem.alloc(8192).addr + 4000,
                len: (*len).min(8192 - 4000) as u32,
                write: true,
            })
            .collect();
        s.guest.rx.add(&pieces, Form::Indirect(0))?;
        s.guest.rx.flush();
        std::thread::sleep(std::time::Duration::from_millis(5));
        log.take();
        let (from, to, buffers) = receive(&mut s, 3000)?;
        let must = &used_pages(&s.guest.rx, from, to) | &written_pages(&buffers[0]);
        exactly(&log, &must, &event_pages(&s.guest.rx)).with_context(|| format!("{cut:?}"))?;
    }
    Ok(())
}

fn unasked(cx: &mut Context) -> Result<()> {
    let log = Log::new();
    let mut guest = Guest::prepare(cx.number(), Plan::default())?;
    guest.dev.set_log_base(log.0.as_ptr() as u64)?;
    guest.dev.start()?;
    let (flow, host) = guest.accept(Kind::STREAM, cx.number() as u32)?;
    let mut s = Session { guest, flow, host };
    receive(&mut s, 100)?;
    s.guest.say_with(&mut s.flow, Op::RW, 0, b"x")?;
    s.guest.drain()?;
    let seen = log.take();
    ensure!(
        seen.is_empty(),
        "pages {seen:x?} are logged, queues {RX} and {TX} asked for none"
    );
    Ok(())
}
