// SPDX-License-Identifier: GPL-2.0

//! Addresses of kernel functions, those of modules included.

use std::fs;

use anyhow::{Context, Result};

/// The kernel's functions, ordered by address.
pub(crate) struct Symbols(Vec<(u64, String)>);

impl Symbols {
    /// Reads the running kernel's symbols.
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
        let mut symbols: Vec<_> = text.lines().filter_map(symbol).collect();
        symbols.sort();
        Ok(Self(symbols))
    }

    /// The address of a function; `None` if there is none of that name, or addresses are hidden.
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        let (address, _) = self.0.iter().find(|(_, known)| known == name)?;
        (*address != 0).then_some(*address)
    }

    /// The function that an address is in.
    pub(crate) fn name(&self, address: u64) -> &str {
        let next = self.0.partition_point(|(start, _)| *start <= address);
        match next.checked_sub(1) {
            Some(at) => &self.0[at].1,
            None => "user space",
        }
    }
}

/// A line `address type name [module]` of a function.
fn symbol(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    if !"tTwW".contains(words.next()?) {
        return None;
    }
    Some((address, words.next()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{Symbols, symbol};

    #[test]
    fn lines_of_the_kernel_and_of_modules() {
        let kernel = symbol("ffffffff81000040 T __switch_to_asm");
        assert_eq!(
            kernel,
            Some((0xffff_ffff_8100_0040, "__switch_to_asm".into()))
        );
        let module = symbol("ffffffffc0203000 t vhost_poll_wakeup\t[vhost]");
        assert_eq!(
            module,
            Some((0xffff_ffff_c020_3000, "vhost_poll_wakeup".into()))
        );
        assert_eq!(symbol("ffffffff82000000 D jiffies"), None);
        assert_eq!(symbol("nothing"), None);
    }

    #[test]
    fn a_function_reaches_to_the_next() {
        let symbols = Symbols(vec![(0x100, "a".into()), (0x200, "b".into())]);
        assert_eq!(symbols.name(0xff), "user space");
        assert_eq!(symbols.name(0x1ff), "a");
        assert_eq!(symbols.name(0x200), "b");
    }
}
