// SPDX-License-Identifier: GPL-2.0

//! The table of context identifiers, read under RCU.
//!
//! Entries are never moved. A guest that takes another CID gets a second entry first, then loses
//! the old one, which is freed after a grace period. So a reader that walks a bucket sees every
//! entry that stood there all the while, and a CID that stays taken is found at every moment.

use core::ptr;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        rcu,
        Arc, //
    },
    types::NotThreadSafe, //
};

use super::synchronize_rcu;
use crate::{
    bindings,
    logic::cid::bucket, //
};

/// Buckets of a table.
const BUCKETS: usize = 256;

/// Evidence that the lock of all writers is held, `vhost_vsock_mutex` of the C driver.
///
/// # Invariants
///
/// The mutex is held by the current task while this exists.
pub(crate) struct Writer(NotThreadSafe);

impl Writer {
    /// Takes the lock. Context: process context; may sleep. Inside that of a debugfs file only.
    pub(crate) fn lock() -> Self {
        // SAFETY: The mutex is a static of the module.
        unsafe { bindings::rs_vhost_vsock_mutex_lock() };
        // INVARIANT: Just taken.
        Self(NotThreadSafe)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the current task holds it.
        unsafe { bindings::rs_vhost_vsock_mutex_unlock() };
    }
}

/// One CID and whom it leads to.
///
/// # Invariants
///
/// While an entry is reachable from a table, only `next` changes, and only under [`Writer`].
struct Entry<T> {
    next: Atomic<*mut Entry<T>>,
    cid: u32,
    value: Arc<T>,
}

/// An entry that was taken out and may still be read; it is freed after a grace period.
///
/// # Invariants
///
/// The entry is not reachable from a table, and it was made by [`KBox::into_raw`].
#[must_use = "dropping it waits for a grace period, which must not happen under a lock"]
pub(crate) struct Retired<T>(*mut Entry<T>);

impl<T> Drop for Retired<T> {
    /// Context: process context, no lock held that a reader needs; sleeps for a grace period.
    fn drop(&mut self) {
        synchronize_rcu();
        // SAFETY: By the type invariant the box is ours, and after the grace period no reader that
        // found the entry before it was taken out is left.
        drop(unsafe { KBox::from_raw(self.0) });
    }
}

/// A table from CIDs to values, several of which may have the same CID.
///
/// # Invariants
///
/// Each bucket is a list of entries that ends with null. Entries were made by [`KBox::into_raw`],
/// are owned by the table, are linked and unlinked only under [`Writer`], and live until a grace
/// period after they were unlinked.
pub(crate) struct CidTable<T> {
    buckets: [Atomic<*mut Entry<T>>; BUCKETS],
}

// SAFETY: The table owns `Arc<T>`s and gives out `&T` on any thread.
unsafe impl<T: Send + Sync> Sync for CidTable<T> {}

impl<T> CidTable<T> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self {
            buckets: [const { Atomic::new(ptr::null_mut()) }; BUCKETS],
        }
    }

    /// The first value with `cid` that `accept` accepts.
    ///
    /// Context: any; the value may be used while `guard` lives.
    pub(crate) fn find<'g>(
        &'g self,
        _guard: &'g rcu::Guard,
        cid: u32,
        accept: impl Fn(&T) -> bool,
    ) -> Option<&'g T> {
        let mut at = self.buckets[bucket(cid, BUCKETS)].load(Acquire);
        while !at.is_null() {
            // SAFETY: By the type invariant an entry that was reachable within the read-side
            // section, which `_guard` keeps open for `'g`, lives until after its end. The acquire
            // load pairs with the release store that linked it, so its fields are initialised.
            let entry: &'g Entry<T> = unsafe { &*at };
            if entry.cid == cid && accept(&entry.value) {
                return Some(&entry.value);
            }
            at = entry.next.load(Acquire);
        }
        None
    }

    /// Calls `each` with all values; while a CID changes, no value is seen twice or missed.
    pub(crate) fn for_each(&self, _writer: &Writer, mut each: impl FnMut(&T)) {
        for bucket in &self.buckets {
            let mut at = bucket.load(Relaxed);
            while !at.is_null() {
                // SAFETY: Entries are unlinked under the lock only, which `_writer` shows is held,
                // and not by `each`, as that takes `&mut Writer`: what is linked lives.
                let entry = unsafe { &*at };
                each(&entry.value);
                at = entry.next.load(Relaxed);
            }
        }
    }

    /// Adds an entry for `value` under `cid`.
    pub(crate) fn insert(&self, _writer: &mut Writer, cid: u32, value: Arc<T>) -> Result {
        let head = &self.buckets[bucket(cid, BUCKETS)];
        let entry = KBox::new(
            Entry {
                next: Atomic::new(head.load(Relaxed)),
                cid,
                value,
            },
            GFP_KERNEL,
        )?;
        // INVARIANT: The entry is complete, and the lock is held.
        head.store(KBox::into_raw(entry), Release);
        Ok(())
    }

    /// Takes the entry of `value` under `cid` out, if there is one.
    pub(crate) fn remove(&self, _writer: &mut Writer, cid: u32, value: &T) -> Option<Retired<T>> {
        let mut link = &self.buckets[bucket(cid, BUCKETS)];
        loop {
            let at = link.load(Relaxed);
            if at.is_null() {
                return None;
            }
            // SAFETY: Entries are unlinked under the lock only, which `_writer` shows is held, so
            // what is linked lives.
            let entry = unsafe { &*at };
            if entry.cid == cid && ptr::eq(&*entry.value, value) {
                link.store(entry.next.load(Relaxed), Release);
                // INVARIANT: The entry was just unlinked.
                return Some(Retired(at));
            }
            link = &entry.next;
        }
    }
}
