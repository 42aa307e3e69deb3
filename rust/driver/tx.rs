// SPDX-License-Identifier: GPL-2.0

//! One pass over the TX queue: guest to host.
//!
//! Buffers are taken in order. The header of each is read once and checked; consecutive packets
//! of one flow that may be joined are copied into one skb, so that the socket is looked up, locked
//! and woken once for all of them. A buffer is completed when its bytes are safe, and completed
//! buffers are published together.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        rcu, //
    },
    time::Delta, //
};

use super::{
    guest::Guest,
    stats::count,
    transport::VhostTransport, //
};
use crate::{
    abstractions::{
        params, trace,
        vhost::{
            busy_clock,
            Chain,
            ChainError,
            Enabled,
            QueueId,
            Ring,
            RingStats,
            PACKET_WEIGHT,
            RING_ARRAY_CAPACITY, //
        },
        vsock::{
            has_tap,
            Packet,
            TransportRegistration, //
        },
    },
    logic::{
        buffer,
        cid,
        header::{
            Header,
            HEADER_LEN, //
        },
        lanes,
        linger::{
            Pace,
            Wish, //
        },
        run,
        used, //
    },
};

/// Most packets that are joined.
const MAX_PARTS: usize = 32;

/// How long the worker waits when there is no memory for a packet, before it tries again.
const RETRY_DELAY: Delta = Delta::from_millis(1);

/// Runs one pass. Context: the worker of the TX queue, or whoever stands in for it at the end.
pub(super) fn run(guest: &Guest) {
    let batching = params::tx_batch();
    let limit = |size| used::batch_limit(size, RING_ARRAY_CAPACITY, PACKET_WEIGHT, batching);
    let Some(ring) = guest.device.lock_queue(QueueId::Tx).poll_ring(limit) else {
        guest.tx_requeued.store(false, Relaxed);
        return;
    };

    let linger_us = linger_limit(guest, &ring);
    let credit = HeldCredit::new(guest, linger_us);
    let mut parts = guest.tx_parts.lock();
    let mut pass = TxPass::new(guest, &mut parts, linger_us);
    let ring_stats = pass.run(ring);
    let rest = pass.finish(&ring_stats);
    drop(parts);
    guest
        .tx_requeued
        .store(!matches!(rest, Rest::Told), Relaxed);
    rest.take(guest);
    credit.let_go();
    rest.come_back(guest);
}

/// Most microseconds that the worker may linger after the pass over `ring` that begins. None if the
/// ring is polled, which says more than a pace does.
fn linger_limit(guest: &Guest, ring: &Ring<'_>) -> u32 {
    if guest.is_released() || ring.poll_timeout(params::busyloop_us()) > 0 {
        0
    } else {
        params::tx_linger_us()
    }
}

/// What the worker does before it comes back by itself, if it does.
#[derive(Clone, Copy)]
enum Rest {
    /// It comes back when it is told.
    Told,
    /// It comes back after other work: its budget is spent.
    OtherWork,
    /// It gives memory the time to be freed.
    ForMemory,
    /// It gives the guest the time to send more: microseconds.
    Linger(u32),
}

impl Rest {
    /// Context: no lock held.
    fn take(self, guest: &Guest) {
        match self {
            Rest::Told | Rest::OtherWork => (),
            Rest::ForMemory => kernel::time::delay::fsleep(RETRY_DELAY),
            Rest::Linger(us) => {
                guest.device.linger(QueueId::Tx, us);
            }
        }
    }

    fn come_back(self, guest: &Guest) {
        // For other work it was queued already.
        if matches!(self, Rest::ForMemory | Rest::Linger(_)) {
            guest.device.kick(QueueId::Tx, &rcu::read_lock());
        }
    }
}

/// With `tx_linger_us`, what only tells the guest that it may send more does not wake the worker
/// from the beginning of a pass over TX until it has lingered. A reader that empties its socket
/// after every pass would end each rest at once, and interrupt the guest for it.
struct HeldCredit<'a>(Option<&'a Guest>);

