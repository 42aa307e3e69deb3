// SPDX-License-Identifier: GPL-2.0

//! What one end sends over one connection in one direction, decided by a seed alone.
//!
//! Both ends can derive the same plan, so that the receiver knows every message length and every
//! end-of-record mark before it arrives.

use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Direction of a transfer, seen from the end that opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the connecting end to the accepting end.
    Up,
    /// From the accepting end to the connecting end.
    Down,
}

/// Largest write that either end makes, in bytes.
pub(crate) const MAX_WRITE: u32 = 1 << 20;

/// Smallest and largest write, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    min: u32,
    max: u32,
}

impl Sizes {
    /// Returns `None` unless `1 <= min <= max <= MAX_WRITE`.
    pub(crate) fn new(min: u32, max: u32) -> Option<Self> {
        (1 <= min && min <= max && max <= MAX_WRITE).then_some(Self { min, max })
    }

    /// Smallest write, in bytes.
    pub(crate) fn min(self) -> u32 {
        self.min
    }

    /// Largest write, in bytes.
    pub(crate) fn max(self) -> u32 {
        self.max
    }

    /// Picks a size so that every power of two between the bounds is equally likely.
    ///
    /// A uniform choice would nearly never make a write of a few bytes, and one that favours them
    /// would make a long transfer of nothing else.
    fn pick(self, rng: &mut impl Rng) -> u32 {
        let (low, high) = (self.min.ilog2(), self.max.ilog2());
        let base = 1_u32 << (low + rng.next_u32() % (high - low + 1));
        (base + rng.next_u32() % base).clamp(self.min, self.max)
    }
}

/// One write, or one message of a seqpacket socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Length in bytes.
    pub len: usize,
    /// Whether a seqpacket message carries `MSG_EOR`.
    pub end_of_record: bool,
}

/// The writes of one direction of one connection, in order.
pub(crate) struct Writes {
    rng: ChaCha8Rng,
    sizes: Sizes,
    left: u64,
}

impl Iterator for Writes {
    type Item = Write;

    fn next(&mut self) -> Option<Write> {
        if self.left == 0 {
            return None;
        }
        let len = u64::from(self.sizes.pick(&mut self.rng)).min(self.left);
        self.left -= len;
        Some(Write {
            len: len as usize,
            end_of_record: self.rng.next_u32() % 2 == 0,
        })
    }
}

/// The whole of one direction of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Seed of the run.
    pub seed: u64,
    /// Index of the connection within the run.
    pub connection: u32,
    /// Which way the bytes go.
    pub direction: Direction,
    /// Bytes in total.
    pub bytes: u64,
    /// Bounds of one write.
    pub sizes: Sizes,
}

/// Independent sequences drawn from one plan: ChaCha stream numbers.
enum Sequence {
    Sizes = 0,
    Content = 1,
    Reads = 2,
}

impl Plan {
    /// The writes that the sender makes.
    pub(crate) fn writes(&self) -> Writes {
        Writes {
            rng: self.rng(Sequence::Sizes),
            sizes: self.sizes,
            left: self.bytes,
        }
    }

    /// The random bytes that the sender fills its writes with.
    pub(crate) fn content(&self) -> ChaCha8Rng {
        self.rng(Sequence::Content)
    }

    /// Endless sizes for the reads of a stream's receiver, from 1 to `max` bytes.
    pub(crate) fn reads(&self, max: u32) -> impl Iterator<Item = usize> {
        let sizes = Sizes { min: 1, max };
        let mut rng = self.rng(Sequence::Reads);
        std::iter::repeat_with(move || sizes.pick(&mut rng) as usize)
    }

    fn rng(&self, sequence: Sequence) -> ChaCha8Rng {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..12].copy_from_slice(&self.connection.to_le_bytes());
        key[12] = self.direction as u8;
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(sequence as u64);
        rng
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::rand_core::Rng;

    fn plan(seed: u64, direction: Direction, bytes: u64, sizes: Sizes) -> Plan {
        Plan {
            seed,
            connection: 0,
            direction,
            bytes,
            sizes,
        }
    }

    fn sizes() -> impl Strategy<Value = Sizes> {
        (1_u32..=1 << 20, 1_u32..=1 << 20).prop_map(|(a, b)| Sizes {
            min: a.min(b),
            max: a.max(b),
        })
    }

    proptest! {
        #[test]
        fn writes_add_up_and_keep_their_bounds(
            seed: u64, sizes in sizes(), bytes in 0_u64..1 << 22,
        ) {
            // Tiny writes only, for megabytes, prove nothing more.
            let bytes = bytes.min(u64::from(sizes.max) * 64);
            let writes: Vec<Write> = plan(seed, Direction::Up, bytes, sizes).writes().collect();
            prop_assert_eq!(writes.iter().map(|w| w.len as u64).sum::<u64>(), bytes);
            let (last, full) = writes.split_last().map_or((None, &[][..]), |(l, f)| (Some(l), f));
            prop_assert!(full.iter().all(|w| (sizes.min as usize..=sizes.max as usize).contains(&w.len)));
            prop_assert!(last.is_none_or(|w| (1..=sizes.max as usize).contains(&w.len)));
        }

        #[test]
        fn a_plan_depends_on_its_seed_and_direction_only(seed: u64) {
            let sizes = Sizes::new(1, 1 << 16).unwrap();
            let up = plan(seed, Direction::Up, 1 << 20, sizes);
            let again: Vec<Write> = up.writes().collect();
            prop_assert_eq!(up.writes().collect::<Vec<_>>(), again);
            let down = plan(seed, Direction::Down, 1 << 20, sizes);
            prop_assert_ne!(up.content().next_u64(), down.content().next_u64());
        }
    }

    #[test]
    fn every_power_of_two_occurs() {
        let sizes = Sizes::new(1, 1 << 20).unwrap();
        let mut seen = [false; 21];
        for write in plan(1, Direction::Up, 64 << 20, sizes).writes() {
            seen[write.len.ilog2() as usize] = true;
        }
        assert_eq!(seen, [true; 21]);
    }

    #[test]
    fn impossible_bounds_are_refused() {
        assert_eq!(Sizes::new(0, 1), None);
        assert_eq!(Sizes::new(2, 1), None);
        assert_eq!(Sizes::new(1, MAX_WRITE + 1), None);
    }
}
