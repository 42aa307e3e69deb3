// SPDX-License-Identifier: GPL-2.0

//! Which feature bits are shown, and which are taken.

use proptest::prelude::*;
use vhost_vsock_logic::features::{
    acceptable, offered, ACCESS_PLATFORM, BACKEND, IN_ORDER, LOG_ALL, SEQPACKET,
};

/// What the C driver of 7.3 answers to VHOST_GET_FEATURES: bits 1, 24, 26, 27, 28, 29, 32, 33.
const OF_C: u64 = 0x3_3d00_0002;

#[test]
fn bits_are_those_of_the_specification() {
    assert_eq!(SEQPACKET, 0x2);
    assert_eq!(LOG_ALL, 0x400_0000);
    assert_eq!(ACCESS_PLATFORM, 0x2_0000_0000);
    assert_eq!(IN_ORDER, 0x8_0000_0000);
    assert_eq!(BACKEND, 0x2);
}

#[test]
fn by_default_the_answer_is_that_of_c() {
    assert_eq!(offered(OF_C, false), OF_C);
    assert_eq!(offered(OF_C, true), OF_C | (1 << 35));
}

#[test]
fn each_bit_is_taken_if_c_has_it_or_if_it_is_in_order() {
    for bit in 0..64 {
        let known = matches!(bit, 1 | 24 | 26..=29 | 32 | 33 | 35);
        assert_eq!(acceptable(OF_C, 1 << bit), known, "bit {bit}");
        assert_eq!(
            acceptable(OF_C, OF_C | (1 << bit)),
            known,
            "bit {bit} with all others"
        );
    }
    assert!(acceptable(OF_C, 0));
}

proptest! {
    /// A VMM may set any part of what it is shown, whatever the kernel's own bits are.
    #[test]
    fn what_is_shown_may_be_set(of_c in any::<u64>(), show in any::<bool>(), mask in any::<u64>()) {
        prop_assert!(acceptable(of_c, offered(of_c, show) & mask));
    }

    /// Nothing of the C driver's is hidden, and nothing but in-order is added.
    #[test]
    fn at_most_one_bit_is_added(of_c in any::<u64>(), show in any::<bool>()) {
        let shown = offered(of_c, show);
        prop_assert_eq!(shown & of_c, of_c);
        prop_assert_eq!(shown & !of_c & !(1 << 35), 0);
    }

    /// One unknown bit among known ones is enough.
    #[test]
    fn an_unknown_bit_is_refused(asked in any::<u64>(), bit in 0..64u32) {
        let of_c = OF_C & !(1 << bit);
        prop_assume!(bit != 35);
        prop_assert!(!acceptable(of_c, asked | (1 << bit)));
    }
}
