// SPDX-License-Identifier: GPL-2.0
//! A guest that breaks every rule, beside one that keeps them: errors come out and nothing else, the polite guest's
//! data stays exact, and the device is usable again after a restart.

use super::{Case, request_to_nobody};
use crate::vocabulary::abi::feature;
use crate::vocabulary::polite::Polite;
use crate::vocabulary::ring::{INDIRECT, NEXT, Ring, WRITE, write_desc_at};
use crate::vocabulary::{Context, Guest, Host, Kind, Op, Plan};
use anyhow::{Context as _, Result, ensure};
use rand::RngExt as _;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

pub const CASES: &[Case] = &[
    Case::new("hostile/descriptors-that-loop", |cx| ring_of(cx, LOOPS)),
    Case::new("hostile/indices-out-of-range", |cx| ring_of(cx, INDICES)),
    Case::new("hostile/available-index-jumps", |cx| ring_of(cx, JUMPS)),
    Case::new("hostile/indirect-tables", |cx| ring_of(cx, INDIRECTS)),
    Case::new("hostile/addresses-and-lengths", |cx| ring_of(cx, ADDRESSES)),
    Case::new("hostile/buffers-that-overlap-the-rings", overlaps),
    Case::new("hostile/rings-of-random-bytes", random_rings),
    Case::new("hostile/bytes-changed-while-they-are-read", changing),
    Case::new(
        "hostile/memory-table-replaced-under-traffic",
        memory_replaced,
    ),
    Case::new("hostile/rings-unmapped-under-traffic", rings_unmapped),
    Case::new("hostile/eventfds-full-closed-or-none", eventfds),
    Case::new("hostile/the-error-eventfd-tells", error_eventfd),
    Case::new("hostile/closed-under-traffic", closed),
    Case::new("hostile/headers-of-random-bytes", random_headers),
    Case::new("hostile/in-order/descriptors-that-loop", |cx| {
        in_order(cx, |cx| ring_of(cx, LOOPS))
    })
    .c_differs(NO_IN_ORDER),
    Case::new("hostile/in-order/indices-out-of-range", |cx| {
        in_order(cx, |cx| ring_of(cx, INDICES))
    })
    .c_differs(NO_IN_ORDER),
    Case::new("hostile/in-order/available-index-jumps", |cx| {
        in_order(cx, |cx| ring_of(cx, JUMPS))
    })
    .c_differs(NO_IN_ORDER),
    Case::new("hostile/in-order/indirect-tables", |cx| {
        in_order(cx, |cx| ring_of(cx, INDIRECTS))
    })
    .c_differs(NO_IN_ORDER),
    Case::new("hostile/in-order/addresses-and-lengths", |cx| {
        in_order(cx, |cx| ring_of(cx, ADDRESSES))
    })
    .c_differs(NO_IN_ORDER),
    Case::new("hostile/in-order/rings-of-random-bytes", |cx| {
        in_order(cx, random_rings)
    })
    .c_differs(NO_IN_ORDER),
    Case::new("hostile/in-order/closed-under-traffic", |cx| {
        in_order(cx, closed)
    })
    .c_differs(NO_IN_ORDER),
];

const NO_IN_ORDER: &str = "it does not accept VIRTIO_F_IN_ORDER";

/// The case, with guests whose buffers are used in order.
fn in_order(cx: &mut Context, case: fn(&mut Context) -> Result<()>) -> Result<()> {
    cx.features = feature::IN_ORDER;
    cx.c_differs_here();
    case(cx)
}

/// Something wrong to write into a ring whose next available entry is fresh. The device may write to the scratch page.
type Wrong = fn(&mut Ring, scratch: u64, write: u16);

const LOOPS: &[(&str, Wrong)] = &[
    ("a descriptor that follows itself", |ring, page, write| {
        ring.write_desc(0, page, 100, write | NEXT, 0);
        ring.offer(0);
    }),
    ("two that follow each other", |ring, page, write| {
        ring.write_desc(0, page, 100, write | NEXT, 1);
        ring.write_desc(1, page, 100, write | NEXT, 0);
        ring.offer(0);
    }),
    ("a loop through all", |ring, page, write| {
        for slot in 0..ring.size {
            ring.write_desc(slot, page, 1, write | NEXT, (slot + 1) % ring.size);
        }
        ring.offer(3);
    }),
    ("a loop of empty parts", |ring, page, write| {
        ring.write_desc(0, page, 0, write | NEXT, 0);
        ring.offer(0);
    }),
    ("the same head many times", |ring, page, write| {
        ring.write_desc(0, page, 100, write, 0);
        (0..ring.size).for_each(|_| ring.offer(0));
    }),
];

