// SPDX-License-Identifier: GPL-2.0

//! The host-to-guest transport of AF_VSOCK.
//!
//! C headers: `include/net/af_vsock.h`, `include/linux/virtio_vsock.h`.

use core::{
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Release, //
    },
};

use super::{
    packet::Packet,
    socket::VsockSock, //
};
use crate::{
    abstractions::net::Net,
    bindings,
    logic::header::OP_RW, //
};

/// What a host-to-guest transport decides itself; all else is the common virtio transport.
///
/// Context of every method: any thread, sockets may be locked; may not sleep.
pub(crate) trait HostTransport: 'static {
    /// CID of this end: `get_local_cid`.
    const LOCAL_CID: u32;

    /// Sends a packet from a socket of `net` to the guest that its header names.
    ///
    /// ENODEV if there is no such guest, EHOSTUNREACH if it is not running; the packet is freed.
    fn send_pkt(packet: Outgoing<'_>, net: &Net) -> Result;

    /// Frees the packets of a socket that wait to be sent; ENODEV if its guest is gone.
    fn cancel_pkt(sock: &VsockSock) -> Result;

    /// Whether `cid` is a guest that `sock` can reach.
    fn has_remote_cid(sock: &VsockSock, cid: u32) -> bool;

    /// Whether the guest `cid` speaks seqpacket.
    fn seqpacket_allow(sock: &VsockSock, cid: u32) -> bool;
}

/// A packet that is being sent.
///
/// # Invariants
///
/// The core is calling `send_pkt()` with it.
pub(crate) struct Outgoing<'a>(Packet, PhantomData<&'a ()>);

impl Outgoing<'_> {
    /// Bytes that its socket may send behind it; zero if it carries no data.
    ///
    /// Source: `virtio_transport_stream_has_space()`.
    pub(crate) fn credit_left(&self) -> usize {
        if self.0.header().op != OP_RW {
            return 0;
        }
        // SAFETY: By the type invariant this is within `send_pkt()`. Data comes from nowhere but
        // `virtio_transport_stream_enqueue()` and its like, with the socket locked and this
        // transport assigned to it; no lock of the transport is held.
        let left = unsafe { bindings::rs_virtio_transport_has_space(self.0.as_raw()) };
        usize::try_from(left).unwrap_or(0)
    }

    /// The packet, which may live on.
    pub(crate) fn into_packet(self) -> Packet {
        self.0
    }
}

impl Deref for Outgoing<'_> {
    type Target = Packet;

    fn deref(&self) -> &Packet {
        &self.0
    }
}

/// Whether the one transport of this module is filled and registered.
static REGISTERED: Atomic<bool> = Atomic::new(false);

/// The one transport of this module, a static of `rust/helpers/helpers.c`.
///
/// It is written by [`TransportRegistration::register`] alone, while `REGISTERED` is its own.
fn transport() -> *mut bindings::virtio_transport {
    // SAFETY: The shim has no preconditions.
    unsafe { bindings::rs_vhost_transport() }
}

/// The registered transport. Dropping it unregisters.
///
/// # Invariants
///
/// [`transport()`] is filled with the callbacks of a `T` and registered with the vsock core.
pub(crate) struct TransportRegistration<T>(PhantomData<fn(T)>);

impl<T: HostTransport> TransportRegistration<T> {
    /// Registers `T` as the host-to-guest transport.
    ///
    /// EBUSY if there is one already, for example that of `vhost_vsock.ko`. Sockets that use the
    /// transport pin `module`. Source: `vsock_core_register()`.
    pub(crate) fn register(module: &'static ThisModule) -> Result<Self> {
        if REGISTERED.xchg(true, Full) {
            return Err(EBUSY);
        }
        let transport = transport();
        // SAFETY: `REGISTERED` was false, so nobody uses the static, and now it is ours.
        let ret = unsafe {
            transport.write(virtio_transport::<T>(module));
            bindings::vsock_core_register(
                core::ptr::addr_of!((*transport).transport),
                bindings::VSOCK_TRANSPORT_F_H2G as c_int,
            )
        };
        if let Err(error) = to_result(ret) {
            REGISTERED.store(false, Release);
            return Err(error);
        }
        // INVARIANT: Filled and registered.
        Ok(Self(PhantomData))
    }

