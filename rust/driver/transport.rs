// SPDX-License-Identifier: GPL-2.0

//! What sockets ask for.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        rcu, //
    },
};

use super::guest::{
    Guest,
    MayWait, //
};
use crate::{
    abstractions::{
        code::EHOSTUNREACH,
        net::Net,
        vhost::QueueId,
        vsock::{
            HostTransport,
            Outgoing,
            VsockSock, //
        },
    },
    logic::{
        cid,
        header::{
            Header,
            OP_CREDIT_UPDATE, //
        },
        linger, //
    },
};

/// Whether `packet` may wait for the worker to come by itself. Behind one that may, its sender must
/// be able to send as much again: else it can do nothing before the packet is taken.
#[inline]
fn may_wait(guest: &Guest, packet: &Outgoing<'_>, header: &Header) -> MayWait {
    if guest.gather.lane().is_some()
        && linger::may_gather(header)
        && packet.credit_left() >= header.len as usize
    {
        MayWait::WithItsLane
    } else if header.op == OP_CREDIT_UPDATE && linger::credit_may_wait(header.buf_alloc) {
        MayWait::AsCredit
    } else {
        MayWait::No
    }
}

/// The host-to-guest transport: `vhost_transport` of the C driver.
pub(crate) struct VhostTransport;

impl HostTransport for VhostTransport {
    const LOCAL_CID: u32 = cid::HOST;

    /// Source: `vhost_transport_send_pkt()`.
    ///
    /// A guest that is not running is told at once: it could not answer in time anyway. That it
    /// may stop right after is no harm; the packet then waits for the next start.
    fn send_pkt(packet: Outgoing<'_>, net: &Net) -> Result {
        let header = packet.header();
        let cid = u32::try_from(header.flow.dst_cid).map_err(|_| ENODEV)?;
        let guard = rcu::read_lock();
        let guest = Guest::find(&guard, cid, net).ok_or(ENODEV)?;
        if !guest.device.is_started(QueueId::Rx) {
            return Err(EHOSTUNREACH());
        }
        if packet.is_reply() {
            guest.add_reply();
        }
        let may_wait = may_wait(guest, &packet, &header);
        let lane = guest.send_queue.push(packet.into_packet());
        guest.packet_added(lane, may_wait, &guard);
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
