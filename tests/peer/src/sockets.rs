// SPDX-License-Identifier: GPL-2.0

//! The AF_VSOCK sockets of this network namespace, as the kernel's `sock_diag` lists them.

use std::io::{Read, Write};

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use zerocopy::native_endian::{I32, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::report::Line;

/// `SOCK_DIAG_BY_FAMILY` of the kernel's `sock_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// `struct nlmsghdr` of the kernel's `netlink.h`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MessageHeader {
    len: U32,
    kind: U16,
    flags: U16,
    seq: U32,
    pid: U32,
}

/// `struct vsock_diag_req` of the kernel's `vm_sockets_diag.h`, behind its header.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct DumpRequest {
    header: MessageHeader,
    family: u8,
    protocol: u8,
    pad: U16,
    states: U32,
    inode: U32,
    show: U32,
    cookie: [U32; 2],
}

/// `struct vsock_diag_msg` of the kernel's `vm_sockets_diag.h`.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    family: u8,
    kind: u8,
    state: u8,
    shutdown: u8,
    src_cid: U32,
    src_port: U32,
    dst_cid: U32,
    dst_port: U32,
    inode: U32,
    cookie: [U32; 2],
}

/// Which sockets to list.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Only those whose peer has this CID
    #[arg(long)]
    cid: Option<u32>,
}

/// Prints one line for each socket and one with their number.
pub(crate) fn run(options: Options) -> Result<()> {
    let mut count = 0;
    for entry in dump()? {
        if options.cid.is_some_and(|cid| cid != entry.dst_cid.get()) {
            continue;
        }
        count += 1;
        Line::new("socket")
            .with("type", type_name(entry.kind))
            .with("state", state_name(entry.state))
            .with(
                "src",
                format!("{}:{}", cid(entry.src_cid), cid(entry.src_port)),
            )
            .with(
                "dst",
                format!("{}:{}", cid(entry.dst_cid), cid(entry.dst_port)),
            )
            .with("shutdown", entry.shutdown)
            .print();
    }
    Line::new("sockets").with("count", count).print();
    Ok(())
}

fn dump() -> Result<Vec<Entry>> {
    let mut netlink = Socket::new(
        Domain::from(libc::AF_NETLINK),
        Type::RAW,
        Some(Protocol::from(libc::NETLINK_SOCK_DIAG)),
    )?;
    let request = DumpRequest {
        header: MessageHeader {
            len: U32::new(size_of::<DumpRequest>() as u32),
            kind: U16::new(SOCK_DIAG_BY_FAMILY),
            flags: U16::new((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16),
            seq: U32::new(1),
            pid: U32::new(0),
        },
        family: libc::AF_VSOCK as u8,
        protocol: 0,
        pad: U16::new(0),
        states: U32::new(u32::MAX),
        inode: U32::new(0),
        show: U32::new(0),
        cookie: [U32::new(0); 2],
    };
    netlink.write_all(request.as_bytes()).context("sock_diag")?;
    let mut entries = Vec::new();
    let mut buf = vec![0; 32 << 10];
    loop {
        let got = netlink.read(&mut buf)?;
        if take(&buf[..got], &mut entries)? {
            return Ok(entries);
        }
    }
}

/// Takes the entries out of one datagram; true if it held the end of the dump.
fn take(mut datagram: &[u8], entries: &mut Vec<Entry>) -> Result<bool> {
    while !datagram.is_empty() {
        let Ok((header, _)) = MessageHeader::ref_from_prefix(datagram) else {
            bail!("short netlink header");
        };
        let len = header.len.get() as usize;
        ensure!(
            (size_of::<MessageHeader>()..=datagram.len()).contains(&len),
            "netlink length"
        );
        let body = &datagram[size_of::<MessageHeader>()..len];
        match i32::from(header.kind.get()) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let (errno, _) = I32::read_from_prefix(body).ok().context("short error")?;
                bail!("sock_diag: {}", Errno::from_raw(-errno.get()));
            }
            _ => entries.push(Entry::read_from_prefix(body).ok().context("short entry")?.0),
        }
        datagram = &datagram[len.next_multiple_of(4).min(datagram.len())..];
    }
    Ok(false)
}

/// A CID or port, with `*` for any.
fn cid(value: U32) -> String {
    match value.get() {
        libc::VMADDR_CID_ANY => "*".to_owned(),
        value => value.to_string(),
    }
}

fn type_name(kind: u8) -> &'static str {
    match i32::from(kind) {
        libc::SOCK_STREAM => "stream",
        libc::SOCK_SEQPACKET => "seqpacket",
        libc::SOCK_DGRAM => "dgram",
        _ => "other",
    }
}

/// The names of the kernel's `enum` of TCP states that AF_VSOCK uses.
fn state_name(state: u8) -> &'static str {
    match state {
        1 => "established",
        2 => "syn-sent",
        7 => "close",
        10 => "listen",
        11 => "closing",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let header = MessageHeader {
            len: U32::new((size_of::<MessageHeader>() + body.len()) as u32),
            kind: U16::new(kind),
            flags: U16::new(0),
            seq: U32::new(1),
            pid: U32::new(0),
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn entries_are_taken_until_the_end() {
        let mut body = [0; size_of::<Entry>()];
        body[2] = 1;
        body[12..16].copy_from_slice(&42_u32.to_ne_bytes());
        let mut entries = Vec::new();
        let two = [
            message(SOCK_DIAG_BY_FAMILY, &body),
            message(SOCK_DIAG_BY_FAMILY, &body),
        ]
        .concat();
        assert!(!take(&two, &mut entries).unwrap());
        assert!(take(&message(libc::NLMSG_DONE as u16, &[0; 4]), &mut entries).unwrap());
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[1].dst_cid.get(), 42);
        assert_eq!(state_name(entries[1].state), "established");
    }

    #[test]
    fn an_error_and_a_lying_length_are_errors() {
        let error = message(libc::NLMSG_ERROR as u16, &(-libc::ENOENT).to_ne_bytes());
        assert!(take(&error, &mut Vec::new()).is_err());
        let mut long = message(SOCK_DIAG_BY_FAMILY, &[0; 4]);
        long[0] = 0xff;
        assert!(take(&long, &mut Vec::new()).is_err());
    }
}
