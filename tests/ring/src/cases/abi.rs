// SPDX-License-Identifier: GPL-2.0
//! The ioctls: errno for every order, reserved and taken CIDs, reads and writes without an IOTLB.

use super::Case;
use crate::vocabulary::abi::*;
use crate::vocabulary::device::{Answer, Region, event, state};
use crate::vocabulary::proc::Parameter;
use crate::vocabulary::{Context, Device, Driver, Guest, Plan};
use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno::{self, *};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::raw::c_ulong;
use vmm_sys_util::eventfd::EventFd;

pub const CASES: &[Case] = &[
    Case::new("abi/offers-the-features-of-c", features),
    Case::new("abi/refuses-unknown-features", unknown_features),
    Case::new("abi/backend-features", backend_features),
    Case::new("abi/errno-without-owner", without_owner),
    Case::new("abi/errno-with-owner", with_owner),
    Case::new("abi/errno-while-running", while_running),
    Case::new("abi/errno-for-bad-pointers", bad_pointers),
    Case::new("abi/vring-numbers", vring_numbers),
    Case::new("abi/vring-addresses", vring_addresses),
    Case::new("abi/vring-eventfds", vring_eventfds),
    Case::new("abi/vring-base-counts-what-was-taken", vring_base),
    Case::new("abi/cids-reserved-and-taken", cids),
    Case::new("abi/cid-without-owner", cid_without_owner),
    Case::new("abi/log-base", log_base),
    Case::new("abi/memory-table", memory_table),
    Case::new("abi/reads-and-writes-without-iotlb", reads_and_writes),
    Case::new("abi/another-process-is-not-the-owner", other_process),
    Case::new("abi/each-ioctl-then-close", each_then_close),
    Case::new("abi/unknown-ioctls", unknown_ioctls),
];

/// Asserts what one call answers.
fn expect<T: std::fmt::Debug + PartialEq>(
    what: &str,
    seen: Result<T, Errno>,
    want: Result<T, Errno>,
) -> Result<()> {
    ensure!(seen == want, "{what}: {seen:?}, expected {want:?}");
    Ok(())
}

fn features(_: &mut Context) -> Result<()> {
    let seen = Device::open()?.features()?;
    // By default ours does not show it, whether or not it takes it.
    let in_order = if Parameter::is_on("offer_in_order") {
        feature::IN_ORDER
    } else {
        0
    };
    let want = feature::OF_C | in_order;
    ensure!(seen == want, "features {seen:#x}, expected {want:#x}");
    Ok(())
}

fn unknown_features(cx: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    // Ours takes in-order although it does not offer it, for VMMs that pass it on unasked.
    let ours = if cx.driver == Driver::Rust {
        feature::IN_ORDER
    } else {
        0
    };
    let offered = dev.features()? | ours;
    for bit in 0..64 {
        let bits = 1u64 << bit;
        let want = if offered & bits != 0 {
            Ok(0)
        } else {
            Err(EOPNOTSUPP)
        };
        expect(
            &format!("SET_FEATURES(bit {bit})"),
            dev.set_features(bits),
            want,
        )?;
    }
    expect("SET_FEATURES(0)", dev.set_features(0), Ok(0))
}

fn backend_features(_: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    expect(
        "GET_BACKEND_FEATURES",
        dev.backend_features(),
        Ok(1 << VHOST_BACKEND_F_IOTLB_MSG_V2),
    )?;
    for bit in 0..64 {
        let want = if bit == 1 { Ok(0) } else { Err(EOPNOTSUPP) };
        expect(
            &format!("SET_BACKEND_FEATURES(bit {bit})"),
            dev.set_backend_features(1 << bit),
            want,
        )?;
    }
    expect(
        "SET_BACKEND_FEATURES(0)",
        dev.set_backend_features(0),
        Ok(0),
    )
}