const INDICES: &[(&str, Wrong)] = &[
    ("a head just past the ring", |ring, _, _| {
        ring.offer(ring.size)
    }),
    ("a head far past the ring", |ring, _, _| ring.offer(0xffff)),
    ("a next index past the ring", |ring, page, write| {
        ring.write_desc(0, page, 100, write | NEXT, ring.size);
        ring.offer(0);
    }),
    ("a next index far past the ring", |ring, page, write| {
        ring.write_desc(0, page, 100, write | NEXT, 0xffff);
        ring.offer(0);
    }),
    ("readable after writable", |ring, page, _| {
        ring.write_desc(0, page, 100, WRITE | NEXT, 1);
        ring.write_desc(1, page, 100, 0, 0);
        ring.offer(0);
    }),
    ("unknown flags", |ring, page, write| {
        ring.write_desc(0, page, 100, write | 0xfff0, 0);
        ring.offer(0);
    }),
];

const JUMPS: &[(&str, Wrong)] = &[
    ("one more than the ring holds", |ring, _, _| {
        let next = ring.avail_next();
        (0..=ring.size).for_each(|_| ring.offer(0));
        ensure_moved(ring, next);
    }),
    ("half way round", |ring, _, _| {
        (0..0x8000).for_each(|_| ring.offer(0))
    }),
    ("backwards", |ring, _, _| {
        (0..0xffff).for_each(|_| ring.offer(0))
    }),
];

/// The index that will be published is another one.
fn ensure_moved(ring: &Ring, from: u16) {
    assert_ne!(ring.avail_next(), from);
}

const INDIRECTS: &[(&str, Wrong)] = &[
    (
        "of a length that is no multiple of 16",
        |ring, page, write| {
            write_desc_at(&ring.mem, page, page + 2048, 100, write, 0);
            ring.write_desc(0, page, 17, INDIRECT, 0);
            ring.offer(0);
        },
    ),
    ("of no length", |ring, page, _| {
        ring.write_desc(0, page, 0, INDIRECT, 0);
        ring.offer(0);
    }),
    ("in an indirect table", |ring, page, _| {
        write_desc_at(&ring.mem, page, page + 1024, 16, INDIRECT, 0);
        write_desc_at(&ring.mem, page + 1024, page + 2048, 100, 0, 0);
        ring.write_desc(0, page, 16, INDIRECT, 0);
        ring.offer(0);
    }),
    ("in itself", |ring, page, _| {
        write_desc_at(&ring.mem, page, page, 16, INDIRECT, 0);
        ring.write_desc(0, page, 16, INDIRECT, 0);
        ring.offer(0);
    }),
    ("longer than its table", |ring, page, write| {
        write_desc_at(&ring.mem, page, page + 2048, 100, write | NEXT, 5);
        ring.write_desc(0, page, 16, INDIRECT, 0);
        ring.offer(0);
    }),
    ("that goes on in the ring", |ring, page, write| {
        write_desc_at(&ring.mem, page, page + 2048, 100, write, 0);
        ring.write_desc(0, page, 16, INDIRECT | NEXT, 1);
        ring.write_desc(1, page + 3000, 100, write, 0);
        ring.offer(0);
    }),
    ("that is writable", |ring, page, _| {
        ring.write_desc(0, page, 16, INDIRECT | WRITE, 0);
        ring.offer(0);
    }),
    ("of four gigabytes", |ring, page, _| {
        ring.write_desc(0, page, 0xffff_fff0, INDIRECT, 0);
        ring.offer(0);
    }),
    ("that is nowhere", |ring, _, _| {
        ring.write_desc(0, 0xdead_0000_0000, 32, INDIRECT, 0);
        ring.offer(0);
    }),
    ("of 64 Ki entries", |ring, _, _| {
        let table = ring.desc;
        ring.write_desc(0, table, 16 * 65536, INDIRECT, 0);
        ring.offer(0);
    }),
];

