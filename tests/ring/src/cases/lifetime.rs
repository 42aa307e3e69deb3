// SPDX-License-Identifier: GPL-2.0
//! Devices, processes and sockets that end at the worst moment.

use super::{Case, request_to_nobody};
use crate::vocabulary::device::Answer;
use crate::vocabulary::packet::EOM;
use crate::vocabulary::proc::{wait_readable, wait_until};
use crate::vocabulary::{Context, Device, Driver, Guest, Host, Kind, Op, Plan, patience};
use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Runs before all others, whose sockets it would have to wait for.
pub const FIRST: &[Case] = &[Case::new(
    "lifetime/closed-sockets-and-devices-leak-nothing",
    leaks,
)];

pub const CASES: &[Case] = &[
    Case::new("lifetime/set-owner-against-connect", owner_against_connect),
    Case::new("lifetime/process-killed-while-running", killed),
    Case::new("lifetime/owner-dies-while-another-holds-the-device", owner_dies),
    Case::new("lifetime/owner-killed-while-another-closes", killed_while_closing),
    Case::new("lifetime/bytes-kicked-before-close-arrive", kicked_then_closed)
        .c_races("the sockets are reset before the worker has run what was kicked"),
    Case::new("lifetime/bytes-kicked-before-death-arrive", kicked_then_killed)
        .c_races("the sockets are reset before the worker has run what was kicked"),
    Case::new("lifetime/passes-kicked-before-close-arrive", passes_then_closed)
        .c_races("the sockets are reset before the worker has run what was kicked"),
    Case::new("lifetime/messages-before-close-stay-whole", messages_then_closed)
        .c_differs("reading after the reset loses a message for each error"),
    Case::new("lifetime/ioctls-from-eight-threads", ioctls_at_once),
    Case::new("lifetime/stop-start-close-under-a-flood", flood),
    Case::new("lifetime/connect-and-close-race", connect_and_close),
    Case::new("lifetime/timed-out-connects-while-closing", timeouts_while_closing),
    Case::new("lifetime/requests-against-accept-and-close", accept_and_close),
    Case::new("lifetime/another-guests-new-cid-hides-nobody", rekey_hides_nobody)
        .c_races("a CID is moved between hash chains without a grace period, so a look-up can miss another guest"),
    Case::new("lifetime/the-same-cid-again-is-never-unreachable", same_cid)
        .c_races("setting the CID that a device has takes it out of the table for a moment"),
];

