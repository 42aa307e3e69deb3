// SPDX-License-Identifier: GPL-2.0
//! A capture of AF_VSOCK packets on a `vsockmon` link of its own.