const ADDRESSES: &[(&str, Wrong)] = &[
    ("no such memory", |ring, _, write| {
        ring.write_desc(0, 0, 100, write, 0);
        ring.offer(0);
    }),
    ("an address that wraps around", |ring, _, write| {
        ring.write_desc(0, u64::MAX - 50, 100, write, 0);
        ring.offer(0);
    }),
    ("a length of four gigabytes", |ring, page, write| {
        ring.write_desc(0, page, u32::MAX, write, 0);
        ring.offer(0);
    }),
    ("past the end of memory", |ring, _, write| {
        use crate::vocabulary::memory::{BASE, REGION};
        ring.write_desc(0, BASE + 2 * REGION - 50, 100, write, 0);
        ring.offer(0);
    }),
    ("no length at all", |ring, page, write| {
        ring.write_desc(0, page, 0, write, 0);
        ring.offer(0);
    }),
    ("many empty parts and a good one", |ring, page, write| {
        (0..60).for_each(|slot| ring.write_desc(slot, page, 0, write | NEXT, slot + 1));
        ring.write_desc(60, page, 44, write, 0);
        ring.offer(0);
    }),
    ("more parts than can be taken in", |ring, page, write| {
        let table = ring.mem.alloc(16 * 2000).addr;
        for at in 0..2000 {
            let flags = write | if at < 1999 { NEXT } else { 0 };
            write_desc_at(&ring.mem, table + 16 * at, page, 1, flags, at as u16 + 1);
        }
        ring.write_desc(0, table, 16 * 2000, INDIRECT, 0);
        ring.offer(0);
    }),
];

/// The hostile guest and the polite one.
struct Pair {
    guest: Guest,
    polite: Polite,
}

impl Pair {
    fn new(cx: &mut Context) -> Result<Self> {
        let polite = Polite::start(cx.number());
        let guest = cx.guest(Plan::default().buffers(0, 4096))?;
        Ok(Self { guest, polite })
    }

    /// The device is stopped and started, and serves.
    fn recovers(&mut self, cx: &mut Context) -> Result<()> {
        self.guest.plan.buffers = 32;
        self.guest.reboot().context("restarting")?;
        let (mut flow, host) = self.guest.accept_new(cx).context("after the restart")?;
        host.send(b"still there?")?;
        ensure!(
            self.guest.hear_among(&mut flow, 12)? == b"still there?",
            "other bytes"
        );
        self.guest.say_with(&mut flow, Op::RW, 0, b"yes")?;
        ensure!(host.recv_exact(3)? == b"yes", "other bytes");
        self.guest.say(&mut flow, Op::RST)?;
        self.guest.drain()?;
        self.guest.plan.buffers = 0;
        self.guest.reboot().context("restarting")
    }
}

impl Guest {
    /// Receives bytes on `flow`, over what other connections have to say.
    fn hear_among(&mut self, flow: &mut crate::vocabulary::Flow, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let packet = self.recv()?;
            if flow.owns(&packet) {
                flow.note(&packet);
                bytes.extend(packet.payload);
            }
        }
        Ok(bytes)
    }

    /// As `accept()`, over what earlier connections still have to say.
    fn accept_new(&mut self, cx: &mut Context) -> Result<(crate::vocabulary::Flow, Host)> {
        let port = cx.number() as u32;
        let host = Host::connecting(Kind::STREAM, self.cid, port)?;
        loop {
            let packet = self.recv()?;
            if packet.op() == Op::REQUEST && packet.header.dst_port == port {
                let mut flow =
                    crate::vocabulary::Flow::new(Kind::STREAM, port, packet.header.src_port);
                flow.note(&packet);
                self.say(&mut flow, Op::RESPONSE)?;
                host.connected()?;
                return Ok((flow, host));
            }
        }
    }
}

fn ring_of(cx: &mut Context, wrongs: &[(&str, Wrong)]) -> Result<()> {
    let mut pair = Pair::new(cx)?;
    for (what, wrong) in wrongs {
        for queue in ["RX", "TX"] {
            cx.step(&format!("{queue}: {what}"));
            let page = pair.guest.mem.alloc(8192).addr;
            let (ring, write) = match queue {
                "RX" => (&mut pair.guest.rx, WRITE),
                _ => (&mut pair.guest.tx, 0),
            };
            wrong(ring, page, write);
            ring.publish();
            ring.kick();
            // Something for RX to do: the host asks for a connection.
            let _ = Host::connecting(Kind::STREAM, pair.guest.cid, cx.number() as u32);
            std::thread::sleep(Duration::from_millis(3));
            pair.recovers(cx)
                .with_context(|| format!("{queue}: {what}"))?;
        }
    }
    let rounds = pair.polite.finish()?;
    cx.note(&format!("{rounds} exchanges of the polite guest meanwhile"));
    Ok(())
}

