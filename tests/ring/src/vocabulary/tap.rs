// SPDX-License-Identifier: GPL-2.0
//! A capture of AF_VSOCK packets on a `vsockmon` link of its own.

use super::packet::{HEADER, Header, Packet};
use super::proc::wait_readable;
use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Bytes of `struct af_vsockmon_hdr`.
const MON: usize = 32;

/// A capture that runs until it is dropped.
pub struct Tap {
    index: u32,
    fd: OwnedFd,
}

impl Tap {
    /// Makes a `vsockmon` link, brings it up and listens on it.
    pub fn start() -> Result<Self> {
        let name = format!("ringmon{}", std::process::id());
        new_link(&name).context("making a vsockmon link (is the module there?)")?;
        let index = nix::net::if_::if_nametoindex(name.as_str())?;
        let fd = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )?;
        let tap = Self { index, fd };
        let room: libc::c_int = 32 << 20;
        tap.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room)?;
        // SAFETY: The address is complete; its unused fields may be zero.
        let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        addr.sll_family = libc::AF_PACKET as u16;
        addr.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        addr.sll_ifindex = index as i32;
        let len = size_of_val(&addr) as u32;
        // SAFETY: `addr` is valid for `len` bytes.
        Errno::result(unsafe { libc::bind(tap.fd.as_raw_fd(), (&raw const addr).cast(), len) })?;
        Ok(tap)
    }

    fn set<T>(&self, level: i32, name: i32, value: &T) -> Result<()> {
        let len = size_of::<T>() as u32;
        // SAFETY: `value` is valid for `len` bytes.
        Errno::result(unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value).cast(),
                len,
            )
        })?;
        Ok(())
    }

    /// The packets captured so far that come from or go to `cid`, in order.
    ///
    /// # Errors
    ///
    /// If a capture is malformed: its two headers and its length must agree.
    pub fn packets(&self, cid: u64) -> Result<Vec<Packet>> {
        let mut found = Vec::new();
        let mut raw = vec![0; 256 << 10];
        while wait_readable(&self.fd, Duration::from_millis(20))? {
            let len = recv(self.fd.as_raw_fd(), &mut raw, MsgFlags::empty())?;
            let packet = decode(&raw[..len])?;
            if packet.header.src_cid == cid || packet.header.dst_cid == cid {
                found.push(packet);
            }
        }
        Ok(found)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        const RTM_DELLINK: u16 = 17;
        let _ = ask_rtnetlink(RTM_DELLINK, 0, &link_info(self.index, 0));
    }
}

fn decode(raw: &[u8]) -> Result<Packet> {
    ensure!(
        raw.len() >= MON + HEADER,
        "a capture of {} bytes",
        raw.len()
    );
    let (mon, rest) = raw.split_at(MON);
    let header = Header::decode(rest);
    ensure!(
        mon[0..8] == header.src_cid.to_le_bytes() && mon[8..16] == header.dst_cid.to_le_bytes(),
        "CIDs differ"
    );
    ensure!(
        mon[28..30] == (HEADER as u16).to_le_bytes(),
        "another transport header length"
    );
    let payload = rest[HEADER..].to_vec();
    ensure!(
        payload.len() == header.len as usize,
        "{} bytes captured for {header:?}",
        payload.len()
    );
    Ok(Packet { header, payload })
}

/// A `struct ifinfomsg`.
fn link_info(index: u32, up: u32) -> Vec<u8> {
    let mut out = vec![0; 4];
    for field in [index, up, up] {
        out.extend_from_slice(&field.to_ne_bytes());
    }
    out
}

/// A netlink attribute, padded.
fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&((4 + data.len()) as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn new_link(name: &str) -> Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    let mut body = link_info(0, libc::IFF_UP as u32);
    body.extend(attribute(IFLA_IFNAME, format!("{name}\0").as_bytes()));
    body.extend(attribute(
        IFLA_LINKINFO,
        &attribute(IFLA_INFO_KIND, b"vsockmon"),
    ));
    ask_rtnetlink(
        RTM_NEWLINK,
        (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16,
        &body,
    )
}

/// Sends one request to rtnetlink and awaits its acknowledgement.
fn ask_rtnetlink(kind: u16, flags: u16, body: &[u8]) -> Result<()> {
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let mut out = Vec::new();
    out.extend_from_slice(&((16 + body.len()) as u32).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&(flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(body);
    send(fd.as_raw_fd(), &out, MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let len = recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    ensure!(len >= 20, "a short answer from rtnetlink");
    let error = i32::from_ne_bytes(answer[16..20].try_into().expect("4 bytes"));
    ensure!(error == 0, "rtnetlink: {}", Errno::from_raw(-error));
    Ok(())
}