fn without_owner(cx: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    let cid = cx.number();
    expect("SET_RUNNING(1)", dev.start(), Err(EPERM))?;
    expect("SET_RUNNING(0)", dev.stop(), Err(EPERM))?;
    expect("SET_MEM_TABLE", dev.set_memory(&[]), Err(EPERM))?;
    expect("SET_LOG_BASE", dev.set_log_base(0), Err(EPERM))?;
    expect(
        "SET_LOG_FD",
        dev.put(VHOST_SET_LOG_FD(), &-1i32),
        Err(EPERM),
    )?;
    expect("RESET_OWNER", dev.raw(VHOST_RESET_OWNER(), 0), Err(EPERM))?;
    expect("SET_VRING_NUM", dev.set_vring_num(0, 128), Err(EPERM))?;
    expect("SET_VRING_BASE", dev.set_vring_base(0, 0), Err(EPERM))?;
    expect("GET_VRING_BASE", dev.vring_base(0), Err(EPERM))?;
    expect("SET_VRING_KICK", dev.set_kick(0, -1), Err(EPERM))?;
    expect("SET_FEATURES", dev.set_features(feature::USUAL), Ok(0))?;
    expect("SET_GUEST_CID", dev.set_cid(cid), Ok(0))?;
    expect("SET_OWNER", dev.set_owner(), Ok(0))
}

fn with_owner(_: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    dev.set_owner()?;
    expect("second SET_OWNER", dev.set_owner(), Err(EBUSY))?;
    expect(
        "SET_FORK_FROM_OWNER",
        dev.put(VHOST_SET_FORK_FROM_OWNER(), &1u8),
        Err(EBUSY),
    )?;
    expect(
        "RESET_OWNER(NULL)",
        dev.raw(VHOST_RESET_OWNER(), 0),
        Err(EFAULT),
    )?;
    expect(
        "RESET_OWNER(index)",
        dev.put(VHOST_RESET_OWNER(), &0u32),
        Err(ENOTTY),
    )?;
    expect("SET_RUNNING(1) without memory", dev.start(), Err(EFAULT))?;
    expect("SET_RUNNING(0)", dev.stop(), Ok(0))?;
    expect("SET_RUNNING(0) again", dev.stop(), Ok(0))?;
    dev.set_memory(&[])?;
    expect("SET_RUNNING(1) without rings", dev.start(), Err(EFAULT))?;
    for index in [2, 3, u32::MAX as usize] {
        expect("SET_VRING_NUM", dev.set_vring_num(index, 1), Err(ENOBUFS))?;
        expect("GET_VRING_BASE", dev.vring_base(index), Err(ENOBUFS))?;
        expect("SET_VRING_CALL", dev.set_call(index, -1), Err(ENOBUFS))?;
    }
    Ok(())
}

fn while_running(cx: &mut Context) -> Result<()> {
    let guest = cx.guest(Plan::default())?;
    let dev = &guest.dev;
    for index in [RX, TX] {
        expect("SET_VRING_NUM", dev.set_vring_num(index, 128), Err(EBUSY))?;
        expect("SET_VRING_BASE", dev.set_vring_base(index, 0), Err(EBUSY))?;
        expect("SET_VRING_KICK", dev.set_kick(index, -1), Ok(0))?;
    }
    expect("SET_RUNNING(1) again", dev.start(), Ok(0))?;
    expect("SET_GUEST_CID, the same", dev.set_cid(guest.cid), Ok(0))?;
    expect("SET_GUEST_CID, another", dev.set_cid(cx.number()), Ok(0))?;
    expect("SET_FEATURES", dev.set_features(guest.plan.features), Ok(0))?;
    expect(
        "SET_RUNNING(2)",
        dev.put(VHOST_VSOCK_SET_RUNNING(), &2i32),
        Ok(0),
    )?;
    expect("SET_RUNNING(0)", dev.stop(), Ok(0))?;
    expect(
        "SET_VRING_NUM when stopped",
        dev.set_vring_num(RX, 128),
        Ok(0),
    )
}

fn bad_pointers(_: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    let own = [
        VHOST_GET_FEATURES(),
        VHOST_SET_FEATURES(),
        VHOST_GET_BACKEND_FEATURES(),
        VHOST_SET_BACKEND_FEATURES(),
        VHOST_VSOCK_SET_GUEST_CID(),
        VHOST_VSOCK_SET_RUNNING(),
        VHOST_SET_FORK_FROM_OWNER(),
        VHOST_GET_FORK_FROM_OWNER(),
    ];
    for number in own {
        for pointer in [0, 1, 0xffff_8880_0000_0000] {
            expect(
                &format!("{number:#x}({pointer:#x})"),
                dev.raw(number, pointer),
                Err(EFAULT),
            )?;
        }
    }
    dev.set_owner()?;
    let others = [
        VHOST_SET_MEM_TABLE(),
        VHOST_SET_LOG_BASE(),
        VHOST_SET_LOG_FD(),
        VHOST_SET_VRING_NUM(),
        VHOST_SET_VRING_BASE(),
        VHOST_GET_VRING_BASE(),
        VHOST_SET_VRING_ADDR(),
        VHOST_SET_VRING_KICK(),
        VHOST_SET_VRING_CALL(),
        VHOST_SET_VRING_ERR(),
        VHOST_SET_VRING_BUSYLOOP_TIMEOUT(),
        VHOST_GET_VRING_BUSYLOOP_TIMEOUT(),
    ];
    for number in others {
        expect(&format!("{number:#x}(1)"), dev.raw(number, 1), Err(EFAULT))?;
    }
    Ok(())
}

