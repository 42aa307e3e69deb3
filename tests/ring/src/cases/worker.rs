// SPDX-License-Identifier: GPL-2.0
//! The worker ioctls, and whose child the worker is.

use super::Case;
use crate::vocabulary::abi::*;
use crate::vocabulary::proc::{kernel_threads, wait_until, workers};
use crate::vocabulary::{Context, Device, Guest, Kind, Op, Plan, Session, patience};
use anyhow::{Result, ensure};
use nix::errno::Errno;

const NO_WORKERS: &str = "the worker ioctls are not there (ENOTTY)";

pub const CASES: &[Case] = &[
    Case::new("worker/two-queues-on-two-workers", two_workers).c_differs(NO_WORKERS),
    Case::new("worker/swapped-under-traffic", swapped).c_differs(NO_WORKERS),
    Case::new("worker/errno", errnos).c_differs(NO_WORKERS),
    Case::new("worker/created-and-freed-many-times", many).c_differs(NO_WORKERS),
    Case::new("worker/none-new-in-kthread-mode", kthread_has_none).c_differs(NO_WORKERS),
    Case::new("worker/is-a-thread-of-the-owner-by-default", owner_thread),
    Case::new("worker/is-a-kernel-thread-when-asked", kernel_thread),
    Case::new("worker/follows-the-owners-processors", affinity),
];

impl Device {
    fn new_worker(&self) -> Result<u32, Errno> {
        let mut state = WorkerState::default();
        self.get(VHOST_NEW_WORKER(), &mut state)
            .map(|_| state.worker_id)
    }

    fn free_worker(&self, worker_id: u32) -> Result<i32, Errno> {
        self.put(VHOST_FREE_WORKER(), &WorkerState { worker_id })
    }

    fn attach_worker(&self, index: usize, worker_id: u32) -> Result<i32, Errno> {
        let index = index as u32;
        self.put(
            VHOST_ATTACH_VRING_WORKER(),
            &VringWorker { index, worker_id },
        )
    }

    fn worker_of(&self, index: usize) -> Result<u32, Errno> {
        let mut arg = VringWorker {
            index: index as u32,
            worker_id: u32::MAX,
        };
        self.get(VHOST_GET_VRING_WORKER(), &mut arg)
            .map(|_| arg.worker_id)
    }
}

/// Moves bytes both ways.
fn traffic(cx: &mut Context, s: &mut Session) -> Result<()> {
    let bytes = cx.bytes(3000);
    s.host.send(&bytes)?;
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        let packet = s.guest.hear(&mut s.flow)?;
        ensure!(
            matches!(packet.op(), Op::RW | Op::CREDIT_UPDATE),
            "unexpected: {packet:?}"
        );
        got.extend(packet.payload);
    }
    ensure!(got == bytes, "other bytes came to the guest");
    s.guest.say_with(&mut s.flow, Op::RW, 0, &bytes)?;
    ensure!(
        s.host.recv_exact(bytes.len())? == bytes,
        "other bytes came to the host"
    );
    s.guest.give_credit(&mut s.flow)
}

fn two_workers(cx: &mut Context) -> Result<()> {
    let mut guest = Guest::prepare(cx.number(), Plan::default())?;
    cx.c_differs_here();
    let first = guest.dev.worker_of(RX)?;
    ensure!(
        guest.dev.worker_of(TX)? == first,
        "two workers from the start"
    );
    let second = guest.dev.new_worker()?;
    guest.dev.attach_worker(TX, second)?;
    ensure!(
        guest.dev.worker_of(RX)? == first && guest.dev.worker_of(TX)? == second,
        "not attached"
    );
    ensure!(workers()?.len() == 2, "{} worker threads", workers()?.len());
    guest.dev.start()?;
    let (flow, host) = guest.accept(Kind::STREAM, cx.number() as u32)?;
    let mut s = Session { guest, flow, host };
    for _ in 0..100 {
        traffic(cx, &mut s)?;
    }
    Ok(())
}

fn swapped(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    for round in 0..cx.rounds(40, 2000) {
        cx.step(&format!("swap {round}"));
        let (old, new) = (s.guest.dev.worker_of(round % 2)?, s.guest.dev.new_worker()?);
        // The packet and the swap race.
        let bytes = cx.bytes(500);
        s.host.send(&bytes)?;
        s.guest.say_with(&mut s.flow, Op::RW, 0, &bytes)?;
        s.guest.dev.attach_worker(round % 2, new)?;
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            got.extend(s.guest.hear(&mut s.flow)?.payload);
        }
        ensure!(
            got == bytes && s.host.recv_exact(500)? == bytes,
            "other bytes in swap {round}"
        );
        s.guest.give_credit(&mut s.flow)?;
        if s.guest.dev.worker_of(1 - round % 2)? != old {
            s.guest.dev.free_worker(old)?;
        }
    }
    Ok(())
}

