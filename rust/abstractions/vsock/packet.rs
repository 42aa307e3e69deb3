// SPDX-License-Identifier: GPL-2.0

//! A packet: an skb with a virtio-vsock header in its headroom.
//!
//! C header: `include/linux/virtio_vsock.h`.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::prelude::*;

use crate::{
    bindings,
    logic::header::{
        Header,
        HEADER_LEN, //
    },
};

/// An owned packet.
///
/// # Invariants
///
/// - The pointer is an skb that nobody else owns or changes, with a header at `skb->head` and a
///   `struct virtio_vsock_skb_cb` in its control block.
/// - `cb.offset <= skb->len`: so many bytes of the payload were sent already.
#[repr(transparent)]
pub(crate) struct Packet(NonNull<bindings::sk_buff>);

// SAFETY: An skb may be handed from thread to thread.
unsafe impl Send for Packet {}

impl Packet {
    /// Takes over a C packet.
    ///
    /// # Safety
    ///
    /// `skb` must satisfy the type invariants; its ownership goes to the result.
    pub(super) unsafe fn from_raw(skb: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By the requirements.
        Self(skb)
    }

    /// Gives the packet back to C.
    pub(super) fn into_raw(self) -> *mut bindings::sk_buff {
        let skb = self.as_raw();
        core::mem::forget(self);
        skb
    }

    /// The C packet.
    pub(super) fn as_raw(&self) -> *mut bindings::sk_buff {
        self.0.as_ptr()
    }

    /// Allocates a packet with `header` and room for `len` bytes of payload, which are still to be
    /// filled. Large payloads are put into fragments. Source: `virtio_vsock_alloc_skb()`.
    ///
    /// ENOMEM if there is no memory. Context: process context; may sleep.
    pub(crate) fn alloc(header: &Header, len: usize) -> Result<Self> {
        let len = c_uint::try_from(len)?;
        let size = len.checked_add(HEADER_LEN as c_uint).ok_or(EINVAL)?;
        // SAFETY: The shim has no preconditions.
        let skb = unsafe { bindings::rs_virtio_vsock_alloc_skb(size) };
        // INVARIANT: A new skb has a zeroed control block, and its header is written next.
        let mut packet = Self(NonNull::new(skb).ok_or(ENOMEM)?);
        packet.set_header(header);
        if len > 0 {
            // SAFETY: The packet has room for `len` bytes and holds none yet.
            unsafe { bindings::rs_virtio_vsock_skb_put(skb, len) };
        }
        Ok(packet)
    }

    /// The control block.
    fn cb(&self) -> *mut bindings::virtio_vsock_skb_cb {
        // SAFETY: The skb is valid; only an address is taken.
        unsafe { ptr::addr_of_mut!((*self.as_raw()).cb).cast() }
    }

    /// The header.
    #[inline]
    pub(crate) fn header(&self) -> Header {
        // SAFETY: By the type invariant the header is at `skb->head`, and nobody else changes it.
        Header::from_bytes(unsafe { &*(*self.as_raw()).head.cast::<[u8; HEADER_LEN]>() })
    }

    /// Writes the header.
    pub(crate) fn set_header(&mut self, header: &Header) {
        // SAFETY: By the type invariant the header's place is at `skb->head`, and it is ours.
        unsafe { *(*self.as_raw()).head.cast::<[u8; HEADER_LEN]>() = header.to_bytes() };
    }

    /// Bytes of payload, sent or not.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // SAFETY: The skb is valid.
        unsafe { (*self.as_raw()).len as usize }
    }

    /// Bytes of payload that were sent already.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        // SAFETY: The control block is valid.
        unsafe { (*self.cb()).offset as usize }
    }

    /// Bytes of payload that are still to be sent.
    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.len().saturating_sub(self.offset())
    }

    /// Marks the payload before `offset`, at most [`Packet::len`], as sent.
    pub(crate) fn set_offset(&mut self, offset: usize) {
        let offset = offset.min(self.len());
        // SAFETY: The control block is valid and ours. A payload is far smaller than 4 GiB.
        // INVARIANT: Not more than the length.
        unsafe { (*self.cb()).offset = offset as u32 };
    }

    /// Whether the packet is a reply, of which the device counts those that wait.
    #[inline]
    pub(crate) fn is_reply(&self) -> bool {
        // SAFETY: The control block is valid.
        unsafe { (*self.cb()).reply }
    }

    /// Shows the `len` bytes of payload behind the offset to vsockmon as a packet of their own,
    /// with `flags`. The packet is the same afterwards.
    pub(crate) fn deliver_tap_part(&mut self, len: u32, flags: u32) {
        // SAFETY: By the type invariant the header is at `skb->head`, and it is ours.
        let header = unsafe { (*self.as_raw()).head.cast::<bindings::virtio_vsock_hdr>() };
        // SAFETY: As above; nothing else refers to the header meanwhile.
        let whole = unsafe {
            let whole = ((*header).len, (*header).flags);
            (*header).len = len.to_le();
            (*header).flags = flags.to_le();
            whole
        };
        self.deliver_tap();
        // SAFETY: As above.
        unsafe { ((*header).len, (*header).flags) = whole };
    }

    /// Shows the packet to vsockmon: its header as it stands, and as many bytes of payload behind
    /// the offset as the header says; not at all if there are fewer.
    /// Source: `virtio_transport_deliver_tap_pkt()`.
    pub(crate) fn deliver_tap(&mut self) {
        if self.header().len as usize > self.remaining() {
            return;
        }
        // SAFETY: The packet is valid and ours, and has what its header says. A part of a packet is
        // delivered on its own, so the mark of an earlier part is taken off first.
        unsafe {
            (*self.cb()).tap_delivered = false;
            bindings::virtio_transport_deliver_tap_pkt(self.as_raw());
        }
    }

    /// Copies `len` bytes of payload from `offset` to `to`; EFAULT if `to` cannot be written.
    pub(in crate::abstractions) fn copy_to(
        &self,
        offset: usize,
        len: usize,
        to: &mut bindings::iov_iter,
    ) -> Result {
        self.check_range(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: The packet and `to` are valid, and the range is within the payload.
        if unsafe {
            bindings::rs_skb_copy_to_iter(self.as_raw(), offset as c_int, to, len as c_int)
        } {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Copies `len` bytes from `from` to `offset` of the payload; EFAULT if `from` cannot be read.
    pub(in crate::abstractions) fn copy_from(
        &mut self,
        offset: usize,
        len: usize,
        from: &mut bindings::iov_iter,
    ) -> Result {
        self.check_range(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        // SAFETY: The packet and `from` are valid, and the range is within the payload.
        let copied = unsafe {
            bindings::rs_skb_copy_from_iter(self.as_raw(), offset as c_int, from, len as c_int)
        };
        if copied {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// EINVAL unless `len` bytes from `offset` are within the payload.
    fn check_range(&self, offset: usize, len: usize) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Frees a packet whose payload was sent in full, and tells its socket.
    ///
    /// Source: `virtio_transport_consume_skb_sent()`.
    pub(crate) fn consume_sent(self) {
        // SAFETY: The packet is valid; its ownership goes to the function.
        unsafe { bindings::virtio_transport_consume_skb_sent(self.into_raw(), true) };
    }
}

/// Whether there is a vsockmon device, to which packets must be shown.
#[inline]
pub(crate) fn has_tap() -> bool {
    // SAFETY: The shim has no preconditions.
    unsafe { bindings::rs_vsock_has_tap() }
}

impl Drop for Packet {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the packet is ours.
        unsafe { bindings::rs_kfree_skb(self.as_raw()) };
    }
}
