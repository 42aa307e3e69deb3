// SPDX-License-Identifier: GPL-2.0

//! What is measured, one line of JSON for each measurement.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Which way the payload goes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
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
    /// What was counted.
    pub counts: ExactCounts,
    /// Kicks of the guest, on both rings.
    pub kicks: u64,
    /// Signals to the guest, on both rings.
    pub signals: u64,
}

/// Instructions and calls that the plugin counted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ExactCounts {
    /// Instructions of the driver's worker.
    pub worker: u64,
    /// Instructions of all tasks on the host, the worker included.
    pub host: u64,
    /// Instructions of a guest under KVM.
    pub guest: u64,
    /// Entries into a guest under KVM.
    pub vmruns: u64,
    /// Times that the worker was given the processor.
    pub worker_runs: u64,
    /// Updates of a used index, on both rings.
    pub publications: u64,
    /// Interrupts to a guest under KVM by vhost.
    pub interrupts: u64,
    /// Packets given to host sockets.
    pub deliveries: u64,
}

/// One way of many guests and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ScaleCase {
    /// Which way.
    pub direction: Direction,
    /// Bytes of a packet before the driver joins any.
    pub size: u32,
    /// Packets of each guest that are queued when its worker begins.
    pub burst: u32,
    /// How many of one connection follow each other.
    pub run: u32,
    /// Guests.
    pub guests: u32,
    /// Connections, of all guests together.
    pub connections: u32,
    /// Guests that have their bursts at once.
    pub at_once: u32,
}

/// Exact counts of many guests and connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scaled {
    /// The driver and its settings.
    pub mode: String,
    /// What was done.
    #[serde(flatten)]
    pub case: ScaleCase,
    /// Number of the repetition.
    pub round: u32,
    /// Packets, of all guests together.
    pub packets: u64,
    /// What was counted, of all workers together.
    pub counts: ExactCounts,
}

/// Where the instructions of the first guest's worker are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ScaleProfile {
    /// The driver and its settings.
    pub mode: String,
    /// What was done.
    #[serde(flatten)]
    pub case: ScaleCase,
    /// Kernel functions and the instructions in them for each packet, most first.
    pub functions: Vec<(String, f64)>,
}

/// Memory that the kernel holds for many things of a kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    /// The driver and its settings.
    pub mode: String,
    /// The kind of things.
    pub thing: Thing,
    /// Bytes of payload of each; 0: it is no packet.
    pub payload: u32,
    /// How many there are.
    pub count: u32,
    /// Bytes of memory that are no longer free.
    pub bytes: u64,
    /// Bytes that the kernel has charged to the socket.
    pub charged: Option<u64>,
}

/// What memory is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Thing {
    /// A device that was opened.
    OpenDevice,
    /// The same when it was started: worker, rings, memory table, eventfds.
    StartedDevice,
    /// A connection, with the host's socket and its file.
    Connection,
    /// A packet that waits for the guest.
    QueuedPacket,
}

/// One workload over one driver, with a guest under KVM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The driver and its settings.
    pub mode: String,
    /// Number of the pair.
    pub pair: u32,
    /// What was run.
    pub workload: Workload,
    /// Names it in what the guest notes.
    pub port: u32,
    /// Bytes of payload moved; with round trips each way.
    pub bytes: u64,
    /// Results that the command printed, by name, in its units.
    pub results: BTreeMap<String, f64>,
    /// Kicks of the guest, on both rings.
    pub kicks: u64,
    /// Time that the driver's worker ran, in nanoseconds.
    pub worker_ns: u64,
    /// Growth of our driver's counters; none with the C driver.
    pub counters: BTreeMap<String, u64>,
    /// With a machine that counts instructions.
    pub exact: Option<ExactCounts>,
}

/// What is done again and again, over one driver and the other.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::Args,
)]
pub(crate) struct Workload {
    /// What is measured
    #[arg(long, value_enum)]
    pub kind: Kind,
    /// Which way; of round trips, from where they start
    #[arg(long, value_enum)]
    pub direction: Direction,
    /// Bytes of a write
    #[arg(long)]
    pub size: u32,
    /// Connections at once
    #[arg(long, default_value_t = 1)]
    pub connections: u32,
}

/// Kinds of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// One way as fast as it goes.
    Throughput,
    /// There and back, one at a time.
    RoundTrip,
}

/// What the guest has to say about one workload; the port joins it to the host's record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GuestSide {
    /// Results that the command printed, by name.
    pub results: BTreeMap<String, f64>,
    /// Interrupts of the vsock device since the guest booted, after the workload.
    pub interrupts: u64,
    /// The same before it.
    pub interrupts_before: u64,
}

/// Where a worker's instructions are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Profile {
    /// The driver and its settings.
    pub mode: String,
    /// Which way.
    pub direction: Direction,
    /// Bytes of a write.
    pub size: u32,
    /// Packets sent before all have arrived; 0: as many as fit.
    pub burst: u32,
    /// Kernel functions and the instructions in them for each packet, most first.
    pub functions: Vec<(String, f64)>,
}
