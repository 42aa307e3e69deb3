// SPDX-License-Identifier: GPL-2.0

//! The guest's half: runs one command per connection.

use crate::frame::{self, Kind};
use nix::{
    sys::signal::{killpg, Signal},
    unistd::Pid,
};
use std::{
    ffi::OsString,
    io::{self, Read},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{
        ffi::OsStringExt,
        process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Status of a command that could not be started, as shells have it.
const NOT_STARTED: u8 = 127;

/// Serves commands at `address` for ever.
///
/// # Errors
///
/// Those of listening there.
pub(crate) fn serve(address: SocketAddr) -> io::Result<u8> {
    let listener = TcpListener::bind(address)?;
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            if let Err(error) = answer(stream) {
                eprintln!("agent: {error}");
            }
        });
    }
    Ok(0)
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let arguments = read_command(&mut stream)?;
    let status = match arguments.split_first() {
        None => 0,
        Some((program, arguments)) => run(program, arguments, &stream)?,
    };
    frame::write(&mut stream, Kind::Status, &[status])
}

fn read_command(stream: &mut TcpStream) -> io::Result<Vec<OsString>> {
    let mut arguments = Vec::new();
    loop {
        match frame::read(stream)? {
            (Kind::Argument, argument) => arguments.push(OsString::from_vec(argument)),
            (Kind::Go, _) => return Ok(arguments),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Runs a program, sends its output as it comes, returns its status once it ended and its output
/// was closed.
fn run(program: &OsString, arguments: &[OsString], stream: &TcpStream) -> io::Result<u8> {
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            let text = format!("agent: {}: {error}\n", program.to_string_lossy());
            frame::write(&mut &*stream, Kind::Error, text.as_bytes())?;
            return Ok(NOT_STARTED);
        }
    };
    let running = Arc::new(Mutex::new(true));
    kill_when_closed(stream.try_clone()?, &child, &running);
    let writer = Arc::new(Mutex::new(stream.try_clone()?));
    let pumps = [
        child
            .stdout
            .take()
            .map(|from| pump(from, Kind::Output, &writer)),
        child
            .stderr
            .take()
            .map(|from| pump(from, Kind::Error, &writer)),
    ];
    for pump in pumps.into_iter().flatten() {
        // A pump ends with its pipe or with the connection; in both cases nothing is left to send.
        let _ = pump.join();
    }
    let status = child.wait()?;
    *running.lock().unwrap_or_else(PoisonError::into_inner) = false;
    Ok(byte_of(status))
}

/// Kills the child's process group when the client hangs up while the child is `running`.
fn kill_when_closed(mut stream: TcpStream, child: &Child, running: &Arc<Mutex<bool>>) {
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let running = Arc::clone(running);
    thread::spawn(move || {
        // Nothing is sent to a running command, so this returns only when the client is gone.
        let _ = stream.read(&mut [0]);
        if *running.lock().unwrap_or_else(PoisonError::into_inner) {
            // The group may have ended by itself by now.
            let _ = killpg(group, Signal::SIGKILL);
        }
    });
}

fn pump(
    mut from: impl Read + Send + 'static,
    kind: Kind,
    writer: &Arc<Mutex<TcpStream>>,
) -> thread::JoinHandle<io::Result<()>> {
    let writer = Arc::clone(writer);
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = from.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            let mut stream = writer.lock().unwrap_or_else(PoisonError::into_inner);
            frame::write(&mut *stream, kind, &buffer[..length])?;
        }
    })
}

/// A status as shells count it: 128 and the signal's number for a killed command.
fn byte_of(status: ExitStatus) -> u8 {
    let number = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_counted_as_shells_do() {
        assert_eq!(byte_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(byte_of(ExitStatus::from_raw(9)), 137);
    }
}
