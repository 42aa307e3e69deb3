// SPDX-License-Identifier: GPL-2.0
//! The host's end: AF_VSOCK sockets, never blocking, with the errno exact.

use super::packet::Kind;
use super::patience;
use super::proc::{wait_readable, wait_until, wait_writable};
use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, Shutdown, SockFlag, SockType, VsockAddr, accept4, bind,
    connect, getsockname, listen, recv, recvmsg, send, shutdown, socket,
};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A host port where nobody listens.
pub const CLOSED_PORT: u32 = 0x5151_5151;

const CID_ANY: u32 = u32::MAX;
const PORT_ANY: u32 = u32::MAX;

/// A host socket.
pub struct Host {
    fd: OwnedFd,
    kind: Kind,
}

impl Host {
    /// A new socket, not connected.
    pub fn new(kind: Kind) -> Result<Self, Errno> {
        let of = if kind == Kind::STREAM {
            SockType::Stream
        } else {
            SockType::SeqPacket
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Vsock, of, flags, None)?;
        Ok(Self { fd, kind })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Begins to connect; gives the errno when the attempt fails at once.
    pub fn try_connect(&self, cid: u64, port: u32) -> Result<(), Errno> {
        match connect(self.fd.as_raw_fd(), &VsockAddr::new(cid as u32, port)) {
            Err(Errno::EINPROGRESS) => Ok(()),
            answer => answer,
        }
    }

    /// A socket that has begun to connect.
    pub fn connecting(kind: Kind, cid: u64, port: u32) -> Result<Self> {
        let host = Self::new(kind)?;
        host.try_connect(cid, port)
            .with_context(|| format!("connect({cid}:{port})"))?;
        Ok(host)
    }

    /// What a whole connect attempt to a guest that does not answer by itself comes to.
    pub fn probe(kind: Kind, cid: u64, port: u32) -> Result<(), Errno> {
        Self::new(kind)?.try_connect(cid, port)
    }

    /// Awaits the end of a connect attempt: the socket's error, or success.
    pub fn outcome(&self) -> Result<Result<(), Errno>> {
        ensure!(
            wait_writable(&self.fd, patience())?,
            "connect() came to no end"
        );
        Ok(self.error())
    }

    /// Awaits success of a connect attempt.
    pub fn connected(&self) -> Result<()> {
        self.outcome()?.context("connect()")
    }

    /// Awaits failure of a connect attempt with just this errno.
    pub fn refused(&self, errno: Errno) -> Result<()> {
        let outcome = self.outcome()?;
        ensure!(
            outcome == Err(errno),
            "connect() came to {outcome:?}, not {errno:?}"
        );
        Ok(())
    }

    /// The pending error, which is taken (`SO_ERROR`).
    pub fn error(&self) -> Result<(), Errno> {
        let mut value: libc::c_int = 0;
        self.option(libc::SOL_SOCKET, libc::SO_ERROR, &mut value)?;
        match value {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        }
    }

    /// Awaits an error on the socket, which must be this one.
    pub fn fails_with(&self, errno: Errno) -> Result<()> {
        ensure!(
            wait_readable(&self.fd, patience())?,
            "no error came, expected {errno:?}"
        );
        let seen = self.error();
        ensure!(
            seen == Err(errno),
            "the socket's error is {seen:?}, not {errno:?}"
        );
        Ok(())
    }

    /// Reads a socket option.
    pub fn option<T>(&self, level: i32, name: i32, value: &mut T) -> Result<(), Errno> {
        let mut len = size_of::<T>() as libc::socklen_t;
        let value = std::ptr::from_mut(value).cast();
        // SAFETY: `value` is valid for `len` bytes.
        Errno::result(unsafe {
            libc::getsockopt(self.fd.as_raw_fd(), level, name, value, &mut len)
        })
        .map(drop)
    }

    /// Sets a socket option.
    pub fn set_option<T>(&self, level: i32, name: i32, value: &T) -> Result<(), Errno> {
        let len = size_of::<T>() as libc::socklen_t;
        let value = std::ptr::from_ref(value).cast();
        // SAFETY: `value` is valid for `len` bytes.
        Errno::result(unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, name, value, len) })
            .map(drop)
    }

    /// Sets the receive window (`SO_VM_SOCKETS_BUFFER_SIZE`), raising its maximum when needed.
    pub fn set_window(&self, bytes: u64) -> Result<(), Errno> {
        const SIZE: i32 = 0;
        const MIN: i32 = 1;
        const MAX: i32 = 2;
        let name = if bytes > super::abi::WINDOW as u64 {
            MAX
        } else {
            MIN
        };
        self.set_option(libc::AF_VSOCK, name, &bytes)?;
        self.set_option(libc::AF_VSOCK, SIZE, &bytes)
    }

    /// Sets how long connect() waits for an answer.
    pub fn set_connect_timeout(&self, ms: i64) -> Result<(), Errno> {
        const CONNECT_TIMEOUT_NEW: i32 = 8;
        let time = [ms / 1000, ms % 1000 * 1000];
        self.set_option(libc::AF_VSOCK, CONNECT_TIMEOUT_NEW, &time)
    }

    /// A listening socket on a port of the kernel's choice.
    pub fn listener(kind: Kind) -> Result<Self> {
        Self::listener_at(kind, PORT_ANY, 64)
    }

    /// A listening socket on a given port.
    pub fn listener_at(kind: Kind, port: u32, backlog: i32) -> Result<Self> {
        let host = Self::new(kind)?;
        bind(host.fd.as_raw_fd(), &VsockAddr::new(CID_ANY, port)).context("bind()")?;
        listen(&host.fd, Backlog::new(backlog)?).context("listen()")?;
        Ok(host)
    }

    /// Accepts a connection, waiting for it.
    pub fn accept(&self) -> Result<Self> {
        ensure!(
            wait_readable(&self.fd, patience())?,
            "no connection came to accept()"
        );
        self.try_accept().context("accept()")
    }

    /// Accepts a connection if there is one.
    pub fn try_accept(&self) -> Result<Self, Errno> {
        let fd = accept4(&self.fd, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC)?;
        Ok(Self {
            fd,
            kind: self.kind,
        })
    }

    pub fn local_port(&self) -> Result<u32> {
        Ok(getsockname::<VsockAddr>(self.fd.as_raw_fd())?.port())
    }

    /// Sends what the socket takes at once.
    pub fn try_send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.try_send_with(bytes, MsgFlags::empty())
    }

    /// As [`Host::try_send`], with more flags.
    pub fn try_send_with(&self, bytes: &[u8], flags: MsgFlags) -> Result<usize, Errno> {
        send(self.fd.as_raw_fd(), bytes, flags | MsgFlags::MSG_NOSIGNAL)
    }

    /// Sends all of it at once.
    ///
    /// # Errors
    ///
    /// If the socket takes less.
    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        self.send_with(bytes, MsgFlags::empty())
    }

    /// As [`Host::send`], with more flags.
    pub fn send_with(&self, bytes: &[u8], flags: MsgFlags) -> Result<()> {
        let sent = self.try_send_with(bytes, flags).context("send()")?;
        ensure!(
            sent == bytes.len(),
            "send() took {sent} of {} bytes",
            bytes.len()
        );
        Ok(())
    }

    /// Receives what is there at once.
    pub fn try_recv(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        recv(self.fd.as_raw_fd(), bytes, MsgFlags::empty())
    }

    /// Receives up to `max` bytes, waiting for the first; empty at the end of the stream.
    pub fn recv(&self, max: usize) -> Result<Vec<u8>> {
        ensure!(
            wait_readable(&self.fd, patience())?,
            "nothing came to recv()"
        );
        let mut bytes = vec![0; max];
        let len = self.try_recv(&mut bytes).context("recv()")?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Receives exactly `len` bytes of a stream.
    pub fn recv_exact(&self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut have = 0;
        while have < len {
            ensure!(
                wait_readable(&self.fd, patience())?,
                "{have} of {len} bytes came"
            );
            match self.try_recv(&mut bytes[have..]).context("recv()")? {
                0 => bail!("the stream ended after {have} of {len} bytes"),
                more => have += more,
            }
        }
        Ok(bytes)
    }

    /// Receives one message of at most `max` bytes: its bytes and flags such as `MSG_EOR`.
    pub fn recv_message(&self, max: usize) -> Result<(Vec<u8>, MsgFlags)> {
        let mut bytes = vec![0; max];
        let mut got = Err(Errno::EAGAIN);
        // A part of a message makes the socket readable and not yet its end.
        wait_until(patience(), || {
            let mut iov = [std::io::IoSliceMut::new(&mut bytes)];
            let answer = recvmsg::<()>(self.fd.as_raw_fd(), &mut iov, None, MsgFlags::empty());
            got = answer.map(|message| (message.bytes, message.flags));
            Ok(got != Err(Errno::EAGAIN))
        })?;
        let (len, flags) = got.context("recvmsg()")?;
        bytes.truncate(len);
        Ok((bytes, flags))
    }

    /// The stream has ended: a read gives 0.
    pub fn ended(&self) -> Result<()> {
        let rest = self.recv(64)?;
        ensure!(
            rest.is_empty(),
            "{} more bytes where the end was expected",
            rest.len()
        );
        Ok(())
    }

    pub fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        shutdown(self.fd.as_raw_fd(), how)
    }

    /// Whether there is anything to read, now.
    pub fn readable(&self) -> Result<bool> {
        wait_readable(&self.fd, std::time::Duration::ZERO)
    }
}

impl AsRawFd for Host {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
