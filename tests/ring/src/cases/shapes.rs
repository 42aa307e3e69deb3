// SPDX-License-Identifier: GPL-2.0
//! Descriptor shapes, generated: any split of header and payload, direct or indirect, ring sizes 1 to 32768, wrap-around,
//! event-idx and in-order on and off. Bytes and used lengths must be exact, and nothing beyond the used length written.

use super::Case;
use crate::vocabulary::abi::{MAX_PAYLOAD, feature};
use crate::vocabulary::memory::Block;
use crate::vocabulary::packet::{HEADER, Header};
use crate::vocabulary::ring::{Completed, Form, Piece};
use crate::vocabulary::{Context, Device, Flow, Guest, Kind, Op, Plan, Session};
use anyhow::{Context as _, Result, ensure};
use rand::RngExt as _;
use rand::rngs::SmallRng;

pub const CASES: &[Case] = &[
    Case::new("shapes/host-to-guest", |cx| {
        shapes(cx, cx.rounds(24, 600), host_to_guest)
    }),
    Case::new("shapes/guest-to-host", |cx| {
        shapes(cx, cx.rounds(24, 600), guest_to_host)
    }),
    Case::new("shapes/both-ways", |cx| {
        shapes(cx, cx.rounds(24, 600), either)
    }),
];

/// Shapes both ways on a few kinds of rings.
pub fn a_few(cx: &mut Context) -> Result<()> {
    shapes(cx, 6, either)
}

fn either(cx: &mut Context, s: &mut Session, limits: Limits) -> Result<()> {
    if cx.rng.random() {
        host_to_guest(cx, s, limits)
    } else {
        guest_to_host(cx, s, limits)
    }
}

/// What fills a buffer before the device writes it.
const POISON: u8 = 0xa5;

/// What a ring allows: descriptors per buffer and indirect tables.
#[derive(Clone, Copy, Debug)]
struct Limits {
    size: usize,
    indirect: bool,
}

type Transfer = fn(&mut Context, &mut Session, Limits) -> Result<()>;

/// Runs `transfer` many times on `kinds` kinds of rings.
fn shapes(cx: &mut Context, kinds: usize, transfer: Transfer) -> Result<()> {
    let each = 32;
    let in_order = accepts_in_order()?;
    let mut guest: Option<Guest> = None;
    let mut hosts = Vec::new();
    for kind in 0..kinds {
        let plan = random_plan(&mut cx.rng, in_order);
        let what = format!(
            "ring {kind}: size {}, base {:#x}, features {:#x}",
            plan.size, plan.base, plan.features
        );
        cx.step(&what);
        let limits = Limits {
            size: plan.size.into(),
            indirect: plan.features & feature::INDIRECT != 0,
        };
        let (dev, cid) = match guest.take() {
            Some(old) => {
                old.dev.stop()?;
                (old.dev, old.cid)
            }
            None => (owned()?, cx.number()),
        };
        let fresh = Guest::furnish(dev, cid, plan)?;
        fresh.dev.start()?;
        let mut s = connect(cx, fresh)?;
        for round in 0..each {
            transfer(cx, &mut s, limits).with_context(|| format!("{what}, transfer {round}"))?;
        }
        s.guest.drain()?;
        // Closing it would send a packet into the next ring.
        hosts.push(s.host);
        guest = Some(s.guest);
    }
    cx.note(&format!(
        "{} shapes on {kinds} kinds of rings, in-order {in_order}",
        kinds * each
    ));
    Ok(())
}

fn owned() -> Result<Device> {
    let dev = Device::open()?;
    dev.set_owner()?;
    Ok(dev)
}

fn accepts_in_order() -> Result<bool> {
    Ok(Device::open()?
        .set_features(feature::IN_ORDER | feature::VERSION_1)
        .is_ok())
}

/// A connection on a guest that has no RX buffers but those that this takes.
fn connect(cx: &mut Context, mut guest: Guest) -> Result<Session> {
    let port = cx.number() as u32;
    let host = crate::vocabulary::Host::connecting(Kind::STREAM, guest.cid, port)?;
    let request = loop {
        // Packets of earlier connections may still be queued.
        guest.give_buffer(4096)?;
        let packet = guest.recv()?;
        if packet.op() == Op::REQUEST {
            break packet;
        }
    };
    let mut flow = Flow::new(Kind::STREAM, port, request.header.src_port);
    flow.note(&request);
    guest.say(&mut flow, Op::RESPONSE)?;
    host.connected()?;
    Ok(Session { guest, flow, host })
}

