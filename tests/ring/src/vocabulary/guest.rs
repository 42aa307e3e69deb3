// SPDX-License-Identifier: GPL-2.0
//! The guest: a device, memory, two rings and a CID.

use super::abi::{HOST_CID, RX, TX, feature};
use super::device::Device;
use super::memory::{Block, Memory};
use super::packet::{HEADER, Header, Packet};
use super::patience;
use super::ring::{Completed, Form, Piece, Ring};
use anyhow::{Context as _, Result, ensure};

/// How a guest is to be made.
#[derive(Clone, Debug)]
pub struct Plan {
    pub features: u64,
    pub size: u16,
    /// Buffers to keep in the RX ring.
    pub buffers: usize,
    /// Bytes of each RX buffer.
    pub buffer: usize,
    /// First index of both rings.
    pub base: u16,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            features: feature::USUAL,
            size: 128,
            buffers: 64,
            buffer: 4096,
            base: 0,
        }
    }
}

impl Plan {
    /// A plan with other feature bits; VERSION_1 is always among them.
    pub fn features(mut self, bits: u64) -> Self {
        self.features = bits | feature::VERSION_1;
        self
    }

    /// A plan with `count` RX buffers of `len` bytes.
    pub fn buffers(mut self, count: usize, len: usize) -> Self {
        self.buffers = count;
        self.buffer = len;
        self
    }

    pub fn size(mut self, size: u16) -> Self {
        self.size = size;
        self
    }

    pub fn base(mut self, base: u16) -> Self {
        self.base = base;
        self
    }
}

/// A guest made of user space.
pub struct Guest {
    pub cid: u64,
    pub dev: Device,
    pub mem: Memory,
    pub rx: Ring,
    pub tx: Ring,
    pub plan: Plan,
    /// IOTLB messages are of version 2.
    pub iotlb_v2: bool,
    fence: u32,
}

impl Guest {
    /// Makes a guest that has an owner, features, memory, rings and a CID, and does not run.
    pub fn prepare(cid: u64, plan: Plan) -> Result<Self> {
        let dev = Device::open().context("opening /dev/vhost-vsock")?;
        dev.set_owner().context("SET_OWNER")?;
        Self::furnish(dev, cid, plan)
    }

    /// As [`Guest::prepare`], on a device that has its owner.
    pub fn furnish(dev: Device, cid: u64, plan: Plan) -> Result<Self> {
        dev.set_features(plan.features).context("SET_FEATURES")?;
        let mem = Memory::new()?;
        dev.set_memory(&mem.table()).context("SET_MEM_TABLE")?;
        let mut rx = Ring::new(&mem, RX, plan.size, plan.features)?;
        let mut tx = Ring::new(&mem, TX, plan.size, plan.features)?;
        rx.reset(plan.base, plan.features);
        tx.reset(plan.base, plan.features);
        rx.attach(&dev)?;
        tx.attach(&dev)?;
        dev.set_cid(cid).context("SET_GUEST_CID")?;
        let mut guest = Self {
            cid,
            dev,
            mem,
            rx,
            tx,
            plan,
            iotlb_v2: false,
            fence: 0,
        };
        guest.refill()?;
        Ok(guest)
    }

    /// Makes a guest and starts it.
    pub fn start(cid: u64, plan: Plan) -> Result<Self> {
        let guest = Self::prepare(cid, plan)?;
        guest.dev.start().context("SET_RUNNING(1)")?;
        Ok(guest)
    }

    /// A guest port that no case uses, another one at each call.
    pub fn fence_port(&mut self) -> u32 {
        self.fence += 1;
        0x7000_0000 + self.fence
    }

    /// Stops the device, forgets both rings, and starts anew as after a reboot of the guest.
    pub fn reboot(&mut self) -> Result<()> {
        self.dev.stop().context("SET_RUNNING(0)")?;
        let (features, base) = (self.plan.features, self.plan.base);
        self.rx.reset(base, features);
        self.tx.reset(base, features);
        self.dev.set_features(features).context("SET_FEATURES")?;
        self.dev
            .set_memory(&self.mem.table())
            .context("SET_MEM_TABLE")?;
        self.rx.attach(&self.dev)?;
        self.tx.attach(&self.dev)?;
        self.refill()?;
        self.dev.start().context("SET_RUNNING(1)")?;
        Ok(())
    }