impl<'a> HeldCredit<'a> {
    /// Where RX has a worker of its own, that has nothing else to do.
    fn new(guest: &'a Guest, linger_us: u32) -> Self {
        let held = linger_us > 0 && guest.device.is_worker_shared();
        if held {
            guest.hold_credit();
        }
        Self(held.then_some(guest))
    }

    fn let_go(self) {
        if let Some(guest) = self.0 {
            guest.let_credit_go();
        }
    }
}

/// What a buffer was found to hold.
enum Item {
    /// A packet with so many bytes of payload.
    Packet(Chain, Header, usize),
    /// No packet.
    Malformed(Chain),
}

/// One of the packets that are joined, without what all of them share.
struct Part {
    chain: Chain,
    len: usize,
    buf_alloc: u32,
    fwd_cnt: u32,
}

/// Packets that are delivered as one, and what else is kept from pass to pass.
pub(super) struct Parts {
    parts: [Option<Part>; MAX_PARTS],
    count: usize,
    bytes: usize,
    /// Most bytes that they may have, by the first one.
    limit: usize,
    /// The header of the last one.
    header: Header,
    /// How fast the guest sends.
    pace: Pace,
}

impl Parts {
    /// No packets.
    pub(super) fn new() -> Self {
        Self {
            parts: [const { None }; MAX_PARTS],
            count: 0,
            bytes: 0,
            limit: 0,
            header: Header::from_bytes(&[0; HEADER_LEN]),
            pace: Pace::new(),
        }
    }

    /// Gives up all packets, in order.
    fn drain(&mut self, mut each: impl FnMut(Part)) {
        for part in self.parts[..self.count].iter_mut().filter_map(Option::take) {
            each(part);
        }
        self.count = 0;
        self.bytes = 0;
    }

    fn push(&mut self, chain: Chain, header: Header, len: usize) {
        if let Some(place) = self.parts.get_mut(self.count) {
            *place = Some(Part {
                chain,
                len,
                buf_alloc: header.buf_alloc,
                fwd_cnt: header.fwd_cnt,
            });
            if self.count == 0 {
                self.limit = run::limit(len);
            }
            self.count += 1;
            self.bytes += len;
            self.header = header;
        }
    }

    /// Whether a packet with `len` bytes of payload may be joined.
    fn may_join(&self, header: &Header, len: usize) -> bool {
        self.count < MAX_PARTS
            && self.bytes + len <= self.limit
            && run::may_join(&self.header, header)
    }

    fn iter(&self) -> impl Iterator<Item = &Part> {
        self.parts[..self.count].iter().flatten()
    }

    /// The header that `part` came with.
    fn header_of(&self, part: &Part) -> Header {
        Header {
            len: part.len as u32,
            buf_alloc: part.buf_alloc,
            fwd_cnt: part.fwd_cnt,
            ..self.header
        }
    }

    /// The header of all parts in one.
    fn joined(&self) -> Header {
        run::joined(self.header, self.bytes as u32)
    }
}

/// Why a packet was not delivered.
enum Failure {
    /// There is no memory.
    NoMemory,
    /// A buffer cannot be read.
    Fault,
}

struct TxPass<'a> {
    guest: &'a Guest,
    join: bool,
    /// A buffer that was taken, looked at and not handled yet.
    next: Option<Item>,
    /// The packets that are delivered next.
    parts: &'a mut Parts,
    packets: u32,
    deliveries: u32,
    misaddressed: u32,
    rest: Rest,
    /// Most microseconds that the worker may linger.
    linger_us: u32,
    /// Packets with payload.
    loaded: u32,
    /// A bit for each lane that these were of.
    lanes: u64,
    /// Payload.
    bytes: usize,
    /// What counts against the budget: buffers, and bytes of payload and headers.
    spent: u32,
    spent_bytes: usize,
}

impl<'a> TxPass<'a> {
    fn new(guest: &'a Guest, parts: &'a mut Parts, linger_us: u32) -> Self {
        Self {
            guest,
            join: params::tx_coalesce(),
            next: None,
            parts,
            packets: 0,
            deliveries: 0,
            misaddressed: 0,
            rest: Rest::Told,
            linger_us,
            loaded: 0,
            lanes: 0,
            bytes: 0,
            spent: 0,
            spent_bytes: 0,
        }
    }

