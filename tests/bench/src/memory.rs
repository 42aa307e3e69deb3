// SPDX-License-Identifier: GPL-2.0

//! What memory the kernel holds for guests, connections and packets that wait: how much less of it is free with many of
//! them, on a machine where nothing else runs.

mod free;

use std::io::Write;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sys::resource::{Resource, setrlimit};
use socket2::Socket;

use crate::record::{Held, Thing};
use crate::vmfree::guest::{self, Guest};
use crate::vmfree::{CID, WIDE, socket};
use free::free;

/// Devices that are opened.
const DEVICES: u32 = 64;
/// Connections that are made.
const CONNECTIONS: u32 = 4096;
/// Payload that waits, at most.
const PAYLOAD: u32 = 32 << 20;
/// Packets that wait, at most.
const PACKETS: u32 = 8 << 10;
/// Open files that all of this needs.
const FILES: u64 = 16 << 10;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Name of the driver and of its settings in the results
    #[arg(long)]
    mode: String,
    /// Bytes of a packet
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,64,256,1024,4096,65536"
    )]
    sizes: Vec<u32>,
    /// Times that each is measured
    #[arg(long, default_value_t = 2)]
    rounds: u32,
}

/// Measures over the driver that is loaded, and prints a line of JSON for each round.
pub(crate) fn run(options: &Options) -> Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, FILES, FILES).context("open files")?;
    // The first time of everything leaves more behind than its own.
    devices()?;
    connections()?;
    queued(256)?;
    for _ in 0..options.rounds {
        let mut held = devices()?;
        held.push(connections()?);
        for &size in &options.sizes {
            held.push(queued(size)?);
        }
        for one in held {
            let mode = options.mode.clone();
            println!("{}", serde_json::to_string(&Held { mode, ..one })?);
        }
    }
    Ok(())
}

fn held(thing: Thing, count: u32, bytes: u64) -> Held {
    Held {
        mode: String::new(),
        thing,
        payload: 0,
        count,
        bytes,
        charged: None,
    }
}

fn devices() -> Result<Vec<Held>> {
    let memory = guest::new_memory()?;
    let at_first = free()?;
    let devices = (0..DEVICES)
        .map(|_| guest::open(&memory))
        .collect::<Result<Vec<_>>>()?;
    let opened = free()?;
    let rings = devices
        .iter()
        .zip(CID..)
        .map(|(device, cid)| guest::start(device, &memory, cid))
        .collect::<Result<Vec<_>>>()?;
    let started = free()?;
    drop(devices);
    drop(rings);
    Ok(vec![
        held(Thing::OpenDevice, DEVICES, at_first.saturating_sub(opened)),
        held(
            Thing::StartedDevice,
            DEVICES,
            at_first.saturating_sub(started),
        ),
    ])
}

/// A guest whose interrupt handler runs.
struct Running {
    guest: Arc<Guest>,
    handler: JoinHandle<Result<()>>,
}

impl Running {
    fn start() -> Result<Self> {
        let guest = Arc::new(Guest::start(CID, WIDE)?);
        let running = guest.clone();
        let handler = thread::spawn(move || running.run());
        Ok(Self { guest, handler })
    }

    fn connect(&self) -> Result<Socket> {
        let socket = socket::new(WIDE)?;
        socket::connect(&socket, CID)?;
        Ok(socket)
    }

    /// The guest from here on takes nothing, though the device is there.
    fn fall_asleep(self) -> Result<Arc<Guest>> {
        self.guest.stop()?;
        let ended = self.handler.join();
        ended.map_err(|_| anyhow!("the guest panicked"))??;
        Ok(self.guest)
    }
}

fn connections() -> Result<Held> {
    let running = Running::start()?;
    let mut sockets = Vec::with_capacity(CONNECTIONS as usize);
    let before = free()?;
    for _ in 0..CONNECTIONS {
        sockets.push(running.connect()?);
    }
    let after = free()?;
    // The guest goes first: no socket waits for its answer then.
    drop(running.fall_asleep()?);
    Ok(held(
        Thing::Connection,
        CONNECTIONS,
        before.saturating_sub(after),
    ))
}

fn queued(size: u32) -> Result<Held> {
    let running = Running::start()?;
    let mut socket = running.connect()?;
    let guest = running.fall_asleep()?;
    let large = vec![0x5a; 64 << 10];
    while !guest.is_starved() {
        socket.write_all(&large).context("send")?;
        thread::sleep(Duration::from_millis(1));
    }
    let data = vec![0x5a; size as usize];
    let count = PACKETS.min(PAYLOAD / size);
    let (before, charged_before) = (free()?, socket::charged(&socket)?);
    for _ in 0..count {
        socket.write_all(&data).context("send")?;
    }
    let (after, charged_after) = (free()?, socket::charged(&socket)?);
    drop(guest);
    Ok(Held {
        payload: size,
        charged: Some(charged_after - charged_before),
        ..held(Thing::QueuedPacket, count, before.saturating_sub(after))
    })
}
