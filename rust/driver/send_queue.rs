// SPDX-License-Identifier: GPL-2.0

//! Packets that wait for the guest.
//!
//! Flows are spread over lanes that are served in turn (see [`crate::logic::lanes`]). A lane has
//! one lock, which a sender takes once for a packet, and the worker once for all packets that go
//! into one buffer.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
};

use crate::{
    abstractions::vsock::{
        Packet,
        PacketQueue,
        PacketQueueGuard,
        VsockSock, //
    },
    logic::{
        header::Header,
        lanes,
        run, //
    },
};

/// Packets that wait for the guest.
#[pin_data]
pub(super) struct SendQueue {
    #[pin]
    lanes: [PacketQueue; lanes::LANES],
    /// A bit for each lane that has packets; changed under the lane's lock.
    waiting: Atomic<u64>,
}

impl SendQueue {
    /// An empty queue.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            lanes <- pin_init::pin_init_array_from_fn(|_| PacketQueue::new()),
            waiting: Atomic::new(0),
        })
    }

    /// Whether no packet waits. Without a lock it may change at once.
    ///
    /// Fully ordered when it says yes: a sender adds its packet before it queues the work, so a
    /// worker that has begun the work and sees nothing here may end it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Relaxed) == 0 && self.waiting.fetch_add(0u64, Full) == 0
    }

    /// Number of packets that wait.
    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.lock().len()).sum()
    }

    /// Adds a packet behind those of its flow; returns their lane. Context: any but hard interrupts.
    pub(super) fn push(&self, packet: Packet) -> usize {
        let lane = lanes::lane_of(&packet.header().flow);
        let mut queue = self.lanes[lane].lock();
        let was_empty = queue.is_empty();
        queue.push_back(packet);
        if was_empty {
            self.mark(lane);
        }
        lane
    }

    /// Puts the packets of `run` back before all others of their flow.
    pub(super) fn put_back(&self, run: &mut Run) {
        if run.is_empty() {
            return;
        }
        let mut queue = self.lanes[run.lane].lock();
        while let Some(packet) = run.pop_back() {
            queue.push_front(packet);
        }
        self.mark(run.lane);
    }

    /// Puts the packets of `run` back if its flow has had its turn and others wait. A turn lasts to
    /// the end of a packet: what is in parts wakes its reader for each.
    pub(super) fn end_turn(&self, run: &mut Run) {
        if !run.is_empty()
            && !run.is_cut()
            && lanes::turn_is_over(run.turn_bytes, || self.waiting.load(Relaxed), run.lane)
        {
            self.put_back(run);
        }
    }

    /// Takes packets into `run` until they fill a buffer with `room` bytes for payload.
    ///
    /// An empty run gets the first packet of the next lane. More follow while `join` is set and
    /// they may share the buffer; the last one may be larger than what is left of the room.
    pub(super) fn fill(&self, run: &mut Run, room: usize, join: bool) {
        if run.is_empty() {
            let Some(lane) = lanes::next(self.waiting.load(Relaxed), run.lane) else {
                return;
            };
            run.lane = lane;
            run.turn_bytes = 0;
            let mut queue = self.lanes[lane].lock();
            if let Some(packet) = queue.pop_front() {
                run.push_back(packet);
            }
            self.join(run, queue, room, join);
        } else if join && run.may_grow(room) {
            self.join(run, self.lanes[run.lane].lock(), room, join);
        }
    }

    /// Joins packets of the locked lane to the run, then notes whether the lane has more.
    fn join(&self, run: &mut Run, mut queue: PacketQueueGuard<'_>, room: usize, join: bool) {
        if let Some(last) = run.last_header().filter(|_| join) {
            while run.may_grow(room) {
                // What may be joined to one of a run may be to any.
                match queue.pop_front_if(|next| run::may_join(&last, next)) {
                    Some(packet) => run.push_back(packet),
                    None => break,
                }
            }
        }
        if queue.is_empty() {
            self.unmark(run.lane);
        }
    }

    /// Frees the waiting packets of a socket; returns how many were replies.
    pub(super) fn cancel(&self, sock: &VsockSock) -> u32 {
        let mut replies = 0;
        for (lane, packets) in self.lanes.iter().enumerate() {
            if self.waiting.load(Relaxed) & bit(lane) == 0 {
                continue;
            }
            replies += packets.purge(sock);
            let queue = packets.lock();
            if queue.is_empty() {
                self.unmark(lane);
            }
        }
        replies
    }

    /// Notes that `lane` has packets. Its lock is held.
    fn mark(&self, lane: usize) {
        self.update(|waiting| waiting | bit(lane));
    }

    /// Notes that `lane` has none. Its lock is held.
    fn unmark(&self, lane: usize) {
        self.update(|waiting| waiting & !bit(lane));
    }

    fn update(&self, change: impl Fn(u64) -> u64) {
        let mut old = self.waiting.load(Relaxed);
        while let Err(current) = self.waiting.cmpxchg(old, change(old), Full) {
            old = current;
        }
    }
}

