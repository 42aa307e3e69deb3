// SPDX-License-Identifier: GPL-2.0

//! Counters, and how they are shown.

use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use super::guest::{
    Guest,
    GUESTS, //
};
use crate::abstractions::{
    cid_table::Writer,
    debug_dir::DebugRoot, //
};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one guest, or of all since the module was loaded.
        ///
        /// They only grow, and each is exact; read together, they are of slightly different moments.
        pub(crate) struct Counters {
            $($(#[$doc])* pub(super) $name: Atomic<u64>,)*
        }

        impl Counters {
            /// All zero.
            pub(super) const fn new() -> Self {
                Self {
                    $($name: Atomic::new(0),)*
                }
            }
        }

        impl Counters {
            /// Adds these counters to `others`.
            fn add_to(&self, others: &Self) {
                $(others.$name.add(self.$name.load(Relaxed), Relaxed);)*
            }

            /// Moves these counters to those of guests that are gone.
            pub(super) fn retire(&self) {
                $(RETIRED.$name.add(self.$name.xchg(0, Relaxed), Relaxed);)*
            }

            /// Writes a line `name value` for each counter.
            pub(super) fn write_to(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{} {}", stringify!($name), self.$name.load(Relaxed))?;)*
                Ok(())
            }
        }
    };
}

counters! {
    /// Packets of sockets that were given to the guest in full.
    rx_packets,
    /// RX buffers that were returned to the guest.
    rx_buffers,
    /// Payload bytes given to the guest.
    rx_bytes,
    /// Passes over the RX queue.
    rx_passes,
    /// Updates of the RX queue's used index.
    rx_publishes,
    /// Times that the guest was to be signalled for its RX queue; event-idx may suppress some.
    rx_signals,
    /// Kicks of the RX queue.
    rx_kicks,
    /// RX buffers that could not be used and were returned with length 0, or stepped over.
    rx_refused,
    /// Times that the worker left a sender the time to add packets for the guest.
    rx_lingers,
    /// Packets of the guest, refused ones not among them.
    tx_packets,
    /// TX buffers that were returned to the guest.
    tx_buffers,
    /// Payload bytes taken from the guest.
    tx_bytes,
    /// Packets given to sockets: less than `tx_packets` by those that were joined.
    tx_deliveries,
    /// Passes over the TX queue.
    tx_passes,
    /// Updates of the TX queue's used index.
    tx_publishes,
    /// Times that the guest was to be signalled for its TX queue; event-idx may suppress some.
    tx_signals,
    /// Kicks of the TX queue.
    tx_kicks,
    /// Malformed TX packets: returned with length 0, or stepped over.
    tx_refused,
    /// TX packets with a wrong address, which were dropped.
    tx_misaddressed,
    /// Passes over the TX queue that ended for want of memory.
    tx_retries,
    /// Times that the worker came back to the TX queue by itself.
    tx_lingers,
}

/// Guests that are gone. Those of the others are added when somebody asks: workers on different
/// CPUs share no counter.
static RETIRED: Counters = Counters::new();

/// Adds to counters of a guest.
macro_rules! count {
    ($guest:expr, $($name:ident += $value:expr),* $(,)?) => {
        $(
            let value = u64::from($value);
            if value != 0 {
                $guest.stats.$name.add(value, kernel::sync::atomic::Relaxed);
            }
        )*
    };
}
pub(super) use count;

/// Writes the counters of all guests since the module was loaded. One that never had a CID is among
/// them when it is gone.
fn write_total(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let total = Counters::new();
    let writer = Writer::lock();
    RETIRED.add_to(&total);
    GUESTS.for_each(&writer, |guest| guest.stats.add_to(&total));
    drop(writer);
    total.write_to(f)
}

/// `total` in the module's debugfs directory.
pub(crate) struct TotalStats {
    _file: Pin<KBox<File<()>>>,
}

impl TotalStats {
    /// Makes the file; [`None`] if there is no memory for it.
    pub(crate) fn show_in(root: &DebugRoot) -> Option<Self> {
        let dir = root.dir()?;
        let init = dir.read_callback_file(c"total", (), &|(): &(), f: &mut fmt::Formatter<'_>| {
            write_total(f)
        });
        let file = KBox::pin_init(init, GFP_KERNEL).ok()?;
        Some(Self { _file: file })
    }
}

/// `stats` in the debugfs directory of a guest.
pub(super) type GuestStats = File<Arc<Guest>>;

/// Makes the file `stats` of `guest`, which holds the guest until it is dropped.
pub(super) fn guest_file(dir: &Dir, guest: Arc<Guest>) -> Result<Pin<KBox<GuestStats>>> {
    let init = dir.read_callback_file(
        c"stats",
        guest,
        &|guest: &Arc<Guest>, f: &mut fmt::Formatter<'_>| guest.report().write_to(f),
    );
    KBox::pin_init(init, GFP_KERNEL)
}