    /// Gives a packet that a guest sent to the socket that it is for. The core answers those that
    /// are for nobody. Source: `virtio_transport_recv_pkt()`.
    ///
    /// Context: process context; takes the socket's lock, may sleep. `net` is the guest's.
    pub(crate) fn receive(packet: Packet, net: &Net) {
        // SAFETY: The static is valid; devices exist only while the transport is registered, since
        // their files pin the module. The packet's ownership goes to the function.
        unsafe {
            bindings::virtio_transport_recv_pkt(transport(), packet.into_raw(), net.as_raw())
        };
    }

    /// Resets the connections of sockets whose guest is gone: those for which
    /// [`HostTransport::has_remote_cid`] says no.
    ///
    /// Source: `vsock_for_each_connected_socket()`. Takes the table lock of connected sockets.
    pub(crate) fn reset_orphans() {
        // SAFETY: The static is valid, see `receive()`. The callback is called with sockets of this
        // transport, under the table lock.
        unsafe {
            bindings::vsock_for_each_connected_socket(
                core::ptr::addr_of_mut!((*transport()).transport),
                Some(reset_if_orphan::<T>),
            )
        };
    }
}

impl<T> Drop for TransportRegistration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is registered. Sockets that use it pin the module, so
        // there are none when the module is unloaded.
        unsafe { bindings::vsock_core_unregister(core::ptr::addr_of!((*transport()).transport)) };
        REGISTERED.store(false, Release);
    }
}

/// The C structure for a `T`: as `vhost_transport` in `drivers/vhost/vsock.c`.
fn virtio_transport<T: HostTransport>(module: &'static ThisModule) -> bindings::virtio_transport {
    bindings::virtio_transport {
        transport: bindings::vsock_transport {
            module: module.as_ptr(),

            get_local_cid: Some(get_local_cid::<T>),
            has_remote_cid: Some(has_remote_cid::<T>),

            init: Some(bindings::virtio_transport_do_socket_init),
            destruct: Some(bindings::virtio_transport_destruct),
            release: Some(bindings::virtio_transport_release),
            connect: Some(bindings::virtio_transport_connect),
            shutdown: Some(bindings::virtio_transport_shutdown),
            cancel_pkt: Some(cancel_pkt::<T>),

            dgram_enqueue: Some(bindings::virtio_transport_dgram_enqueue),
            dgram_dequeue: Some(bindings::virtio_transport_dgram_dequeue),
            dgram_bind: Some(bindings::virtio_transport_dgram_bind),
            dgram_allow: Some(bindings::virtio_transport_dgram_allow),

            stream_enqueue: Some(bindings::virtio_transport_stream_enqueue),
            stream_dequeue: Some(bindings::virtio_transport_stream_dequeue),
            stream_has_data: Some(bindings::virtio_transport_stream_has_data),
            stream_has_space: Some(bindings::virtio_transport_stream_has_space),
            stream_rcvhiwat: Some(bindings::virtio_transport_stream_rcvhiwat),
            stream_is_active: Some(bindings::virtio_transport_stream_is_active),
            stream_allow: Some(stream_allow),

            seqpacket_dequeue: Some(bindings::virtio_transport_seqpacket_dequeue),
            seqpacket_enqueue: Some(bindings::virtio_transport_seqpacket_enqueue),
            seqpacket_allow: Some(seqpacket_allow::<T>),
            seqpacket_has_data: Some(bindings::virtio_transport_seqpacket_has_data),

            msgzerocopy_allow: Some(msgzerocopy_allow),

            notify_poll_in: Some(bindings::virtio_transport_notify_poll_in),
            notify_poll_out: Some(bindings::virtio_transport_notify_poll_out),
            notify_recv_init: Some(bindings::virtio_transport_notify_recv_init),
            notify_recv_pre_block: Some(bindings::virtio_transport_notify_recv_pre_block),
            notify_recv_pre_dequeue: Some(bindings::virtio_transport_notify_recv_pre_dequeue),
            notify_recv_post_dequeue: Some(bindings::virtio_transport_notify_recv_post_dequeue),
            notify_send_init: Some(bindings::virtio_transport_notify_send_init),
            notify_send_pre_block: Some(bindings::virtio_transport_notify_send_pre_block),
            notify_send_pre_enqueue: Some(bindings::virtio_transport_notify_send_pre_enqueue),
            notify_send_post_enqueue: Some(bindings::virtio_transport_notify_send_post_enqueue),
            notify_buffer_size: Some(bindings::virtio_transport_notify_buffer_size),
            notify_set_rcvlowat: Some(bindings::virtio_transport_notify_set_rcvlowat),

            unsent_bytes: Some(bindings::virtio_transport_unsent_bytes),

            read_skb: Some(bindings::virtio_transport_read_skb),
        },
        send_pkt: Some(send_pkt::<T>),
        ..pin_init::zeroed()
    }
}

