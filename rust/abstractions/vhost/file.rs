// SPDX-License-Identifier: GPL-2.0

//! The character device: one open file is one device.
//!
//! Source: the `file_operations` of `drivers/vhost/vsock.c`.

use core::marker::PhantomData;

use kernel::{
    prelude::*,
    seq_file::SeqFile,
    sync::Arc, //
};

use super::device::{
    Backend,
    Device, //
};
use crate::bindings;

/// What a driver does when its file is opened, used and released.
pub(crate) trait CharDevice: Backend {
    /// Makes the state behind a file. Context: process context of the opener; may sleep.
    fn open() -> Result<Arc<Self>>;

    /// Handles an ioctl; ENOTTY for one that is not known. Context: process context; may sleep.
    fn ioctl(this: &Arc<Self>, cmd: u32, arg: usize) -> Result<isize>;

    /// Writes lines of `/proc/PID/fdinfo/FD`. Context: process context; may sleep.
    fn show_fdinfo(&self, file: &SeqFile);

    /// The last reference to the file is gone. On return nobody may be able to reach the device
    /// any more but its own worker, which is stopped next.
    fn release(this: &Arc<Self>);
}

/// The file operations of a `T`.
pub(crate) struct CharDeviceFops<T>(PhantomData<T>);

impl<T: CharDevice> CharDeviceFops<T> {
    /// The C structure. Files pin `module`.
    pub(crate) fn build(module: &'static ThisModule) -> bindings::file_operations {
        bindings::file_operations {
            owner: module.as_ptr(),
            open: Some(Self::open),
            release: Some(Self::release),
            llseek: Some(bindings::noop_llseek),
            unlocked_ioctl: Some(Self::ioctl),
            #[cfg(CONFIG_COMPAT)]
            compat_ioctl: bindings::compat_ptr_ioctl,
            read_iter: Some(Self::read_iter),
            write_iter: Some(Self::write_iter),
            poll: Some(Self::poll),
            show_fdinfo: Some(Self::show_fdinfo),
            ..pin_init::zeroed()
        }
    }

    /// The `T` of an open file.
    ///
    /// # Safety
    ///
    /// `file` must be open by [`Self::open`], and stay so for `'a`.
    unsafe fn device<'a>(file: *mut bindings::file) -> &'a T {
        // SAFETY: `open` stored the pointer of an `Arc<T>`, which `release` takes back.
        unsafe { &*(*file).private_data.cast::<T>() }
    }

    /// # Safety
    ///
    /// `file` must be undergoing open.
    unsafe extern "C" fn open(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        let this = match T::open() {
            Ok(this) => this,
            Err(error) => return error.to_errno(),
        };
        Device::bind(&this);
        // SAFETY: The file is being opened, so its private data is ours. The count of the `Arc`
        // goes with the pointer.
        unsafe { (*file).private_data = Arc::into_raw(this).cast_mut().cast() };
        0
    }

    /// # Safety
    ///
    /// `file` must have been opened by [`Self::open`] and be undergoing release.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` stored it, and this is the end of the file, so it is taken back once.
        let this = unsafe { Arc::from_raw((*file).private_data.cast::<T>()) };
        T::release(&this);
        this.device().shut_down();
        0
    }

    /// # Safety
    ///
    /// `file` must have been opened by [`Self::open`].
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: `open` stored the pointer of an `Arc<T>`; the file keeps its count meanwhile, so
        // this one, which is not dropped, is a borrow.
        let this = unsafe { Arc::from_raw((*file).private_data.cast::<T>()) };
        let this = core::mem::ManuallyDrop::new(this);
        match T::ioctl(&this, cmd, arg) {
            Ok(value) => value,
            Err(error) => error.to_errno() as c_long,
        }
    }

    /// # Safety
    ///
    /// `iocb` must be of a file opened by [`Self::open`], and `to` a valid destination.
    unsafe extern "C" fn read_iter(
        iocb: *mut bindings::kiocb,
        to: *mut bindings::iov_iter,
    ) -> isize {
        // SAFETY: By the requirements; the C function takes the locks that it needs.
        unsafe {
            let file = (*iocb).ki_filp;
            let noblock = (*file).f_flags & bindings::O_NONBLOCK;
            bindings::vhost_chr_read_iter(Self::device(file).device().dev(), to, noblock as c_int)
        }
    }

    /// # Safety
    ///
    /// `iocb` must be of a file opened by [`Self::open`], and `from` a valid source.
    unsafe extern "C" fn write_iter(
        iocb: *mut bindings::kiocb,
        from: *mut bindings::iov_iter,
    ) -> isize {
        // SAFETY: As above.
        unsafe {
            let file = (*iocb).ki_filp;
            bindings::vhost_chr_write_iter(Self::device(file).device().dev(), from)
        }
    }

    /// # Safety
    ///
    /// `file` must have been opened by [`Self::open`], and `wait` be valid.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        wait: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: As above.
        unsafe { bindings::vhost_chr_poll(file, Self::device(file).device().dev(), wait) }
    }

    /// # Safety
    ///
    /// `file` must have been opened by [`Self::open`], and `m` be valid and ours alone.
    unsafe extern "C" fn show_fdinfo(m: *mut bindings::seq_file, file: *mut bindings::file) {
        // SAFETY: By the requirements.
        unsafe { Self::device(file).show_fdinfo(SeqFile::from_raw(m)) };
    }
}
