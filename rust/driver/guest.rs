// SPDX-License-Identifier: GPL-2.0

//! The state of one guest, from the opening of its file to the release.
//!
//! # Locks
//!
//! Outermost first: the device mutex; the mutex of a queue (RX and TX are never held together); a
//! socket's lock (taken inside the TX queue's mutex by the common transport); the spinlock of a
//! lane of the send queue. Inside the mutex of a queue, and behind it, is that of what its pass
//! works with (`rx_kept`, `tx_parts`). The lock of the debugfs file and in it that of the CID
//! table's writers are held outside of all of them.
//!
//! # Lifetime
//!
//! Senders reach a guest from the moment when its CID is in the table: before it has an owner, a
//! worker or rings, and until a grace period after it left the table. The table holds a count of
//! the [`Guest`], and so does the file.

use kernel::{
    fmt,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        new_mutex,
        rcu,
        Arc,
        Mutex, //
    },
};

use super::{
    gather::Gather,
    ioctl,
    rx::{
        self,
        Kept, //
    },
    send_queue::SendQueue,
    stats::{
        count,
        guest_file,
        Counters,
        GuestStats, //
    },
    transport::VhostTransport,
    tx::{
        self,
        Parts, //
    },
};
use crate::{
    abstractions::{
        cid_table::{
            CidTable,
            Writer, //
        },
        code::EADDRINUSE,
        debug_dir::DebugRoot,
        net::{
            Net,
            OwnedNet, //
        },
        trace,
        vhost::{
            Backend,
            CharDevice,
            Device,
            QueueId, //
        },
        vsock::{
            is_own_cid,
            TransportRegistration,
            VsockSock, //
        },
    },
    logic::cid,
};

/// All guests that have a CID.
pub(super) static GUESTS: CidTable<Guest> = CidTable::new();

/// Most passes over the TX queue that a release waits for: twice as many as the largest ring needs,
/// when it is full, if each ended after one packet.
const MAX_LAST_PASSES: u32 = 0x10000;

/// How many of them may find no memory. Each waits for a millisecond.
const MAX_LAST_RETRIES: u32 = 1000;

/// Whether a packet may wait for the worker to look at the send queue by itself.
pub(super) enum MayWait {
    /// It is wanted at once, or its sender can do nothing before it is taken.
    No,
    /// Plain stream data, of which more may follow.
    WithItsLane,
    /// It only gives credit.
    AsCredit,
}

/// The state of one guest.
#[pin_data(PinnedDrop)]
pub(crate) struct Guest {
    pub(super) device: Device<Guest>,
    /// The namespace of the opener: who is reached, and who may reach the guest.
    #[pin]
    pub(super) net: OwnedNet,
    #[pin]
    pub(super) send_queue: SendQueue,
    /// Packets that need not wake the worker, as it looks for them by itself.
    pub(super) gather: Gather,
    /// What the RX pass works with and keeps for the next: too large to make for each.
    #[pin]
    pub(super) rx_kept: Mutex<Kept>,
    /// The same for the TX pass.
    #[pin]
    pub(super) tx_parts: Mutex<Parts>,
    /// Replies in the send queue. While there are as many as the TX ring has entries, nothing is
    /// taken from it: a guest that lets the host answer and takes no answers is held up.
    queued_replies: Atomic<u32>,
    /// 0 until one is set; changed under the lock of the table's writers.
    cid: Atomic<u32>,
    pub(super) seqpacket_allow: Atomic<bool>,
    pub(super) rx_requeued: Atomic<bool>,
    /// The worker comes back for what the last pass over the TX queue left in it. Written at the end
    /// of each pass, so it says so until the next has ended.
    pub(super) tx_requeued: Atomic<bool>,
    /// The worker will soon look at the send queue by itself: soon enough for what only gives credit.
    credit_waits: Atomic<bool>,
    released: Atomic<bool>,
    pub(super) stats: Counters,
    #[pin]
    debug_file: Mutex<Option<Pin<KBox<GuestStats>>>>,
}

