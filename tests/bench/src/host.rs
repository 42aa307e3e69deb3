// SPDX-License-Identifier: GPL-2.0

//! What the host's kernel tells about a guest's QEMU, its vhost worker and the driver.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Counters of our driver over all guests; absent with the C driver.
const DRIVER_COUNTERS: &str = "/sys/kernel/debug/vhost_vsock_rs/total";

/// Thread id of the vhost worker of process `pid`.
pub(crate) fn worker_of(pid: u32) -> Result<u32> {
    let worker = workers_of(pid)?.first().copied();
    worker.with_context(|| format!("process {pid} has no vhost worker"))
}

/// Thread ids of the vhost workers of process `pid`.
pub(crate) fn workers_of(pid: u32) -> Result<Vec<u32>> {
    let mut workers = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).context("/proc")? {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.starts_with("vhost-") {
            let tid = entry.file_name();
            let tid = tid.to_str().and_then(|tid| tid.parse().ok());
            workers.push(tid.context("tid")?);
        }
    }
    Ok(workers)
}

/// Time that a thread has run, in nanoseconds.
pub(crate) fn run_time(tid: u32) -> Result<u64> {
    let path = format!("/proc/{tid}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let time = text.split_whitespace().next().context("schedstat")?;
    time.parse().context("schedstat")
}

/// Kicks that the guest of QEMU's process `pid` has given to vhost queues.
///
/// KVM adds each kick to the count of the queue's eventfd. Vhost is woken by that and reads no eventfd, so the count
/// stays; all other eventfds of QEMU are read, and are back at 0.
pub(crate) fn kicks(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).context("/proc")? {
        // A file that was closed in between is none of the queues'.
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        sum += eventfd_count(&text).unwrap_or(0);
    }
    Ok(sum)
}

fn eventfd_count(fdinfo: &str) -> Option<u64> {
    let line = fdinfo
        .lines()
        .find_map(|line| line.strip_prefix("eventfd-count:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Our driver's counters; none with the C driver.
pub(crate) fn driver_counters() -> Result<BTreeMap<String, u64>> {
    if !Path::new(DRIVER_COUNTERS).exists() {
        return Ok(BTreeMap::new());
    }
    let text = fs::read_to_string(DRIVER_COUNTERS).context(DRIVER_COUNTERS)?;
    text.lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').context("a line without a value")?;
            Ok((name.to_owned(), value.trim().parse()?))
        })
        .collect::<Result<_>>()
        .context(DRIVER_COUNTERS)
}

#[cfg(test)]
mod tests {
    use super::eventfd_count;

    #[test]
    fn counts_are_hexadecimal() {
        let text = "pos:\t0\nflags:\t04002\neventfd-count:               1f\neventfd-id: 3\n";
        assert_eq!(eventfd_count(text), Some(31));
        assert_eq!(eventfd_count("pos:\t0\n"), None);
    }
}
