// SPDX-License-Identifier: GPL-2.0

//! The two records that frame a conversation: the request that opens a connection and the verdict
//! that closes it.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::plan::{Direction, Plan, Sizes};

/// Bytes of a SHA-256 digest.
pub(crate) const DIGEST_LEN: usize = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"peer");

/// What the connecting end wants from the accepting end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Seeded data each way, then digests and a verdict.
    Transfer,
    /// Whatever arrives goes back, in records of the largest size.
    Echo,
    /// Read until the end of the stream, then say how much came.
    Sink,
}

impl Operation {
    fn from_code(code: u32) -> Option<Self> {
        [Self::Transfer, Self::Echo, Self::Sink]
            .into_iter()
            .find(|operation| *operation as u32 == code)
    }
}

/// First record on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// What to do.
    pub operation: Operation,
    /// Seed of the run.
    pub seed: u64,
    /// Bytes from the connecting end.
    pub up: u64,
    /// Bytes from the accepting end.
    pub down: u64,
    /// Index of the connection within the run.
    pub connection: u32,
    /// Bounds of one write.
    pub sizes: Sizes,
}

/// A request as it travels.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Encoded {
    magic: U32,
    operation: U32,
    seed: U64,
    up: U64,
    down: U64,
    connection: U32,
    min_write: U32,
    max_write: U32,
}

impl Request {
    /// Bytes on the wire.
    pub(crate) const LEN: usize = size_of::<Encoded>();

    /// The request as it travels.
    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Encoded {
            magic: MAGIC.into(),
            operation: (self.operation as u32).into(),
            seed: self.seed.into(),
            up: self.up.into(),
            down: self.down.into(),
            connection: self.connection.into(),
            min_write: self.sizes.min().into(),
            max_write: self.sizes.max().into(),
        })
    }

    /// Reads a request; `None` if the bytes are not one.
    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let encoded: Encoded = zerocopy::transmute!(*bytes);
        if encoded.magic.get() != MAGIC {
            return None;
        }
        Some(Self {
            operation: Operation::from_code(encoded.operation.get())?,
            seed: encoded.seed.get(),
            up: encoded.up.get(),
            down: encoded.down.get(),
            connection: encoded.connection.get(),
            sizes: Sizes::new(encoded.min_write.get(), encoded.max_write.get())?,
        })
    }

    /// The plan of one direction.
    pub(crate) fn plan(&self, direction: Direction) -> Plan {
        Plan {
            seed: self.seed,
            connection: self.connection,
            direction,
            bytes: match direction {
                Direction::Up => self.up,
                Direction::Down => self.down,
            },
            sizes: self.sizes,
        }
    }
}

/// Last record on a connection: what the accepting end received.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct Verdict {
    /// Payload bytes received.
    pub bytes: U64,
    /// SHA-256 of them, or zeroes where nothing is hashed.
    pub digest: [u8; DIGEST_LEN],
}

impl Verdict {
    /// Bytes on the wire.
    pub(crate) const LEN: usize = size_of::<Self>();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MAX_WRITE;
    use proptest::prelude::*;

    fn request(operation: Operation) -> Request {
        Request {
            operation,
            seed: 1,
            up: 2,
            down: 3,
            connection: 4,
            sizes: Sizes::new(5, 6).unwrap(),
        }
    }

    proptest! {
        #[test]
        fn a_request_survives_the_wire(
            seed: u64, up: u64, down: u64, connection: u32, a in 1..=MAX_WRITE, b in 1..=MAX_WRITE,
        ) {
            let sizes = Sizes::new(a.min(b), a.max(b)).unwrap();
            for operation in [Operation::Transfer, Operation::Echo, Operation::Sink] {
                let sent = Request { operation, seed, up, down, connection, sizes };
                prop_assert_eq!(Request::parse(&sent.encode()), Some(sent));
            }
        }

        #[test]
        fn noise_is_no_request(bytes: [u8; Request::LEN]) {
            prop_assume!(!bytes.starts_with(&MAGIC.to_le_bytes()));
            prop_assert_eq!(Request::parse(&bytes), None);
        }
    }

    #[test]
    fn each_direction_has_its_bytes() {
        let request = request(Operation::Transfer);
        assert_eq!(request.plan(Direction::Up).bytes, 2);
        assert_eq!(request.plan(Direction::Down).bytes, 3);
    }

    #[test]
    fn an_unknown_operation_is_refused() {
        let mut bytes = request(Operation::Sink).encode();
        bytes[4] = 3;
        assert_eq!(Request::parse(&bytes), None);
    }

    #[test]
    fn sizes_without_sense_are_refused() {
        let mut bytes = request(Operation::Transfer).encode();
        bytes[36] = 7;
        assert_eq!(Request::parse(&bytes), None);
    }
}