fn owner_against_connect(cx: &mut Context) -> Result<()> {
    let cid = cx.number();
    for round in 0..cx.rounds(30, 20_000) {
        if round % 32 == 0 {
            cx.step(&format!("round {round}"));
        }
        let dev = Device::open()?;
        dev.set_cid(cid)?;
        std::thread::scope(|scope| -> Result<()> {
            let connect = scope.spawn(|| Host::probe(Kind::STREAM, cid, 1));
            dev.set_owner()?;
            let answer = connect.join().expect("a thread");
            ensure!(answer == Err(Errno::EHOSTUNREACH), "connect(): {answer:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Runs `what` in a child that then waits to be killed; returns once it has said that it is ready.
fn victim(what: impl FnOnce() -> Result<()>) -> Result<Pid> {
    let (reader, writer) = pipe()?;
    // SAFETY: The child runs `what` and waits for its end.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let done = what();
            let word = match &done {
                Ok(()) => "ready".to_string(),
                Err(error) => format!("{error:#}"),
            };
            let _ = File::from(writer).write_all(word.as_bytes());
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut word = [0; 200];
            ensure!(
                wait_readable(&reader, patience())?,
                "the child is not ready"
            );
            let len = File::from(reader).read(&mut word)?;
            let word = String::from_utf8_lossy(&word[..len]).into_owned();
            ensure!(word == "ready", "the child failed: {word}");
            Ok(child)
        }
    }
}

fn end(child: Pid) -> Result<()> {
    kill(child, Signal::SIGKILL)?;
    waitpid(child, None)?;
    Ok(())
}

fn killed(cx: &mut Context) -> Result<()> {
    let cid = cx.number();
    for round in 0..cx.rounds(10, 500) {
        cx.step(&format!("round {round}"));
        let child = victim(|| {
            let mut guest = Guest::start(cid, Plan::default())?;
            for port in 0..50 {
                let packet = request_to_nobody(&guest, port);
                guest.send(&packet)?;
            }
            std::mem::forget(guest);
            Ok(())
        })?;
        end(child)?;
        let dev = Device::open()?;
        let free = wait_until(patience(), || Ok(dev.set_cid(cid) == Ok(0)))?;
        ensure!(free, "the CID of a dead process stays taken");
    }
    Ok(())
}

fn owner_dies(cx: &mut Context) -> Result<()> {
    for round in 0..cx.rounds(6, 200) {
        cx.step(&format!("round {round}"));
        let (dev, cid) = (Device::open()?, cx.number());
        let child = victim(|| {
            dev.set_owner()?;
            let owned = Device::from(dev.file().try_clone()?);
            let guest = Guest::furnish(owned, cid, Plan::default())?;
            guest.dev.start()?;
            std::mem::forget(guest);
            Ok(())
        })?;
        let host = Host::connecting(Kind::STREAM, cid, 1)?;
        end(child)?;
        cx.step("the owner is dead, the device still open here");
        let _ = host.try_send(b"into the void");
        ensure!(
            dev.stop() == Err(Errno::EPERM),
            "stopped by a process that is not the owner"
        );
        let more = Host::probe(Kind::STREAM, cid, 2);
        ensure!(
            matches!(more, Ok(()) | Err(Errno::EHOSTUNREACH)),
            "connect(): {more:?}"
        );
        cx.step("closing it");
        drop(dev);
        ensure!(Device::open()?.set_cid(cid) == Ok(0), "the CID stays taken");
    }
    Ok(())
}

fn killed_while_closing(cx: &mut Context) -> Result<()> {
    for round in 0..cx.rounds(12, 500) {
        cx.step(&format!("round {round}"));
        let (dev, cid) = (Device::open()?, cx.number());
        let child = victim(|| {
            dev.set_owner()?;
            let owned = Device::from(dev.file().try_clone()?);
            let guest = Guest::furnish(owned, cid, Plan::default())?;
            guest.dev.start()?;
            std::mem::forget(guest);
            Ok(())
        })?;
        for port in 0..20 {
            Host::probe(Kind::STREAM, cid, port)?;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| kill(child, Signal::SIGKILL));
            drop(dev);
        });
        waitpid(child, None)?;
    }
    Ok(())
}

/// A connected guest in a child, whose host socket is here. The child sends `bytes` last of all.
fn last_words(cx: &mut Context, die: fn(Guest) -> !, bytes: &[u8]) -> Result<Vec<u8>> {
    let cid = cx.number();
    let listener = Host::listener(Kind::STREAM)?;
    // SAFETY: The child only runs the closure's work and dies.
    let child = match unsafe { fork() }? {
        ForkResult::Child => {
            let run = || -> Result<Guest> {
                let mut guest = Guest::start(cid, Plan::default())?;
                let mut flow =
                    crate::vocabulary::Flow::new(Kind::STREAM, 1, listener.local_port()?);
                guest.say(&mut flow, Op::REQUEST)?;
                guest.hear_op(&mut flow, Op::RESPONSE)?;
                guest.say_with(&mut flow, Op::RW, 0, bytes)?;
                Ok(guest)
            };
            match run() {
                Ok(guest) => die(guest),
                // SAFETY: Ending this process at once is what is wanted.
                Err(_) => unsafe { libc::_exit(1) },
            }
        }
        ForkResult::Parent { child } => child,
    };
    let host = listener.accept()?;
    waitpid(child, None)?;
    let mut got = vec![0; bytes.len()];
    let len = host.try_recv(&mut got).unwrap_or(0);
    got.truncate(len);
    Ok(got)
}

fn hears_last_words(cx: &mut Context, die: fn(Guest) -> !) -> Result<()> {
    cx.c_differs_here();
    for round in 0..cx.rounds(25, 1000) {
        cx.step(&format!("round {round}"));
        let bytes = cx.bytes(300);
        let got = last_words(cx, die, &bytes)?;
        ensure!(
            got == bytes,
            "{} of 300 bytes that were kicked arrived in round {round}",
            got.len()
        );
    }
    Ok(())
}

fn kicked_then_closed(cx: &mut Context) -> Result<()> {
    hears_last_words(cx, |guest| {
        drop(guest);
        // SAFETY: Ending this process at once is what is wanted.
        unsafe { libc::_exit(0) }
    })
}

fn kicked_then_killed(cx: &mut Context) -> Result<()> {
    hears_last_words(cx, |guest| {
        let _ = kill(Pid::this(), Signal::SIGKILL);
        std::mem::forget(guest);
        std::process::abort()
    })
}

/// Three times as many packets as one pass takes, kicked at once.
fn passes_then_closed(cx: &mut Context) -> Result<()> {
    const PACKETS: usize = 800;
    const PIECE: usize = 64;
    cx.c_differs_here();
    for round in 0..cx.rounds(8, 300) {
        cx.step(&format!("round {round}"));
        let mut guest = cx.guest(Plan::default().size(1024))?;
        let (mut flow, host) = guest.connect(&Host::listener(Kind::STREAM)?, 1)?;
        let bytes = cx.bytes(PACKETS * PIECE);
        for piece in bytes.chunks(PIECE) {
            guest.hold_with(&mut flow, Op::RW, 0, piece)?;
        }
        guest.tx.flush();
        drop(guest);
        ensure!(
            host.recv_exact(bytes.len())? == bytes,
            "other bytes than were kicked came in round {round}"
        );
    }
    Ok(())
}

fn messages_then_closed(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::SEQPACKET, Plan::default())?;
    let messages: Vec<Vec<u8>> = (1..=5).map(|at| cx.bytes(100 * at)).collect();
    for message in &messages {
        s.guest.say_with(&mut s.flow, Op::RW, EOM, message)?;
    }
    ensure!(
        wait_until(patience(), || s.host.readable())?,
        "no message came"
    );
    s.guest.reap()?;
    drop(s.guest);
    cx.c_differs_here();
    for message in &messages {
        ensure!(
            s.host.recv_message(1000)?.0 == *message,
            "a message was lost or changed"
        );
    }
    s.host.ended()
}

