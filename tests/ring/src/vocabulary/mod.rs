// SPDX-License-Identifier: GPL-2.0
//! The words in which the cases are written.

pub mod abi;
pub mod context;
pub mod device;
pub mod flow;
pub mod guest;
pub mod host;
pub mod iommu;
pub mod memory;
pub mod packet;
pub mod polite;
pub mod proc;
pub mod ring;
pub mod tap;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static PATIENCE_MS: AtomicU64 = AtomicU64::new(10_000);

/// Longest time that one awaited event may take before the case fails.
///
/// It is a watchdog, not a measure of speed: emulated machines are slow and shared.
pub fn patience() -> Duration {
    Duration::from_millis(PATIENCE_MS.load(Ordering::Relaxed))
}

/// Shortens the patience of this process, where a failure is what is expected.
fn lose_patience() {
    PATIENCE_MS.store(500, Ordering::Relaxed);
}

pub use context::{Context, Driver, Length};
pub use device::Device;
pub use flow::{Flow, Session};
pub use guest::{Guest, Plan};
pub use host::Host;
pub use packet::{Header, Kind, Op, Packet};
