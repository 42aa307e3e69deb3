// SPDX-License-Identifier: GPL-2.0

//! One pass over the RX queue: host to guest.
//!
//! Packets are taken in the order of their flow and written into the guest's buffers, several of
//! one flow into one buffer where the rules allow it. Used buffers are held back and published
//! together; the guest is signalled once, when the pass ends. A sender of many small packets is
//! then left the time to add more.
//!
//! A buffer is in hand before a packet is taken out of the queue, so a packet is out of it only
//! while it is being written.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        rcu, //
    },
};

use super::{
    guest::Guest,
    send_queue::Run,
    stats::count, //
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
            Packet, //
        },
    },
    logic::{
        buffer,
        header::{
            Header,
            HEADER_LEN, //
        },
        linger::{
            Pace,
            Pause,
            Rows,
            Wish, //
        },
        run,
        used, //
    },
};

/// Runs one pass. Context: the worker of the RX queue.
pub(super) fn run(guest: &Guest) {
    let batching = params::rx_batch();
    let limit = |size| used::batch_limit(size, RING_ARRAY_CAPACITY, PACKET_WEIGHT, batching);
    let Some(ring) = guest.device.lock_queue(QueueId::Rx).poll_ring(limit) else {
        guest.gather.end();
        return;
    };

    let linger_us = linger_limit(guest, &ring);
    let mut kept = guest.rx_kept.lock();
    guest.gather.hold();
    let mut pass = RxPass::new(guest, &mut kept, linger_us);
    let ring_stats = pass.run(ring);
    let rest = pass.finish(&ring_stats);
    drop(kept);
    match rest {
        Some(rest) => linger(guest, rest),
        // Where packets wait, a kick, the VMM's answer or the next pass will take them.
        None => {
            guest.gather.end();
        }
    }
}

/// Leaves a sender the time to add packets, then has them taken.
///
/// Context: the worker of the RX queue; no lock held; sleeps.
fn linger(guest: &Guest, rest: Rest) {
    if guest.device.is_send_work_queued() {
        // Mostly for packets that this pass has taken, so it may be about nothing. It runs now, and
        // no packet that gathers queues it once more.
        guest.rx_kept.lock().cut = Some(rest);
        return;
    }
    count!(guest, rx_lingers += 1u32);
    let end = wait_for_packets(guest, rest.pause);
    let is_empty = guest.send_queue.is_empty();
    let pace = &mut guest.rx_kept.lock().pace;
    match end {
        PauseEnd::Quiet => pace.did_not_pay(),
        PauseEnd::Told if is_empty => pace.forget(),
        PauseEnd::Told | PauseEnd::Over => pace.paid(),
    }
    if is_empty || !guest.device.queue_send_work(&rcu::read_lock()) {
        guest.end_gathering();
    }
}

/// How a pause ended.
enum PauseEnd {
    /// There is work: as many packets as were waited for, or what cannot wait.
    Told,
    /// The sender has stopped.
    Quiet,
    /// The time is over.
    Over,
}

fn wait_for_packets(guest: &Guest, pause: Pause) -> PauseEnd {
    let mut left = pause.packets;
    for _ in 0..pause.slices() {
        if guest.device.linger(QueueId::Rx, pause.slice_us()) {
            return PauseEnd::Told;
        }
        let before = core::mem::replace(&mut left, guest.gather.left());
        if left == before {
            return PauseEnd::Quiet;
        }
    }
    PauseEnd::Over
}

/// Most microseconds that the worker may linger after the pass over `ring` that begins. None if the
/// queue is polled, which says more than a pace does, or if packets share no buffers.
fn linger_limit(guest: &Guest, ring: &Ring<'_>) -> u32 {
    let polled = ring.poll_timeout(params::busyloop_us()) > 0;
    if polled || guest.is_released() || !params::rx_coalesce() {
        0
    } else {
        params::rx_linger_us()
    }
}

/// What is kept from pass to pass.
pub(super) struct Kept {
    /// Empty between passes, and too large to make for each.
    run: Run,
    /// How fast packets of `lane` come.
    pace: Pace,
    lane: usize,
    /// The rest that has not begun, as the send work was queued.
    cut: Option<Rest>,
}

