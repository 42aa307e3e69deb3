// SPDX-License-Identifier: GPL-2.0

//! Keeps one socket open whatever became of its connection.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use socket2::SockAddr;

use crate::dial::outcome;
use crate::report::Line;
use crate::socket::{self, Kind};

/// Whom to call, and how long to keep the socket.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// CID of the peer
    #[arg(long)]
    cid: u32,
    /// Port of the peer's streams; seqpacket takes the next one
    #[arg(long)]
    port: u32,
    /// Kind of the socket
    #[arg(long = "type", value_enum, default_value_t = Kind::Stream)]
    kind: Kind,
    /// Seconds to keep the socket
    #[arg(long)]
    seconds: u64,
}

/// Connects once, prints the outcome, and keeps the socket even if that failed.
///
/// A socket that has tried to connect holds a reference on its transport's module until it is
/// closed.
pub(crate) fn run(options: Options) -> Result<()> {
    let socket = socket::open(options.kind)?;
    let address = SockAddr::vsock(options.cid, options.kind.port(options.port));
    Line::new("pinned")
        .with("outcome", outcome(socket.connect(&address)))
        .print();
    thread::sleep(Duration::from_secs(options.seconds));
    drop(socket);
    Ok(())
}
