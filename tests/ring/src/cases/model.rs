// SPDX-License-Identifier: GPL-2.0
//! Random interleavings of several flows, checked against a model: no byte, message end, credit or control packet is
//! lost or comes out of its flow's order. Packets of a stream may be merged and cut; messages may be cut, not merged.

use super::Case;
use crate::vocabulary::abi::feature;
use crate::vocabulary::packet::{EOM, EOR, HEADER, NO_SEND};
use crate::vocabulary::{Context, Flow, Guest, Host, Kind, Op, Packet, Plan};
use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown};
use rand::RngExt as _;
use std::collections::VecDeque;

pub const CASES: &[Case] = &[
    Case::new("model/interleaved-flows-event-idx", |cx| {
        model(cx, feature::USUAL)
    }),
    Case::new("model/interleaved-flows", |cx| {
        model(cx, feature::SEQPACKET)
    }),
    Case::new("model/interleaved-flows-with-scarce-buffers", |cx| {
        model_with(cx, feature::USUAL, 3)
    }),
];

/// One connection with what is under way on it.
struct Lane {
    flow: Flow,
    host: Host,
    /// Bytes that the host sent and the guest has not received; messages one by one.
    to_guest: VecDeque<Message>,
    /// The same the other way.
    to_host: VecDeque<Message>,
    /// CREDIT_REQUESTs that were not answered yet.
    asked: usize,
    /// The guest's SHUTDOWN is due: the host has shut down its sending side.
    shut: bool,
    over: bool,
}

/// Bytes of a stream, or one message.
struct Message {
    bytes: VecDeque<u8>,
    flags: u32,
}

impl Message {
    fn new(bytes: &[u8], flags: u32) -> Self {
        Self {
            bytes: bytes.iter().copied().collect(),
            flags,
        }
    }
}

impl Lane {
    fn seqpacket(&self) -> bool {
        self.flow.kind == Kind::SEQPACKET
    }

    /// Takes in a packet from the host, which must be what the model expects next on this flow.
    fn expect(&mut self, packet: &Packet) -> Result<()> {
        ensure!(
            !self.over || packet.op() == Op::CREDIT_UPDATE,
            "after the SHUTDOWN"
        );
        let behind = packet.header.fwd_cnt.wrapping_sub(self.flow.peer_fwd_cnt);
        ensure!(
            behind < 1 << 31,
            "credit goes backwards from {}",
            self.flow.peer_fwd_cnt
        );
        let ahead = self.flow.sent.wrapping_sub(packet.header.fwd_cnt);
        ensure!(ahead < 1 << 31, "credit for bytes that were not sent");
        self.flow.note(packet);
        match packet.op() {
            Op::RW => self.expect_data(packet),
            Op::CREDIT_UPDATE => {
                self.asked = self.asked.saturating_sub(1);
                Ok(())
            }
            Op::SHUTDOWN => {
                ensure!(
                    self.shut && packet.header.flags == NO_SEND,
                    "no SHUTDOWN was due"
                );
                ensure!(self.to_guest.is_empty(), "SHUTDOWN before the last bytes");
                self.over = true;
                Ok(())
            }
            _ => anyhow::bail!("not due at all"),
        }
    }

    fn expect_data(&mut self, packet: &Packet) -> Result<()> {
        let mut rest = &packet.payload[..];
        while !rest.is_empty() {
            let message = self
                .to_guest
                .front_mut()
                .context("more bytes than were sent")?;
            let len = rest.len().min(message.bytes.len());
            let right = message.bytes.drain(..len).eq(rest[..len].iter().copied());
            ensure!(right, "other bytes than were sent");
            rest = &rest[len..];
            let done = message.bytes.is_empty();
            if self.flow.kind == Kind::SEQPACKET {
                ensure!(rest.is_empty(), "two messages in one packet");
                let flags = if done { message.flags } else { 0 };
                ensure!(packet.header.flags == flags, "flags, expected {flags}");
            }
            if done {
                self.to_guest.pop_front();
            }
        }
        Ok(())
    }