fn errnos(cx: &mut Context) -> Result<()> {
    let bare = Device::open()?;
    cx.c_differs_here();
    ensure!(
        bare.new_worker() == Err(Errno::EINVAL),
        "without an owner: {:?}",
        bare.new_worker()
    );
    let guest = cx.guest(Plan::default())?;
    let dev = &guest.dev;
    let first = dev.worker_of(RX)?;
    ensure!(dev.free_worker(first) == Err(Errno::EBUSY), "freed in use");
    ensure!(
        dev.free_worker(777) == Err(Errno::ENODEV),
        "freed what is not"
    );
    ensure!(
        dev.attach_worker(RX, 777) == Err(Errno::ENODEV),
        "attached what is not"
    );
    ensure!(
        dev.attach_worker(2, first) == Err(Errno::ENOBUFS),
        "attached to queue 2"
    );
    ensure!(
        dev.worker_of(2) == Err(Errno::ENOBUFS),
        "the worker of queue 2"
    );
    ensure!(
        dev.raw(VHOST_NEW_WORKER(), 1) == Err(Errno::EFAULT),
        "a bad pointer"
    );
    ensure!(
        dev.raw(VHOST_GET_VRING_WORKER(), 1) == Err(Errno::EFAULT),
        "a bad pointer"
    );
    let status = super::in_child(|| {
        ensure!(guest.dev.new_worker() == Err(Errno::EPERM));
        Ok(())
    })?;
    ensure!(status == 0, "another process may create workers");
    Ok(())
}

fn many(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    for _ in 0..cx.rounds(20, 1000) {
        let fresh: Vec<u32> = (0..4)
            .map(|_| s.guest.dev.new_worker())
            .collect::<Result<_, _>>()?;
        for worker in fresh {
            s.guest.dev.free_worker(worker)?;
        }
        traffic(cx, &mut s)?;
    }
    for _ in 0..8 {
        s.guest.dev.new_worker()?;
    }
    cx.step("closing with unused workers");
    drop(s.guest);
    workers_are_gone()
}

/// No worker outlives the device. The core waits until it has said that it ends; its thread goes a little later.
fn workers_are_gone() -> Result<()> {
    let gone = wait_until(patience(), || Ok(workers()?.is_empty()))?;
    ensure!(gone, "workers outlive the device");
    Ok(())
}

fn kthread_has_none(cx: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    dev.put(VHOST_SET_FORK_FROM_OWNER(), &0u8)?;
    dev.set_owner()?;
    cx.c_differs_here();
    let answer = dev.new_worker();
    ensure!(
        answer == Err(Errno::EFAULT),
        "a new worker in kernel thread mode: {answer:?}"
    );
    Ok(())
}

fn owned(cx: &mut Context, mode: u8) -> Result<Guest> {
    let dev = Device::open()?;
    let mut seen = 9u8;
    dev.get(VHOST_GET_FORK_FROM_OWNER(), &mut seen)?;
    ensure!(seen == 1, "the default mode is {seen}");
    let wrong = dev.put(VHOST_SET_FORK_FROM_OWNER(), &2u8);
    ensure!(wrong == Err(Errno::EINVAL), "mode 2: {wrong:?}");
    dev.put(VHOST_SET_FORK_FROM_OWNER(), &mode)?;
    dev.get(VHOST_GET_FORK_FROM_OWNER(), &mut seen)?;
    ensure!(seen == mode, "the mode is {seen}");
    dev.set_owner()?;
    let guest = Guest::furnish(dev, cx.number(), Plan::default())?;
    guest.dev.start()?;
    Ok(guest)
}

fn owner_thread(cx: &mut Context) -> Result<()> {
    let mut guest = owned(cx, 1)?;
    ensure!(
        workers()?.len() == 1,
        "{} workers among this process's threads",
        workers()?.len()
    );
    guest.accept(Kind::STREAM, cx.number() as u32)?;
    drop(guest);
    workers_are_gone()
}

fn kernel_thread(cx: &mut Context) -> Result<()> {
    let mut guest = owned(cx, 0)?;
    ensure!(
        workers()?.is_empty(),
        "a worker among this process's threads"
    );
    let found = kernel_threads(&format!("vhost-{}", std::process::id()))?;
    ensure!(
        found.len() == 1,
        "{} kernel threads of that name",
        found.len()
    );
    let group = |pid: String| std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
    let (theirs, ours) = (group(found[0].to_string())?, group("self".into())?);
    ensure!(
        theirs == ours,
        "the worker is in {theirs}, its owner in {ours}"
    );
    guest.accept(Kind::STREAM, cx.number() as u32).map(drop)
}

fn affinity(cx: &mut Context) -> Result<()> {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;
    let mut one = CpuSet::new();
    one.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &one)?;
    let guest = owned(cx, 1)?;
    let worker = workers()?[0];
    let seen = sched_getaffinity(Pid::from_raw(worker as i32))?;
    ensure!(seen == one, "the worker may run elsewhere");
    drop(guest);
    Ok(())
}
