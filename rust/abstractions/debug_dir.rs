// SPDX-License-Identifier: GPL-2.0

//! The debugfs directory of the module.

use kernel::{
    debugfs::Dir,
    prelude::*,
    str::CString,
    sync::atomic::{
        Atomic,
        Full, //
    },
};

kernel::sync::global_lock! {
    // SAFETY: Initialised by `DebugRoot::create()` before anything else uses it.
    unsafe(uninit) static ROOT: Mutex<Option<Dir>> = None;
}

/// Whether `ROOT` is initialised.
static READY: Atomic<bool> = Atomic::new(false);

/// The directory of the module; dropping it removes it, once all that is in it is gone.
pub(crate) struct DebugRoot(());

impl DebugRoot {
    /// Creates the directory. Debugfs never fails loudly: without it, there is just nothing to see.
    ///
    /// EBUSY if there is one. Context: module initialisation.
    pub(crate) fn create(name: &CStr) -> Result<Self> {
        if READY.xchg(true, Full) {
            return Err(EBUSY);
        }
        // SAFETY: `READY` was false, so this is the first time, and it is so once in the life of
        // the module.
        unsafe { ROOT.init() };
        *ROOT.lock() = Some(Dir::new(name));
        Ok(Self(()))
    }

    /// A directory in the one of the module. Context: process context; may sleep.
    pub(crate) fn subdir(name: kernel::fmt::Arguments<'_>) -> Option<Dir> {
        let name = CString::try_from_fmt(name).ok()?;
        ROOT.lock().as_ref().map(|root| root.subdir(&name))
    }

    /// The directory of the module itself.
    pub(crate) fn dir(&self) -> Option<Dir> {
        ROOT.lock().clone()
    }
}

impl Drop for DebugRoot {
    fn drop(&mut self) {
        *ROOT.lock() = None;
    }
}
