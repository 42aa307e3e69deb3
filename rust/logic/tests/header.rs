// SPDX-License-Identifier: GPL-2.0

//! Headers against a layout of the test's own, and packets cut into buffers.

use proptest::prelude::*;
use vhost_vsock_logic::header::{
    Flow, Header, HEADER_LEN, MAX_PAYLOAD, OP_RW, SEQ_EOM, SEQ_EOR, TYPE_STREAM,
};

/// `VIRTIO_VSOCK_TYPE_SEQPACKET`.
const TYPE_SEQPACKET: u16 = 2;

/// The fields in the order of the specification, and their bytes.
const LAYOUT: [(&str, usize); 10] = [
    ("src_cid", 8),
    ("dst_cid", 8),
    ("src_port", 4),
    ("dst_port", 4),
    ("len", 4),
    ("type", 2),
    ("op", 2),
    ("flags", 4),
    ("buf_alloc", 4),
    ("fwd_cnt", 4),
];

/// The fields of a header in the order of [`LAYOUT`].
fn fields(header: &Header) -> [u64; 10] {
    [
        header.flow.src_cid,
        header.flow.dst_cid,
        header.flow.src_port.into(),
        header.flow.dst_port.into(),
        header.len.into(),
        header.ty.into(),
        header.op.into(),
        header.flags.into(),
        header.buf_alloc.into(),
        header.fwd_cnt.into(),
    ]
}

/// Puts fields behind each other, least significant byte first.
fn encode(fields: &[u64; 10]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (value, (_, width)) in fields.iter().zip(LAYOUT) {
        bytes.extend((0..width).map(|at| (value >> (8 * at)) as u8));
    }
    bytes
}

prop_compose! {
    fn headers()(
        cids in any::<(u64, u64)>(),
        ports in any::<(u32, u32)>(),
        kind in any::<(u16, u16)>(),
        rest in any::<(u32, u32, u32, u32)>(),
    ) -> Header {
        Header {
            flow: Flow {
                src_cid: cids.0,
                dst_cid: cids.1,
                src_port: ports.0,
                dst_port: ports.1,
            },
            len: rest.0,
            ty: kind.0,
            op: kind.1,
            flags: rest.1,
            buf_alloc: rest.2,
            fwd_cnt: rest.3,
        }
    }
}

/// Flags that a data packet may have: virtio 1.3, section 5.10.6.6.1 and the kernel's sender,
/// which sets EOR beside EOM only. The upper bits are not used today and must be kept.
fn data_flags() -> impl Strategy<Value = u32> {
    (
        prop::sample::select(vec![0, SEQ_EOM, SEQ_EOM | SEQ_EOR]),
        prop::sample::select(vec![0, 0x8000_0000, 0x10]),
    )
        .prop_map(|(ends, others)| ends | others)
}

#[test]
fn constants_are_those_of_the_specification() {
    assert_eq!(HEADER_LEN, LAYOUT.iter().map(|(_, width)| width).sum());
    assert_eq!(MAX_PAYLOAD, 65536);
    assert_eq!((TYPE_STREAM, OP_RW), (1, 5));
    assert_eq!((SEQ_EOM, SEQ_EOR), (1, 2));
}

/// A header as a guest with CID 42 would write it, byte for byte.
#[test]
fn a_known_header_is_read() {
    #[rustfmt::skip]
    let bytes: [u8; 44] = [
        42, 0, 0, 0, 0, 0, 0, 0,
        2, 0, 0, 0, 0, 0, 0, 0,
        0x78, 0x56, 0x34, 0x12,
        0xd2, 0x04, 0, 0,
        0, 0x10, 0, 0,
        1, 0,
        5, 0,
        0, 0, 0, 0,
        0, 0, 4, 0,
        0xff, 0xff, 0xff, 0xff,
    ];
    let header = Header {
        flow: Flow {
            src_cid: 42,
            dst_cid: 2,
            src_port: 0x1234_5678,
            dst_port: 1234,
        },
        len: 4096,
        ty: 1,
        op: 5,
        flags: 0,
        buf_alloc: 256 * 1024,
        fwd_cnt: u32::MAX,
    };
    assert_eq!(Header::from_bytes(&bytes), header);
    assert_eq!(header.to_bytes(), bytes);
}

