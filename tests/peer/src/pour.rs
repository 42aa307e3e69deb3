// SPDX-License-Identifier: GPL-2.0

//! An endless stream that may be cut anywhere: what arrived must be its beginning.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rand_chacha::rand_core::Rng;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use crate::dial::outcome;
use crate::plan::{Direction, Plan, Sizes, MAX_WRITE};
use crate::report::Line;
use crate::socket::{self, Connection, Kind};
use crate::target::Target;

/// Bytes of one write; content is drawn in such pieces by the digest too.
const PIECE: usize = 64 << 10;

/// Where to pour to.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct PourOptions {
    #[command(flatten)]
    target: Target,
    /// Seed of the content
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Milliseconds between writes of 64 KiB
    #[arg(long, default_value_t = 0)]
    interval: u64,
}

/// Where to collect.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CollectOptions {
    /// Port to take one stream on
    #[arg(long)]
    port: u32,
    /// File that keeps what arrives
    #[arg(long)]
    file: PathBuf,
}

/// What to hash.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct DigestOptions {
    /// Seed of the content
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes of the content's beginning
    #[arg(long)]
    bytes: u64,
}

/// Writes seeded content until the connection ends, and prints how it ended.
pub(crate) fn pour(options: PourOptions) -> Result<()> {
    let connection = options.target.connect(Kind::Stream)?;
    Line::new("pouring").print();
    let mut content = content(options.seed);
    let mut piece = vec![0; PIECE];
    let error = loop {
        content.fill_bytes(&mut piece);
        if let Err(error) = connection.send(&piece) {
            break error;
        }
        thread::sleep(Duration::from_millis(options.interval));
    };
    Line::new("poured").with("end", outcome(Err(error))).print();
    Ok(())
}

/// Takes one stream, keeps all that arrives, and prints how much it was and how it ended.
pub(crate) fn collect(options: &CollectOptions) -> Result<()> {
    let listener = socket::listen(Kind::Stream, options.port, 1)?;
    let mut file = File::create(&options.file).context("file")?;
    Line::new("listening").with("port", options.port).print();
    let connection = Connection::accept(&listener, Kind::Stream)?;
    let mut buf = vec![0; PIECE];
    let mut bytes = 0;
    let end = loop {
        match connection.recv(&mut buf) {
            Ok(0) => break Ok(()),
            Ok(got) => {
                file.write_all(&buf[..got]).context("file")?;
                bytes += got as u64;
            }
            Err(error) => break Err(error),
        }
    };
    Line::new("collected")
        .with("bytes", bytes)
        .with("end", outcome(end))
        .print();
    Ok(())
}

/// Prints the SHA-256 of the content's first bytes, as `sha256sum` does.
pub(crate) fn digest(options: DigestOptions) -> Result<()> {
    println!("{:x}", digest_of(options.seed, options.bytes));
    Ok(())
}

fn digest_of(seed: u64, mut left: u64) -> sha2::digest::Output<Sha256> {
    let mut content = content(seed);
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    while left > 0 {
        content.fill_bytes(&mut piece);
        let len = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        hash.update(&piece[..len]);
        left -= len as u64;
    }
    hash.finalize()
}

fn content(seed: u64) -> ChaCha8Rng {
    Plan {
        seed,
        connection: 0,
        direction: Direction::Up,
        bytes: u64::MAX,
        sizes: Sizes::new(1, MAX_WRITE).expect("the bounds are right"),
    }
    .content()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_pieces_cut_anywhere() {
        let mut all = vec![0; 3 * PIECE];
        let mut content = content(7);
        all.chunks_mut(PIECE).for_each(|p| content.fill_bytes(p));
        for bytes in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
            assert_eq!(digest_of(7, bytes as u64), Sha256::digest(&all[..bytes]));
        }
    }
}
