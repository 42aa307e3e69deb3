// SPDX-License-Identifier: GPL-2.0

//! The host's end of a connection.

use std::io;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use socket2::{Domain, SockAddr, Socket, Type};

use super::guest::PORT;

/// A socket with that receive window.
pub(crate) fn new(window: u32) -> Result<Socket> {
    let socket = Socket::new(Domain::VSOCK, Type::STREAM, None).context("socket")?;
    set_window(&socket, window)?;
    Ok(socket)
}

/// Connects it to the guest with that CID.
pub(crate) fn connect(socket: &Socket, cid: u32) -> Result<()> {
    socket
        .connect(&SockAddr::vsock(cid, PORT))
        .context("connect")
}

/// The port of the host's end.
pub(crate) fn port(socket: &Socket) -> Result<u32> {
    let address = socket.local_addr()?.as_vsock_address();
    Ok(address.context("no address of vsock")?.1)
}

fn set_window(socket: &Socket, bytes: u32) -> Result<()> {
    // `SO_VM_SOCKETS_BUFFER_MAX_SIZE`, `SO_VM_SOCKETS_BUFFER_SIZE`.
    for name in [2, 0] {
        let value = u64::from(bytes);
        // SAFETY: `value` is valid for its size.
        let status = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::AF_VSOCK,
                name,
                std::ptr::from_ref(&value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
        ensure!(status == 0, "setsockopt: {}", io::Error::last_os_error());
    }
    Ok(())
}

/// What the kernel has charged to the socket for data that it has sent and that was not freed yet (`sk_wmem_alloc`).
pub(crate) fn charged(socket: &Socket) -> Result<u64> {
    const SO_MEMINFO: libc::c_int = 55;
    const WMEM_ALLOC: usize = 2;
    let mut values = [0_u32; 9];
    let mut len = size_of_val(&values) as libc::socklen_t;
    // SAFETY: `values` is valid for `len` bytes.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    ensure!(status == 0, "getsockopt: {}", io::Error::last_os_error());
    Ok(values[WMEM_ALLOC].into())
}