fn vring_numbers(_: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    dev.set_owner()?;
    for num in [0, 3, 127, 0x1_0000, 0x8000_0000, u32::MAX] {
        expect(
            &format!("SET_VRING_NUM({num})"),
            dev.set_vring_num(0, num),
            Err(EINVAL),
        )?;
    }
    for shift in 0..16 {
        expect("SET_VRING_NUM", dev.set_vring_num(1, 1 << shift), Ok(0))?;
    }
    expect(
        "SET_VRING_BASE(0x10000)",
        dev.set_vring_base(0, 0x1_0000),
        Err(EINVAL),
    )?;
    expect(
        "SET_VRING_BASE(0xffff)",
        dev.set_vring_base(0, 0xffff),
        Ok(0),
    )?;
    expect("GET_VRING_BASE", dev.vring_base(0), Ok(0xffff))?;
    expect(
        "SET_VRING_ENDIAN",
        dev.put(VHOST_SET_VRING_ENDIAN(), &state(0, 0)),
        Err(ENOTTY),
    )?;
    let mut timeout = state(0, 77);
    expect(
        "SET_VRING_BUSYLOOP_TIMEOUT",
        dev.put(VHOST_SET_VRING_BUSYLOOP_TIMEOUT(), &timeout),
        Ok(0),
    )?;
    timeout.num = 0;
    expect(
        "GET_VRING_BUSYLOOP_TIMEOUT",
        dev.get(VHOST_GET_VRING_BUSYLOOP_TIMEOUT(), &mut timeout),
        Ok(0),
    )?;
    ensure!(
        timeout.num == 77,
        "the busy-loop timeout is {}",
        timeout.num
    );
    Ok(())
}

fn vring_addresses(cx: &mut Context) -> Result<()> {
    let guest = Guest::prepare(cx.number(), Plan::default())?;
    let good = guest.rx.addresses();
    let mut addr = good;
    addr.flags = 2;
    expect(
        "unknown flag",
        guest.dev.set_vring_addr(&addr),
        Err(EOPNOTSUPP),
    )?;
    for (what, field) in [("avail", 0), ("used", 1), ("log", 2)] {
        let mut addr = good;
        match field {
            0 => addr.avail_user_addr += 1,
            1 => addr.used_user_addr += 2,
            _ => addr.log_guest_addr += 1,
        }
        expect(
            &format!("unaligned {what}"),
            guest.dev.set_vring_addr(&addr),
            Err(EINVAL),
        )?;
    }
    addr = good;
    addr.used_user_addr = 0xffff_8000_0000_0000;
    expect(
        "used ring in the kernel, stopped",
        guest.dev.set_vring_addr(&addr),
        Ok(0),
    )?;
    expect("and started", guest.dev.start(), Err(EFAULT))?;
    expect("put right", guest.dev.set_vring_addr(&good), Ok(0))?;
    expect("and started", guest.dev.start(), Ok(0))?;
    expect(
        "used ring in the kernel, running",
        guest.dev.set_vring_addr(&addr),
        Err(EINVAL),
    )
}

fn vring_eventfds(cx: &mut Context) -> Result<()> {
    let guest = Guest::prepare(cx.number(), Plan::default())?;
    let null = std::fs::File::open("/dev/null")?;
    for number in [
        VHOST_SET_VRING_KICK(),
        VHOST_SET_VRING_CALL(),
        VHOST_SET_VRING_ERR(),
    ] {
        let set = |fd| guest.dev.put(number, &event(RX, fd));
        expect("a closed descriptor", set(9999), Err(EBADF))?;
        expect("another negative number", set(-2), Err(EBADF))?;
        expect("not an eventfd", set(null.as_raw_fd()), Err(EINVAL))?;
        expect("none", set(-1), Ok(0))?;
        expect("an eventfd", set(EventFd::new(0)?.as_raw_fd()), Ok(0))?;
    }
    Ok(())
}

