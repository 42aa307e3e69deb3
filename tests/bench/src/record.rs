// SPDX-License-Identifier: GPL-2.0

//! What is measured, one line of JSON for each measurement.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Which way the payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Direction {
    /// From the host to the guest.
    ToGuest,
    /// From the guest to the host.
    ToHost,
}

/// Exact counts of one transfer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Exact {
    /// The driver and its settings.
    pub mode: String,
    /// Which way.
    pub direction: Direction,
    /// Bytes of a write, and of a packet before the driver splits or joins any.
    pub size: u32,
    /// Packets sent before all have arrived; 0: as many as fit.
    pub burst: u32,
    /// Number of the repetition.
    pub round: u32,
    /// Writes.
    pub packets: u64,
    /// Instructions of the driver's worker.
    pub worker: u64,
    /// Instructions of all tasks on the host, the worker included.
    pub host: u64,
    /// Instructions of a guest under KVM.
    pub guest: u64,
    /// Times that the worker was given the processor.
    pub worker_runs: u64,
    /// Updates of a used index, on both rings.
    pub publications: u64,
    /// Packets given to host sockets.
    pub deliveries: u64,
    /// Kicks of the ring to the guest.
    pub rx_kicks: u64,
    /// Kicks of the ring to the host.
    pub tx_kicks: u64,
    /// Signals of the ring to the guest.
    pub rx_signals: u64,
    /// Signals of the ring to the host.
    pub tx_signals: u64,
}
