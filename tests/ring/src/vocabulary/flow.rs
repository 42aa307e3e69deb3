// SPDX-License-Identifier: GPL-2.0
//! One connection, seen from the guest.

use super::abi::{HOST_CID, WINDOW};
use super::guest::Guest;
use super::host::Host;
use super::packet::{Header, Kind, Op, Packet};
use anyhow::{Result, ensure};

/// The guest's end of a connection.
#[derive(Clone, Debug)]
pub struct Flow {
    pub kind: Kind,
    pub guest_port: u32,
    pub host_port: u32,
    /// Receive window that the guest advertises, in bytes.
    pub buf_alloc: u32,
    /// Bytes that the guest has taken in and given credit for.
    pub fwd_cnt: u32,
    /// The host's receive window as last advertised.
    pub peer_buf_alloc: u32,
    /// Bytes that the host has taken in as last advertised.
    pub peer_fwd_cnt: u32,
    /// Bytes that the guest has sent.
    pub sent: u32,
    /// Bytes that came from the host.
    pub received: u64,
    /// `fwd_cnt` that the host was last told.
    told: u32,
}

impl Flow {
    pub fn new(kind: Kind, guest_port: u32, host_port: u32) -> Self {
        Self {
            kind,
            guest_port,
            host_port,
            buf_alloc: WINDOW as u32,
            fwd_cnt: 0,
            peer_buf_alloc: 0,
            peer_fwd_cnt: 0,
            sent: 0,
            received: 0,
            told: 0,
        }
    }

    /// Bytes that the guest may send before the host gives more credit.
    pub fn credit(&self) -> usize {
        let in_flight = self.sent.wrapping_sub(self.peer_fwd_cnt);
        self.peer_buf_alloc.saturating_sub(in_flight) as usize
    }

    /// Takes note of a packet that came on this flow.
    pub fn note(&mut self, packet: &Packet) {
        self.peer_buf_alloc = packet.header.buf_alloc;
        self.peer_fwd_cnt = packet.header.fwd_cnt;
        if packet.op() == Op::RW {
            self.received += packet.payload.len() as u64;
            self.fwd_cnt = self.fwd_cnt.wrapping_add(packet.payload.len() as u32);
        }
    }

    /// Whether `packet` belongs to this flow.
    pub fn owns(&self, packet: &Packet) -> bool {
        packet.header.src_port == self.host_port && packet.header.dst_port == self.guest_port
    }

    /// `fwd_cnt` that the host was last told.
    pub fn told(&self) -> u32 {
        self.told
    }

    /// Whether it is time to tell the host about space that was freed.
    pub fn owes_credit(&self) -> bool {
        self.fwd_cnt.wrapping_sub(self.told) > self.buf_alloc / 2
    }
}

impl Guest {
    /// A header on `flow`, with its present credit.
    pub fn header(&self, flow: &Flow, op: Op) -> Header {
        Header {
            src_cid: self.cid,
            dst_cid: HOST_CID,
            src_port: flow.guest_port,
            dst_port: flow.host_port,
            len: 0,
            kind: flow.kind,
            op,
            flags: 0,
            buf_alloc: flow.buf_alloc,
            fwd_cnt: flow.fwd_cnt,
        }
    }

    /// Sends a packet without payload on `flow`.
    pub fn say(&mut self, flow: &mut Flow, op: Op) -> Result<()> {
        self.say_with(flow, op, 0, &[])
    }

    /// Sends a packet on `flow`.
    pub fn say_with(&mut self, flow: &mut Flow, op: Op, flags: u32, payload: &[u8]) -> Result<()> {
        self.hold_with(flow, op, flags, payload)?;
        self.tx.flush();
        Ok(())
    }

    /// Adds a packet on `flow` to the TX ring; it is not yet published.
    pub fn hold_with(&mut self, flow: &mut Flow, op: Op, flags: u32, payload: &[u8]) -> Result<()> {
        let mut header = self.header(flow, op);
        header.len = payload.len() as u32;
        header.flags = flags;
        flow.sent = flow.sent.wrapping_add(payload.len() as u32);
        flow.told = flow.fwd_cnt;
        let payload = payload.to_vec();
        self.queue(&Packet { header, payload }.encode())?;
        Ok(())
    }

    /// Sends bytes on a stream flow, waiting for credit as it must.
    pub fn say_bytes(&mut self, flow: &mut Flow, bytes: &[u8], piece: usize) -> Result<()> {
        for part in bytes.chunks(piece) {
            while flow.credit() < part.len() {
                let packet = self.hear(flow)?;
                ensure!(
                    packet.op() == Op::CREDIT_UPDATE,
                    "waiting for credit: {packet:?}"
                );
            }
            self.say_with(flow, Op::RW, 0, part)?;
        }
        Ok(())
    }

