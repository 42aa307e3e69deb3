// SPDX-License-Identifier: GPL-2.0

//! Who runs first on the one processor.

use std::io;

use anyhow::{Result, ensure};

/// How urgent a thread is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Urgency {
    /// Before everything else: what it does between two waits, the worker sees at once.
    First,
    /// As all threads.
    Usual,
    /// When nothing else can run: it never takes the processor from the worker.
    Last,
}

/// Sets the calling thread's urgency.
pub(crate) fn set(urgency: Urgency) -> Result<()> {
    let (policy, priority) = match urgency {
        Urgency::First => (libc::SCHED_FIFO, 10),
        Urgency::Usual => (libc::SCHED_OTHER, 0),
        Urgency::Last => (libc::SCHED_IDLE, 0),
    };
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `param` is valid for the call.
    let status = unsafe { libc::sched_setscheduler(0, policy, &param) };
    ensure!(
        status == 0,
        "sched_setscheduler: {}",
        io::Error::last_os_error()
    );
    Ok(())
}
