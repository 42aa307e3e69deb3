// SPDX-License-Identifier: GPL-2.0

//! One line of `name=value` pairs for each result, for people and scripts alike.

use std::fmt::Display;

/// A line being put together.
pub(crate) struct Line(String);

impl Line {
    /// A line about `what`.
    pub(crate) fn new(what: &str) -> Self {
        Self(what.to_owned())
    }

    /// Adds a pair. Values hold no blanks.
    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        self.0.push_str(&format!(" {name}={value}"));
        self
    }

    /// Prints the line.
    pub(crate) fn print(&self) {
        println!("{}", self.0);
    }
}

/// Gbit/s of `bytes` moved in `seconds`.
pub(crate) fn gbit_per_second(bytes: u64, seconds: f64) -> String {
    format!("{:.4}", bytes as f64 * 8.0 / seconds / 1e9)
}
