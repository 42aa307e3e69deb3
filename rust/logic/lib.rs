// SPDX-License-Identifier: GPL-2.0

//! The arithmetic and the decisions of the driver.
//!
//! Nothing here knows a kernel type: the same files are a module of the kernel crate and a crate
//! of their own, which is tested on any machine with `cargo test`.

pub mod buffer;
pub mod busy_poll;
pub mod cid;
pub mod features;
pub mod header;
pub mod lanes;
pub mod linger;
pub mod run;
pub mod used;