    /// Receives the next packet, which must belong to `flow`.
    pub fn hear(&mut self, flow: &mut Flow) -> Result<Packet> {
        let packet = self.recv()?;
        ensure!(flow.owns(&packet), "a packet of another flow: {packet:?}");
        ensure!(packet.header.kind == flow.kind, "another type: {packet:?}");
        flow.note(&packet);
        Ok(packet)
    }

    /// Receives the next packet of `flow`, which must be an `op`.
    pub fn hear_op(&mut self, flow: &mut Flow, op: Op) -> Result<Packet> {
        let packet = self.hear(flow)?;
        ensure!(packet.op() == op, "expected {op:?}: {packet:?}");
        Ok(packet)
    }

    /// Gives credit if half the window was taken in since the host was last told.
    pub fn give_credit(&mut self, flow: &mut Flow) -> Result<()> {
        if flow.owes_credit() {
            self.say(flow, Op::CREDIT_UPDATE)?;
        }
        Ok(())
    }

    /// Tells the host that everything was taken in, and waits until it knows.
    pub fn give_all_credit(&mut self, flow: &mut Flow) -> Result<()> {
        self.say(flow, Op::CREDIT_UPDATE)?;
        self.drain()
    }

    /// Receives `len` payload bytes of a stream, in however many packets.
    pub fn hear_bytes(&mut self, flow: &mut Flow, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let packet = self.hear_op(flow, Op::RW)?;
            bytes.extend_from_slice(&packet.payload);
            self.give_credit(flow)?;
        }
        ensure!(
            bytes.len() == len,
            "{} bytes came, {len} were sent",
            bytes.len()
        );
        Ok(bytes)
    }
}

/// A guest, one connection of its and the host socket at the other end.
pub struct Session {
    pub guest: Guest,
    pub flow: Flow,
    pub host: Host,
}

impl Guest {
    /// Lets a host socket connect to `port` of this guest.
    pub fn accept(&mut self, kind: Kind, port: u32) -> Result<(Flow, Host)> {
        let host = Host::connecting(kind, self.cid, port)?;
        let flow = self.answer_request(kind, port)?;
        host.connected()?;
        Ok((flow, host))
    }

    /// Awaits a REQUEST to `port` and answers it with a RESPONSE.
    pub fn answer_request(&mut self, kind: Kind, port: u32) -> Result<Flow> {
        let mut flow = self.hear_request(kind, port)?;
        self.say(&mut flow, Op::RESPONSE)?;
        Ok(flow)
    }

    /// Awaits a REQUEST to `port`.
    pub fn hear_request(&mut self, kind: Kind, port: u32) -> Result<Flow> {
        let packet = self.recv()?;
        let header = packet.header;
        ensure!(
            header.op == Op::REQUEST && header.kind == kind && header.dst_port == port,
            "expected a REQUEST to port {port}: {packet:?}"
        );
        let mut flow = Flow::new(kind, port, header.src_port);
        flow.note(&packet);
        Ok(flow)
    }

    /// Connects from `port` of this guest to a listening host socket.
    pub fn connect(&mut self, listener: &Host, port: u32) -> Result<(Flow, Host)> {
        let mut flow = Flow::new(listener.kind(), port, listener.local_port()?);
        self.say(&mut flow, Op::REQUEST)?;
        self.hear_op(&mut flow, Op::RESPONSE)?;
        Ok((flow, listener.accept()?))
    }

    /// Takes in all packets that were sent before this call and gives them back.
    ///
    /// A REQUEST to a port where nobody listens is answered behind all that its own flow has queued. A driver may serve
    /// other flows in turn, so two answers in a row with nothing in between end it.
    pub fn settle(&mut self) -> Result<Vec<Packet>> {
        let mut fence = Flow::new(Kind::STREAM, self.fence_port(), super::host::CLOSED_PORT);
        let (mut before, mut silent) = (Vec::new(), 0);
        while silent < 2 {
            self.say(&mut fence, Op::REQUEST)?;
            silent += 1;
            loop {
                let packet = self.recv()?;
                if fence.owns(&packet) {
                    ensure!(packet.op() == Op::RST, "an answer to nobody: {packet:?}");
                    break;
                }
                before.push(packet);
                silent = 0;
            }
        }
        Ok(before)
    }

    /// Fails if any packet was sent before this call and not taken in.
    pub fn hears_nothing(&mut self) -> Result<()> {
        let before = self.settle()?;
        ensure!(before.is_empty(), "expected silence: {before:?}");
        Ok(())
    }
}