fn ioctls_at_once(cx: &mut Context) -> Result<()> {
    let rounds = cx.rounds(15, 1000);
    for round in 0..rounds {
        cx.step(&format!("round {round}"));
        let mut guest = cx.guest(Plan::default())?;
        let (_flow, host) = guest.accept(Kind::STREAM, 1)?;
        let (dev, features, cid) = (&guest.dev, guest.plan.features, guest.cid);
        let (mut odd, good, table) = (
            guest.rx.addresses(),
            guest.rx.addresses(),
            guest.mem.table(),
        );
        odd.flags = 1;
        odd.log_guest_addr = 0xffff_ffff_ffff_fffc;
        let host = &host;
        let work: Vec<Box<dyn Fn() -> Answer + Sync>> = vec![
            Box::new(move || dev.set_vring_addr(&odd)),
            Box::new(move || dev.set_vring_addr(&good)),
            Box::new(move || dev.set_memory(&table)),
            Box::new(move || dev.stop()),
            Box::new(move || dev.start()),
            Box::new(move || dev.set_features(features)),
            Box::new(move || dev.set_cid(cid)),
            Box::new(move || host.try_send(b"meanwhile").map(|sent| sent as i32)),
        ];
        std::thread::scope(|scope| {
            for call in &work {
                scope.spawn(move || {
                    // Many are refused; none may harm.
                    (0..20).for_each(|_| {
                        let _ = call();
                    })
                });
            }
        });
    }
    Ok(())
}