    fn run(&mut self, mut ring: Ring<'_>) -> RingStats {
        if self.linger_us > 0 {
            self.parts.pace.begin(busy_clock());
        }
        let wish = Wish::tx(self.guest.device.ring_size(QueueId::Tx), self.linger_us);
        loop {
            if !self.guest.may_reply() {
                // Whoever takes the replies out of the send queue kicks this queue.
                return ring.leave();
            }
            match self.take(&mut ring) {
                Ok(Some(Item::Packet(chain, header, len))) => {
                    self.parts.push(chain, header, len);
                    self.gather(&mut ring);
                    if self.deliver_or_put_back(&mut ring).is_err() {
                        self.rest = Rest::ForMemory;
                        return ring.leave();
                    }
                }
                Ok(Some(Item::Malformed(chain))) => {
                    self.refused(chain.head() as i32);
                    ring.refuse_chain(chain, c"a TX buffer holds no valid packet");
                }
                Ok(None) => {
                    if ring.poll_for_buffer(ring.poll_timeout(params::busyloop_us())) {
                        continue;
                    }
                    let packets = self.busy_packets();
                    let pace = &mut self.parts.pace;
                    let pause = pace.pause(busy_clock, packets, self.bytes, wish);
                    if let Some(pause) = pause {
                        self.rest = Rest::Linger(pause.us);
                        return ring.leave();
                    }
                    match ring.enable_notifications() {
                        Enabled::Idle(stats) => return stats,
                        Enabled::More(more) => ring = more,
                    }
                    continue;
                }
                Err(ChainError::Refused(head)) => self.refused(head),
                Err(ChainError::Miss | ChainError::Broken | ChainError::Full) => {
                    return ring.leave();
                }
            }
            if ring.exceeds_weight(self.spent, self.spent_bytes) {
                self.rest = Rest::OtherWork;
                let packets = self.busy_packets();
                self.parts.pace.unfinished(packets, self.bytes);
                return ring.leave();
            }
        }
    }

    /// The packets with payload, if most of them are behind others of their flow.
    fn busy_packets(&self) -> u32 {
        if self.loaded >= 2 * self.lanes.count_ones() {
            self.loaded
        } else {
            0
        }
    }

    /// The buffer that was looked at before, or the next one of the ring.
    fn take(&mut self, ring: &mut Ring<'_>) -> Result<Option<Item>, ChainError> {
        match self.next.take() {
            Some(Item::Packet(chain, header, len)) => {
                Ok(Some(Item::Packet(ring.settle(chain), header, len)))
            }
            Some(Item::Malformed(chain)) => Ok(Some(Item::Malformed(chain))),
            None => self.look(ring),
        }
    }

    /// Takes a buffer and reads its header, once.
    fn look(&mut self, ring: &mut Ring<'_>) -> Result<Option<Item>, ChainError> {
        let Some(chain) = ring.next_chain()? else {
            return Ok(None);
        };
        let readable = chain.readable_len();
        if !buffer::tx_shape_ok(readable, chain.writable_len()) {
            return Ok(Some(Item::Malformed(chain)));
        }
        let mut bytes = [0; HEADER_LEN];
        if ring.reader(&chain, 0, HEADER_LEN).read(&mut bytes).is_err() {
            return Ok(Some(Item::Malformed(chain)));
        }
        let header = Header::from_bytes(&bytes);
        Ok(Some(match buffer::tx_payload(readable, header.len) {
            Some(len) => Item::Packet(chain, header, len),
            None => Item::Malformed(chain),
        }))
    }

    /// Takes the packets that may be joined to the first; the one that ends the run is kept.
    fn gather(&mut self, ring: &mut Ring<'_>) {
        if !self.join || !run::is_joinable(&self.parts.header) {
            return;
        }
        while self.parts.count < MAX_PARTS && self.parts.bytes < self.parts.limit {
            match self.look(ring) {
                Ok(Some(Item::Packet(chain, header, len))) if self.parts.may_join(&header, len) => {
                    self.parts.push(chain, header, len);
                }
                Ok(item) => {
                    self.next = item;
                    break;
                }
                // Met again, and dealt with, when those that were taken are done.
                Err(_) => break,
            }
        }
    }

