// SPDX-License-Identifier: GPL-2.0
//! One open `/dev/vhost-vsock` and its ioctls, unchecked: the cases may call them in any order.

use super::abi::*;
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::raw::{c_int, c_ulong};
use std::os::unix::fs::OpenOptionsExt;

/// A region of the memory table: guest address, length and user address, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub guest: u64,
    pub len: u64,
    pub user: u64,
}

/// One open vhost-vsock device.
pub struct Device {
    file: File,
}

/// What an ioctl answers: its value, or the errno.
pub type Answer = Result<c_int, Errno>;

#[repr(C)]
struct MemTable {
    head: [u32; 2],
    regions: [[u64; 4]; 64],
}

impl From<File> for Device {
    /// A device that is open already.
    fn from(file: File) -> Self {
        Self { file }
    }
}

impl Device {
    /// Opens the device node.
    pub fn open() -> std::io::Result<Self> {
        Self::open_with(0)
    }

    /// Opens the device node with more open flags, such as `O_NONBLOCK`.
    pub fn open_with(flags: c_int) -> std::io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open("/dev/vhost-vsock")?;
        Ok(Self { file })
    }

    /// The open file, for reads and writes of IOTLB messages.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Issues ioctl `number` with a bare argument.
    pub fn raw(&self, number: c_ulong, arg: c_ulong) -> Answer {
        // SAFETY: The kernel checks the argument; callers pass addresses that they own, or ones that must be refused.
        Errno::result(unsafe { libc::ioctl(self.file.as_raw_fd(), number, arg) })
    }

    /// Issues an ioctl that reads `arg`.
    pub fn put<T>(&self, number: c_ulong, arg: &T) -> Answer {
        self.raw(number, std::ptr::from_ref(arg) as c_ulong)
    }

    /// Issues an ioctl that writes `arg`, and may read it first.
    pub fn get<T>(&self, number: c_ulong, arg: &mut T) -> Answer {
        self.raw(number, std::ptr::from_mut(arg) as c_ulong)
    }

    pub fn set_owner(&self) -> Answer {
        self.raw(VHOST_SET_OWNER(), 0)
    }

    pub fn features(&self) -> Result<u64, Errno> {
        let mut bits = 0u64;
        self.get(VHOST_GET_FEATURES(), &mut bits).map(|_| bits)
    }

    pub fn set_features(&self, bits: u64) -> Answer {
        self.put(VHOST_SET_FEATURES(), &bits)
    }

    pub fn backend_features(&self) -> Result<u64, Errno> {
        let mut bits = 0u64;
        self.get(VHOST_GET_BACKEND_FEATURES(), &mut bits)
            .map(|_| bits)
    }

    pub fn set_backend_features(&self, bits: u64) -> Answer {
        self.put(VHOST_SET_BACKEND_FEATURES(), &bits)
    }

    /// Hands over the memory table; at most 64 regions.
    pub fn set_memory(&self, regions: &[Region]) -> Answer {
        let mut table = MemTable {
            head: [regions.len() as u32, 0],
            regions: [[0; 4]; 64],
        };
        for (slot, region) in table.regions.iter_mut().zip(regions) {
            *slot = [region.guest, region.len, region.user, 0];
        }
        self.put(VHOST_SET_MEM_TABLE(), &table)
    }

    pub fn set_vring_num(&self, index: usize, num: u32) -> Answer {
        self.put(VHOST_SET_VRING_NUM(), &state(index, num))
    }

    pub fn set_vring_base(&self, index: usize, num: u32) -> Answer {
        self.put(VHOST_SET_VRING_BASE(), &state(index, num))
    }

    /// Index of the next entry of the available ring that the device will take.
    pub fn vring_base(&self, index: usize) -> Result<u32, Errno> {
        let mut arg = state(index, 0);
        self.get(VHOST_GET_VRING_BASE(), &mut arg).map(|_| arg.num)
    }

    pub fn set_vring_addr(&self, addr: &vhost_vring_addr) -> Answer {
        self.put(VHOST_SET_VRING_ADDR(), addr)
    }

    pub fn set_kick(&self, index: usize, fd: RawFd) -> Answer {
        self.put(VHOST_SET_VRING_KICK(), &event(index, fd))
    }

    pub fn set_call(&self, index: usize, fd: RawFd) -> Answer {
        self.put(VHOST_SET_VRING_CALL(), &event(index, fd))
    }

    pub fn set_err(&self, index: usize, fd: RawFd) -> Answer {
        self.put(VHOST_SET_VRING_ERR(), &event(index, fd))
    }

    pub fn set_log_base(&self, user: u64) -> Answer {
        self.put(VHOST_SET_LOG_BASE(), &user)
    }

    pub fn set_cid(&self, cid: u64) -> Answer {
        self.put(VHOST_VSOCK_SET_GUEST_CID(), &cid)
    }

    /// `VHOST_VSOCK_SET_RUNNING(1)`.
    pub fn start(&self) -> Answer {
        self.put(VHOST_VSOCK_SET_RUNNING(), &1i32)
    }

    /// `VHOST_VSOCK_SET_RUNNING(0)`.
    pub fn stop(&self) -> Answer {
        self.put(VHOST_VSOCK_SET_RUNNING(), &0i32)
    }
}

/// A `struct vhost_vring_state`.
pub fn state(index: usize, num: u32) -> vhost_vring_state {
    vhost_vring_state {
        index: index as u32,
        num,
    }
}

/// A `struct vhost_vring_file`.
pub fn event(index: usize, fd: RawFd) -> vhost_vring_file {
    vhost_vring_file {
        index: index as u32,
        fd,
    }
}