    /// Keeps the planned number of buffers in the RX ring.
    pub fn refill(&mut self) -> Result<()> {
        while self.rx.in_flight() < self.plan.buffers && self.rx.room() > 0 {
            self.add_buffer(self.plan.buffer)?;
        }
        self.rx.flush();
        Ok(())
    }

    /// Adds one RX buffer of `len` bytes, in one piece; it is not yet published.
    pub fn add_buffer(&mut self, len: usize) -> Result<u16> {
        let block = self.mem.alloc(len);
        let piece = Piece {
            addr: block.addr,
            len: len as u32,
            write: true,
        };
        self.rx.add(&[piece], Form::Direct)
    }

    /// Adds one RX buffer of `len` bytes and kicks if the device asked for it.
    pub fn give_buffer(&mut self, len: usize) -> Result<()> {
        self.add_buffer(len)?;
        self.rx.flush();
        Ok(())
    }

    /// Receives the next packet, waiting for it, and refills the ring.
    ///
    /// # Errors
    ///
    /// If none comes, or it is malformed: wrong CIDs, lengths that do not agree.
    pub fn recv(&mut self) -> Result<Packet> {
        let done = self.rx.take_wait()?;
        let packet = self.open(&done)?;
        self.refill()?;
        Ok(packet)
    }

    /// Receives the next packet if there is one.
    pub fn try_recv(&mut self) -> Result<Option<Packet>> {
        let Some(done) = self.rx.take()? else {
            return Ok(None);
        };
        let packet = self.open(&done)?;
        self.refill()?;
        Ok(Some(packet))
    }

    /// Reads the packet out of a used buffer and frees the buffer.
    pub fn open(&mut self, done: &Completed) -> Result<Packet> {
        let raw = self.contents(done);
        if let [piece] = done.chain.pieces[..] {
            self.mem.free(Block {
                addr: piece.addr,
                len: piece.len as usize,
            });
        }
        ensure!(
            raw.len() >= HEADER,
            "a used buffer of {} bytes holds no header",
            raw.len()
        );
        let packet = Packet {
            header: Header::decode(&raw),
            payload: raw[HEADER..].to_vec(),
        };
        let header = &packet.header;
        ensure!(
            header.len as usize == packet.payload.len(),
            "used length {} for: {packet:?}",
            raw.len()
        );
        ensure!(
            header.src_cid == HOST_CID && header.dst_cid == self.cid,
            "wrong CIDs: {packet:?}"
        );
        Ok(packet)
    }

    /// The bytes that the device says it wrote into a buffer.
    pub fn contents(&self, done: &Completed) -> Vec<u8> {
        let mut raw = Vec::with_capacity(done.len as usize);
        for piece in done.chain.pieces.iter().filter(|p| p.write) {
            let part = (piece.len as usize).min(done.len as usize - raw.len());
            raw.extend_from_slice(&self.mem.bytes(piece.addr, part));
        }
        raw
    }

    /// Sends a packet in one descriptor, and kicks if the device asked for it.
    pub fn send(&mut self, packet: &Packet) -> Result<()> {
        self.queue(&packet.encode())?;
        self.tx.flush();
        Ok(())
    }

    /// Adds raw bytes to the TX ring in one descriptor; it is not yet published.
    pub fn queue(&mut self, raw: &[u8]) -> Result<u16> {
        while self.tx.room() == 0 {
            self.tx
                .wait(patience())
                .context("waiting for a TX descriptor")?;
            self.reap()?;
        }
        self.reap()?;
        let block = self.mem.alloc(raw.len());
        self.mem.write(block.addr, raw);
        let piece = Piece {
            addr: block.addr,
            len: raw.len() as u32,
            write: false,
        };
        self.tx.add(&[piece], Form::Direct)
    }

    /// Takes back what the device has used of the TX ring: all of it must say that nothing was written.
    pub fn reap(&mut self) -> Result<usize> {
        let mut count = 0;
        while let Some(done) = self.tx.take()? {
            ensure!(
                done.len == 0,
                "a TX buffer came back with length {}",
                done.len
            );
            if let [piece] = done.chain.pieces[..] {
                self.mem.free(Block {
                    addr: piece.addr,
                    len: piece.len as usize,
                });
            }
            count += 1;
        }
        Ok(count)
    }

    /// Waits until the device has given back every TX buffer.
    pub fn drain(&mut self) -> Result<()> {
        while self.tx.in_flight() > 0 {
            self.tx
                .wait(patience())
                .with_context(|| format!("{} TX buffers not given back", self.tx.in_flight()))?;
            self.reap()?;
        }
        Ok(())
    }
}
