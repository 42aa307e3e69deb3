// SPDX-License-Identifier: GPL-2.0

//! vhost-vsock: the host side of virtio-vsock.
//!
//! Four layers, each of which knows only those above it:
//!
//! - [`logic`]: arithmetic and decisions, which also build and are tested outside the kernel;
//! - [`abstractions`]: safe faces of the C vhost and vsock cores, and the only part with `unsafe`;
//! - [`driver`]: one open file is one guest; the transport, the RX pass and the TX pass;
//! - this file: registration.

mod abstractions;
#[doc(hidden)]
mod bindings;
mod driver;
// Its items are public, since the same files are a crate of their own outside the kernel.
#[allow(unreachable_pub)]
#[path = "logic/lib.rs"]
mod logic;

use kernel::prelude::*;

use crate::{
    abstractions::{
        debug_dir::DebugRoot,
        misc::MiscRegistration,
        vsock::TransportRegistration, //
    },
    driver::{
        Guest,
        TotalStats,
        VhostTransport, //
    },
};

module! {
    type: VhostVsock,
    name: "vhost_vsock_rs",
    authors: ["vhost-vsock-rs maintainers"],
    description: "vhost transport for vsock, in Rust",
    license: "GPL v2",
    alias: ["char-major-10-241", "devname:vhost-vsock"],
}

/// What is registered while the module is loaded, in the order in which it is undone.
#[pin_data]
struct VhostVsock {
    #[pin]
    misc: MiscRegistration<Guest>,
    transport: TransportRegistration<VhostTransport>,
    total: Option<TotalStats>,
    debug_root: DebugRoot,
}

impl kernel::InPlaceModule for VhostVsock {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            debug_root: DebugRoot::create(c"vhost_vsock_rs")?,
            total: TotalStats::show_in(debug_root),
            transport: TransportRegistration::register(module).inspect_err(|_| {
                pr_err!("a host-to-guest vsock transport is registered already; unload vhost_vsock first\n");
            })?,
            misc <- MiscRegistration::register(module),
        })
    }
}
