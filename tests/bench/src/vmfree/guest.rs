// SPDX-License-Identifier: GPL-2.0

//! A guest made of user space: connections that the host opens, and what Linux's driver does about them.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vhost::vhost_kern::vsock::Vsock;
use vhost::vsock::VhostVsock;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromZeros, IntoBytes};

use super::packet::{HEADER, HOST_CID, Header, STREAM, op};
use super::ring::{self, Ring, SIZE};
use super::tally::Tally;

/// Guest address of the first byte.
const BASE: u64 = 1 << 32;
/// Bytes of an RX buffer: what Linux's driver posts (`VIRTIO_VSOCK_DEFAULT_RX_BUF_SIZE` of x86-64).
const RX_BUFFER: u32 = 4096 - 320;
/// Distance of two RX buffers, and of two TX buffers.
const RX_STRIDE: u64 = 4096;
const TX_STRIDE: u64 = 68 << 10;
const RX_BUFFERS: u64 = BASE + (1 << 20);
const TX_BUFFERS: u64 = RX_BUFFERS + RX_STRIDE * SIZE as u64;
const MEMORY: usize = 16 << 20;
/// Queues.
const RX: usize = 0;
const TX: usize = 1;
/// The port that the guest listens on.
pub(crate) const PORT: u32 = 1234;
/// Linux gives credit when less than this is left (`VIRTIO_VSOCK_MAX_PKT_BUF_SIZE`).
const CREDIT_MARK: u32 = 64 << 10;

/// The memory of a guest.
pub(crate) type Memory = Arc<GuestMemoryMmap<()>>;

/// One connection.
#[derive(Default)]
struct Connection {
    /// The host's window, and what it has taken in, as its last packet tells.
    window: u32,
    taken: u32,
    /// Payload bytes sent.
    sent: u32,
    /// Payload bytes taken in.
    received: u32,
    /// The same, as last told to the host.
    told: u32,
}

struct Receiver {
    ring: Ring,
    /// Slots whose buffers the device does not have.
    spare: Vec<u16>,
}

/// The guest. `run` is its interrupt handler.
pub(crate) struct Guest {
    _device: Vsock<Memory>,
    memory: Memory,
    cid: u32,
    /// Receive window, in bytes.
    window: u32,
    rx: Mutex<Receiver>,
    tx: Mutex<Ring>,
    /// By the host's port. Locked before the rings are.
    connections: Mutex<HashMap<u32, Connection>>,
    /// Payload that came, of all connections.
    pub received: Tally,
    /// A sender waits for `changed`.
    waiting: AtomicBool,
    changed: EventFd,
    stop: AtomicBool,
    wake: EventFd,
}

/// Counts of both queues together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notifications {
    pub kicks: u64,
    pub signals: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread of the guest panics")
}

/// Memory of a guest. Touched, so that no page is made during a measurement.
pub(crate) fn new_memory() -> Result<Memory> {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(BASE), MEMORY)])
        .map(Arc::new)
        .context("guest memory")?;
    memory.write_slice(&vec![0; MEMORY], GuestAddress(BASE))?;
    Ok(memory)
}

/// A device that nothing is set up of.
pub(crate) fn open(memory: &Memory) -> Result<Vsock<Memory>> {
    Vsock::new(memory.clone()).context("/dev/vhost-vsock")
}

/// Starts a device with that CID, and gives its RX ring, full of buffers, and its TX ring.
pub(crate) fn start(device: &Vsock<Memory>, memory: &Memory, cid: u32) -> Result<(Ring, Ring)> {
    device.set_owner()?;
    device.set_features(
        (1 << VIRTIO_F_VERSION_1)
            | (1 << VIRTIO_RING_F_EVENT_IDX)
            | (1 << VIRTIO_RING_F_INDIRECT_DESC),
    )?;
    let user = memory.get_host_address(GuestAddress(BASE))? as u64;
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: BASE,
        memory_size: MEMORY as u64,
        userspace_addr: user,
        mmap_offset: 0,
        mmap_handle: -1,
    };
    device.set_mem_table(&[region])?;
    let mut rx = Ring::new(device, memory, RX, BASE)?;
    let tx = Ring::new(device, memory, TX, BASE + ring::SPACE)?;
    for slot in 0..SIZE {
        let address = RX_BUFFERS + RX_STRIDE * u64::from(slot);
        rx.describe(slot, address, RX_BUFFER, true);
        rx.offer(slot);
    }
    rx.flush()?;
    device.set_guest_cid(cid.into())?;
    device.start()?;
    Ok((rx, tx))
}