    fn host_sends(&mut self, cx: &mut Context, guest: &mut Guest) -> Result<()> {
        let len = random_len(cx);
        let bytes = cx.bytes(len);
        let eor = self.seqpacket() && cx.rng.random();
        let flags = if eor {
            MsgFlags::MSG_EOR
        } else {
            MsgFlags::empty()
        };
        // A message must fit into the window as a whole, or the socket would take a part of it.
        if self.seqpacket() {
            guest.drain()?;
        }
        let waiting: usize = self
            .to_guest
            .iter()
            .map(|message| message.bytes.len())
            .sum();
        let untold = self.flow.received as usize - self.told();
        if self.seqpacket() && waiting + untold + len > self.flow.buf_alloc as usize {
            return Ok(());
        }
        match self.host.try_send_with(&bytes, flags) {
            Ok(sent) => {
                let end = if self.seqpacket() { EOM } else { 0 } | if eor { EOR } else { 0 };
                self.to_guest.push_back(Message::new(&bytes[..sent], end));
                Ok(())
            }
            Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno).context("send()"),
        }
    }

    /// Bytes that the host knows to have been taken in, at least.
    fn told(&self) -> usize {
        self.flow.told() as usize
    }

    fn guest_sends(&mut self, cx: &mut Context, guest: &mut Guest) -> Result<()> {
        let len = random_len(cx).min(self.flow.credit());
        if len == 0 {
            return Ok(());
        }
        let bytes = cx.bytes(len);
        let end = if self.seqpacket() {
            EOM | if cx.rng.random() { EOR } else { 0 }
        } else {
            0
        };
        let parts: Vec<&[u8]> = bytes.chunks(cx.rng.random_range(1..=len)).collect();
        for (at, part) in parts.iter().enumerate().take(12) {
            let last = at + 1 == parts.len() || at == 11;
            guest.say_with(&mut self.flow, Op::RW, if last { end } else { 0 }, part)?;
        }
        let sent: usize = parts.iter().take(12).map(|part| part.len()).sum();
        self.to_host.push_back(Message::new(&bytes[..sent], end));
        Ok(())
    }

    /// The host reads what is there: bytes in any amount, or one message.
    fn host_reads(&mut self, cx: &mut Context) -> Result<()> {
        let mut bytes = vec![
            0;
            if self.seqpacket() {
                300_000
            } else {
                random_len(cx)
            }
        ];
        let len = match self.host.try_recv(&mut bytes) {
            Ok(len) => len,
            Err(Errno::EAGAIN) => return Ok(()),
            Err(errno) => return Err(errno).context("recv()"),
        };
        let mut rest = &bytes[..len];
        while !rest.is_empty() {
            let message = self
                .to_host
                .front_mut()
                .context("the host has more bytes than were sent")?;
            let part = rest.len().min(message.bytes.len());
            let right = message.bytes.drain(..part).eq(rest[..part].iter().copied());
            ensure!(right, "other bytes than were sent to the host");
            rest = &rest[part..];
            if message.bytes.is_empty() {
                self.to_host.pop_front();
                ensure!(
                    rest.is_empty() || !self.seqpacket(),
                    "two messages in one read"
                );
            } else {
                ensure!(!self.seqpacket(), "a part of a message in a read");
            }
        }
        Ok(())
    }
}

fn random_len(cx: &mut Context) -> usize {
    let limit = [4, 64, 300, 5000, 40_000][cx.rng.random_range(0..5)];
    cx.rng.random_range(1..=limit)
}

fn model(cx: &mut Context, features: u64) -> Result<()> {
    model_with(cx, features, 48)
}

fn model_with(cx: &mut Context, features: u64, buffers: usize) -> Result<()> {
    for round in 0..cx.rounds(3, 200) {
        cx.step(&format!("round {round}"));
        one_round(cx, features, buffers)?;
    }
    Ok(())
}