/// One packet cut into buffers with room for `rooms` bytes, which are used again and again.
fn cut(header: Header, payload: &[u8], rooms: &[usize]) -> Vec<(Header, Vec<u8>)> {
    let mut fragments = Vec::new();
    let mut rest = payload;
    for room in rooms.iter().cycle() {
        let (part, behind) = rest.split_at(rest.len().min(*room));
        rest = behind;
        fragments.push((
            header.fragment(part.len() as u32, rest.is_empty()),
            part.to_vec(),
        ));
        if rest.is_empty() {
            break;
        }
    }
    fragments
}

/// What is the same in all fragments of a packet.
fn common(header: &Header) -> Header {
    Header {
        len: 0,
        flags: header.flags & !(SEQ_EOM | SEQ_EOR),
        ..*header
    }
}

proptest! {
    #[test]
    fn a_header_is_written_as_laid_out(header in headers()) {
        prop_assert_eq!(header.to_bytes().to_vec(), encode(&fields(&header)));
    }

    #[test]
    fn any_bytes_are_a_header(bytes in prop::collection::vec(any::<u8>(), HEADER_LEN)) {
        let bytes: [u8; HEADER_LEN] = bytes.try_into().unwrap();
        let header = Header::from_bytes(&bytes);
        prop_assert_eq!(encode(&fields(&header)), bytes.to_vec());
        prop_assert_eq!(header.to_bytes(), bytes);
    }

    /// The receiver of the fragments gets the bytes of the packet, and sees the end of the
    /// message and of the record once, with the last of them.
    #[test]
    fn a_cut_packet_arrives_whole(
        header in headers(),
        seqpacket in any::<bool>(),
        flags in data_flags(),
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        rooms in prop::collection::vec(1..700usize, 1..8),
    ) {
        let ty = if seqpacket { TYPE_SEQPACKET } else { TYPE_STREAM };
        let header = Header { ty, op: OP_RW, flags, len: payload.len() as u32, ..header };
        let fragments = cut(header, &payload, &rooms);

        let (last, earlier) = fragments.split_last().unwrap();
        let ends = SEQ_EOM | SEQ_EOR;
        prop_assert_eq!(last.0.flags & ends, flags & ends);
        for (fragment, bytes) in earlier {
            prop_assert_eq!(fragment.flags & ends, 0, "an end in the middle");
            prop_assert!(!bytes.is_empty(), "a buffer that brings the packet no further");
        }
        let mut received = Vec::new();
        for (fragment, bytes) in &fragments {
            prop_assert_eq!(fragment.len as usize, bytes.len());
            prop_assert_eq!(common(fragment), common(&header));
            received.extend_from_slice(bytes);
        }
        prop_assert_eq!(received, payload);
    }

    /// A packet that fits is not changed; nor are those without payload, whose flags (of a
    /// SHUTDOWN, the directions) are the same bits as the ends of messages.
    #[test]
    fn a_packet_that_fits_is_not_changed(header in headers()) {
        prop_assert_eq!(header.fragment(header.len, true), header);
    }

    /// A message of many packets that is cut anywhere has as many ends as before.
    #[test]
    fn messages_keep_their_ends(
        header in headers(),
        packets in prop::collection::vec((data_flags(), 0..400usize), 1..12),
        rooms in prop::collection::vec(1..120usize, 1..5),
    ) {
        let boundaries = |sent: &[(Header, usize)]| {
            let mut at = 0;
            let mut ends = Vec::new();
            for (header, len) in sent {
                at += len;
                if header.flags & (SEQ_EOM | SEQ_EOR) != 0 {
                    ends.push((at, header.flags & (SEQ_EOM | SEQ_EOR)));
                }
            }
            ends
        };
        let mut whole = Vec::new();
        let mut pieces = Vec::new();
        for (flags, len) in packets {
            let header = Header { ty: TYPE_SEQPACKET, op: OP_RW, flags, len: len as u32, ..header };
            whole.push((header, len));
            let payload = vec![0; len];
            pieces.extend(cut(header, &payload, &rooms).into_iter().map(|(h, p)| (h, p.len())));
        }
        prop_assert_eq!(boundaries(&pieces), boundaries(&whole));
    }
}