impl Guest {
    /// The running or stopped guest `cid` that sockets of `net` reach, for as long as `guard`.
    pub(super) fn find<'g>(guard: &'g rcu::Guard, cid: u32, net: &Net) -> Option<&'g Guest> {
        GUESTS.find(guard, cid, |guest| net.reaches(&guest.net))
    }

    /// The CID, 0 if it has none yet.
    #[inline]
    pub(super) fn cid(&self) -> u32 {
        self.cid.load(Relaxed)
    }

    /// Gives the guest a CID. Source: `vhost_vsock_set_cid()`.
    ///
    /// EINVAL for one that no guest may have, EADDRINUSE for one that another guest in reach has
    /// or that is this machine's own. A guest that has a CID already is reachable by the old or by
    /// the new one at every moment.
    pub(super) fn set_cid(this: &Arc<Self>, asked: u64) -> Result {
        let cid = cid::for_guest(asked).ok_or(EINVAL)?;
        if is_own_cid(cid) {
            return Err(EADDRINUSE());
        }

        // The directory is named after the CID, which another guest may have in a moment. The lock
        // is held so that two changes at once do not show two directories.
        let mut shown = this.debug_file.lock();
        *shown = None;
        let result = Self::take_cid(this, cid);
        *shown = Self::show_in_debugfs(this);
        result
    }

    /// Puts the guest into the table under `cid`, then takes it out from under the CID before.
    fn take_cid(this: &Arc<Self>, cid: u32) -> Result {
        let mut writer = Writer::lock();
        let taken_by_us = {
            let guard = rcu::read_lock();
            match Guest::find(&guard, cid, &this.net) {
                Some(other) if !core::ptr::eq(other, &**this) => return Err(EADDRINUSE()),
                other => other.is_some(),
            }
        };
        if taken_by_us {
            return Ok(());
        }
        GUESTS.insert(&mut writer, cid, this.clone())?;
        let old = this.cid.xchg(cid, Full);
        let retired = GUESTS.remove(&mut writer, old, this);
        drop(writer);
        drop(retired);
        Ok(())
    }

    /// Takes the guest out of the table, and waits until no sender sees it any more.
    fn forget_cid(&self) {
        let mut writer = Writer::lock();
        let retired = GUESTS.remove(&mut writer, self.cid(), self);
        self.stats.retire();
        drop(writer);
        drop(retired);
    }

    /// Makes `CID/stats`, or `CID.ns/stats` with the number of a namespace that is not the first:
    /// there another guest may have the same CID.
    fn show_in_debugfs(this: &Arc<Self>) -> Option<Pin<KBox<GuestStats>>> {
        let cid = this.cid();
        if cid == 0 {
            return None;
        }
        let dir = match this.net.number() {
            Some(number) => DebugRoot::subdir(fmt!("{cid}.{number}")),
            None => DebugRoot::subdir(fmt!("{cid}")),
        };
        dir.and_then(|dir| guest_file(&dir, this.clone()).ok())
    }

    /// Starts both queues. Source: `vhost_vsock_start()`.
    ///
    /// EPERM if the caller is not the owner, EFAULT if the rings are not accessible.
    pub(super) fn start(&self) -> Result {
        let device = self.device.lock();
        device.check_owner()?;
        for queue in QueueId::ALL {
            if let Err(error) = device.start_queue(queue) {
                self.stop_queues();
                return Err(error);
            }
        }
        trace::running(self.cid(), true);
        // Packets may have been sent, and the guest may have filled its TX ring, when the queues
        // were last stopped; nobody owes us another kick for those.
        let guard = rcu::read_lock();
        self.device.queue_send_work(&guard);
        self.device.kick(QueueId::Tx, &guard);
        Ok(())
    }

    /// Stops both queues. EPERM if the caller is not the owner. Source: `vhost_vsock_stop()`.
    pub(super) fn stop(&self) -> Result {
        let device = self.device.lock();
        device.check_owner()?;
        self.stop_queues();
        trace::running(self.cid(), false);
        Ok(())
    }

    fn stop_queues(&self) {
        for queue in QueueId::ALL {
            self.device.lock_queue(queue).stop();
        }
    }

    /// Has the worker look at the send queue after a packet was added to `lane`, unless the worker
    /// will look soon by itself, and the packet may wait for that.
    ///
    /// Adding to an empty lane is fully ordered, and the worker lets packets go, fully ordered,
    /// before it looks at the queue: either it sees the packet, or the packet is seen not to wait.
    /// What is added behind others needs no order: they are taken under the same lock.
    #[inline]
    pub(super) fn packet_added(&self, lane: usize, may_wait: MayWait, guard: &rcu::Guard) {
        let waits = match may_wait {
            MayWait::No => false,
            MayWait::WithItsLane => self.gather.takes(lane),
            MayWait::AsCredit => self.credit_waits.load(Relaxed),
        };
        if !waits {
            self.device.queue_send_work(guard);
        }
    }

    /// Has packets that only give credit wait for [`Guest::let_credit_go`].
    pub(super) fn hold_credit(&self) {
        self.credit_waits.store(true, Relaxed);
    }

    /// Ends that, and has the worker look at the send queue if there is anything in it.
    pub(super) fn let_credit_go(&self) {
        self.credit_waits.xchg(false, Full);
        self.look_for_packets();
    }

    /// Ends the gathering of packets, if there is any, and has the worker take them.
    pub(super) fn end_gathering(&self) {
        if self.gather.end() {
            self.look_for_packets();
        }
    }

    /// Has the worker look at the send queue if there is anything in it.
    fn look_for_packets(&self) {
        if !self.send_queue.is_empty() {
            self.device.queue_send_work(&rcu::read_lock());
        }
    }

    /// Whether the file is being released.
    pub(super) fn is_released(&self) -> bool {
        self.released.load(Relaxed)
    }

    /// Counts a reply that was put into the send queue.
    pub(super) fn add_reply(&self) {
        self.queued_replies.fetch_add(1u32, Full);
    }

    /// Counts `replies` that left the send queue, and resumes the TX queue if it waited for that.
    pub(super) fn remove_replies(&self, replies: u32) {
        if replies == 0 {
            return;
        }
        let before = self.queued_replies.fetch_sub(replies, Full);
        let limit = self.device.ring_size(QueueId::Tx);
        if before >= limit && before.wrapping_sub(replies) < limit {
            self.device.kick(QueueId::Tx, &rcu::read_lock());
        }
    }

    /// Whether one more reply may be put into the send queue.
    #[inline]
    pub(super) fn may_reply(&self) -> bool {
        // Fully ordered in the end: whoever takes replies out looks at the limit afterwards.
        let limit = self.device.ring_size(QueueId::Tx);
        self.queued_replies.load(Relaxed) < limit
            || self.queued_replies.fetch_add(0u32, Full) < limit
    }

    /// Frees the waiting packets of a socket. Source: `vhost_transport_cancel_pkt()`.
    pub(super) fn cancel(&self, sock: &VsockSock) {
        self.remove_replies(self.send_queue.cancel(sock));
    }

    /// Gives to its sockets what the guest has sent before its VMM went away.
    ///
    /// The worker does it; where that was killed with its process, another thread does.
    fn drain_tx(this: &Arc<Self>) {
        if !this.device.is_started(QueueId::Tx) {
            return;
        }
        let by_worker = this.last_passes(|| {
            let kicked = this.device.kick(QueueId::Tx, &rcu::read_lock());
            if kicked {
                this.device.lock().flush();
            }
            kicked
        });
        if !by_worker {
            Device::run_as_owner(&**this, |guest: &Self| {
                guest.last_passes(|| {
                    tx::run(guest);
                    true
                });
            });
        }
    }

    /// Runs passes over the TX queue until one ends with nothing left to do, or there was no memory
    /// for too long; false as soon as `pass` could not be run.
    fn last_passes(&self, mut pass: impl FnMut() -> bool) -> bool {
        let mut retries = 0;
        for _ in 0..MAX_LAST_PASSES {
            let before = self.stats.tx_retries.load(Relaxed);
            if !pass() {
                return false;
            }
            if self.stats.tx_retries.load(Relaxed) != before {
                retries += 1;
            }
            if !self.tx_requeued.load(Relaxed) || retries >= MAX_LAST_RETRIES {
                break;
            }
        }
        true
    }

    /// What debugfs and fdinfo show.
    pub(super) fn report(&self) -> Report<'_> {
        Report(self)
    }
}

