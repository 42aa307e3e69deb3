// SPDX-License-Identifier: GPL-2.0

//! Reading and writing the parts of a guest's buffer.
//!
//! Both only move forward, so that what was checked is not read a second time.

use core::{
    marker::PhantomData,
    mem::MaybeUninit, //
};

use kernel::prelude::*;

use crate::{
    abstractions::vsock::Packet,
    bindings, //
};

/// Makes an `iov_iter` over user memory.
fn iov_iter(direction: u32, iov: &[bindings::iovec], len: usize) -> bindings::iov_iter {
    let mut iter = MaybeUninit::<bindings::iov_iter>::uninit();
    // SAFETY: The function initialises all of `iter`. `iov` lives as long as the type that holds
    // the result says. Its entries are user addresses, which every copy checks.
    unsafe {
        bindings::iov_iter_init(iter.as_mut_ptr(), direction, iov.as_ptr(), iov.len(), len);
        iter.assume_init()
    }
}

/// Reads the device-readable part of a buffer, front to back.
///
/// # Invariants
///
/// `iter` is a source whose entries live for `'r`.
pub(crate) struct BufferReader<'r> {
    iter: bindings::iov_iter,
    _iov: PhantomData<&'r bindings::iovec>,
}

impl<'r> BufferReader<'r> {
    pub(super) fn new(iov: &'r [bindings::iovec], len: usize) -> Self {
        Self {
            iter: iov_iter(bindings::ITER_SOURCE, iov, len),
            _iov: PhantomData,
        }
    }

    /// Fills `out` with the next bytes; EFAULT if they cannot be read or there are fewer.
    ///
    /// Context: a thread that runs in the owner's mm; may fault, so no spinlock may be held.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> Result {
        // SAFETY: `iter` is valid by the type invariant, and `out` is as long as said.
        let copied = unsafe {
            bindings::_copy_from_iter(out.as_mut_ptr().cast(), out.len(), &mut self.iter)
        };
        if copied == out.len() {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Steps over `len` bytes.
    pub(crate) fn skip(&mut self, len: usize) {
        // SAFETY: `iter` is valid by the type invariant.
        unsafe { bindings::iov_iter_advance(&mut self.iter, len) };
    }

    /// Reads the next `len` bytes to the place `offset` of a packet's payload; EFAULT as above.
    pub(crate) fn read_payload(
        &mut self,
        packet: &mut Packet,
        offset: usize,
        len: usize,
    ) -> Result {
        packet.copy_from(offset, len, &mut self.iter)
    }
}

/// Writes the device-writable part of a buffer, front to back.
///
/// # Invariants
///
/// `iter` is a destination whose entries live for `'r`.
pub(crate) struct BufferWriter<'r> {
    iter: bindings::iov_iter,
    _iov: PhantomData<&'r bindings::iovec>,
}

impl<'r> BufferWriter<'r> {
    pub(super) fn new(iov: &'r [bindings::iovec], len: usize) -> Self {
        Self {
            iter: iov_iter(bindings::ITER_DEST, iov, len),
            _iov: PhantomData,
        }
    }

    /// Writes `bytes`; EFAULT if they cannot be written or do not fit.
    ///
    /// Context: a thread that runs in the owner's mm; may fault, so no spinlock may be held.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result {
        // SAFETY: `iter` is valid by the type invariant, and `bytes` is as long as said.
        let copied =
            unsafe { bindings::_copy_to_iter(bytes.as_ptr().cast(), bytes.len(), &mut self.iter) };
        if copied == bytes.len() {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }

    /// Writes `len` bytes from the place `offset` of a packet's payload; EFAULT as above.
    pub(crate) fn write_payload(&mut self, packet: &Packet, offset: usize, len: usize) -> Result {
        packet.copy_to(offset, len, &mut self.iter)
    }
}
