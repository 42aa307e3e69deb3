// SPDX-License-Identifier: GPL-2.0
//! What only our driver has: parameters, counters, busy polling, flows that take turns.

use super::Case;
use crate::vocabulary::abi::{RX, TX, VHOST_SET_VRING_BUSYLOOP_TIMEOUT, feature};
use crate::vocabulary::device::state;
use crate::vocabulary::proc::{Parameter, counter, wait_until};
use crate::vocabulary::{Context, Kind, Op, Plan, patience};
use anyhow::{Context as _, Result, ensure};

pub(super) const NO_PARAMETERS: &str = "it has no such module parameters";

pub const CASES: &[Case] = &[
    Case::new("ours/without-batching", |cx| {
        in_mode(cx, &[("rx_batch", "N"), ("tx_batch", "N")])
    })
    .c_differs(NO_PARAMETERS),
    Case::new("ours/without-coalescing", |cx| {
        in_mode(cx, &[("rx_coalesce", "N"), ("tx_coalesce", "N")])
    })
    .c_differs(NO_PARAMETERS),
    Case::new("ours/with-busy-polling", |cx| {
        in_mode(cx, &[("busyloop_us", "200")])
    })
    .c_differs(NO_PARAMETERS),
    Case::new("ours/without-lingering", |cx| {
        in_mode(cx, &[("rx_linger_us", "0"), ("tx_linger_us", "0")])
    })
    .c_differs(NO_PARAMETERS),
    Case::new("ours/parameters-changed-under-traffic", changing).c_differs(NO_PARAMETERS),
    Case::new("ours/in-order-is-offered-when-asked", in_order_offer).c_differs(NO_PARAMETERS),
    Case::new("ours/busy-loop-timeout-saves-kicks", busy_loop)
        .c_differs("VHOST_SET_VRING_BUSYLOOP_TIMEOUT is stored and ignored"),
    Case::new("ours/counters-agree-with-the-traffic", counters).c_differs("it has no counters"),
    Case::new("ours/a-busy-flow-does-not-delay-another", fairness)
        .c_differs("all packets to a guest wait in one queue"),
    Case::new("ours/out-of-memory-loses-no-byte", out_of_memory)
        .c_differs("a packet for which there is no memory is dropped, and its descriptor lost"),
];

/// Runs the model and the shapes, shortened, with parameters set.
fn in_mode(cx: &mut Context, parameters: &[(&'static str, &str)]) -> Result<()> {
    cx.c_differs_here();
    let _set: Vec<Parameter> = parameters
        .iter()
        .map(|(name, value)| Parameter::set(name, value))
        .collect::<Result<_>>()?;
    super::model::one_round(cx, feature::USUAL, 16)?;
    super::model::one_round(cx, feature::SEQPACKET, 3)?;
    super::shapes::a_few(cx)
}

fn changing(cx: &mut Context) -> Result<()> {
    cx.c_differs_here();
    for round in 0..cx.rounds(6, 100) {
        let value = if round % 2 == 0 { "N" } else { "Y" };
        let _set = Parameter::set(["rx_batch", "tx_coalesce", "rx_coalesce"][round % 3], value)?;
        super::model::some_steps(cx, 150)?;
    }
    Ok(())
}

fn in_order_offer(cx: &mut Context) -> Result<()> {
    cx.c_differs_here();
    let _set = Parameter::set("offer_in_order", "Y")?;
    let seen = crate::vocabulary::Device::open()?.features()?;
    ensure!(
        seen == feature::OF_C | feature::IN_ORDER,
        "features {seen:#x}"
    );
    Ok(())
}

fn busy_loop(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    for queue in [RX, TX] {
        s.guest
            .dev
            .put(VHOST_SET_VRING_BUSYLOOP_TIMEOUT(), &state(queue, 10_000))?;
    }
    s.guest.drain()?;
    let before = s.guest.tx.kicks;
    for _ in 0..100 {
        // These bring no packet back, which would give the worker other work.
        s.guest.say(&mut s.flow, Op::CREDIT_UPDATE)?;
        let next = s.guest.tx.avail_next();
        let taken = wait_until(patience(), || Ok(s.guest.tx.used_idx() == next))?;
        ensure!(taken, "a packet was not taken");
    }
    let kicks = s.guest.tx.kicks - before;
    ensure!(
        kicks <= 50,
        "{kicks} kicks for 100 packets although TX is polled"
    );
    cx.note(&format!("{kicks} kicks for 100 packets"));
    Ok(())
}

fn counters(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default().buffers(1, 4096))?;
    s.guest.plan.buffers = 0;
    cx.c_differs_here();
    let cid = s.guest.cid;
    let of = |name: &str| counter(Some(cid), name);
    let names = [
        "rx_bytes",
        "rx_packets",
        "rx_buffers",
        "tx_bytes",
        "tx_packets",
        "tx_deliveries",
    ];
    let read = || {
        names
            .iter()
            .map(|name| of(name))
            .collect::<Result<Vec<u64>>>()
    };
    // A pass that polls accounts for what it took when the poll is over.
    let mut before = read()?;
    let settled = wait_until(patience(), || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let last = std::mem::replace(&mut before, read()?);
        Ok(last == before)
    })?;
    ensure!(settled, "{names:?} go on growing without traffic");
    s.host.send(b"takes the buffer")?;
    let taken = wait_until(patience(), || {
        Ok(s.guest.rx.used_idx() != s.guest.rx.used_next())
    })?;
    ensure!(taken, "the first packet did not come");
    for _ in 0..100 {
        s.host.send(&[7; 64])?;
    }
    ensure!(
        wait_until(patience(), || Ok(
            counter(Some(s.guest.cid), "send_queue")? == 100
        ))?,
        "100 packets do not wait"
    );
    s.guest.plan.buffers = 32;
    s.guest.refill()?;
    let (mut bytes, mut buffers) = (0, 0);
    while bytes < 6416 {
        bytes += s.guest.hear_op(&mut s.flow, Op::RW)?.payload.len();
        buffers += 1;
    }
    for _ in 0..50 {
        s.guest.say_with(&mut s.flow, Op::RW, 0, &[8; 100])?;
    }
    ensure!(s.host.recv_exact(5000)?.len() == 5000);
    // The host may still be giving credit.
    let empty = wait_until(patience(), || {
        s.guest.drain()?;
        Ok(counter(Some(s.guest.cid), "send_queue")? == 0)
    })?;
    ensure!(empty, "packets wait after all came");
    s.guest.dev.stop()?;
    // A pass accounts for itself when it has let go of the queue.
    wait_until(patience(), || {
        Ok(of("rx_bytes")? - before[0] == 6416 && of("tx_bytes")? - before[3] == 5000)
    })?;
    let after: Vec<u64> = names.iter().map(|name| of(name)).collect::<Result<_>>()?;
    let grown: Vec<u64> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after - before)
        .collect();
    ensure!(
        grown[0] == 6416 && grown[1] >= 101 && grown[2] >= buffers,
        "{names:?} grew by {grown:?}"
    );
    ensure!(
        (buffers < 101) == Parameter::is_on("rx_coalesce"),
        "{buffers} buffers for 101 packets that waited, rx_coalesce {}",
        Parameter::is_on("rx_coalesce")
    );
    let join = Parameter::is_on("tx_coalesce");
    ensure!(
        grown[3] == 5000 && grown[4] == 50 && (grown[5] == 50 || join && grown[5] < 50),
        "{names:?} grew by {grown:?}, tx_coalesce {join}"
    );
    for side in ["rx", "tx"] {
        let of = |name: &str| counter(Some(s.guest.cid), &format!("{side}_{name}"));
        // Before a pass polls, it signals what it has done so far.
        ensure!(
            of("signals")? <= of("passes")? || Parameter::is_on("busyloop_us"),
            "{side}: more signals than passes"
        );
        ensure!(
            of("signals")? <= of("publishes")?,
            "{side}: more signals than publications"
        );
        ensure!(
            of("publishes")? <= of("buffers")?,
            "{side}: more publications than buffers"
        );
        if !Parameter::is_on(&format!("{side}_batch")) {
            // A pass adds to one counter after the other.
            let alone = wait_until(patience(), || Ok(of("publishes")? == of("buffers")?))?;
            ensure!(
                alone,
                "{side}: several buffers in a publication without batching"
            );
        }
    }
    ensure!(
        counter(None, "rx_bytes")? >= 6416,
        "the total is less than one guest's"
    );
    cx.note(&format!("{buffers} buffers for 101 packets"));
    cx.no_reply_is_counted(&s.guest)
}

