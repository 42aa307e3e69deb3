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

/// Makes an `iov_iter` over `len` bytes of user memory, from the byte `offset` of `iov` on.
///
/// Where they are in one piece, as nearly always, the iterator is the simplest one.
fn iov_iter(
    direction: u32,
    mut iov: &[bindings::iovec],
    mut offset: usize,
    len: usize,
) -> bindings::iov_iter {
    while let [first, rest @ ..] = iov {
        if offset < first.iov_len {
            break;
        }
        offset -= first.iov_len;
        iov = rest;
    }

    let mut iter = MaybeUninit::<bindings::iov_iter>::uninit();
    // SAFETY: Either function initialises all of `iter`. `iov` lives as long as the type that
    // holds the result says. Its entries are user addresses, which every copy checks.
    unsafe {
        match iov {
            [first, ..] if first.iov_len - offset >= len => bindings::rs_iov_iter_ubuf(
                iter.as_mut_ptr(),
                direction,
                first.iov_base.wrapping_byte_add(offset),
                len,
            ),
            _ => {
                bindings::iov_iter_init(
                    iter.as_mut_ptr(),
                    direction,
                    iov.as_ptr(),
                    iov.len(),
                    offset.saturating_add(len),
                );
                bindings::iov_iter_advance(iter.as_mut_ptr(), offset);
            }
        }
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
    /// For `len` bytes from the byte `offset` of `iov` on.
    pub(super) fn new(iov: &'r [bindings::iovec], offset: usize, len: usize) -> Self {
        Self {
            iter: iov_iter(bindings::ITER_SOURCE, iov, offset, len),
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
            iter: iov_iter(bindings::ITER_DEST, iov, 0, len),
            _iov: PhantomData,
        }
    }

    /// Writes `bytes`; EFAULT if they cannot be written or do not fit.
    ///
    /// Context: a thread that runs in the owner's mm; may fault, so no spinlock may be held.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result {
        let from = bytes.as_ptr().cast();
        // SAFETY: `iter` is valid by the type invariant, and `bytes` is as long as said.
        let copied = unsafe { bindings::_copy_to_iter(from, bytes.len(), &mut self.iter) };
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
