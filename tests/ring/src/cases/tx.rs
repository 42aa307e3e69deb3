// SPDX-License-Identifier: GPL-2.0
//! Guest to host: what is accepted, what is dropped, and that every descriptor comes back.

use super::{Case, request_to_nobody};
use crate::vocabulary::abi::{HOST_CID, MAX_PAYLOAD, WEIGHT, feature};
use crate::vocabulary::packet::HEADER;
use crate::vocabulary::ring::{Form, Piece};
use crate::vocabulary::{Context, Guest, Kind, Op, Packet, Plan, Session};
use anyhow::{Context as _, Result, ensure};

const LEAK: &str =
    "a TX packet that cannot be taken in is dropped without giving its descriptor back";

pub const CASES: &[Case] = &[
    Case::new("tx/bytes-arrive-and-used-length-is-zero", bytes_arrive),
    Case::new("tx/largest-packets-arrive", largest),
    Case::new("tx/wrong-cids-are-dropped-silently", wrong_cids),
    Case::new("tx/wrong-cids-descriptors-come-back", wrong_cids_come_back),
    Case::new("tx/excess-bytes-after-the-payload-are-ignored", excess),
    Case::new("tx/empty-rw-is-harmless", empty_rw),
    Case::new("tx/lengths-that-lie-are-dropped", lying_lengths),
    Case::new("tx/lengths-that-lie-descriptors-come-back", lying_come_back).c_differs(LEAK),
    Case::new("tx/too-large-buffers-are-dropped", too_large),
    Case::new("tx/too-large-buffers-come-back", too_large_come_back).c_differs(LEAK),
    Case::new("tx/too-short-for-a-header-is-dropped", too_short),
    Case::new("tx/too-short-for-a-header-comes-back", too_short_come_back).c_differs(LEAK),
    Case::new("tx/device-writable-part-is-dropped", writable_part),
    Case::new(
        "tx/device-writable-part-comes-back",
        writable_part_comes_back,
    )
    .c_differs(LEAK),
    Case::new(
        "tx/a-ring-full-of-malformed-packets-is-not-the-end",
        ring_of_malformed,
    )
    .c_differs(LEAK),
    Case::new("tx/header-and-payload-in-any-pieces", pieces),
    Case::new("tx/across-two-memory-regions", seam),
    Case::new("tx/host-to-guest-goes-on-while-tx-is-full", rx_goes_on),
    Case::new("tx/no-kick-is-lost-event-idx", |cx| {
        one_by_one(cx, feature::USUAL)
    }),
    Case::new("tx/no-kick-is-lost", |cx| {
        one_by_one(cx, feature::SEQPACKET)
    }),
    Case::new("tx/signals-only-when-asked", signals),
    Case::new("tx/used-entries-in-order", order),
];

/// A session whose guest has no TX buffer in flight.
fn quiet_session(cx: &mut Context) -> Result<Session> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    s.guest.drain()?;
    Ok(s)
}

/// Sends `bytes` and asserts that they arrive: the connection and TX work.
fn works(s: &mut Session, bytes: &[u8]) -> Result<()> {
    s.guest.say_with(&mut s.flow, Op::RW, 0, bytes)?;
    ensure!(s.host.recv_exact(bytes.len())? == bytes, "other bytes");
    Ok(())
}

fn bytes_arrive(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    for len in [1, 2, 43, 44, 100, 4096, 5000] {
        let bytes = cx.bytes(len);
        works(&mut s, &bytes)?;
    }
    s.guest.drain()
}

fn largest(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    for round in 0..cx.rounds(20, 500) {
        cx.step(&format!("packet {round}"));
        let bytes = cx.bytes(MAX_PAYLOAD);
        s.guest.say_bytes(&mut s.flow, &bytes, MAX_PAYLOAD)?;
        ensure!(s.host.recv_exact(bytes.len())? == bytes, "other bytes");
    }
    s.guest.drain()
}