fn vring_base(cx: &mut Context) -> Result<()> {
    let mut session = cx.session(
        crate::vocabulary::Kind::STREAM,
        Plan::default().base(0xfffe),
    )?;
    for _ in 0..5 {
        session.host.send(b"once")?;
        session.guest.hear_bytes(&mut session.flow, 4)?;
    }
    session.guest.drain()?;
    let guest = &session.guest;
    guest.dev.stop()?;
    expect(
        "GET_VRING_BASE(RX)",
        guest.dev.vring_base(RX),
        Ok(guest.rx.used_next().into()),
    )?;
    expect(
        "GET_VRING_BASE(TX)",
        guest.dev.vring_base(TX),
        Ok(guest.tx.used_next().into()),
    )
}

fn cids(cx: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    for cid in [0, 1, 2, 0xffff_ffff, 0x1_0000_0003, u64::MAX] {
        expect(
            &format!("SET_GUEST_CID({cid:#x})"),
            dev.set_cid(cid),
            Err(EINVAL),
        )?;
    }
    let (cid, other) = (cx.number(), Device::open()?);
    expect("SET_GUEST_CID", dev.set_cid(cid), Ok(0))?;
    expect("the same again", dev.set_cid(cid), Ok(0))?;
    expect("taken", other.set_cid(cid), Err(EADDRINUSE))?;
    expect("another", dev.set_cid(cx.number()), Ok(0))?;
    expect("the old one is free", other.set_cid(cid), Ok(0))?;
    expect("and taken again", dev.set_cid(cid), Err(EADDRINUSE))?;
    drop(other);
    expect("closed, so free at once", dev.set_cid(cid), Ok(0))
}

fn cid_without_owner(cx: &mut Context) -> Result<()> {
    let (dev, cid) = (Device::open()?, cx.number());
    dev.set_cid(cid)?;
    let host = crate::vocabulary::Host::probe(crate::vocabulary::Kind::STREAM, cid, 1);
    expect(
        "connect() to a guest without an owner",
        host,
        Err(EHOSTUNREACH),
    )?;
    dev.set_owner()?;
    let host = crate::vocabulary::Host::probe(crate::vocabulary::Kind::STREAM, cid, 1);
    expect(
        "connect() to a guest without rings",
        host,
        Err(EHOSTUNREACH),
    )
}

fn log_base(cx: &mut Context) -> Result<()> {
    let guest = Guest::prepare(cx.number(), Plan::default())?;
    let log = guest.plan.features | feature::LOG_ALL;
    expect(
        "LOG_ALL with no log base",
        guest.dev.set_features(log),
        Ok(0),
    )?;
    expect("and started", guest.dev.start(), Ok(0))?;
    let kernel = 0xffff_8000_0000_0000;
    expect(
        "a base that is not user memory, running",
        guest.dev.set_log_base(kernel),
        Err(EFAULT),
    )?;
    guest.dev.stop()?;
    expect("and stopped", guest.dev.set_log_base(kernel), Ok(0))?;
    expect("is found out at the start", guest.dev.start(), Err(EFAULT))?;
    expect(
        "SET_LOG_FD, not an eventfd",
        guest.dev.put(VHOST_SET_LOG_FD(), &9999i32),
        Err(EBADF),
    )?;
    expect(
        "SET_LOG_FD, none",
        guest.dev.put(VHOST_SET_LOG_FD(), &-1i32),
        Ok(0),
    )
}

fn memory_table(cx: &mut Context) -> Result<()> {
    let guest = cx.guest(Plan::default())?;
    let region = guest.mem.table()[0];
    let many: Vec<Region> = (0..64)
        .map(|at| Region {
            guest: region.guest + at * 4096,
            len: 4096,
            user: region.user + at * 4096,
        })
        .collect();
    expect("64 regions", guest.dev.set_memory(&many), Ok(0))?;
    let head = [65u32, 0];
    expect(
        "65 regions",
        guest.dev.put(VHOST_SET_MEM_TABLE(), &head),
        Err(E2BIG),
    )?;
    expect(
        "padding",
        guest.dev.put(VHOST_SET_MEM_TABLE(), &[0u32, 1]),
        Err(EOPNOTSUPP),
    )?;
    let kernel = Region {
        user: 0xffff_8000_0000_0000,
        ..region
    };
    expect(
        "kernel memory, running",
        guest.dev.set_memory(&[kernel]),
        Err(EFAULT),
    )?;
    expect(
        "the right table",
        guest.dev.set_memory(&guest.mem.table()),
        Ok(0),
    )?;
    let mut guest = guest;
    guest.hears_nothing().context("after all that")
}

