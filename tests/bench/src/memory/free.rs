// SPDX-License-Identifier: GPL-2.0

//! How much of the machine's memory is free.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

const PAGE: u64 = 4096;
/// Time in which the kernel frees what it does not need any more.
const REST: Duration = Duration::from_millis(200);

/// Bytes of free memory when all is at rest: pages that nobody has, those that a processor keeps for the next who asks
/// included. Free objects are given back before, as far as their pages have no other.
pub(super) fn free() -> Result<u64> {
    thread::sleep(REST);
    for cache in fs::read_dir("/sys/kernel/slab").context("/sys/kernel/slab")? {
        let cache = cache?;
        // Links are other names of the same.
        if cache.file_type()?.is_dir() {
            fs::write(cache.path().join("shrink"), "1").context("shrink")?;
        }
    }
    let text = fs::read_to_string("/proc/zoneinfo").context("/proc/zoneinfo")?;
    Ok(PAGE * free_pages(&text))
}

fn free_pages(zoneinfo: &str) -> u64 {
    let words = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.next()?.parse::<u64>().ok()?))
    };
    zoneinfo
        .lines()
        .filter_map(words)
        .filter(|(name, _)| name == "nr_free_pages" || name == "count:")
        .map(|(_, pages)| pages)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::free_pages;

    #[test]
    fn pages_of_processors_are_free() {
        let text = "Node 0, zone    DMA32\n  pages free     10\n      nr_free_pages 10\n  pagesets\n    cpu: 0\n              count:    3\n              high:     8\n";
        assert_eq!(free_pages(text), 13);
    }
}