fn flood(cx: &mut Context) -> Result<()> {
    for round in 0..cx.rounds(8, 300) {
        cx.step(&format!("round {round}"));
        let mut guest = cx.guest(Plan::default().buffers(64, 200))?;
        let (_flow, host) = guest.accept(Kind::STREAM, 1)?;
        let (stop, cid) = (AtomicBool::new(false), guest.cid);
        std::thread::scope(|scope| -> Result<()> {
            let guard = StopOnDrop(&stop);
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _ = host.try_send(&[1; 100]);
                        let _ = Host::probe(Kind::STREAM, cid, 9);
                    }
                });
            }
            for _ in 0..20 {
                guest.dev.stop()?;
                guest.dev.start()?;
            }
            drop(guest);
            drop(guard);
            Ok(())
        })?;
    }
    Ok(())
}

/// Sets a flag when it is dropped, so that threads end on every way out.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn connect_and_close(cx: &mut Context) -> Result<()> {
    let cid = cx.number();
    for round in 0..cx.rounds(20, 5000) {
        if round % 10 == 0 {
            cx.step(&format!("round {round}"));
        }
        let guest = Guest::start(cid, Plan::default())?;
        let answer = std::thread::scope(|scope| {
            let connect = scope.spawn(|| {
                let host = Host::new(Kind::STREAM)?;
                host.try_connect(cid, 1)?;
                Ok::<Host, Errno>(host)
            });
            drop(guest);
            connect.join().expect("a thread")
        });
        match answer {
            Ok(host) => {
                host.set_connect_timeout(1)?;
                drop(host);
            }
            Err(Errno::ENODEV | Errno::EHOSTUNREACH) => {}
            Err(errno) => bail!("connect() against close(): {errno}"),
        }
    }
    Ok(())
}

fn timeouts_while_closing(cx: &mut Context) -> Result<()> {
    for round in 0..cx.rounds(15, 1000) {
        cx.step(&format!("round {round}"));
        let guest = cx.guest(Plan::default().buffers(0, 100))?;
        let hosts: Vec<Host> = (0..16)
            .map(|at| {
                let host = Host::new(Kind::STREAM)?;
                host.set_connect_timeout(4 + at % 8)?;
                host.try_connect(guest.cid, at as u32)?;
                Ok(host)
            })
            .collect::<Result<_>>()?;
        std::thread::sleep(Duration::from_millis(round as u64 % 12));
        drop(guest);
        for host in hosts {
            ensure!(host.outcome()?.is_err(), "connected to a closed guest");
        }
    }
    Ok(())
}

/// How many users the module has: each socket of its counts.
fn users(cx: &Context) -> Result<u64> {
    let name = match cx.driver {
        Driver::C => "vhost_vsock",
        Driver::Rust => "vhost_vsock_rs",
    };
    let text = std::fs::read_to_string(format!("/sys/module/{name}/refcnt"))?;
    text.trim().parse().context("refcnt")
}

fn leaks(cx: &mut Context) -> Result<()> {
    let none_left = |cx: &Context| wait_until(Duration::from_secs(20), || Ok(users(cx)? == 0));
    cx.step("the close timers of earlier sockets run out");
    ensure!(
        none_left(cx)?,
        "{} users of the module are left by others",
        users(cx)?
    );
    let first = cx.session(Kind::STREAM, Plan::default())?;
    let second = cx.session(Kind::SEQPACKET, Plan::default())?;
    let unanswered = cx.guest(Plan::default())?;
    let asking = Host::connecting(Kind::STREAM, unanswered.cid, 1)?;
    ensure!(
        users(cx)? >= 6,
        "three devices and three sockets are {} users of the module",
        users(cx)?
    );
    cx.step("the socket first, then at once the device");
    drop(first.host);
    drop(first.guest);
    cx.step("the device first, then the socket");
    drop(second.guest);
    drop(second.host);
    drop(unanswered);
    drop(asking);
    cx.step("all sockets are gone once the close timers have run");
    ensure!(
        none_left(cx)?,
        "{} users of the module are left",
        users(cx)?
    );
    Ok(())
}

