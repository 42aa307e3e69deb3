// SPDX-License-Identifier: GPL-2.0

//! Joined packets: the receiver of a flow must not be able to tell.
//!
//! The model sends packets of several flows, joins what the rules allow in the order of each flow,
//! and compares what a receiver sees: the bytes of a stream, everything else packet by packet.

use proptest::prelude::*;
use std::collections::BTreeMap;
use vhost_vsock_logic::header::{Flow, Header, OP_RW, TYPE_STREAM};
use vhost_vsock_logic::run::{is_joinable, joined, may_join, MAX_PACKETS};

/// `VIRTIO_VSOCK_TYPE_SEQPACKET`.
const TYPE_SEQPACKET: u16 = 2;
/// Operations from `VIRTIO_VSOCK_OP_INVALID` to `VIRTIO_VSOCK_OP_CREDIT_REQUEST`.
const OPS: std::ops::RangeInclusive<u16> = 0..=7;

/// A packet with its payload.
type Packet = (Header, Vec<u8>);

/// Plain stream data of a flow.
fn plain(src_port: u32, len: u32) -> Header {
    Header {
        flow: Flow {
            src_cid: 2,
            dst_cid: 42,
            src_port,
            dst_port: 1024,
        },
        len,
        ty: TYPE_STREAM,
        op: OP_RW,
        flags: 0,
        buf_alloc: 0x4_0000,
        fwd_cnt: 0,
    }
}

#[test]
fn plain_stream_data_may_be_joined_and_nothing_else() {
    let data = plain(1, 10);
    assert!(is_joinable(&data));
    for op in 0..=u16::MAX {
        assert_eq!(is_joinable(&Header { op, ..data }), op == 5, "op {op}");
    }
    for ty in 0..=u16::MAX {
        assert_eq!(is_joinable(&Header { ty, ..data }), ty == 1, "type {ty}");
    }
    for bit in 0..32 {
        assert!(
            !is_joinable(&Header {
                flags: 1 << bit,
                ..data
            }),
            "flag {bit}"
        );
    }
}

#[test]
fn both_ends_tell_flows_apart() {
    let data = plain(1, 10);
    assert!(may_join(&data, &data));
    let others = [
        Flow {
            src_cid: 3,
            ..data.flow
        },
        Flow {
            dst_cid: 43,
            ..data.flow
        },
        Flow {
            src_port: 2,
            ..data.flow
        },
        Flow {
            dst_port: 1025,
            ..data.flow
        },
        // The same ends, the other way round.
        Flow {
            src_cid: data.flow.dst_cid,
            dst_cid: data.flow.src_cid,
            src_port: data.flow.dst_port,
            dst_port: data.flow.src_port,
        },
        // The lower halves are the same.
        Flow {
            dst_cid: data.flow.dst_cid | (1 << 32),
            ..data.flow
        },
    ];
    for flow in others {
        assert!(!may_join(&data, &Header { flow, ..data }), "{flow:?}");
        assert!(!may_join(&Header { flow, ..data }, &data), "{flow:?}");
    }
}

/// What a receiver can tell of a flow.
#[derive(Debug, PartialEq)]
enum Seen {
    /// Bytes of a stream, as many as came without anything between them.
    Bytes(Vec<u8>),
    /// Any other packet, with type, operation, flags and payload.
    Packet(u16, u16, u32, Vec<u8>),
}

/// What the receivers of all flows see, and the credit that each has in the end.
type World = BTreeMap<(u32, u32), (Vec<Seen>, (u32, u32))>;

fn receive(world: &mut World, (header, payload): &Packet) {
    let key = (header.flow.src_port, header.flow.dst_port);
    let (seen, credit) = world.entry(key).or_default();
    *credit = (header.buf_alloc, header.fwd_cnt);
    let is_data = header.ty == TYPE_STREAM && header.op == OP_RW && header.flags == 0;
    match seen.last_mut() {
        Some(Seen::Bytes(bytes)) if is_data => bytes.extend_from_slice(payload),
        _ if is_data => seen.push(Seen::Bytes(payload.clone())),
        _ => seen.push(Seen::Packet(
            header.ty,
            header.op,
            header.flags,
            payload.clone(),
        )),
    }
}

