// SPDX-License-Identifier: GPL-2.0

//! Where a client connects to, and how long it tries.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;

use crate::socket::{Connection, Kind};

/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// The accepting end, as named on the command line.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Target {
    /// CID of the peer
    #[arg(long)]
    pub cid: u32,
    /// Port of the peer's streams; seqpacket takes the next one
    #[arg(long)]
    pub port: u32,
    /// Seconds to go on trying while the peer refuses or is not there
    #[arg(long, default_value_t = 0)]
    wait: u64,
    /// Seconds without progress after which a connection is given up
    #[arg(long, default_value_t = 60)]
    timeout: u64,
}

impl Target {
    /// Connects one socket of `kind`.
    pub(crate) fn connect(&self, kind: Kind) -> Result<Connection> {
        let port = kind.port(self.port);
        let started = Instant::now();
        let connection = loop {
            match Connection::connect(kind, self.cid, port) {
                Err(error) if is_passing(&error) && started.elapsed().as_secs() < self.wait => {
                    thread::sleep(RETRY);
                }
                result => {
                    break result.with_context(|| {
                        format!("connect {} to {}:{port}", kind.name(), self.cid)
                    })?
                }
            }
        };
        connection.set_timeout(Duration::from_secs(self.timeout))?;
        Ok(connection)
    }
}

/// Whether a later attempt may succeed: the guest is not there yet, or does not listen yet.
fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
    matches!(
        errno,
        Errno::ENODEV | Errno::EHOSTUNREACH | Errno::ECONNRESET | Errno::ETIMEDOUT
    )
}
