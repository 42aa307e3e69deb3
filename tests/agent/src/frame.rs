// SPDX-License-Identifier: GPL-2.0

//! The agent's wire format: a kind byte, a little-endian length, the payload.

use std::io::{self, Read, Write};

/// What a frame's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// One argument of the command, to the server.
    Argument = 0,
    /// End of the arguments, to the server: run it. Without arguments: just answer.
    Go = 1,
    /// Bytes of the command's standard output.
    Output = 2,
    /// Bytes of the command's standard error.
    Error = 3,
    /// One byte: the exit status. The last frame.
    Status = 4,
}

impl Kind {
    fn from_byte(byte: u8) -> io::Result<Self> {
        [
            Self::Argument,
            Self::Go,
            Self::Output,
            Self::Error,
            Self::Status,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown frame kind"))
    }
}

/// Longest payload that is accepted, in bytes.
const MAX_LENGTH: u32 = 1 << 20;

/// Writes one frame.
///
/// # Errors
///
/// Those of the writer; a payload over a MiB is refused.
pub(crate) fn write(to: &mut impl Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len())
        .ok()
        .filter(|length| *length <= MAX_LENGTH)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "frame too long"))?;
    let mut frame = vec![kind as u8];
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(payload);
    to.write_all(&frame)
}

/// Reads one frame.
///
/// # Errors
///
/// Those of the reader, and `InvalidData` for what no [`write()`] makes.
pub(crate) fn read(from: &mut impl Read) -> io::Result<(Kind, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let kind = Kind::from_byte(head[0])?;
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    if length > MAX_LENGTH {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long"));
    }
    let mut payload = vec![0; length as usize];
    from.read_exact(&mut payload)?;
    Ok((kind, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_frame_is_read_back() {
        for payload in [&b""[..], b"x", &[7; 70_000]] {
            let mut wire = Vec::new();
            write(&mut wire, Kind::Output, payload).unwrap();
            assert_eq!(
                read(&mut wire.as_slice()).unwrap(),
                (Kind::Output, payload.to_vec())
            );
        }
    }

    #[test]
    fn a_cut_frame_is_an_error() {
        let mut wire = Vec::new();
        write(&mut wire, Kind::Argument, b"argument").unwrap();
        for length in 0..wire.len() {
            assert!(read(&mut &wire[..length]).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn an_unknown_kind_and_a_huge_length_are_refused() {
        assert!(read(&mut &[9, 0, 0, 0, 0][..]).is_err());
        assert!(read(&mut &[2, 255, 255, 255, 255][..]).is_err());
        let long = vec![0; MAX_LENGTH as usize + 1];
        assert!(write(&mut Vec::new(), Kind::Output, &long).is_err());
    }
}
