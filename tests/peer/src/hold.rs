// SPDX-License-Identifier: GPL-2.0

//! Keeps connections open and tells how each one ends.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::dial::outcome;
use crate::report::Line;
use crate::socket::{Connection, Kind};
use crate::target::Target;

/// What to hold, and for how long.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,
    /// Kind of the sockets
    #[arg(long = "type", value_enum, default_value_t = Kind::Stream)]
    kind: Kind,
    /// Connections
    #[arg(long, default_value_t = 1)]
    connections: u32,
    /// Seconds after which they are closed, unless the peer ended them before
    #[arg(long)]
    seconds: u64,
}

/// Holds the connections; prints a line when all are up, one for each that the peer ends, and one
/// at the end.
pub(crate) fn run(options: Options) -> Result<()> {
    let mut open = (0..options.connections)
        .map(|index| Ok((index, options.target.connect(options.kind)?)))
        .collect::<Result<Vec<_>>>()?;
    Line::new("holding").with("connections", open.len()).print();
    let deadline = Instant::now() + Duration::from_secs(options.seconds);
    while !open.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        wait(&open, left)?;
        open.retain(|(index, connection)| match end(connection) {
            None => true,
            Some(how) => {
                Line::new("ended")
                    .with("index", index)
                    .with("how", how)
                    .print();
                false
            }
        });
    }
    Line::new("held").with("open", open.len()).print();
    Ok(())
}

/// Waits until something happens on one of the connections, `limit` at most.
fn wait(open: &[(u32, Connection)], limit: Duration) -> Result<()> {
    let mut fds: Vec<_> = open
        .iter()
        .map(|(_, connection)| PollFd::new(connection.socket().as_fd(), PollFlags::POLLIN))
        .collect();
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    poll(&mut fds, limit)?;
    Ok(())
}

/// How the connection ended: an errno, or `EOF`; `None` while it is up.
fn end(connection: &Connection) -> Option<String> {
    let socket = connection.socket();
    // Reading tells less: a reset socket may answer ENOTCONN.
    match socket.take_error().and_then(|pending| {
        socket.set_nonblocking(true)?;
        Ok(pending)
    }) {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => return Some(outcome(Err(error))),
    }
    match connection.recv(&mut [0]) {
        Ok(0) => Some("EOF".to_owned()),
        Ok(_) => None,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
        Err(error) => Some(outcome(Err(error))),
    }
}
