// SPDX-License-Identifier: GPL-2.0
//! What the system tells about processes, threads and the driver, and waiting with a limit.

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

fn wait_for(fd: &impl AsRawFd, events: PollFlags, limit: Duration) -> Result<bool> {
    let until = Instant::now() + limit;
    // SAFETY: The caller's reference keeps the descriptor open throughout.
    let fd = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let ms = left.as_micros().div_ceil(1000) as u32;
        match poll(&mut [PollFd::new(fd, events)], PollTimeout::try_from(ms)?) {
            Err(Errno::EINTR) => continue,
            ready => return Ok(ready.context("poll()")? > 0),
        }
    }
}

/// Waits until `fd` is readable or has an error; false when it is not in time.
pub fn wait_readable(fd: &impl AsRawFd, limit: Duration) -> Result<bool> {
    wait_for(fd, PollFlags::POLLIN, limit)
}

/// Waits until `fd` is writable or has an error; false when it is not in time.
pub fn wait_writable(fd: &impl AsRawFd, limit: Duration) -> Result<bool> {
    wait_for(fd, PollFlags::POLLOUT, limit)
}

/// Waits until `done` holds, looking again and again; false when it does not in time.
pub fn wait_until(limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let until = Instant::now() + limit;
    while !done()? {
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(true)
}

/// The vhost workers among this process's threads, by thread id.
pub fn workers() -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.starts_with("vhost-") {
            found.extend(
                entry
                    .file_name()
                    .to_str()
                    .and_then(|id| id.parse::<u32>().ok()),
            );
        }
    }
    Ok(found)
}

/// The kernel threads named `name`, by process id.
pub fn kernel_threads(name: &str) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|id| id.parse::<u32>().ok())
        else {
            continue;
        };
        let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Time that thread `tid` of this process has run, in nanoseconds, and how often it was given the processor.
pub fn ran(tid: u32) -> Result<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat"))?;
    let mut fields = text.split_whitespace().map(str::parse::<u64>);
    let time = fields.next().context("schedstat")??;
    let slices = fields.nth(1).context("schedstat")??;
    Ok((time, slices))
}

/// Folder of our driver's counters.
const STATS: &str = "/sys/kernel/debug/vhost_vsock_rs";

/// A counter of our driver for the guest with `cid`, or over all guests.
pub fn counter(cid: Option<u64>, name: &str) -> Result<u64> {
    let path = match cid {
        Some(cid) => format!("{STATS}/{cid}/stats"),
        None => format!("{STATS}/total"),
    };
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name)
        .with_context(|| format!("no {name} in {path}"))?
        .1
        .trim()
        .parse()
        .with_context(|| format!("{name} in {path}"))
}

/// Folder of our driver's parameters.
const PARAMETERS: &str = "/sys/module/vhost_vsock_rs/parameters";

/// A parameter of our driver that is set, and put back when this is dropped.
pub struct Parameter {
    path: String,
    before: String,
}

impl Parameter {
    pub fn exists(name: &str) -> bool {
        std::path::Path::new(PARAMETERS).join(name).exists()
    }

    /// Whether one is set now, to Y or to a number that is not 0; false over another driver.
    pub fn is_on(name: &str) -> bool {
        let path = std::path::Path::new(PARAMETERS).join(name);
        std::fs::read_to_string(path).is_ok_and(|value| !["N", "0"].contains(&value.trim()))
    }

    pub fn set(name: &str, value: &str) -> Result<Self> {
        let path = format!("{PARAMETERS}/{name}");
        let before = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        std::fs::write(&path, value).with_context(|| path.clone())?;
        Ok(Self { path, before })
    }
}

impl Drop for Parameter {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.path, self.before.trim());
    }
}
