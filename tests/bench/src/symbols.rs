// SPDX-License-Identifier: GPL-2.0

//! Addresses of kernel functions, those of modules included.

use std::collections::HashMap;
use std::fs;

use anyhow::{Context, Result};

/// `/proc/kallsyms`.
pub(crate) struct Symbols(HashMap<String, u64>);

impl Symbols {
    /// Reads the running kernel's symbols.
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
        Ok(Self(text.lines().filter_map(symbol).collect()))
    }

    /// The address of a function; `None` if there is none of that name, or addresses are hidden.
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied().filter(|&address| address != 0)
    }
}

/// A line "address type name [module]".
fn symbol(line: &str) -> Option<(String, u64)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let name = words.nth(1)?;
    Some((name.to_owned(), address))
}

#[cfg(test)]
mod tests {
    use super::symbol;

    #[test]
    fn lines_of_the_kernel_and_of_modules() {
        let kernel = symbol("ffffffff81000040 T __switch_to_asm");
        assert_eq!(
            kernel,
            Some(("__switch_to_asm".into(), 0xffff_ffff_8100_0040))
        );
        let module = symbol("ffffffffc0203000 t vhost_poll_wakeup\t[vhost]");
        assert_eq!(
            module,
            Some(("vhost_poll_wakeup".into(), 0xffff_ffff_c020_3000))
        );
        assert_eq!(symbol("nothing"), None);
    }
}
