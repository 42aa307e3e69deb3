// SPDX-License-Identifier: GPL-2.0

//! The accepting end: does what each connection's request asks for.

use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::Socket;
use zerocopy::IntoBytes;

use crate::plan::Direction;
use crate::pump;
use crate::report::Line;
use crate::socket::{self, Connection, Kind};
use crate::wire::{Operation, Request, Verdict, DIGEST_LEN};

/// Pending connections that a listener holds.
const BACKLOG: i32 = 128;
/// Bytes that the sink reads at once.
const SINK_READ: usize = 256 << 10;

/// How the server runs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Port for streams; seqpacket takes the next one
    #[arg(long)]
    port: u32,
    /// Seconds without progress after which a connection is given up; 0: never
    #[arg(long, default_value_t = 0)]
    timeout: u64,
}

/// Serves streams and seqpackets until it is killed or a listener fails.
///
/// A connection that fails is reported on standard error and costs nothing else: its peer sees
/// that no verdict comes.
pub(crate) fn run(options: Options) -> Result<()> {
    let listener = |kind: Kind| {
        let port = kind.port(options.port);
        socket::listen(kind, port, BACKLOG)
            .with_context(|| format!("listen on {} port {port}", kind.name()))
    };
    let (streams, seqpackets) = (listener(Kind::Stream)?, listener(Kind::Seqpacket)?);
    Line::new("listening").with("port", options.port).print();
    thread::scope(|scope| {
        let packets = scope.spawn(|| accept_all(&seqpackets, Kind::Seqpacket, options));
        accept_all(&streams, Kind::Stream, options)?;
        packets.join().expect("the acceptor does not panic")
    })
}

fn accept_all(listener: &Socket, kind: Kind, options: Options) -> Result<()> {
    loop {
        let connection = Connection::accept(listener, kind).context("accept")?;
        thread::spawn(move || {
            if let Err(error) = serve(&connection, options) {
                eprintln!("{} connection: {error:#}", kind.name());
            }
        });
    }
}

fn serve(connection: &Connection, options: Options) -> Result<()> {
    if options.timeout != 0 {
        connection.set_timeout(Duration::from_secs(options.timeout))?;
    }
    let mut bytes = [0; Request::LEN];
    connection.recv_exact(&mut bytes).context("request")?;
    let request = Request::parse(&bytes).context("not a request")?;
    match request.operation {
        Operation::Transfer => transfer(connection, &request),
        Operation::Echo => echo(connection, &request),
        Operation::Sink => sink(connection),
    }
}

/// Both directions at once, then what arrived here.
fn transfer(connection: &Connection, request: &Request) -> Result<()> {
    let (_, received) = pump::both_ways(
        connection,
        &request.plan(Direction::Down),
        &request.plan(Direction::Up),
    )?;
    let verdict = Verdict {
        bytes: received.bytes.into(),
        digest: received.digest,
    };
    connection.send(verdict.as_bytes()).context("verdict")?;
    wait_for_end(connection)
}

/// Sends back records of the requested length until the peer ends.
fn echo(connection: &Connection, request: &Request) -> Result<()> {
    let mut buf = vec![0; request.sizes.max() as usize];
    loop {
        match connection.recv_exact(&mut buf) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            result => result.context("read")?,
        }
        connection.send(&buf).context("write")?;
    }
}

/// Reads until the peer ends, then says how much came.
fn sink(connection: &Connection) -> Result<()> {
    let mut buf = vec![0; SINK_READ];
    let mut bytes = 0;
    loop {
        match connection.recv(&mut buf).context("read")? {
            0 => break,
            got => bytes += got as u64,
        }
    }
    let verdict = Verdict {
        bytes: bytes.into(),
        digest: [0; DIGEST_LEN],
    };
    connection.send(verdict.as_bytes()).context("verdict")?;
    wait_for_end(connection)
}

/// Lets the peer read everything before this end closes.
fn wait_for_end(connection: &Connection) -> Result<()> {
    connection.socket().shutdown(Shutdown::Write)?;
    let got = connection.recv(&mut [0]).context("end")?;
    anyhow::ensure!(got == 0, "data after the end");
    Ok(())
}