fn overlaps(cx: &mut Context) -> Result<()> {
    let mut pair = Pair::new(cx)?;
    let rings = |guest: &Guest| {
        let of = |ring: &Ring| [ring.desc, ring.avail, ring.used];
        [of(&guest.rx), of(&guest.tx)].concat()
    };
    for (at, target) in rings(&pair.guest).into_iter().enumerate() {
        cx.step(&format!("RX buffers in part {at} of the rings"));
        for len in [44, 100, 4096] {
            pair.guest.rx.write_desc(0, target, len, WRITE, 0);
            for _ in 0..4 {
                pair.guest.rx.offer(0);
            }
            pair.guest.rx.publish();
            pair.guest.rx.kick();
            let _ = Host::connecting(Kind::STREAM, pair.guest.cid, cx.number() as u32);
            std::thread::sleep(Duration::from_millis(2));
            pair.recovers(cx)?;
        }
    }
    pair.polite.finish().map(drop)
}

fn random_rings(cx: &mut Context) -> Result<()> {
    let mut pair = Pair::new(cx)?;
    let rounds = cx.rounds(25, 2000);
    for round in 0..rounds {
        cx.step(&format!("round {round}"));
        let guest = &mut pair.guest;
        let page = guest.mem.alloc(65536).addr;
        for (ring, write) in [(&mut guest.rx, WRITE), (&mut guest.tx, 0)] {
            for slot in 0..ring.size {
                // Half sensible, half anything.
                let addr = if cx.rng.random() {
                    page + cx.rng.random_range(0..60000)
                } else {
                    cx.rng.random()
                };
                let len = if cx.rng.random() {
                    cx.rng.random_range(0..5000)
                } else {
                    cx.rng.random()
                };
                let flags = if cx.rng.random() {
                    write
                } else {
                    cx.rng.random_range(0..8)
                };
                ring.write_desc(
                    slot,
                    addr,
                    len,
                    flags,
                    cx.rng.random_range(0..ring.size + 2),
                );
            }
            let offers = cx.rng.random_range(1..ring.size);
            for _ in 0..offers {
                ring.offer(cx.rng.random_range(0..ring.size + 1));
            }
            ring.publish();
            ring.kick();
        }
        for _ in 0..4 {
            let _ = Host::connecting(Kind::STREAM, guest.cid, cx.number() as u32);
        }
        std::thread::sleep(Duration::from_millis(2));
        pair.recovers(cx)
            .with_context(|| format!("round {round}"))?;
        if round % 8 == 0 {
            pair.polite.check()?;
        }
    }
    pair.polite.finish().map(drop)
}

fn changing(cx: &mut Context) -> Result<()> {
    let mut pair = Pair::new(cx)?;
    let guest = &mut pair.guest;
    let block = guest.mem.alloc(8192);
    let packet = request_to_nobody(guest, 1).encode();
    guest.mem.write(block.addr, &packet);
    cx.step("length and descriptor change while the device reads them");
    for round in 0..cx.rounds(400, 50_000) {
        guest.tx.write_desc(0, block.addr, 4096, 0, 0);
        guest.tx.offer(0);
        guest.tx.publish();
        guest.tx.kick();
        for at in 0..50u32 {
            guest
                .mem
                .write(block.addr + 24, &(at * 100_000).to_le_bytes());
            guest
                .tx
                .write_desc(0, block.addr, at * 3000, (at % 3) as u16, at as u16);
        }
        let done = guest.tx.avail_next();
        if round % 64 == 63 {
            // Give the device time, or start over when it has given up.
            std::thread::sleep(Duration::from_millis(1));
            if guest.tx.used_idx() != done {
                pair.recovers(cx)?;
                return pair.polite.finish().map(drop);
            }
        }
    }
    pair.recovers(cx)?;
    pair.polite.finish().map(drop)
}