    /// Delivers packets and completes their buffers. Where that fails, each is tried on its own;
    /// an error means that there is no memory even for that, and all buffers were put back.
    fn deliver_or_put_back(&mut self, ring: &mut Ring<'_>) -> Result {
        let result = self.deliver(ring);
        let count = self.parts.count;
        match result {
            Ok(()) => {
                self.parts.drain(|part| ring.complete(part.chain, 0));
                Ok(())
            }
            Err(_) if count > 1 => {
                self.put_back(ring);
                self.join = false;
                Ok(())
            }
            Err(Failure::NoMemory) => {
                self.put_back(ring);
                Err(ENOMEM)
            }
            Err(Failure::Fault) => {
                let mut head = 0;
                self.parts.drain(|part| {
                    head = part.chain.head() as i32;
                    ring.refuse_chain(part.chain, c"a TX buffer cannot be read");
                });
                self.refused(head);
                Ok(())
            }
        }
    }

    /// Puts back all buffers that were taken and not completed.
    fn put_back(&mut self, ring: &mut Ring<'_>) {
        self.next = None;
        self.parts.drain(drop);
        ring.put_back();
    }

    /// Copies packets out of their buffers and gives them to their socket as one.
    fn deliver(&mut self, ring: &Ring<'_>) -> Result<(), Failure> {
        let parts = &*self.parts;
        let mut packet =
            Packet::alloc(&parts.joined(), parts.bytes).map_err(|_| Failure::NoMemory)?;
        let mut offset = 0;
        for part in parts.iter() {
            ring.reader(&part.chain, HEADER_LEN, part.len)
                .read_payload(&mut packet, offset, part.len)
                .map_err(|_| Failure::Fault)?;
            offset += part.len;
        }
        if has_tap() {
            Self::deliver_tap(&mut packet, parts);
        }

        let packets = parts.count as u32;
        let flow = parts.header.flow;
        self.packets += packets;
        if parts.bytes > 0 {
            self.loaded += packets;
            self.lanes |= 1 << lanes::lane_of(&flow);
        }
        self.bytes += parts.bytes;
        self.spent += packets;
        self.spent_bytes += parts.count * HEADER_LEN + parts.bytes;
        // Only correctly addressed packets are accepted.
        if flow.src_cid == u64::from(self.guest.cid()) && flow.dst_cid == u64::from(cid::HOST) {
            self.deliveries += 1;
            TransportRegistration::<VhostTransport>::receive(packet, &self.guest.net);
        } else {
            self.misaddressed += packets;
        }
        Ok(())
    }

    /// Shows each packet to vsockmon on its own, with the header that it came with.
    fn deliver_tap(packet: &mut Packet, parts: &Parts) {
        let mut offset = 0;
        for part in parts.iter() {
            packet.set_header(&parts.header_of(part));
            packet.set_offset(offset);
            packet.deliver_tap();
            offset += part.len;
        }
        packet.set_offset(0);
        packet.set_header(&parts.joined());
    }

    fn refused(&mut self, head: i32) {
        self.spent += 1;
        trace::bad_buffer(self.guest.cid(), QueueId::Tx as u32, head);
    }

    /// Accounts for the pass. The queue's mutex is held no more.
    fn finish(&self, ring: &RingStats) -> Rest {
        let guest = self.guest;
        count!(
            guest,
            tx_lingers += matches!(self.rest, Rest::Linger(_)),
            tx_passes += 1u32,
            tx_packets += self.packets,
            tx_deliveries += self.deliveries,
            tx_misaddressed += self.misaddressed,
            tx_retries += matches!(self.rest, Rest::ForMemory),
            tx_bytes += self.bytes as u64,
            tx_buffers += ring.buffers,
            tx_publishes += ring.publishes,
            tx_signals += ring.signals,
            tx_refused += ring.refused,
        );
        trace::tx_pass(
            guest.cid(),
            &trace::Pass {
                packets: self.packets,
                buffers: ring.buffers,
                bytes: self.bytes as u64,
                publishes: ring.publishes,
            },
        );
        self.rest
    }
}
