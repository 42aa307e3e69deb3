// SPDX-License-Identifier: GPL-2.0

//! Runs commands in a guest of the test bed.
//!
//! `agent serve` runs in the guest; `agent run` and `agent ping` run on its host. They talk TCP,
//! through QEMU's user network, so that what is under test carries nothing of the test's control.

mod client;
mod frame;
mod server;

use clap::{Parser, Subcommand};
use std::{
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

#[derive(Parser)]
#[command(about, version)]
struct Args {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Serve commands for ever.
    Serve {
        /// TCP port to listen on, at all addresses.
        port: u16,
    },
    /// Run one command; its output is copied, its status returned (124: time ran out, 125: no
    /// answer from the guest).
    Run {
        /// Address and port at which the server is reached.
        address: SocketAddr,
        /// Seconds after which the command is killed.
        seconds: u64,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Succeed if the server answers in time.
    Ping {
        /// Address and port at which the server is reached.
        address: SocketAddr,
        /// Seconds to wait for the answer.
        seconds: u64,
    },
}

fn main() -> ExitCode {
    let status = match Args::parse().mode {
        Mode::Serve { port } => server::serve((Ipv4Addr::UNSPECIFIED, port).into()),
        Mode::Run {
            address,
            seconds,
            command,
        } => client::run(address, Duration::from_secs(seconds), &command),
        Mode::Ping { address, seconds } => client::run(address, Duration::from_secs(seconds), &[]),
    };
    match status {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("agent: {error}");
            ExitCode::from(client::NO_ANSWER)
        }
    }
}