fn memory_replaced(cx: &mut Context) -> Result<()> {
    let mut pair = Pair::new(cx)?;
    pair.guest.plan.buffers = 32;
    pair.guest.refill()?;
    let (mut flow, host) = pair.guest.accept_new(cx)?;
    let table = pair.guest.mem.table();
    for round in 0..cx.rounds(60, 3000) {
        cx.step(&format!("round {round}"));
        let bytes = cx.bytes(2000);
        host.send(&bytes)?;
        pair.guest.say_with(&mut flow, Op::RW, 0, &bytes)?;
        // The same table again: nothing may be lost.
        pair.guest.dev.set_memory(&table)?;
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            got.extend(pair.guest.hear_among(&mut flow, 1)?);
        }
        ensure!(
            got == bytes && host.recv_exact(2000)? == bytes,
            "other bytes in round {round}"
        );
        pair.guest.give_credit(&mut flow)?;
    }
    cx.step("tables without the buffers, then without the rings' memory");
    for table in [&table[1..], &[], &table[..1]] {
        pair.guest.dev.set_memory(table)?;
        let _ = host.try_send(b"nowhere to go");
        pair.guest.tx.kick();
        std::thread::sleep(Duration::from_millis(3));
    }
    pair.recovers(cx)?;
    pair.polite.finish().map(drop)
}

fn rings_unmapped(cx: &mut Context) -> Result<()> {
    let mut pair = Pair::new(cx)?;
    let parts = |ring: &Ring| [ring.desc, ring.avail, ring.used];
    let places = [parts(&pair.guest.rx), parts(&pair.guest.tx)].concat();
    for (at, place) in places.into_iter().enumerate() {
        for prot in [libc::PROT_NONE, libc::PROT_READ] {
            cx.step(&format!("part {at} with protection {prot}"));
            pair.guest.plan.buffers = 8;
            pair.guest.reboot()?;
            let raw = request_to_nobody(&pair.guest, 1).encode();
            pair.guest.queue(&raw)?;
            pair.guest.tx.publish();
            protect(&pair.guest, place, prot)?;
            pair.guest.tx.kick();
            let _ = Host::connecting(Kind::STREAM, pair.guest.cid, cx.number() as u32);
            std::thread::sleep(Duration::from_millis(3));
            let _ = pair.guest.dev.stop();
            protect(&pair.guest, place, libc::PROT_READ | libc::PROT_WRITE)?;
            pair.recovers(cx)?;
        }
    }
    pair.polite.finish().map(drop)
}

/// Sets the protection of a page of guest memory.
fn protect(guest: &Guest, addr: u64, prot: libc::c_int) -> Result<()> {
    let user = guest.mem.user(addr) as *mut libc::c_void;
    // SAFETY: The page belongs to the guest's memory, and is not touched before its protection is put right.
    nix::errno::Errno::result(unsafe { libc::mprotect(user, 4096, prot) })?;
    Ok(())
}

fn eventfds(cx: &mut Context) -> Result<()> {
    let mut pair = Pair::new(cx)?;
    pair.guest.plan.buffers = 16;
    pair.guest.refill()?;
    cx.step("call eventfds that are full");
    let full = u64::MAX - 1;
    pair.guest
        .rx
        .call
        .write(full - pair.guest.rx.call.read().unwrap_or(0))?;
    pair.guest
        .tx
        .call
        .write(full - pair.guest.tx.call.read().unwrap_or(0))?;
    let (mut flow, host) = pair.guest.accept_new(cx)?;
    host.send(b"full")?;
    ensure!(
        pair.guest.hear_among(&mut flow, 4)? == b"full",
        "other bytes"
    );
    cx.step("no call eventfds: the guest looks for itself");
    let (rx, tx) = (pair.guest.rx.index, pair.guest.tx.index);
    pair.guest.dev.set_call(rx, -1)?;
    pair.guest.dev.set_call(tx, -1)?;
    host.send(b"none")?;
    let came = crate::vocabulary::proc::wait_until(crate::vocabulary::patience(), || {
        Ok(pair.guest.rx.used_idx() != pair.guest.rx.used_next())
    })?;
    ensure!(came, "nothing came without a call eventfd");
    cx.step("a kick eventfd closed by the guest, after which another is set");
    let fresh = vmm_sys_util::eventfd::EventFd::new(libc::EFD_NONBLOCK)?;
    pair.guest.tx.kick = fresh;
    pair.guest
        .dev
        .set_kick(tx, pair.guest.tx.kick.as_raw_fd())?;
    cx.step("a kick eventfd that is always readable");
    pair.guest.tx.kick.write(full)?;
    pair.polite.check()?;
    pair.guest.tx.kick.read()?;
    cx.step("one eventfd for everything");
    let one = pair.guest.rx.err.as_raw_fd();
    for queue in [rx, tx] {
        pair.guest.dev.set_kick(queue, one)?;
        pair.guest.dev.set_call(queue, one)?;
        pair.guest.dev.set_err(queue, one)?;
    }
    let _ = host.try_send(b"loud");
    pair.guest.rx.offer(0xffff);
    pair.guest.rx.publish();
    pair.guest.rx.err.write(1)?;
    std::thread::sleep(Duration::from_millis(20));
    pair.polite.check()?;
    pair.recovers(cx)?;
    pair.polite.finish().map(drop)
}