/// One guest with five flows, many random steps, and the end of all flows.
pub fn one_round(cx: &mut Context, features: u64, buffers: usize) -> Result<()> {
    let steps = cx.rounds(500, 2000);
    round_of(cx, features, buffers, steps)
}

/// A short round.
pub fn some_steps(cx: &mut Context, steps: usize) -> Result<()> {
    round_of(cx, feature::USUAL, 16, steps)
}

fn round_of(cx: &mut Context, features: u64, buffers: usize, steps: usize) -> Result<()> {
    let mut guest = cx.guest(Plan::default().features(features).buffers(buffers, 4096))?;
    let mut lanes = Vec::new();
    for at in 0..5 {
        let kind = if at % 2 == 0 {
            Kind::STREAM
        } else {
            Kind::SEQPACKET
        };
        let (flow, host) = guest.accept(kind, 10 + at)?;
        lanes.push(Lane {
            flow,
            host,
            to_guest: VecDeque::new(),
            to_host: VecDeque::new(),
            asked: 0,
            shut: false,
            over: false,
        });
    }
    for _ in 0..steps {
        random_step(cx, &mut guest, &mut lanes)?;
    }
    finish(cx, &mut guest, &mut lanes)
}

fn random_step(cx: &mut Context, guest: &mut Guest, lanes: &mut [Lane]) -> Result<()> {
    let at = cx.rng.random_range(0..lanes.len());
    let lane = &mut lanes[at];
    match cx.rng.random_range(0..12) {
        0..=3 => lane.host_sends(cx, guest)?,
        4..=5 => lane.guest_sends(cx, guest)?,
        6..=7 => lane.host_reads(cx)?,
        8 => {
            lane.asked += 1;
            guest.say(&mut lane.flow, Op::CREDIT_REQUEST)?;
        }
        9 => guest.say(&mut lane.flow, Op::CREDIT_UPDATE)?,
        10 => guest.plan.buffer = HEADER + 15 + random_len(cx),
        _ => {
            for _ in 0..cx.rng.random_range(1..20) {
                if !guest_takes_one(guest, lanes)? {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Gives one packet that is there to the flow that it belongs to.
fn guest_takes_one(guest: &mut Guest, lanes: &mut [Lane]) -> Result<bool> {
    let Some(packet) = guest.try_recv()? else {
        return Ok(false);
    };
    let lane = lanes.iter_mut().find(|lane| lane.flow.owns(&packet));
    let lane = lane.with_context(|| format!("a packet of no flow: {packet:?}"))?;
    lane.expect(&packet)
        .with_context(|| format!("{packet:?}"))?;
    if lane.flow.owes_credit() {
        guest.say(&mut lane.flow, Op::CREDIT_UPDATE)?;
    }
    Ok(true)
}

/// Lets everything arrive that is under way, and shuts all connections down.
fn finish(cx: &mut Context, guest: &mut Guest, lanes: &mut [Lane]) -> Result<()> {
    guest.plan.buffer = 8192;
    for lane in lanes.iter_mut() {
        lane.host.shutdown(Shutdown::Write)?;
        lane.shut = true;
    }
    let done = |lane: &Lane| lane.over && lane.to_host.is_empty() && lane.asked == 0;
    let arrived = crate::vocabulary::proc::wait_until(crate::vocabulary::patience(), || {
        while guest_takes_one(guest, lanes)? {}
        for lane in lanes.iter_mut() {
            lane.host_reads(cx)?;
        }
        guest.reap()?;
        Ok(lanes.iter().all(done))
    })?;
    for (at, lane) in lanes.iter().enumerate() {
        ensure!(
            arrived,
            "flow {at}: {} messages to the guest, {} to the host, {} credit requests unanswered, over: {}",
            lane.to_guest.len(),
            lane.to_host.len(),
            lane.asked,
            lane.over
        );
    }
    cx.no_reply_is_counted(guest)
}