/// Packets on an established flow, each with one CID wrong.
fn misdirected(s: &Session) -> Vec<Packet> {
    let right = Packet {
        header: crate::vocabulary::Header {
            len: 5,
            ..s.guest.header(&s.flow, Op::RW)
        },
        payload: b"wrong".to_vec(),
    };
    let cid = s.guest.cid;
    let sources = [0, 1, 2, cid + 1, cid | (1 << 32), u64::MAX].map(|src| (src, HOST_CID));
    let targets = [0, 1, 3, cid, 0xffff_ffff, HOST_CID | (1 << 32), u64::MAX].map(|dst| (cid, dst));
    let set = |(src, dst)| {
        let mut packet = right.clone();
        packet.header.src_cid = src;
        packet.header.dst_cid = dst;
        packet
    };
    sources.into_iter().chain(targets).map(set).collect()
}

fn wrong_cids(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    for mut packet in misdirected(&s) {
        s.guest.send(&packet)?;
        packet.header.op = Op::REQUEST;
        s.guest.send(&packet)?;
    }
    s.guest.hears_nothing()?;
    works(&mut s, b"right")
}

fn wrong_cids_come_back(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    for packet in misdirected(&s) {
        s.guest.send(&packet)?;
    }
    s.guest.drain()
}

/// Sends a RW packet in a buffer of `size` bytes whose header says `len`.
fn send_sized(s: &mut Session, len: u32, size: usize, fill: u8) -> Result<()> {
    let mut header = s.guest.header(&s.flow, Op::RW);
    header.len = len;
    let mut raw = header.encode().to_vec();
    raw.resize(size.max(HEADER), fill);
    raw.truncate(size);
    s.guest.queue(&raw)?;
    s.guest.tx.flush();
    Ok(())
}

fn excess(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    for (len, size) in [
        (1, HEADER + 2),
        (10, HEADER + 100),
        (100, HEADER + MAX_PAYLOAD),
    ] {
        send_sized(&mut s, len, size, 7)?;
        s.flow.sent += len;
        ensure!(
            s.host.recv_exact(len as usize)? == vec![7; len as usize],
            "other bytes"
        );
    }
    ensure!(!s.host.readable()?, "more bytes than the header told");
    works(&mut s, b"right")?;
    s.guest.drain()
}

fn empty_rw(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    for size in [HEADER, HEADER + 1, HEADER + MAX_PAYLOAD] {
        send_sized(&mut s, 0, size, 7)?;
    }
    s.guest.drain()?;
    works(&mut s, b"right")
}

/// Each a header length that the buffer of that size cannot hold.
const LIES: [(u32, usize); 8] = [
    (1, HEADER),
    (2, HEADER + 1),
    (4097, HEADER + 4096),
    (65536, HEADER + 65535),
    (0xffff_ffff, HEADER + 100),
    (0xffff_ffd4, HEADER + 100),
    (0x8000_0000, HEADER + 100),
    (0xffff_ffff, HEADER),
];

fn lying_lengths(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    for (len, size) in LIES {
        send_sized(&mut s, len, size, 7)?;
    }
    s.guest.hears_nothing()?;
    works(&mut s, b"right")
}

fn lying_come_back(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    cx.c_differs_here();
    for (len, size) in LIES {
        send_sized(&mut s, len, size, 7)?;
    }
    s.guest.drain()
}

/// Sends buffers larger than a packet can be.
fn send_too_large(s: &mut Session) -> Result<()> {
    let limit = HEADER + MAX_PAYLOAD;
    for (len, size) in [
        (5, limit + 1),
        (65537, limit + 1),
        (0, limit + 1),
        (0, 1 << 20),
    ] {
        send_sized(s, len, size, 7)?;
    }
    let block = s.guest.mem.alloc(1 << 20);
    s.guest
        .mem
        .write(block.addr, &s.guest.header(&s.flow, Op::RW).encode());
    let pieces: Vec<Piece> = (0..16)
        .map(|at| Piece {
            addr: block.addr + at * 65536,
            len: 65536,
            write: false,
        })
        .collect();
    s.guest.tx.add(&pieces, Form::Indirect(0))?;
    s.guest.tx.flush();
    Ok(())
}