impl Guest {
    /// Makes a guest with that CID and receive window, full of RX buffers, and starts it.
    pub(crate) fn start(cid: u32, window: u32) -> Result<Self> {
        let memory = new_memory()?;
        let device = open(&memory)?;
        let (rx, tx) = start(&device, &memory, cid)?;
        Ok(Self {
            _device: device,
            memory,
            cid,
            window,
            rx: Mutex::new(Receiver {
                ring: rx,
                spare: Vec::with_capacity(SIZE.into()),
            }),
            tx: Mutex::new(tx),
            connections: Mutex::default(),
            received: Tally::new()?,
            waiting: AtomicBool::new(false),
            changed: EventFd::new(0)?,
            stop: AtomicBool::new(false),
            wake: EventFd::new(0)?,
        })
    }

    /// Handles what the device has used, waiting for its signals, until [`Guest::stop`].
    pub(crate) fn run(&self) -> Result<()> {
        let (rx_call, tx_call) = {
            let (rx, tx) = (lock(&self.rx), lock(&self.tx));
            (rx.ring.call.as_raw_fd(), tx.call.as_raw_fd())
        };
        let fds = [rx_call, tx_call, self.wake.as_raw_fd()];
        // SAFETY: The guest keeps its eventfds open for as long as it is borrowed.
        let fds = fds.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        while !self.stop.load(SeqCst) {
            self.on_rx()?;
            self.on_tx();
            if self.waiting.swap(false, SeqCst) {
                self.changed.write(1).context("changed")?;
            }
            let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            poll(&mut fds, PollTimeout::NONE).context("poll")?;
        }
        Ok(())
    }

    /// Ends [`Guest::run`].
    pub(crate) fn stop(&self) -> Result<()> {
        self.stop.store(true, SeqCst);
        self.wake.write(1).context("wake")
    }

    /// Takes in everything that is there; gives new buffers when half of them are gone, as Linux's driver does.
    fn on_rx(&self) -> Result<()> {
        let mut rx = lock(&self.rx);
        rx.ring.count_signals();
        loop {
            while let Some((slot, len)) = rx.ring.take() {
                self.packet(slot, len)?;
                rx.spare.push(slot);
            }
            if rx.ring.arm() {
                break;
            }
        }
        if rx.ring.in_flight() < SIZE / 2 {
            let Receiver { ring, spare } = &mut *rx;
            spare.drain(..).for_each(|slot| ring.offer(slot));
            ring.flush()?;
        }
        Ok(())
    }

    /// Takes back what the device has read.
    fn on_tx(&self) {
        let mut tx = lock(&self.tx);
        tx.count_signals();
        loop {
            while tx.take().is_some() {}
            if tx.arm() {
                break;
            }
        }
    }