impl Kept {
    /// No packets, and no pace.
    pub(super) fn new() -> Self {
        Self {
            run: Run::new(),
            pace: Pace::new(),
            lane: 0,
            cut: None,
        }
    }
}

/// The lane whose sender is left the time to add packets, and how long.
#[derive(Clone, Copy)]
struct Rest {
    lane: usize,
    pause: Pause,
}

struct RxPass<'a> {
    guest: &'a Guest,
    join: bool,
    run: &'a mut Run,
    pace: &'a mut Pace,
    /// The lane of the pace.
    pace_lane: &'a mut usize,
    cut: Option<Rest>,
    /// Most microseconds that the worker may linger.
    linger_us: u32,
    rest: Option<Rest>,
    /// Plain stream data.
    rows: Rows,
    /// There is a vsockmon device, as far as the packets in hand are concerned.
    tap: bool,
    /// What counts against the budget: packets, or buffers where a packet needed several.
    spent: u32,
    bytes: usize,
    packets: u32,
    replies: u32,
}

impl<'a> RxPass<'a> {
    fn new(guest: &'a Guest, kept: &'a mut Kept, linger_us: u32) -> Self {
        Self {
            guest,
            join: params::rx_coalesce(),
            run: &mut kept.run,
            pace: &mut kept.pace,
            pace_lane: &mut kept.lane,
            cut: kept.cut.take(),
            linger_us,
            rest: None,
            rows: Rows::default(),
            tap: false,
            spent: 0,
            bytes: 0,
            packets: 0,
            replies: 0,
        }
    }

    fn run(&mut self, mut ring: Ring<'_>) -> RingStats {
        if self.linger_us > 0 {
            self.pace.begin(busy_clock());
        }
        loop {
            if !self.has_packets(&mut ring) {
                self.rest();
                // Whoever sends the next one queues the work.
                return ring.leave();
            }
            match ring.next_chain() {
                Ok(Some(chain)) => self.fill(&mut ring, chain),
                Ok(None) => {
                    self.put_back();
                    self.settle_replies();
                    if ring.poll_for_buffer(ring.poll_timeout(params::busyloop_us())) {
                        continue;
                    }
                    match ring.enable_notifications() {
                        Enabled::Idle(stats) => {
                            self.pace.forget();
                            return stats;
                        }
                        Enabled::More(more) => ring = more,
                    }
                    continue;
                }
                Err(ChainError::Refused(head)) => self.refused(head),
                Err(ChainError::Miss | ChainError::Broken | ChainError::Full) => {
                    self.put_back();
                    return ring.leave();
                }
            }
            if ring.exceeds_weight(self.spent, self.bytes) {
                self.guest.rx_requeued.store(true, Relaxed);
                self.put_back();
                self.pace.forget();
                return ring.leave();
            }
        }
    }

    /// Decides whether the worker lingers, all packets being taken. If so, those that follow may
    /// wait from now on.
    fn rest(&mut self) {
        self.rest = self.rest_of_row().or_else(|| self.rest_that_was_cut());
        match self.rest {
            Some(Rest { lane, pause }) => self.guest.gather.begin(lane, pause.packets),
            None => self.guest.end_gathering(),
        }
    }

    /// By the longest row of this pass.
    fn rest_of_row(&mut self) -> Option<Rest> {
        let Some(row) = self.rows.longest() else {
            self.pace.forget();
            return None;
        };
        if core::mem::replace(self.pace_lane, row.lane) != row.lane {
            self.pace.other_flow();
        }
        let wish = Wish::rx(self.linger_us);
        let pause = self.pace.pause(busy_clock, row.packets, row.bytes, wish)?;
        Some(Rest {
            lane: row.lane,
            pause,
        })
    }

    /// As decided behind the pass before.
    fn rest_that_was_cut(&mut self) -> Option<Rest> {
        let mut rest = self.cut.take().filter(|_| self.linger_us > 0)?;
        rest.pause.us = rest.pause.us.min(self.linger_us);
        self.pace.go_on(busy_clock());
        *self.pace_lane = rest.lane;
        Some(rest)
    }

    /// Whether there is a packet to send, now or within the time that the queue is polled.
    fn has_packets(&mut self, ring: &mut Ring<'_>) -> bool {
        if !self.run.is_empty() || !self.guest.send_queue.is_empty() {
            return true;
        }
        let timeout = ring.poll_timeout(params::busyloop_us());
        if timeout == 0 {
            return false;
        }
        ring.publish_and_signal();
        self.settle_replies();
        ring.poll_until(timeout, |_| !self.guest.send_queue.is_empty())
    }