fn too_large(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    send_too_large(&mut s)?;
    s.guest.hears_nothing()?;
    works(&mut s, b"right")
}

fn too_large_come_back(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    cx.c_differs_here();
    send_too_large(&mut s)?;
    s.guest.drain()
}

fn too_short(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    for size in [1, 8, 43] {
        send_sized(&mut s, 0, size, 7)?;
    }
    s.guest.hears_nothing()?;
    works(&mut s, b"right")
}

fn too_short_come_back(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    cx.c_differs_here();
    for size in [1, 8, 43] {
        send_sized(&mut s, 0, size, 7)?;
    }
    s.guest.drain()
}

/// Adds a TX buffer with a part that the device may write.
fn send_with_writable_part(s: &mut Session) -> Result<()> {
    let header = s.guest.header(&s.flow, Op::RW);
    let block = s.guest.mem.alloc(256);
    s.guest.mem.write(block.addr, &header.encode());
    let pieces = [(0, HEADER, false), (HEADER, 100, true)].map(|(at, len, write)| Piece {
        addr: block.addr + at as u64,
        len: len as u32,
        write,
    });
    s.guest.tx.add(&pieces, Form::Direct)?;
    s.guest.tx.add(&pieces[1..], Form::Direct)?;
    s.guest.tx.flush();
    Ok(())
}

fn writable_part(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    send_with_writable_part(&mut s)?;
    s.guest.hears_nothing()?;
    works(&mut s, b"right")
}

fn writable_part_comes_back(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    cx.c_differs_here();
    send_with_writable_part(&mut s)?;
    s.guest.drain()
}

fn ring_of_malformed(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().size(16))?;
    s.guest.drain()?;
    cx.c_differs_here();
    for round in 0..100 {
        send_sized(&mut s, 0, round % 43 + 1, 7)
            .with_context(|| format!("malformed packet {round}"))?;
    }
    s.guest.drain()?;
    works(&mut s, b"right")
}

fn pieces(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    let cuts: [&[usize]; 7] = [
        &[44],
        &[1, 43],
        &[43, 1],
        &[20, 20, 20, 20],
        &[1; 44],
        &[44, 1, 1, 1, 1],
        &[
            60, 100, 200, 300, 1, 400, 2, 500, 3, 600, 4, 700, 5, 800, 6, 900, 7,
        ],
    ];
    for cut in cuts {
        for form in [Form::Direct, Form::Indirect(0), Form::Indirect(1)] {
            let bytes = cx.bytes(6000);
            let mut header = s.guest.header(&s.flow, Op::RW);
            header.len = bytes.len() as u32;
            s.flow.sent += header.len;
            let raw = [&header.encode()[..], &bytes].concat();
            let pieces = scatter(&s.guest, &raw, cut);
            s.guest.tx.add(&pieces, form)?;
            s.guest.tx.flush();
            ensure!(
                s.host.recv_exact(6000)? == bytes,
                "other bytes with {cut:?}, {form:?}"
            );
        }
    }
    Ok(())
}

/// Writes `raw` into blocks of their own, of these lengths and the rest in one more.
fn scatter(guest: &Guest, raw: &[u8], cut: &[usize]) -> Vec<Piece> {
    let mut rest = raw;
    let mut pieces = Vec::new();
    for len in cut.iter().copied().chain([usize::MAX]) {
        let (part, more) = rest.split_at(len.min(rest.len()));
        rest = more;
        if !part.is_empty() {
            let block = guest.mem.alloc(part.len());
            guest.mem.write(block.addr, part);
            pieces.push(Piece {
                addr: block.addr,
                len: part.len() as u32,
                write: false,
            });
        }
    }
    pieces
}