fn accept_and_close(cx: &mut Context) -> Result<()> {
    let mut guest = cx.guest(Plan::default())?;
    let port = 0x6000_0000 + cx.number() as u32;
    let stop = AtomicBool::new(false);
    let rounds = cx.rounds(200, 20_000);
    std::thread::scope(|scope| -> Result<()> {
        let guard = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if let Ok(listener) = Host::listener_at(Kind::STREAM, port, 2) {
                    for _ in 0..3 {
                        drop(listener.try_accept());
                    }
                }
            }
        });
        let mut answered = 0;
        for round in 0..rounds {
            let mut flow = crate::vocabulary::Flow::new(Kind::STREAM, round as u32 + 1, port);
            guest.say(&mut flow, Op::REQUEST)?;
            guest.say_with(&mut flow, Op::RW, 0, b"data at once")?;
            while let Some(packet) = guest.try_recv()? {
                answered += u32::from(matches!(packet.op(), Op::RST | Op::RESPONSE));
            }
        }
        guest.settle()?;
        ensure!(answered > 0, "no REQUEST was answered");
        drop(guard);
        Ok(())
    })?;
    cx.step("a listener that stays still gets its connection");
    let listener = Host::listener_at(Kind::STREAM, port, 8)?;
    let mut flow = crate::vocabulary::Flow::new(Kind::STREAM, 0x5555_0000, port);
    guest.say(&mut flow, Op::REQUEST)?;
    loop {
        let packet = guest.recv()?;
        if flow.owns(&packet) {
            ensure!(
                packet.op() == Op::RESPONSE,
                "expected a RESPONSE: {packet:?}"
            );
            break;
        }
    }
    listener.accept().map(drop)
}

/// Looks a guest up `rounds` times while `disturb` runs.
fn look_up(cid: u64, rounds: usize, disturb: impl Fn(usize) + Sync) -> Result<()> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guard = StopOnDrop(&stop);
        scope.spawn(|| {
            (0..)
                .take_while(|_| !stop.load(Ordering::Relaxed))
                .for_each(&disturb)
        });
        for round in 0..rounds {
            // A device that does not run answers EHOSTUNREACH: it was found.
            let answer = Host::probe(Kind::STREAM, cid, 1);
            ensure!(
                answer == Err(Errno::EHOSTUNREACH),
                "connect() {round}: {answer:?}"
            );
        }
        drop(guard);
        Ok(())
    })
}

/// The hash chain in which a CID lies (`hash_32()` with 8 bits).
fn chain(cid: u64) -> u32 {
    (cid as u32).wrapping_mul(0x61c8_8647) >> 24
}

fn rekey_hides_nobody(cx: &mut Context) -> Result<()> {
    let (target, other) = (Device::open()?, Device::open()?);
    let cid = cx.number();
    target.set_cid(cid)?;
    let near: Vec<u64> = (1_000_000..)
        .filter(|other| chain(*other) == chain(cid))
        .take(8)
        .collect();
    cx.c_differs_here();
    look_up(cid, cx.rounds(4000, 400_000), |round| {
        // Into the target's chain and out of it.
        let next = if round % 2 == 0 {
            near[round / 2 % 8]
        } else {
            2_000_000 + round as u64 % 4096
        };
        let _ = other.set_cid(next);
    })
}

fn same_cid(cx: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    let cid = cx.number();
    dev.set_cid(cid)?;
    cx.c_differs_here();
    look_up(cid, cx.rounds(4000, 400_000), |_| {
        let _ = dev.set_cid(cid);
    })
}
