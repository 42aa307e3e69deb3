// SPDX-License-Identifier: GPL-2.0

//! What buffers of a guest are good for: nothing is ever read or written outside of one.

use proptest::prelude::*;
use vhost_vsock_logic::buffer::{rx_room, tx_payload, tx_shape_ok};

/// Bytes of a header, from the table of virtio 1.3, section 5.10.6: 8+8+4+4+4+2+2+4+4+4.
const HEADER: usize = 44;
/// The most payload that the kernel's guest driver and host stack put into one packet.
const LARGEST: usize = 65536;

/// Any length, those at the edges much more often.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..=100usize,
        LARGEST - 2..=LARGEST + HEADER + 2,
        (u32::MAX as usize - 50)..=(u32::MAX as usize + 50),
        usize::MAX - 50..=usize::MAX,
        any::<usize>(),
    ]
}

#[test]
fn an_rx_buffer_holds_what_is_left_behind_the_header() {
    for (readable, writable, room) in [
        (0, 0, None),
        (0, 1, None),
        (0, 43, None),
        (0, 44, Some(0)),
        (0, 45, Some(1)),
        (0, 4096, Some(4052)),
        (0, 65580, Some(65536)),
        (0, 65581, Some(65536)),
        (0, usize::MAX, Some(65536)),
        (1, 0, None),
        (1, 44, None),
        (1, 4096, None),
        (usize::MAX, usize::MAX, None),
    ] {
        assert_eq!(
            rx_room(readable, writable),
            room,
            "{readable} readable, {writable} writable"
        );
    }
}

#[test]
fn a_tx_buffer_holds_one_packet_of_a_legal_size() {
    for (readable, writable, ok) in [
        (0, 0, false),
        (43, 0, false),
        (44, 0, true),
        (45, 0, true),
        (HEADER + LARGEST - 1, 0, true),
        (HEADER + LARGEST, 0, true),
        (HEADER + LARGEST + 1, 0, false),
        (1 << 20, 0, false),
        (usize::MAX, 0, false),
        (44, 1, false),
        (0, 44, false),
        (HEADER + LARGEST, usize::MAX, false),
    ] {
        assert_eq!(
            tx_shape_ok(readable, writable),
            ok,
            "{readable} readable, {writable} writable"
        );
    }
}

#[test]
fn a_header_may_promise_as_much_as_the_buffer_holds() {
    for (readable, len, payload) in [
        (0, 0, None),
        (43, 0, None),
        (43, u32::MAX, None),
        (44, 0, Some(0)),
        (44, 1, None),
        (45, 0, Some(0)),
        (45, 1, Some(1)),
        (45, 2, None),
        (HEADER + LARGEST, LARGEST as u32, Some(LARGEST)),
        (HEADER + LARGEST, LARGEST as u32 + 1, None),
        (HEADER + LARGEST, u32::MAX, None),
        // len + 44 is 0, 1 and 43 in 32 bits.
        (HEADER, u32::MAX - 43, None),
        (HEADER, u32::MAX - 42, None),
        (HEADER, u32::MAX, None),
        (usize::MAX, u32::MAX, Some(u32::MAX as usize)),
    ] {
        assert_eq!(
            tx_payload(readable, len),
            payload,
            "{readable} readable, length {len:#x}"
        );
    }
}

proptest! {
    /// Header and payload together never reach past the end, and room is never wasted, but no
    /// packet is larger than the largest.
    #[test]
    fn a_full_rx_buffer_is_exactly_full(writable in length()) {
        match rx_room(0, writable) {
            Some(LARGEST) => prop_assert!(writable >= LARGEST + 44),
            Some(room) => prop_assert_eq!(room as u128 + 44, writable as u128),
            None => prop_assert!(writable < HEADER),
        }
    }

    #[test]
    fn an_rx_buffer_with_a_readable_part_is_not_used(readable in length(), writable in length()) {
        prop_assume!(readable > 0);
        prop_assert_eq!(rx_room(readable, writable), None);
    }

    /// Whatever a guest writes into its header: what is read lies within the buffer, and all of
    /// it is read or none.
    #[test]
    fn no_more_is_read_than_there_is(readable in length(), len in any::<u32>()) {
        let fits = u128::from(len) + 44 <= readable as u128;
        prop_assert_eq!(tx_payload(readable, len), fits.then_some(len as usize));
    }

    /// A packet with bytes of any number behind its payload is accepted, up to the largest buffer.
    #[test]
    fn each_legal_packet_is_accepted(payload in 0..=LARGEST, behind in 0..=LARGEST) {
        let readable = HEADER + payload + behind.min(LARGEST - payload);
        prop_assert!(tx_shape_ok(readable, 0));
        prop_assert_eq!(tx_payload(readable, payload as u32), Some(payload));
    }

    /// What both checks accept needs no more memory than the largest packet.
    #[test]
    fn an_accepted_packet_is_bounded(readable in length(), len in any::<u32>()) {
        if tx_shape_ok(readable, 0) {
            if let Some(payload) = tx_payload(readable, len) {
                prop_assert!(payload <= LARGEST);
            }
        }
    }
}