fn reads_and_writes(_: &mut Context) -> Result<()> {
    let dev = Device::open_with(libc::O_NONBLOCK)?;
    let errno = |result: std::io::Result<usize>| {
        result.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(0)))
    };
    let mut message = [0u8; 72];
    expect(
        "a short read",
        errno(dev.file().read(&mut message[..64])),
        Ok(0),
    )?;
    expect(
        "a read, not blocking",
        errno(dev.file().read(&mut message)),
        Err(EAGAIN),
    )?;
    expect(
        "an unknown message",
        errno(dev.file().write(&[9; 72])),
        Err(EINVAL),
    )?;
    expect(
        "a short message",
        errno(dev.file().write(&[1, 0, 0, 0])),
        Err(EINVAL),
    )?;
    expect("one byte", errno(dev.file().write(&[1])), Err(EINVAL))?;
    let mut update = [0u8; 72];
    update[0] = VHOST_IOTLB_MSG as u8;
    update[8 + 8] = 1;
    update[8 + 25] = VHOST_IOTLB_UPDATE;
    expect(
        "an update without an IOTLB",
        errno(dev.file().write(&update)),
        Err(EFAULT),
    )?;
    ensure!(
        dev.file().seek(std::io::SeekFrom::Start(5))? == 0,
        "seeking moves nothing"
    );
    let blocking = Device::open()?;
    expect(
        "a blocking read",
        errno(blocking.file().read(&mut message)),
        Err(EBADFD),
    )
}

fn other_process(cx: &mut Context) -> Result<()> {
    let guest = cx.guest(Plan::default())?;
    let refused = super::in_child(|| {
        expect("SET_RUNNING(0)", guest.dev.stop(), Err(EPERM))?;
        expect("SET_VRING_NUM", guest.dev.set_vring_num(0, 8), Err(EPERM))?;
        expect("SET_OWNER", guest.dev.set_owner(), Err(EBUSY))?;
        expect("GET_FEATURES", guest.dev.features().map(drop), Ok(()))
    })?;
    ensure!(
        refused == 0,
        "another process could do what only the owner may"
    );
    expect("the owner itself", guest.dev.stop(), Ok(0))
}

fn each_then_close(cx: &mut Context) -> Result<()> {
    type Call = fn(&Device, u64) -> Answer;
    let calls: [Call; 10] = [
        |_, _| Ok(0),
        |dev, _| dev.set_owner(),
        |dev, cid| dev.set_cid(cid),
        |dev, _| dev.set_features(feature::USUAL),
        |dev, _| dev.set_features(feature::USUAL | feature::ACCESS_PLATFORM),
        |dev, _| dev.start(),
        |dev, _| dev.set_owner().and_then(|_| dev.set_memory(&[])),
        |dev, _| dev.set_owner().and_then(|_| dev.start()),
        |dev, cid| dev.set_owner().and_then(|_| dev.set_cid(cid)),
        |dev, cid| dev.set_cid(cid).and_then(|_| dev.set_owner()),
    ];
    let rounds = cx.rounds(4, 400);
    let first = cx.number();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let calls = &calls;
                scope.spawn(move || -> Result<()> {
                    for _ in 0..rounds {
                        for call in calls {
                            // Some are refused; none may harm.
                            let _ = call(&Device::open()?, first + thread);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread"))
    })
}

fn unknown_ioctls(_: &mut Context) -> Result<()> {
    let dev = Device::open()?;
    dev.set_owner()?;
    // The last resort for any number is the vring ioctls, which look at the index first.
    for number in [
        0xdead_beefu32 as c_ulong,
        0x4008_af83,
        0x4008_af30,
        0x8004_5430,
    ] {
        expect("index 0", dev.put(number, &state(0, 0)), Err(ENOTTY))?;
        expect("index 2", dev.put(number, &state(2, 0)), Err(ENOBUFS))?;
        expect("no index", dev.raw(number, 0), Err(EFAULT))?;
    }
    Ok(())
}
