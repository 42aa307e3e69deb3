// SPDX-License-Identifier: GPL-2.0

//! The driver: one open file is one guest.
//!
//! | file | holds |
//! |---|---|
//! | `guest` | the state of a guest, start, stop, release |
//! | `ioctl` | what the VMM asks for |
//! | `transport` | what sockets ask for |
//! | `send_queue` | packets that wait for the guest |
//! | `gather` | which of them need not wake the worker |
//! | `rx` | one pass over the RX queue: host to guest |
//! | `tx` | one pass over the TX queue: guest to host |
//! | `stats` | counters, and how they are shown |
//!
//! There is no `unsafe` here.

mod gather;
mod guest;
mod ioctl;
mod rx;
mod send_queue;
mod stats;
mod transport;
mod tx;

pub(crate) use guest::Guest;
pub(crate) use stats::TotalStats;
pub(crate) use transport::VhostTransport;