/// The bit of a lane.
fn bit(lane: usize) -> u64 {
    1 << lane
}

/// Packets of one flow that were taken out of the queue to go into one buffer.
///
/// All but a single one are plain stream data, in order. Only the first may have been sent in part.
pub(super) struct Run {
    packets: [Option<Packet>; run::MAX_PACKETS],
    count: usize,
    /// Bytes that are still to be sent.
    bytes: usize,
    /// The lane that they came from, and, when there are none, the last one that was served.
    lane: usize,
    /// Bytes that the lane has sent in its turn.
    turn_bytes: usize,
}

impl Run {
    /// No packets.
    pub(super) fn new() -> Self {
        Self {
            packets: [const { None }; run::MAX_PACKETS],
            count: 0,
            bytes: 0,
            lane: 0,
            turn_bytes: 0,
        }
    }

    /// Whether there are no packets.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the first packet was sent in part.
    fn is_cut(&self) -> bool {
        matches!(&self.packets[0], Some(packet) if packet.offset() > 0)
    }

    /// The lane that the packets came from.
    pub(super) fn lane(&self) -> usize {
        self.lane
    }

    /// Bytes that are still to be sent.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The header of a buffer with the first `payload` bytes; [`None`] if there are no packets.
    pub(super) fn header(&self, payload: usize) -> Option<Header> {
        let len = u32::try_from(payload).ok()?;
        if payload == self.bytes {
            return Some(run::joined(self.last_header()?, len).fragment(len, true));
        }
        let mut left = payload;
        for packet in self.packets[..self.count].iter().flatten() {
            let remaining = packet.remaining();
            if remaining >= left {
                let last = packet.header();
                return Some(run::joined(last, len).fragment(len, remaining == left));
            }
            left -= remaining;
        }
        None
    }

    /// Calls `each` with the packets that the first `payload` bytes are of, and how many are of
    /// each. A packet without payload is one part of no bytes.
    pub(super) fn try_for_each_part(
        &self,
        payload: usize,
        mut each: impl FnMut(&Packet, usize) -> Result,
    ) -> Result {
        let mut left = payload;
        for packet in self.packets[..self.count].iter().flatten() {
            let part = packet.remaining().min(left);
            each(packet, part)?;
            left -= part;
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The header of the last packet.
    fn last_header(&self) -> Option<Header> {
        match self.packets[..self.count].last() {
            Some(Some(packet)) => Some(packet.header()),
            _ => None,
        }
    }

    /// Whether one more packet could get a place in a buffer with `room` bytes.
    fn may_grow(&self, room: usize) -> bool {
        self.bytes < room && self.count < run::MAX_PACKETS
    }

    fn push_back(&mut self, packet: Packet) {
        if let Some(place) = self.packets.get_mut(self.count) {
            self.bytes += packet.remaining();
            self.count += 1;
            *place = Some(packet);
        }
    }

    fn pop_back(&mut self) -> Option<Packet> {
        let last = self.count.checked_sub(1)?;
        let packet = self.packets[last].take()?;
        self.count = last;
        self.bytes -= packet.remaining();
        Some(packet)
    }

    /// Notes that the first `bytes` bytes were sent. Calls `sent` with each packet that they are
    /// of, before the packet's own offset moves, and how many are of it; then gives it to `done`,
    /// if it was completed. A packet without payload is completed by any number of bytes.
    pub(super) fn advance(
        &mut self,
        mut bytes: usize,
        mut sent: impl FnMut(&mut Packet, usize),
        mut done: impl FnMut(Packet),
    ) {
        self.turn_bytes += bytes;
        if bytes == self.bytes {
            for place in &mut self.packets[..self.count] {
                if let Some(mut packet) = place.take() {
                    let remaining = packet.remaining();
                    sent(&mut packet, remaining);
                    done(packet);
                }
            }
            self.count = 0;
            self.bytes = 0;
            return;
        }
        let mut completed = 0;
        for place in &mut self.packets[..self.count] {
            let Some(mut packet) = place.take() else {
                break;
            };
            let remaining = packet.remaining();
            let part = remaining.min(bytes);
            sent(&mut packet, part);
            bytes -= part;
            self.bytes -= part;
            if part < remaining {
                packet.set_offset(packet.offset() + part);
                *place = Some(packet);
                break;
            }
            completed += 1;
            done(packet);
            if bytes == 0 {
                break;
            }
        }
        // What is left, mostly nothing or one packet, moves to the front.
        for at in completed..self.count {
            self.packets[at - completed] = self.packets[at].take();
        }
        self.count -= completed;
    }
}
