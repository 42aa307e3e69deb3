// SPDX-License-Identifier: GPL-2.0

//! Safe faces of the C libraries that the driver stands on.
//!
//! This is the only part of the module that may say `unsafe`. It knows nothing of the driver and is
//! written as if for `rust/kernel/`.

pub(crate) mod cid_table;
pub(crate) mod debug_dir;
pub(crate) mod misc;
pub(crate) mod net;
pub(crate) mod params;
pub(crate) mod trace;
pub(crate) mod vhost;
pub(crate) mod vsock;

use kernel::error::Error;

use crate::bindings;

/// The error of a positive errno, which the `kernel` crate need not name.
pub(crate) fn errno(code: u32) -> Error {
    match i32::try_from(code) {
        Ok(code) => Error::from_errno(-code),
        Err(_) => kernel::error::code::EINVAL,
    }
}

/// Waits until all RCU read-side sections that were open have ended.
///
/// Context: process context, no lock held that a reader needs; sleeps.
fn synchronize_rcu() {
    // SAFETY: No preconditions but the context.
    unsafe { bindings::synchronize_rcu() };
}

/// Errors that the `kernel` crate of 7.2 does not name.
pub(crate) mod code {
    use super::{
        bindings,
        errno,
        Error, //
    };

    /// Operation not supported.
    #[allow(non_snake_case)]
    pub(crate) fn EOPNOTSUPP() -> Error {
        errno(bindings::EOPNOTSUPP)
    }

    /// Address already in use.
    #[allow(non_snake_case)]
    pub(crate) fn EADDRINUSE() -> Error {
        errno(bindings::EADDRINUSE)
    }

    /// No route to host.
    #[allow(non_snake_case)]
    pub(crate) fn EHOSTUNREACH() -> Error {
        errno(bindings::EHOSTUNREACH)
    }
}