fn random_plan(rng: &mut SmallRng, in_order: bool) -> Plan {
    // Small rings have the corners; the largest are rare as they take long to lay out.
    let shift = [0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 8, 9, 10, 15][rng.random_range(0..14)];
    let mut features = feature::SEQPACKET;
    for bit in [
        feature::EVENT_IDX,
        feature::INDIRECT,
        feature::INDIRECT,
        feature::ANY_LAYOUT,
    ] {
        features |= if rng.random() { bit } else { 0 };
    }
    if in_order && rng.random() {
        features |= feature::IN_ORDER;
    }
    let base = [0, 0xffff, 0xfff0, rng.random()][rng.random_range(0..4)];
    Plan::default()
        .size(1 << shift)
        .base(base)
        .buffers(0, 4096)
        .features(features)
}

/// A length from `low` to `high`, small ones as likely as large ones.
fn random_len(rng: &mut SmallRng, low: usize, high: usize) -> usize {
    let span = (high - low + 1) as f64;
    (low as f64 + span.powf(rng.random::<f64>()) - 1.0) as usize
}

/// Cuts `total` bytes into pieces, each in a block of its own, and chooses how to describe them.
fn random_shape(
    rng: &mut SmallRng,
    guest: &Guest,
    total: usize,
    write: bool,
    limits: Limits,
) -> (Vec<Piece>, Form) {
    let indirect = limits.indirect && rng.random();
    let most = if indirect { 64 } else { limits.size.min(64) };
    let count = rng.random_range(1..=most.min(total));
    let mut cuts: Vec<usize> = (1..count).map(|_| rng.random_range(1..total)).collect();
    // Favour cuts in and around the header.
    for cut in &mut cuts {
        if rng.random_range(0..3) == 0 {
            *cut = rng.random_range(1..total.min(HEADER + 3));
        }
    }
    cuts.extend([0, total]);
    cuts.sort_unstable();
    if rng.random_range(0..8) != 0 {
        // Otherwise two equal cuts make an empty piece.
        cuts.dedup();
    }
    let pieces: Vec<Piece> = cuts
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .map(|len| Piece {
            addr: guest.mem.alloc(len).addr,
            len: len as u32,
            write,
        })
        .collect();
    let direct = if rng.random() {
        0
    } else {
        rng.random_range(0..limits.size.min(pieces.len() + 1))
    };
    let form = if indirect {
        Form::Indirect(direct)
    } else {
        Form::Direct
    };
    (pieces, form)
}

fn free(guest: &Guest, pieces: &[Piece]) {
    for piece in pieces {
        guest.mem.free(Block {
            addr: piece.addr,
            len: piece.len as usize,
        });
    }
}

fn host_to_guest(cx: &mut Context, s: &mut Session, limits: Limits) -> Result<()> {
    let len = random_len(&mut cx.rng, 1, MAX_PAYLOAD);
    let bytes = cx.bytes(len);
    s.guest.give_all_credit(&mut s.flow)?;
    s.host.send(&bytes)?;
    let mut got = Vec::new();
    while got.len() < len {
        while s.guest.rx.room() > 0 && s.guest.rx.in_flight() < 8 && cx.rng.random_range(0..4) != 0
        {
            if !add_buffer(cx, s, limits, len - got.len())? {
                break;
            }
        }
        if s.guest.rx.in_flight() == 0 && !add_buffer(cx, s, limits, len - got.len())? {
            continue;
        }
        s.guest.rx.flush();
        let done = s.guest.rx.take_wait()?;
        got.extend(check_buffer(s, &done)?);
        free(&s.guest, &done.chain.pieces);
    }
    ensure!(got == bytes, "{} bytes came of {len}, or others", got.len());
    Ok(())
}

