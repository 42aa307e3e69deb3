// SPDX-License-Identifier: GPL-2.0

//! The host's half: one connection, one command.

use crate::frame::{self, Kind};
use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Exit status when the command's time ran out, as `timeout` has it.
const TIMED_OUT: u8 = 124;
/// Exit status when the guest did not answer, or hung up before the command ended.
pub(crate) const NO_ANSWER: u8 = 125;

/// Runs `command` in the guest behind `address`, copies its output, returns its exit status.
///
/// Closing the connection, also by dying, makes the server kill the command. An empty command asks
/// the server only for an answer.
///
/// # Errors
///
/// The connection's, when no status arrived. Time running out is no error but a status.
pub(crate) fn run(address: SocketAddr, limit: Duration, command: &[String]) -> io::Result<u8> {
    let end = Instant::now() + limit;
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_nodelay(true)?;
    for argument in command {
        frame::write(&mut stream, Kind::Argument, argument.as_bytes())?;
    }
    frame::write(&mut stream, Kind::Go, &[])?;
    match copy_output(&stream, end) {
        Err(error) if is_timeout(&error) => Ok(TIMED_OUT),
        result => result,
    }
}

fn copy_output(stream: &TcpStream, end: Instant) -> io::Result<u8> {
    loop {
        match frame::read(&mut Timed { stream, end })? {
            (Kind::Output, bytes) => flushed(io::stdout().lock(), &bytes)?,
            (Kind::Error, bytes) => flushed(io::stderr().lock(), &bytes)?,
            (Kind::Status, status) if status.len() == 1 => return Ok(status[0]),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn flushed(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

/// A stream whose reads end at a point in time.
struct Timed<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl io::Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}
