// SPDX-License-Identifier: GPL-2.0
//! The device IOTLB as user space serves it: misses that are read, updates and invalidations that are written.

use super::abi::{
    VHOST_ACCESS_RW, VHOST_IOTLB_INVALIDATE, VHOST_IOTLB_MISS, VHOST_IOTLB_MSG, VHOST_IOTLB_MSG_V2,
    VHOST_IOTLB_UPDATE,
};
use super::guest::Guest;
use super::proc::wait_readable;
use super::ring::Ring;
use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use std::io::{Read as _, Write as _};
use std::time::Duration;

/// Bytes of a message, of either version.
const MESSAGE: usize = 72;

/// A translation that the device lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    pub iova: u64,
    /// `VHOST_ACCESS_*`.
    pub access: u8,
}

fn message(v2: bool, iova: u64, size: u64, user: u64, access: u8, kind: u8) -> [u8; MESSAGE] {
    let mut raw = [0; MESSAGE];
    let version = if v2 {
        VHOST_IOTLB_MSG_V2
    } else {
        VHOST_IOTLB_MSG as u32
    };
    raw[0..4].copy_from_slice(&version.to_ne_bytes());
    raw[8..16].copy_from_slice(&iova.to_ne_bytes());
    raw[16..24].copy_from_slice(&size.to_ne_bytes());
    raw[24..32].copy_from_slice(&user.to_ne_bytes());
    raw[32] = access;
    raw[33] = kind;
    raw
}

impl Guest {
    /// Writes an IOTLB message.
    pub fn tell_iotlb(
        &self,
        iova: u64,
        size: u64,
        user: u64,
        access: u8,
        kind: u8,
    ) -> Result<(), Errno> {
        let raw = message(self.iotlb_v2, iova, size, user, access, kind);
        match self.dev.file().write(&raw) {
            Ok(MESSAGE) => Ok(()),
            Ok(_) => Err(Errno::EMSGSIZE),
            Err(error) => Err(Errno::from_raw(error.raw_os_error().unwrap_or(0))),
        }
    }

    /// Maps `len` bytes of guest memory at the same I/O address.
    pub fn map(&self, addr: u64, len: u64, access: u8) -> Result<()> {
        self.tell_iotlb(addr, len, self.mem.user(addr), access, VHOST_IOTLB_UPDATE)
            .with_context(|| format!("IOTLB update {addr:#x}+{len:#x}"))
    }

    /// Unmaps `len` bytes.
    pub fn unmap(&self, addr: u64, len: u64) -> Result<()> {
        self.tell_iotlb(addr, len, 0, 0, VHOST_IOTLB_INVALIDATE)
            .with_context(|| format!("IOTLB invalidation {addr:#x}+{len:#x}"))
    }

    /// Maps all pages of a ring.
    pub fn map_ring(&self, ring: &Ring) -> Result<()> {
        let n = ring.size as u64;
        for (addr, len) in [
            (ring.desc, 16 * n),
            (ring.avail, 6 + 2 * n),
            (ring.used, 6 + 8 * n),
        ] {
            self.map(addr, len.next_multiple_of(4096), VHOST_ACCESS_RW)?;
        }
        Ok(())
    }

    /// Reads the next miss; none within `limit` gives `None`.
    pub fn miss(&self, limit: Duration) -> Result<Option<Miss>> {
        if !wait_readable(self.dev.file(), limit)? {
            return Ok(None);
        }
        let mut raw = [0; MESSAGE];
        let len = self.dev.file().read(&mut raw).context("reading a miss")?;
        ensure!(len == MESSAGE, "a message of {len} bytes");
        let version = u32::from_ne_bytes(raw[0..4].try_into().expect("4 bytes"));
        ensure!(
            (version == VHOST_IOTLB_MSG_V2) == self.iotlb_v2,
            "a message of version {version}"
        );
        ensure!(raw[33] == VHOST_IOTLB_MISS, "a message of type {}", raw[33]);
        Ok(Some(Miss {
            iova: u64::from_ne_bytes(raw[8..16].try_into().expect("8 bytes")),
            access: raw[32],
        }))
    }

    /// Maps the page in which a miss lies.
    pub fn answer(&self, miss: &Miss) -> Result<()> {
        self.map(miss.iova & !4095, 4096, VHOST_ACCESS_RW)
    }
}