fn fairness(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    let mut quiet = Vec::new();
    for _ in 0..8 {
        quiet.push(s.guest.accept(Kind::STREAM, cx.number() as u32)?);
    }
    s.guest.drain()?;
    s.guest.plan.buffers = 0;
    while s.guest.rx.in_flight() > 0 {
        s.host.send(b"x")?;
        s.guest.hear_op(&mut s.flow, Op::RW)?;
    }
    s.guest.give_all_credit(&mut s.flow)?;
    cx.step("one flow has 60 packets waiting, then eight others have one each");
    for _ in 0..60 {
        s.host.send(&[1; 4000])?;
    }
    for (_, host) in &quiet {
        host.send(b"quiet")?;
    }
    cx.c_differs_here();
    s.guest.plan.buffers = 16;
    s.guest.refill()?;
    let (mut early, mut busy) = (0, 0);
    while busy < 60 * 4000 {
        let packet = s.guest.recv()?;
        if s.flow.owns(&packet) {
            busy += packet.payload.len();
        } else if busy < 30 * 4000 {
            early += 1;
        }
    }
    // Flows are spread over lanes by a hash: one or two may share the busy one's.
    ensure!(
        early >= 5,
        "{early} of 8 quiet flows were served before half of the busy one"
    );
    Ok(())
}

fn out_of_memory(cx: &mut Context) -> Result<()> {
    let mut s = cx.session(Kind::STREAM, Plan::default())?;
    cx.c_differs_here();
    if cx.driver == crate::vocabulary::Driver::Rust && !Parameter::exists("fail_alloc_nth") {
        cx.skip("the module is built without fault injection (FAULTS=1)");
        return Ok(());
    }
    let _set = Parameter::set("fail_alloc_nth", "3").context("fault injection")?;
    let bytes = cx.bytes(200_000);
    let mut received = Vec::new();
    for part in bytes.chunks(1000) {
        while s.flow.credit() < part.len() {
            received.extend(s.host.recv_exact(received_now(&s, &received))?);
            s.guest.hear_op(&mut s.flow, Op::CREDIT_UPDATE)?;
        }
        s.guest.say_with(&mut s.flow, Op::RW, 0, part)?;
    }
    received.extend(s.host.recv_exact(bytes.len() - received.len())?);
    ensure!(received == bytes, "other bytes than were sent");
    s.guest.drain()?;
    let retries = counter(Some(s.guest.cid), "tx_retries")?;
    ensure!(retries > 0, "no allocation failed");
    cx.note(&format!("{retries} passes ended for want of memory"));
    Ok(())
}

/// Bytes that the guest has sent and the host has not read.
fn received_now(s: &crate::vocabulary::Session, received: &[u8]) -> usize {
    s.flow.sent as usize - received.len()
}
