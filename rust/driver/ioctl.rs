// SPDX-License-Identifier: GPL-2.0

//! What the VMM asks for.
//!
//! Source: `include/uapi/linux/vhost.h`; `vhost_vsock_dev_ioctl()`.

use kernel::{
    ioctl::{
        _IOR,
        _IOW, //
    },
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use super::guest::Guest;
use crate::{
    abstractions::{
        code::EOPNOTSUPP,
        params,
        vhost::c_driver_features, //
    },
    logic::features,
};

const VHOST_VIRTIO: u32 = 0xAF;
const VHOST_GET_FEATURES: u32 = _IOR::<u64>(VHOST_VIRTIO, 0x00);
const VHOST_SET_FEATURES: u32 = _IOW::<u64>(VHOST_VIRTIO, 0x00);
const VHOST_SET_BACKEND_FEATURES: u32 = _IOW::<u64>(VHOST_VIRTIO, 0x25);
const VHOST_GET_BACKEND_FEATURES: u32 = _IOR::<u64>(VHOST_VIRTIO, 0x26);
const VHOST_VSOCK_SET_GUEST_CID: u32 = _IOW::<u64>(VHOST_VIRTIO, 0x60);
const VHOST_VSOCK_SET_RUNNING: u32 = _IOW::<c_int>(VHOST_VIRTIO, 0x61);

/// Handles an ioctl on the file of `guest`.
pub(super) fn handle(guest: &Arc<Guest>, cmd: u32, arg: usize) -> Result<isize> {
    match cmd {
        VHOST_VSOCK_SET_GUEST_CID => Guest::set_cid(guest, read(arg)?)?,
        VHOST_VSOCK_SET_RUNNING if read::<c_int>(arg)? != 0 => guest.start()?,
        VHOST_VSOCK_SET_RUNNING => guest.stop()?,
        VHOST_GET_FEATURES => write(
            arg,
            features::offered(c_driver_features(), params::offer_in_order()),
        )?,
        VHOST_SET_FEATURES => set_features(guest, read(arg)?)?,
        VHOST_GET_BACKEND_FEATURES => write(arg, features::BACKEND)?,
        VHOST_SET_BACKEND_FEATURES => set_backend_features(guest, read(arg)?)?,
        _ => return guest.device.lock().ioctl(cmd, arg),
    }
    Ok(0)
}

/// EOPNOTSUPP for a bit that is not known; EFAULT if the log cannot be written or there is no
/// memory for an IOTLB. Source: `vhost_vsock_set_features()`.
fn set_features(guest: &Guest, asked: u64) -> Result {
    if !features::acceptable(c_driver_features(), asked) {
        return Err(EOPNOTSUPP());
    }
    let device = guest.device.lock();
    if asked & features::LOG_ALL != 0 && !device.log_access_ok() {
        return Err(EFAULT);
    }
    device
        .set_iotlb(asked & features::ACCESS_PLATFORM != 0)
        .map_err(|_| EFAULT)?;
    guest
        .seqpacket_allow
        .store(asked & features::SEQPACKET != 0, Relaxed);
    device.set_features(asked);
    Ok(())
}

/// EOPNOTSUPP for a bit that is not known.
fn set_backend_features(guest: &Guest, asked: u64) -> Result {
    if asked & !features::BACKEND != 0 {
        return Err(EOPNOTSUPP());
    }
    guest.device.set_backend_features(asked);
    Ok(())
}

/// The argument that `arg` points at; EFAULT if it cannot be read.
fn read<T: FromBytes>(arg: usize) -> Result<T> {
    UserSlice::new(UserPtr::from_addr(arg), size_of::<T>())
        .reader()
        .read()
}

/// Stores a result where `arg` points; EFAULT if it cannot be written.
fn write<T: AsBytes>(arg: usize, value: T) -> Result {
    UserSlice::new(UserPtr::from_addr(arg), size_of::<T>())
        .writer()
        .write(&value)
}
