//! Puts one stream of a command into the shell's spool, piece by piece or in large steps.
//!
//! A file is written fastest in whole blocks of its cache: much output is held back up to the next block's
//! border. What is held back is bounded, and is written at the latest when the stream ends.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::markers::Stream;
use crate::shell::state::Shared;

/// Much output is written in multiples of this, from multiples of this.
const BLOCK_BYTES: u64 = 64 << 10;

/// What is to be stored of a read, in its order. Most of it lies in the buffer that was read into.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Read(Range<usize>),
    Made(Vec<u8>),
}

impl Pieces {
    /// Takes a piece that may be a part of `buffer`.
    pub fn add(&mut self, buffer: &[u8], piece: &[u8]) {
        let start = piece.as_ptr().addr().wrapping_sub(buffer.as_ptr().addr());
        let range = start..start.wrapping_add(piece.len());
        // Only a part of the buffer has the same place and the same end; equal bytes elsewhere do not.
        let is_part = buffer.get(range.clone()).is_some_and(|part| std::ptr::eq(part, piece));
        match (is_part, self.0.last_mut()) {
            (true, Some(Piece::Read(last))) if last.end == range.start => last.end = range.end,
            (true, _) => self.0.push(Piece::Read(range)),
            (false, _) => self.0.push(Piece::Made(piece.to_vec())),
        }
    }

    pub fn slices<'a>(&'a self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().map(move |piece| match piece {
            Piece::Read(range) => buffer.get(range.clone()).unwrap_or_default(),
            Piece::Made(bytes) => bytes,
        })
    }
}

/// Where a stream's output goes.
pub(crate) struct Keeper {
    stream: Stream,
    shared: Arc<Shared>,
    /// What waits for the rest of its block.
    held: Vec<u8>,
    /// Why not all of the output is on disk. The command goes on: what it prints is shown, but not all of it is
    /// kept.
    pub unkept: Option<io::Error>,
}

impl Keeper {
    pub fn new(stream: Stream, shared: Arc<Shared>) -> Keeper {
        Keeper { stream, shared, held: Vec::new(), unkept: None }
    }

    /// The right to threads of one's own, if there are any left.
    pub fn try_thread(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.threads).try_acquire_owned().ok()
    }

    /// Keeps bytes now, behind all that was held back.
    pub fn keep(&mut self, bytes: &[u8]) {
        let held = std::mem::take(&mut self.held);
        for bytes in [&held, bytes] {
            let kept = self.shared.spool().keep(self.stream, bytes);
            self.note(kept);
        }
    }

    /// Keeps pieces up to the border of a block, and holds the rest back.
    pub fn keep_blocks(&mut self, pieces: &Pieces, buffer: &[u8]) {
        let held = std::mem::take(&mut self.held);
        let mut slices: Vec<&[u8]> = vec![&held];
        slices.extend(pieces.slices(buffer));
        let start = self.shared.spool().end(self.stream);
        let kept = split_off_rest(&mut slices, start);
        let mut slices: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        let written = self.shared.spool().keep_all(self.stream, &mut slices);
        self.note(written);
        self.held = kept;
    }

    fn note(&mut self, kept: io::Result<()>) {
        if let Err(error) = kept {
            self.unkept.get_or_insert(error);
        }
    }
}

/// Takes out of slices that go to `start` what reaches into a block and does not fill it.
fn split_off_rest(slices: &mut Vec<&[u8]>, start: u64) -> Vec<u8> {
    let size: usize = slices.iter().map(|slice| slice.len()).sum();
    let over = (start + size as u64) % BLOCK_BYTES;
    let mut left = usize::try_from(over).unwrap_or(0).min(size);
    let mut rest: Vec<&[u8]> = Vec::new();
    while let Some(slice) = slices.pop_if(|_| left > 0) {
        let (now, later) = slice.split_at(slice.len().saturating_sub(left));
        left -= later.len();
        rest.push(later);
        if !now.is_empty() {
            slices.push(now);
        }
    }
    rest.reverse();
    rest.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_of_the_buffer_are_not_copied_and_others_are() {
        let buffer = b"one two three".to_vec();
        let (same, other) = (buffer.get(4..7).unwrap(), b"two".to_vec());
        let mut pieces = Pieces::default();
        for piece in [buffer.get(..4).unwrap(), same, &other, same] {
            pieces.add(&buffer, piece);
        }
        assert!(
            matches!(pieces.0.as_slice(), [Piece::Read(_), Piece::Made(_), Piece::Read(_)]),
            "{pieces:?}"
        );
        assert_eq!(pieces.slices(&buffer).collect::<Vec<_>>().concat(), b"one twotwotwo");
    }

    proptest! {
        /// Nothing is lost or moved, and what is written now ends with a block, if it is anything.
        #[test]
        fn what_is_written_ends_with_a_block(
            sizes in prop::collection::vec(prop_oneof![0usize..10, 0usize..200_000], 0..5),
            start in 0u64..200_000,
        ) {
            let all: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(n, size)| (0..*size).map(|at| (n + at) as u8).collect()).collect();
            let mut slices: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let rest = split_off_rest(&mut slices, start);
            let now = slices.concat();
            prop_assert!(now.is_empty() || (start + now.len() as u64).is_multiple_of(BLOCK_BYTES));
            prop_assert!((rest.len() as u64) < BLOCK_BYTES);
            prop_assert_eq!([now, rest].concat(), all.concat());
        }
    }
}