/// Lines `name value`: the counters, then what is so right now.
pub(super) struct Report<'a>(&'a Guest);

impl Report<'_> {
    /// Writes the lines.
    pub(super) fn write_to(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guest = self.0;
        guest.stats.write_to(f)?;
        writeln!(f, "queued_replies {}", guest.queued_replies.load(Relaxed))?;
        writeln!(f, "send_queue {}", guest.send_queue.len())?;
        writeln!(
            f,
            "rx_running {}",
            u8::from(guest.device.is_started(QueueId::Rx))
        )?;
        writeln!(
            f,
            "tx_running {}",
            u8::from(guest.device.is_started(QueueId::Tx))
        )
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl Backend for Guest {
    fn device(&self) -> &Device<Self> {
        &self.device
    }

    fn handle_send(&self) {
        rx::run(self);
    }

    fn handle_kick(&self, queue: QueueId) {
        match queue {
            QueueId::Rx => {
                if !self.rx_requeued.xchg(false, Relaxed) {
                    count!(self, rx_kicks += 1u32);
                }
                rx::run(self);
            }
            QueueId::Tx => {
                if !self.tx_requeued.load(Relaxed) {
                    count!(self, tx_kicks += 1u32);
                }
                tx::run(self);
            }
        }
    }
}

#[pinned_drop]
impl PinnedDrop for Guest {
    fn drop(self: Pin<&mut Self>) {
        // What passes counted after the guest had left the table, or if it never was in it.
        self.stats.retire();
    }
}

impl CharDevice for Guest {
    fn open() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                device: Device::new()?,
                net <- OwnedNet::of_current(),
                send_queue <- SendQueue::new(),
                gather: Gather::new(),
                rx_kept <- new_mutex!(Kept::new()),
                tx_parts <- new_mutex!(Parts::new()),
                queued_replies: Atomic::new(0),
                cid: Atomic::new(0),
                seqpacket_allow: Atomic::new(false),
                rx_requeued: Atomic::new(false),
                tx_requeued: Atomic::new(false),
                credit_waits: Atomic::new(false),
                released: Atomic::new(false),
                stats: Counters::new(),
                debug_file <- new_mutex!(None),
            }),
            GFP_KERNEL,
        )
    }

    fn ioctl(this: &Arc<Self>, cmd: u32, arg: usize) -> Result<isize> {
        ioctl::handle(this, cmd, arg)
    }

    fn show_fdinfo(&self, file: &SeqFile) {
        seq_print!(file, "guest_cid {}\n{}", self.cid(), self.report());
    }

    /// Source: `vhost_vsock_dev_release()`; what is different is told in `Documentation/`.
    fn release(this: &Arc<Self>) {
        *this.debug_file.lock() = None;
        this.released.store(true, Relaxed);
        Self::drain_tx(this);
        // What the guest sends from here on would come from a CID that is another's in a moment, and
        // make sockets that nobody resets.
        this.stop_queues();
        this.forget_cid();
        TransportRegistration::<VhostTransport>::reset_orphans();
    }
}