/// Joins as the driver does: a run grows while its next packet may be joined.
fn join(packets: &[Packet], most_bytes: usize) -> Vec<Packet> {
    let mut out = Vec::new();
    let mut rest = packets.iter().peekable();
    while let Some((first, payload)) = rest.next() {
        let (mut last, mut bytes, mut count) = (*first, payload.clone(), 1);
        while let Some((header, payload)) = rest.peek() {
            if count == MAX_PACKETS || bytes.len() >= most_bytes || !may_join(&last, header) {
                break;
            }
            bytes.extend_from_slice(payload);
            last = *header;
            count += 1;
            rest.next();
        }
        let header = if count == 1 {
            last
        } else {
            joined(last, bytes.len() as u32)
        };
        out.push((header, bytes));
    }
    out
}

prop_compose! {
    /// A packet of one of three flows, most often plain data.
    fn packets()(
        port in 1..=3u32,
        kind in prop_oneof![
            6 => Just((TYPE_STREAM, OP_RW, 0)),
            1 => (Just(TYPE_STREAM), OPS, 0..4u32),
            2 => (Just(TYPE_SEQPACKET), Just(OP_RW), 0..4u32),
        ],
        payload in prop::collection::vec(any::<u8>(), 0..40),
        credit in any::<(u32, u32)>(),
    ) -> Packet {
        let (ty, op, flags) = kind;
        // Only data has a payload.
        let payload = if op == OP_RW { payload } else { Vec::new() };
        let header = Header {
            ty,
            op,
            flags,
            buf_alloc: credit.0,
            fwd_cnt: credit.1,
            ..plain(port, payload.len() as u32)
        };
        (header, payload)
    }
}

proptest! {
    /// Packets as they wait in one FIFO, flows mixed.
    #[test]
    fn no_receiver_can_tell(
        packets in prop::collection::vec(packets(), 0..200),
        most_bytes in 1..2000usize,
    ) {
        let (mut apart, mut together) = (World::new(), World::new());
        packets.iter().for_each(|packet| receive(&mut apart, packet));
        let sent = join(&packets, most_bytes);
        for packet in &sent {
            prop_assert_eq!(packet.0.len as usize, packet.1.len());
            receive(&mut together, packet);
        }
        prop_assert_eq!(together, apart);
        prop_assert!(sent.len() <= packets.len());
    }

    /// Packets of one connection only: all plain data between two others becomes one packet, up to
    /// the limits, so joining does what it is for.
    #[test]
    fn all_that_may_be_joined_is(lengths in prop::collection::vec(1..100usize, 1..200)) {
        let packets: Vec<Packet> = lengths
            .iter()
            .map(|len| (plain(1, *len as u32), vec![0; *len]))
            .collect();
        let sent = join(&packets, usize::MAX);
        prop_assert_eq!(sent.len(), packets.len().div_ceil(MAX_PACKETS));
    }

    /// Whether a packet may be joined does not depend on its length or its credit.
    #[test]
    fn only_the_kind_and_the_flow_count(
        one in packets(), two in packets(), lengths in any::<(u32, u32)>(),
    ) {
        let changed = Header {
            len: lengths.0,
            buf_alloc: lengths.1,
            fwd_cnt: !lengths.1,
            ..two.0
        };
        prop_assert_eq!(may_join(&one.0, &two.0), may_join(&one.0, &changed));
    }

    /// A joined header is the last one in all but its length.
    #[test]
    fn the_last_credit_stands(last in packets(), len in any::<u32>()) {
        let header = joined(last.0, len);
        prop_assert_eq!(header.len, len);
        prop_assert_eq!(Header { len: last.0.len, ..header }, last.0);
    }
}