fn error_eventfd(cx: &mut Context) -> Result<()> {
    let mut pair = Pair::new(cx)?;
    ensure!(!pair.guest.tx.erred(), "an error before any");
    pair.guest.tx.offer(0xffff);
    pair.guest.tx.publish();
    pair.guest.tx.kick();
    let told = crate::vocabulary::proc::wait_until(crate::vocabulary::patience(), || {
        Ok(pair.guest.tx.erred())
    })?;
    ensure!(told, "the error eventfd tells nothing of a bad index");
    pair.recovers(cx)?;
    pair.polite.finish().map(drop)
}

fn closed(cx: &mut Context) -> Result<()> {
    let polite = Polite::start(cx.number());
    let cid = cx.number();
    for round in 0..cx.rounds(15, 1000) {
        cx.step(&format!("round {round}"));
        let mut guest = cx.guest_with(cid, Plan::default().buffers(32, 300))?;
        let (mut flow, host) = guest.accept(Kind::STREAM, 1)?;
        host.send(&vec![1; 100_000])?;
        guest.say_with(&mut flow, Op::RW, 0, &[2; 1000])?;
        if round % 2 == 0 {
            guest.hear(&mut flow)?;
        }
        let rings = [guest.rx.desc, guest.tx.used];
        for place in &rings[..round % 3 % 2] {
            protect(&guest, *place, libc::PROT_NONE)?;
        }
        drop(guest);
        host.fails_with(nix::errno::Errno::ECONNRESET)?;
    }
    polite.finish().map(drop)
}

fn random_headers(cx: &mut Context) -> Result<()> {
    let mut pair = Pair::new(cx)?;
    pair.guest.plan.buffers = 64;
    pair.guest.refill()?;
    let listener = Host::listener(Kind::STREAM)?;
    let port = listener.local_port()?;
    let (flow, host) = pair.guest.accept_new(cx)?;
    for round in 0..cx.rounds(1500, 200_000) {
        if round % 64 == 0 {
            cx.step(&format!("round {round}"));
            while listener.try_accept().is_ok() {}
        }
        let mut raw = cx.bytes(44 + round % 200);
        // Keep enough of the header right for the packet to get somewhere.
        raw[0..8].copy_from_slice(&pair.guest.cid.to_le_bytes());
        raw[8..16].copy_from_slice(&2u64.to_le_bytes());
        if cx.rng.random() {
            raw[20..24].copy_from_slice(&port.to_le_bytes());
        } else if cx.rng.random() {
            raw[16..20].copy_from_slice(&flow.guest_port.to_le_bytes());
            raw[20..24].copy_from_slice(&flow.host_port.to_le_bytes());
        }
        raw[24..28].copy_from_slice(&cx.rng.random_range(0..200u32).to_le_bytes());
        raw[28..30].copy_from_slice(&cx.rng.random_range(0..4u16).to_le_bytes());
        raw[30..32].copy_from_slice(&cx.rng.random_range(0..9u16).to_le_bytes());
        let pieces = [crate::vocabulary::ring::Piece {
            addr: pair.guest.mem.alloc(raw.len()).addr,
            len: raw.len() as u32,
            write: false,
        }];
        pair.guest.mem.write(pieces[0].addr, &raw);
        if pair.guest.tx.room() < 8 {
            pair.guest.reap()?;
            pair.guest.reboot()?;
        }
        pair.guest
            .tx
            .add(&pieces, crate::vocabulary::ring::Form::Direct)?;
        pair.guest.tx.flush();
        while pair.guest.try_recv()?.is_some() {}
        pair.guest.reap()?;
    }
    drop(host);
    pair.recovers(cx)?;
    pair.polite.finish().map(drop)
}