    fn packet(&self, slot: u16, len: u32) -> Result<()> {
        let mut header = Header::new_zeroed();
        let address = RX_BUFFERS + RX_STRIDE * u64::from(slot);
        self.memory
            .read_slice(header.as_mut_bytes(), GuestAddress(address))?;
        ensure!(
            len as usize == HEADER + header.len.get() as usize,
            "a used buffer of {len} bytes with {header:?}"
        );
        let port = header.src_port.get();
        let mut connections = lock(&self.connections);
        if header.op.get() == op::REQUEST {
            connections.insert(port, Connection::default());
        }
        let Some(connection) = connections.get_mut(&port) else {
            // The last word of a connection of an earlier guest.
            return Ok(());
        };
        connection.window = header.buf_alloc.get();
        connection.taken = header.fwd_cnt.get();
        match header.op.get() {
            op::REQUEST => self.control(port, connection, op::RESPONSE),
            op::RW => self.payload(port, connection, header.len.get()),
            op::CREDIT_REQUEST => self.control(port, connection, op::CREDIT_UPDATE),
            op::SHUTDOWN => self.control(port, connection, op::RST),
            _ => Ok(()),
        }
    }

    fn payload(&self, port: u32, connection: &mut Connection, len: u32) -> Result<()> {
        connection.received = connection.received.wrapping_add(len);
        self.received.add(len.into())?;
        if self.window - connection.received.wrapping_sub(connection.told) < CREDIT_MARK {
            self.control(port, connection, op::CREDIT_UPDATE)?;
        }
        Ok(())
    }

    /// Sends a packet without payload.
    fn control(&self, port: u32, connection: &mut Connection, op: u16) -> Result<()> {
        self.post(&mut lock(&self.tx), port, connection, op, 0)
    }

    fn post(
        &self,
        tx: &mut Ring,
        port: u32,
        connection: &mut Connection,
        op: u16,
        len: u32,
    ) -> Result<()> {
        while tx.take().is_some() {}
        ensure!(tx.in_flight() < SIZE, "the TX ring is full");
        let slot = tx.next_slot();
        let address = TX_BUFFERS + TX_STRIDE * u64::from(slot);
        let header = Header {
            src_cid: u64::from(self.cid).into(),
            dst_cid: u64::from(HOST_CID).into(),
            src_port: PORT.into(),
            dst_port: port.into(),
            len: len.into(),
            kind: STREAM.into(),
            op: op.into(),
            flags: 0.into(),
            buf_alloc: self.window.into(),
            fwd_cnt: connection.received.into(),
        };
        self.memory
            .write_slice(header.as_bytes(), GuestAddress(address))?;
        connection.told = connection.received;
        tx.describe(slot, address, HEADER as u32 + len, false);
        tx.offer(slot);
        tx.flush()
    }

    /// Sends `len` bytes of payload in one packet to the host's `port`, as soon as the ring and the host's window have
    /// room.
    pub(crate) fn send(&self, port: u32, len: u32) -> Result<()> {
        loop {
            if self.try_send(port, len)? {
                return Ok(());
            }
            self.waiting.store(true, SeqCst);
            // What came before the guest could see that somebody waits is seen here.
            if self.try_send(port, len)? {
                self.waiting.store(false, SeqCst);
                return Ok(());
            }
            self.changed.read().context("changed")?;
        }
    }

    fn try_send(&self, port: u32, len: u32) -> Result<bool> {
        let mut connections = lock(&self.connections);
        let connection = connections.get_mut(&port).context("no connection")?;
        let mut tx = lock(&self.tx);
        while tx.take().is_some() {}
        let waiting = connection.sent.wrapping_sub(connection.taken);
        // One slot is left to the guest's control packets.
        if tx.in_flight() >= SIZE - 1 || waiting + len > connection.window {
            return Ok(false);
        }
        connection.sent = connection.sent.wrapping_add(len);
        self.post(&mut tx, port, connection, op::RW, len)?;
        Ok(true)
    }

    /// Whether the device has no RX buffer left to fill.
    pub(crate) fn is_starved(&self) -> bool {
        lock(&self.rx).ring.is_exhausted()
    }

    /// Counts so far.
    pub(crate) fn notifications(&self) -> Notifications {
        let (mut rx, mut tx) = (lock(&self.rx), lock(&self.tx));
        rx.ring.count_signals();
        tx.count_signals();
        Notifications {
            kicks: rx.ring.kicks + tx.kicks,
            signals: rx.ring.signals + tx.signals,
        }
    }
}