/// Adds an RX buffer of a random shape; false when it would take more descriptors than are free.
fn add_buffer(cx: &mut Context, s: &mut Session, limits: Limits, left: usize) -> Result<bool> {
    let total = random_len(
        &mut cx.rng,
        HEADER + 1 + left / 200,
        HEADER + 2 * left.max(16),
    );
    let limits = Limits {
        size: limits.size.min(s.guest.rx.room()),
        ..limits
    };
    if limits.size == 0 {
        return Ok(false);
    }
    let (pieces, form) = random_shape(&mut cx.rng, &s.guest, total, true, limits);
    let needed = match form {
        Form::Direct => pieces.len(),
        Form::Indirect(direct) => direct.min(pieces.len() - 1) + 1,
    };
    if needed > s.guest.rx.room() {
        free(&s.guest, &pieces);
        return Ok(false);
    }
    for piece in &pieces {
        s.guest
            .mem
            .write(piece.addr, &vec![POISON; piece.len as usize]);
    }
    s.guest.rx.add(&pieces, form)?;
    Ok(true)
}

/// Takes the payload out of a used buffer; header and used length must agree, and the rest be untouched.
///
/// What the host's reads had to say about credit comes in between and has no payload.
fn check_buffer(s: &mut Session, done: &Completed) -> Result<Vec<u8>> {
    let raw: Vec<u8> = done
        .chain
        .pieces
        .iter()
        .flat_map(|piece| s.guest.mem.bytes(piece.addr, piece.len as usize))
        .collect();
    let used = done.len as usize;
    ensure!(
        used >= HEADER && used <= raw.len(),
        "used length {used} of {}",
        raw.len()
    );
    let header = Header::decode(&raw);
    ensure!(
        header.len as usize == used - HEADER && (header.op == Op::RW) == (used > HEADER),
        "used length {used} for {header:?}"
    );
    ensure!(
        matches!(header.op, Op::RW | Op::CREDIT_UPDATE),
        "unexpected: {header:?}"
    );
    ensure!(
        raw[used..].iter().all(|byte| *byte == POISON),
        "written beyond the used length {used}"
    );
    s.flow.fwd_cnt = s.flow.fwd_cnt.wrapping_add(header.len);
    Ok(raw[HEADER..used].to_vec())
}

fn guest_to_host(cx: &mut Context, s: &mut Session, limits: Limits) -> Result<()> {
    let batch = cx.rng.random_range(1..=4);
    let mut sent = Vec::new();
    for _ in 0..batch {
        let len = random_len(&mut cx.rng, 1, MAX_PAYLOAD / 4);
        let excess = if cx.rng.random_range(0..8) == 0 {
            cx.rng.random_range(0..100)
        } else {
            0
        };
        let bytes = cx.bytes(len);
        let mut header = s.guest.header(&s.flow, Op::RW);
        header.len = len as u32;
        let raw = [&header.encode()[..], &bytes, &vec![1; excess]].concat();
        while !add_packet(cx, s, limits, &raw)? {
            s.guest.tx.flush();
            reap_one(s)?;
        }
        s.flow.sent = s.flow.sent.wrapping_add(header.len);
        sent.extend(bytes);
        if cx.rng.random() {
            s.guest.tx.flush();
        }
    }
    s.guest.tx.flush();
    ensure!(s.host.recv_exact(sent.len())? == sent, "other bytes");
    while s.guest.tx.in_flight() > 0 {
        reap_one(s)?;
    }
    Ok(())
}

/// Adds a TX packet in a random shape; false when it would take more descriptors than are free.
fn add_packet(cx: &mut Context, s: &mut Session, limits: Limits, raw: &[u8]) -> Result<bool> {
    let limits = Limits {
        size: limits.size.min(s.guest.tx.room()),
        ..limits
    };
    if limits.size == 0 {
        return Ok(false);
    }
    let (pieces, form) = random_shape(&mut cx.rng, &s.guest, raw.len(), false, limits);
    let needed = match form {
        Form::Direct => pieces.len(),
        Form::Indirect(direct) => direct.min(pieces.len() - 1) + 1,
    };
    if needed > s.guest.tx.room() {
        free(&s.guest, &pieces);
        return Ok(false);
    }
    let mut rest = raw;
    for piece in &pieces {
        let (part, more) = rest.split_at(piece.len as usize);
        s.guest.mem.write(piece.addr, part);
        rest = more;
    }
    s.guest.tx.add(&pieces, form)?;
    Ok(true)
}

fn reap_one(s: &mut Session) -> Result<()> {
    let done = s.guest.tx.take_wait()?;
    ensure!(
        done.len == 0,
        "a TX buffer came back with length {}",
        done.len
    );
    free(&s.guest, &done.chain.pieces);
    Ok(())
}
