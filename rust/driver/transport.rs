// SPDX-License-Identifier: GPL-2.0

//! What sockets ask for.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        rcu, //
    },
};

use super::guest::Guest;
use crate::{
    abstractions::{
        code::EHOSTUNREACH,
        net::Net,
        vhost::QueueId,
        vsock::{
            HostTransport,
            Packet,
            VsockSock, //
        },
    },
    logic::{
        cid,
        header::OP_CREDIT_UPDATE,
        linger, //
    },
};

/// The host-to-guest transport: `vhost_transport` of the C driver.
pub(crate) struct VhostTransport;

impl HostTransport for VhostTransport {
    const LOCAL_CID: u32 = cid::HOST;

    /// Source: `vhost_transport_send_pkt()`.
    ///
    /// A guest that is not running is told at once: it could not answer in time anyway. That it
    /// may stop right after is no harm; the packet then waits for the next start.
    fn send_pkt(packet: Packet, net: &Net) -> Result {
        let header = packet.header();
        let cid = u32::try_from(header.flow.dst_cid).map_err(|_| ENODEV)?;
        let guard = rcu::read_lock();
        let guest = Guest::find(&guard, cid, net).ok_or(ENODEV)?;
        if !guest.device.is_started(QueueId::Rx) {
            return Err(EHOSTUNREACH());
        }
        let credit = header.op == OP_CREDIT_UPDATE && linger::credit_may_wait(header.buf_alloc);
        if packet.is_reply() {
            guest.add_reply();
        }
        guest.send_queue.push(packet);
        guest.packet_added(credit, &guard);
        Ok(())
    }

    fn cancel_pkt(sock: &VsockSock) -> Result {
        let guard = rcu::read_lock();
        let guest = Guest::find(&guard, sock.remote_cid(), sock.net()).ok_or(ENODEV)?;
        guest.cancel(sock);
        Ok(())
    }

    fn has_remote_cid(sock: &VsockSock, cid: u32) -> bool {
        let guard = rcu::read_lock();
        Guest::find(&guard, cid, sock.net()).is_some()
    }

    fn seqpacket_allow(sock: &VsockSock, cid: u32) -> bool {
        let guard = rcu::read_lock();
        Guest::find(&guard, cid, sock.net())
            .is_some_and(|guest| guest.seqpacket_allow.load(Relaxed))
    }
}
