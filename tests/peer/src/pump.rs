// SPDX-License-Identifier: GPL-2.0

//! The two halves of a transfer: one end sends what a plan says, the other checks it.

use std::net::Shutdown;
use std::thread;

use anyhow::{bail, ensure, Context, Result};
use rand_chacha::rand_core::Rng;
use sha2::{Digest, Sha256};

use crate::plan::Plan;
use crate::socket::{Connection, Kind};
use crate::wire::DIGEST_LEN;

/// Largest read of a stream's receiver, in bytes.
const MAX_READ: u32 = 256 << 10;

/// What went over a connection in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Payload bytes.
    pub bytes: u64,
    /// SHA-256 of the payload.
    pub digest: [u8; DIGEST_LEN],
}

/// Sends `outgoing` and receives `incoming` at once: what was sent and what was received.
///
/// When one half fails the connection is shut down, so that the other half ends too.
pub(crate) fn both_ways(
    connection: &Connection,
    outgoing: &Plan,
    incoming: &Plan,
) -> Result<(Moved, Moved)> {
    let or_stop = |result: Result<Moved>| {
        result.inspect_err(|_| {
            // Fails only if the connection is gone already.
            let _ = connection.socket().shutdown(Shutdown::Both);
        })
    };
    thread::scope(|scope| {
        let sender = scope.spawn(|| or_stop(send(connection, outgoing).context("sending")));
        let received = or_stop(receive(connection, incoming).context("receiving"));
        let sent = sender.join().expect("the sender does not panic");
        Ok((sent?, received?))
    })
}

/// Sends everything that `plan` holds, then its digest.
fn send(connection: &Connection, plan: &Plan) -> Result<Moved> {
    let mut content = plan.content();
    let mut hash = Sha256::new();
    let mut buf = vec![0; plan.sizes.max() as usize];
    for write in plan.writes() {
        let data = &mut buf[..write.len];
        content.fill_bytes(data);
        hash.update(&*data);
        connection
            .send_record(data, write.end_of_record)
            .with_context(|| format!("write of {} bytes", write.len))?;
    }
    let digest: [u8; DIGEST_LEN] = hash.finalize().into();
    connection.send(&digest).context("digest")?;
    Ok(Moved {
        bytes: plan.bytes,
        digest,
    })
}

/// Receives everything that `plan` holds and compares it with the sender's digest.
///
/// On seqpacket the length and the end-of-record mark of every message are compared with the plan.
fn receive(connection: &Connection, plan: &Plan) -> Result<Moved> {
    let digest = match connection.kind() {
        Kind::Stream => receive_stream(connection, plan)?,
        Kind::Seqpacket => receive_messages(connection, plan)?,
    };
    let mut expected = [0; DIGEST_LEN];
    connection
        .recv_exact(&mut expected)
        .context("digest of the sender")?;
    ensure!(digest == expected, "{} bytes differ in content", plan.bytes);
    Ok(Moved {
        bytes: plan.bytes,
        digest,
    })
}

fn receive_stream(connection: &Connection, plan: &Plan) -> Result<[u8; DIGEST_LEN]> {
    let mut hash = Sha256::new();
    let mut buf = vec![0; MAX_READ as usize];
    let mut left = plan.bytes;
    for size in plan.reads(MAX_READ) {
        if left == 0 {
            break;
        }
        let want = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        let got = connection
            .recv(&mut buf[..want])
            .with_context(|| format!("read with {left} of {} bytes left", plan.bytes))?;
        if got == 0 {
            bail!("end of stream with {left} of {} bytes left", plan.bytes);
        }
        hash.update(&buf[..got]);
        left -= got as u64;
    }
    Ok(hash.finalize().into())
}

fn receive_messages(connection: &Connection, plan: &Plan) -> Result<[u8; DIGEST_LEN]> {
    let mut hash = Sha256::new();
    // One byte more than any message, so that two messages run together would show.
    let mut buf = vec![0; plan.sizes.max() as usize + 1];
    for (index, due) in plan.writes().enumerate() {
        let (len, end_of_record) = connection
            .recv_message(&mut buf)
            .with_context(|| format!("message {index}"))?;
        ensure!(
            len == due.len,
            "message {index}: {len} bytes where {} were sent",
            due.len
        );
        ensure!(
            end_of_record == due.end_of_record,
            "message {index}: MSG_EOR {end_of_record} where {} was sent",
            due.end_of_record
        );
        hash.update(&buf[..len]);
    }
    Ok(hash.finalize().into())
}