    /// Fills one buffer with the next packets, and completes it.
    fn fill(&mut self, ring: &mut Ring<'_>, chain: Chain) {
        let Some(room) = buffer::rx_room(chain.readable_len(), chain.writable_len()) else {
            return self.refuse(
                ring,
                chain,
                c"an RX buffer must be writable and hold a header",
            );
        };
        if self.run.is_empty() {
            self.tap = has_tap();
        }
        self.guest.send_queue.fill(self.run, room, self.join);
        if self.run.is_empty() {
            // Its socket took the packet back in the meantime.
            return ring.put_back();
        }
        if room == 0 && self.run.bytes() > 0 {
            return self.refuse(ring, chain, c"an RX buffer has no room for payload");
        }

        let payload = self.run.bytes().min(room);
        let result = self.write(ring, &chain, payload);
        // What was written is dirty, whether it was written to the end or not.
        ring.log_dirty(&chain, HEADER_LEN + payload);
        let Ok(header) = result else {
            return self.refuse(ring, chain, c"an RX buffer cannot be written");
        };
        ring.complete(chain, HEADER_LEN + payload);
        let packets = self.sent(payload);
        if run::is_joinable(&header) {
            self.rows.add(self.run.lane(), packets, payload);
        }
        self.guest.send_queue.end_turn(self.run);
    }

    /// Writes the header for, and the first `payload` bytes of, the run into a buffer; returns the
    /// header.
    fn write(&self, ring: &Ring<'_>, chain: &Chain, payload: usize) -> Result<Header> {
        let header = self.run.header(payload).ok_or(EINVAL)?;
        let mut writer = ring.writer(chain);
        writer.write(&header.to_bytes())?;
        self.run.try_for_each_part(payload, |packet, len| {
            writer.write_payload(packet, packet.offset(), len)
        })?;
        Ok(header)
    }

    /// Shows the first `payload` bytes of the run to vsockmon, accounts for them, and frees the
    /// packets that are done; returns how many these were.
    fn sent(&mut self, payload: usize) -> u32 {
        let mut packets = 0;
        let mut replies = 0;
        let tap = self.tap;
        let show = |packet: &mut Packet, len| {
            if tap {
                deliver_tap(packet, len);
            }
        };
        self.run.advance(payload, show, |packet| {
            packets += 1;
            replies += u32::from(packet.is_reply());
            packet.consume_sent();
        });
        self.packets += packets;
        self.replies += replies;
        self.spent += packets.max(1);
        self.bytes += payload;
        packets
    }

    fn refuse(&mut self, ring: &mut Ring<'_>, chain: Chain, why: &'static CStr) {
        self.refused(chain.head() as i32);
        ring.refuse_chain(chain, why);
    }

    fn refused(&mut self, head: i32) {
        self.spent += 1;
        trace::bad_buffer(self.guest.cid(), QueueId::Rx as u32, head);
    }

    fn put_back(&mut self) {
        self.guest.send_queue.put_back(self.run);
    }

    /// Notes that replies left the queue, so that TX may go on.
    fn settle_replies(&mut self) {
        self.guest
            .remove_replies(core::mem::take(&mut self.replies));
    }

    /// Accounts for the pass. The queue's mutex is held no more.
    fn finish(&mut self, ring: &RingStats) -> Option<Rest> {
        self.settle_replies();
        let guest = self.guest;
        count!(
            guest,
            rx_passes += 1u32,
            rx_packets += self.packets,
            rx_bytes += self.bytes as u64,
            rx_buffers += ring.buffers,
            rx_publishes += ring.publishes,
            rx_signals += ring.signals,
            rx_refused += ring.refused,
        );
        trace::rx_pass(
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

/// Shows `len` bytes of a packet, behind what was sent before, to vsockmon as a packet of its own.
fn deliver_tap(packet: &mut Packet, len: usize) {
    if len == packet.len() {
        return packet.deliver_tap();
    }
    // A packet's length is at most 64 KiB.
    let part = packet
        .header()
        .fragment(len as u32, len == packet.remaining());
    packet.deliver_tap_part(part.len, part.flags);
}
