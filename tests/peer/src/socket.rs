// SPDX-License-Identifier: GPL-2.0

//! AF_VSOCK sockets: opened, limited in time, and used by whole records.

use std::io::{self, IoSlice, IoSliceMut, Read, Write as _};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::time::Duration;

use clap::ValueEnum;
use nix::sys::socket::{recvmsg, sendmsg, MsgFlags};
use socket2::{Domain, SockAddr, Socket, Type};

/// The kind of AF_VSOCK socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// `SOCK_STREAM`.
    Stream,
    /// `SOCK_SEQPACKET`.
    Seqpacket,
}

impl Kind {
    /// The word used on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Seqpacket => "seqpacket",
        }
    }

    /// The port that a server uses for this kind: ports are shared by all kinds, so seqpacket takes
    /// the next one.
    pub(crate) fn port(self, base: u32) -> u32 {
        match self {
            Self::Stream => base,
            Self::Seqpacket => base + 1,
        }
    }
}

/// `SO_VM_SOCKETS_BUFFER_SIZE` of the kernel's `vm_sockets.h`.
const SO_VM_SOCKETS_BUFFER_SIZE: libc::c_int = 0;
/// `SO_VM_SOCKETS_BUFFER_MAX_SIZE` of the kernel's `vm_sockets.h`.
const SO_VM_SOCKETS_BUFFER_MAX_SIZE: libc::c_int = 2;

/// `SO_VM_SOCKETS_CONNECT_TIMEOUT_OLD` of the kernel's `vm_sockets.h`.
const SO_VM_SOCKETS_CONNECT_TIMEOUT: libc::c_int = 6;

/// How long a connect waits for an answer: long enough for a guest that is slow, so that
/// `ETIMEDOUT` means that none came.
const CONNECT_TIMEOUT: libc::timeval = libc::timeval {
    tv_sec: 30,
    tv_usec: 0,
};

/// Receive buffer of seqpacket sockets: a message must fit in it whole, and its overhead too.
const SEQPACKET_BUFFER: u64 = 4 << 20;

/// A connected socket.
pub(crate) struct Connection {
    socket: Socket,
    kind: Kind,
}

/// A socket of `kind`, neither bound nor connected.
pub(crate) fn open(kind: Kind) -> io::Result<Socket> {
    let socket = match kind {
        Kind::Stream => Socket::new(Domain::VSOCK, Type::STREAM, None)?,
        Kind::Seqpacket => Socket::new(Domain::VSOCK, Type::SEQPACKET, None)?,
    };
    set_option(&socket, SO_VM_SOCKETS_CONNECT_TIMEOUT, &CONNECT_TIMEOUT)?;
    if kind == Kind::Seqpacket {
        set_option(&socket, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &SEQPACKET_BUFFER)?;
        set_option(&socket, SO_VM_SOCKETS_BUFFER_SIZE, &SEQPACKET_BUFFER)?;
    }
    Ok(socket)
}

/// Sets an option of a vsock socket; the kernel knows its type and checks its size.
fn set_option<T: Copy>(socket: &Socket, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: The value is alive during the call and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::AF_VSOCK,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A listening socket for any local CID.
pub(crate) fn listen(kind: Kind, port: u32, backlog: i32) -> io::Result<Socket> {
    let socket = open(kind)?;
    socket.bind(&SockAddr::vsock(libc::VMADDR_CID_ANY, port))?;
    socket.listen(backlog)?;
    Ok(socket)
}

impl Connection {
    /// Connects to `cid`:`port`.
    ///
    /// # Errors
    ///
    /// The errno of `socket(2)` or `connect(2)`.
    pub(crate) fn connect(kind: Kind, cid: u32, port: u32) -> io::Result<Self> {
        let socket = open(kind)?;
        socket.connect(&SockAddr::vsock(cid, port))?;
        Ok(Self { socket, kind })
    }

    /// Takes the next connection from a listening socket of `kind`.
    pub(crate) fn accept(listener: &Socket, kind: Kind) -> io::Result<Self> {
        let (socket, _) = listener.accept()?;
        Ok(Self { socket, kind })
    }

    /// Makes every later read and write fail with `EAGAIN` when nothing moves for `limit`.
    pub(crate) fn set_timeout(&self, limit: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(limit))?;
        self.socket.set_write_timeout(Some(limit))
    }

    /// The kind of the socket.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The socket itself.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Sends `bytes` as one record: all of them on a stream, one message on seqpacket.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_record(bytes, false)
    }

    /// As [`Connection::send`]; `end_of_record` sets `MSG_EOR` on a seqpacket message.
    pub(crate) fn send_record(&self, bytes: &[u8], end_of_record: bool) -> io::Result<()> {
        if self.kind == Kind::Stream {
            return (&self.socket).write_all(bytes);
        }
        let flags = if end_of_record {
            MsgFlags::MSG_EOR
        } else {
            MsgFlags::empty()
        };
        let sent = sendmsg::<()>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(bytes)],
            &[],
            flags,
            None,
        )?;
        if sent == bytes.len() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "message of {} bytes: only {sent} sent",
            bytes.len()
        )))
    }

    /// Receives what is there, at most `buf.len()` bytes; 0 is the end of the connection.
    pub(crate) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        (&self.socket).read(buf)
    }

    /// Receives one seqpacket message into `buf`: its length and whether `MSG_EOR` was set.
    ///
    /// # Errors
    ///
    /// An errno, or `InvalidData` for a message longer than `buf`.
    pub(crate) fn recv_message(&self, buf: &mut [u8]) -> io::Result<(usize, bool)> {
        let mut parts = [IoSliceMut::new(buf)];
        let got = recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, None, MsgFlags::empty())?;
        if got.flags.contains(MsgFlags::MSG_TRUNC) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "message longer than planned",
            ));
        }
        Ok((got.bytes, got.flags.contains(MsgFlags::MSG_EOR)))
    }

    /// Receives one record of exactly `buf.len()` bytes.
    ///
    /// # Errors
    ///
    /// An errno, `UnexpectedEof`, or `InvalidData` for a message of another length.
    pub(crate) fn recv_exact(&self, buf: &mut [u8]) -> io::Result<()> {
        if self.kind == Kind::Stream {
            return (&self.socket).read_exact(buf);
        }
        let (got, _) = self.recv_message(buf)?;
        match got {
            n if n == buf.len() => Ok(()),
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("message of {n} bytes where {} were due", buf.len()),
            )),
        }
    }

    /// Ends this end's sending.
    pub(crate) fn finish_sending(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }
}
