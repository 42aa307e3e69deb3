// SPDX-License-Identifier: GPL-2.0

//! A queue of packets with its lock: `struct sk_buff_head`.

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

use super::{
    packet::Packet,
    socket::VsockSock, //
};
use crate::{
    bindings,
    logic::header::Header, //
};

/// A queue of packets.
///
/// # Invariants
///
/// The list is initialised and holds packets that satisfy the invariants of [`Packet`] and are
/// owned by the queue. It is changed under its spinlock only.
#[pin_data(PinnedDrop)]
pub(crate) struct PacketQueue {
    #[pin]
    list: Opaque<bindings::sk_buff_head>,
}

// SAFETY: Packets are `Send`.
unsafe impl Send for PacketQueue {}
// SAFETY: All access is under the spinlock.
unsafe impl Sync for PacketQueue {}

impl PacketQueue {
    /// An empty queue.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- Opaque::ffi_init(|list: *mut bindings::sk_buff_head| {
                // SAFETY: The slot may be written, and is pinned.
                unsafe { bindings::rs_skb_queue_head_init(list) };
            }),
        })
    }

    /// Takes the lock. Context: any but hard interrupts; bottom halves are off meanwhile.
    #[inline]
    pub(crate) fn lock(&self) -> PacketQueueGuard<'_> {
        // SAFETY: The list is initialised by the type invariant.
        unsafe { bindings::rs_skb_queue_lock(self.list.get()) };
        // INVARIANT: Just taken.
        PacketQueueGuard {
            queue: self,
            _not_send: NotThreadSafe,
        }
    }

    /// Frees the packets of `sock`; returns how many of them were replies.
    ///
    /// Source: `virtio_transport_purge_skbs()`. Takes the lock.
    pub(crate) fn purge(&self, sock: &VsockSock) -> u32 {
        let sock = sock.as_raw().cast();
        // SAFETY: The list is initialised; the socket is only compared with those of the packets.
        let replies = unsafe { bindings::virtio_transport_purge_skbs(sock, self.list.get()) };
        u32::try_from(replies).unwrap_or(0)
    }
}

#[pinned_drop]
impl PinnedDrop for PacketQueue {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The list is initialised and owns its packets.
        unsafe { bindings::rs_virtio_vsock_skb_queue_purge(self.list.get()) };
    }
}

/// The lock of a [`PacketQueue`], held.
///
/// # Invariants
///
/// The spinlock is held by the current context while this exists.
pub(crate) struct PacketQueueGuard<'a> {
    queue: &'a PacketQueue,
    _not_send: NotThreadSafe,
}

impl PacketQueueGuard<'_> {
    /// The list.
    fn list(&self) -> *mut bindings::sk_buff_head {
        self.queue.list.get()
    }

    /// Whether there is no packet.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: The list is initialised and locked.
        unsafe { bindings::rs_skb_peek(self.list()) }.is_null()
    }

    /// Number of packets.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: The list is initialised and locked.
        unsafe { (*self.list()).qlen as usize }
    }

    /// Takes the first packet.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<Packet> {
        // SAFETY: The list is initialised and locked.
        let skb = unsafe { bindings::rs___skb_dequeue(self.list()) };
        // SAFETY: The packet was in the list, which gave up its ownership.
        NonNull::new(skb).map(|skb| unsafe { Packet::from_raw(skb) })
    }

    /// Takes the first packet, if its header is `wanted`.
    #[inline]
    pub(crate) fn pop_front_if(&mut self, wanted: impl FnOnce(&Header) -> bool) -> Option<Packet> {
        // SAFETY: The list is initialised and locked.
        let front = NonNull::new(unsafe { bindings::rs_skb_peek(self.list()) })?;
        // SAFETY: The packet is in the list and satisfies the invariants. It is not dropped, so the
        // list stays its owner.
        let front = core::mem::ManuallyDrop::new(unsafe { Packet::from_raw(front) });
        if wanted(&front.header()) {
            self.pop_front()
        } else {
            None
        }
    }

    /// Adds a packet at the end.
    #[inline]
    pub(crate) fn push_back(&mut self, packet: Packet) {
        // SAFETY: The list is initialised and locked; it becomes the packet's owner.
        unsafe { bindings::rs___skb_queue_tail(self.list(), packet.into_raw()) };
    }

    /// Adds a packet at the front.
    pub(crate) fn push_front(&mut self, packet: Packet) {
        // SAFETY: As above.
        unsafe { bindings::rs___skb_queue_head(self.list(), packet.into_raw()) };
    }
}

impl Drop for PacketQueueGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant the lock is held.
        unsafe { bindings::rs_skb_queue_unlock(self.list()) };
    }
}