/// # Safety
///
/// `skb` must be a virtio-vsock packet, whose ownership comes with it, and `net` valid.
unsafe extern "C" fn send_pkt<T: HostTransport>(
    skb: *mut bindings::sk_buff,
    net: *mut bindings::net,
) -> c_int {
    let Some(skb) = NonNull::new(skb) else {
        return EINVAL.to_errno();
    };
    // SAFETY: By the requirements.
    let (packet, net) = unsafe { (Packet::from_raw(skb), Net::from_raw(net)) };
    // Afterwards the packet is the worker's. Its payload is at most 64 KiB.
    let len = packet.len() as c_int;
    // INVARIANT: This is the call.
    match T::send_pkt(Outgoing(packet, PhantomData), net) {
        Ok(()) => len,
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// `vsk` must be a live socket.
unsafe extern "C" fn cancel_pkt<T: HostTransport>(vsk: *mut bindings::vsock_sock) -> c_int {
    // SAFETY: By the requirement.
    match T::cancel_pkt(unsafe { VsockSock::from_raw(vsk) }) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// `vsk` must be a live socket.
unsafe extern "C" fn has_remote_cid<T: HostTransport>(
    vsk: *mut bindings::vsock_sock,
    cid: u32,
) -> bool {
    // SAFETY: By the requirement.
    T::has_remote_cid(unsafe { VsockSock::from_raw(vsk) }, cid)
}

/// # Safety
///
/// `vsk` must be a live socket.
unsafe extern "C" fn seqpacket_allow<T: HostTransport>(
    vsk: *mut bindings::vsock_sock,
    cid: u32,
) -> bool {
    // SAFETY: By the requirement.
    T::seqpacket_allow(unsafe { VsockSock::from_raw(vsk) }, cid)
}

/// # Safety
///
/// `sk` must be a live connected AF_VSOCK socket, and the table lock held.
unsafe extern "C" fn reset_if_orphan<T: HostTransport>(sk: *mut bindings::sock) {
    // SAFETY: By the requirement; a `struct vsock_sock` begins with its `struct sock`.
    let sock = unsafe { VsockSock::from_raw(sk.cast()) };
    if !T::has_remote_cid(sock, sock.remote_cid()) {
        sock.reset_orphan();
    }
}

/// CID of this end.
extern "C" fn get_local_cid<T: HostTransport>() -> u32 {
    T::LOCAL_CID
}

/// Any socket may make a stream to any guest.
extern "C" fn stream_allow(_vsk: *mut bindings::vsock_sock, _cid: u32, _port: u32) -> bool {
    true
}

/// Zero-copy sends are copied out of their pages into the guest's buffers.
extern "C" fn msgzerocopy_allow() -> bool {
    true
}