fn seam(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    for (size, at) in [(5000, 2500), (5000, 20), (5000, 44), (100, 60)] {
        let bytes = cx.bytes(size);
        let mut header = s.guest.header(&s.flow, Op::RW);
        header.len = size as u32;
        s.flow.sent += header.len;
        let addr = s.guest.mem.straddle(0).addr - at;
        s.guest
            .mem
            .write(addr, &[&header.encode()[..], &bytes].concat());
        let piece = Piece {
            addr,
            len: (HEADER + size) as u32,
            write: false,
        };
        s.guest.tx.add(&[piece], Form::Direct)?;
        s.guest.tx.flush();
        ensure!(s.host.recv_exact(size)? == bytes, "other bytes");
    }
    Ok(())
}

fn rx_goes_on(cx: &mut Context) -> Result<()> {
    const COUNT: usize = 16 * 1024;
    let mut s = cx.session(Kind::STREAM, Plan::default().size(COUNT as u16))?;
    s.guest.drain()?;
    let raw = s.guest.header(&s.flow, Op::CREDIT_UPDATE).encode();
    for _ in 0..COUNT {
        s.guest.queue(&raw)?;
    }
    let begun = s.guest.tx.used_idx();
    s.guest.tx.flush();
    s.host.send(b"in between")?;
    s.guest.hear_op(&mut s.flow, Op::RW)?;
    let taken = s.guest.tx.used_idx().wrapping_sub(begun) as usize;
    cx.note(&format!(
        "{taken} TX packets were taken before the host's packet came (a pass takes {WEIGHT})"
    ));
    ensure!(
        taken < COUNT,
        "the host's packet came after all {COUNT} TX packets"
    );
    s.guest.drain()
}

fn one_by_one(cx: &mut Context, features: u64) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().features(features))?;
    for round in 0..cx.rounds(1500, 200_000) {
        if round % 256 == 0 {
            cx.step(&format!("round {round}"));
        }
        while let Some(packet) = s.guest.try_recv()? {
            s.flow.note(&packet);
        }
        works(&mut s, &[round as u8])?;
    }
    Ok(())
}

fn signals(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().features(0))?;
    s.guest.drain()?;
    s.guest.tx.set_no_interrupt(true);
    s.guest.tx.count_signals();
    for _ in 0..50 {
        works(&mut s, b"silent")?;
    }
    let seen = s.guest.tx.count_signals();
    ensure!(seen == 0, "{seen} signals although none was wanted");
    let mut s = quiet_session(cx)?;
    let next = s.guest.tx.used_next();
    s.guest.tx.count_signals();
    s.guest.tx.set_used_event(next.wrapping_add(20));
    let raw = request_to_nobody(&s.guest, 1).encode();
    for count in 1..=40 {
        s.guest.queue_more(&raw)?;
        s.guest.tx.flush();
        ensure!(
            s.guest.used_reaches(next.wrapping_add(count))?,
            "packet {count} is not used"
        );
    }
    let seen = s.guest.tx.count_signals();
    ensure!(seen == 1, "{seen} signals where one entry was asked for");
    Ok(())
}

fn order(cx: &mut Context) -> Result<()> {
    let mut s = quiet_session(cx)?;
    let raw = s.guest.header(&s.flow, Op::CREDIT_UPDATE).encode();
    let heads: Vec<u16> = (0..100)
        .map(|_| s.guest.queue(&raw))
        .collect::<Result<_>>()?;
    s.guest.tx.flush();
    for head in heads {
        let done = s.guest.tx.take_wait()?;
        ensure!(
            done.chain.head == head,
            "{} came back before {head}",
            done.chain.head
        );
    }
    Ok(())
}

impl Guest {
    /// Adds raw bytes to the TX ring without taking anything back first.
    fn queue_more(&mut self, raw: &[u8]) -> Result<u16> {
        let pieces = scatter(self, raw, &[]);
        self.tx.add(&pieces, Form::Direct)
    }

    /// Waits until the device's used index of TX is `index`, without asking for a signal.
    fn used_reaches(&self, index: u16) -> Result<bool> {
        crate::vocabulary::proc::wait_until(crate::vocabulary::patience(), || {
            Ok(self.tx.used_idx() == index)
        })
    }
}
