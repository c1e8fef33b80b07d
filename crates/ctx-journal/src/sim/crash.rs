//! The states that a crash could leave.
//!
//! Each unsynced write is lost, kept, cut at some byte, or has zeros in place of some of its bytes (its end, its
//! beginning, all of it); each unsynced truncation and name is lost or kept; files are independent of each
//! other. All combinations up to six unsynced operations, drawn by a seed above that; where a cut or a hole lies is
//! drawn by the seed.

use super::SimDisk;
use super::state::{FileOp, State};

/// Up to this many unsynced operations every combination is tried.
const EXHAUSTIVE_OPS_MAX: u32 = 6;

/// Random numbers from a seed; the same on every machine.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        // Small seeds must not give small first numbers.
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        rng.next_u64();
        rng
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 when there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next_u64() >> 11).checked_rem(end).unwrap_or(0)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What becomes of an operation that was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    Kept,
    Cut,
    Zeros,
}

impl Fate {
    const ALL: [Fate; 4] = [Fate::Lost, Fate::Kept, Fate::Cut, Fate::Zeros];

    fn number(n: u64) -> Fate {
        Fate::ALL.get((n % 4) as usize).copied().unwrap_or(Fate::Lost)
    }

    pub fn any(rng: &mut Rng) -> Fate {
        Fate::number(rng.next_u64() >> 7)
    }

    pub fn apply(self, op: &FileOp, bytes: &mut Vec<u8>, rng: &mut Rng) {
        match (self, op) {
            (Fate::Lost, _) | (Fate::Cut, FileOp::Truncate(_)) => (),
            (Fate::Kept, _) | (Fate::Zeros, FileOp::Truncate(_)) => op.apply(bytes),
            (Fate::Cut, FileOp::Write(offset, data)) => {
                let mut data = data.clone();
                data.truncate(rng.below(data.len() as u64 + 1) as usize);
                FileOp::Write(*offset, data).apply(bytes);
            }
            (Fate::Zeros, FileOp::Write(offset, data)) => {
                let mut data = data.clone();
                let size = data.len() as u64;
                let (from, to) = match rng.below(4) {
                    0 => (0, size),
                    1 => (0, rng.below(size + 1)),
                    2 => (rng.below(size + 1), size),
                    _ => {
                        let (a, b) = (rng.below(size + 1), rng.below(size + 1));
                        (a.min(b), a.max(b))
                    }
                };
                if let Some(hole) = data.get_mut(from as usize..to as usize) {
                    hole.fill(0);
                }
                FileOp::Write(*offset, data).apply(bytes);
            }
        }
    }
}

/// The disk in the middle of an operation, or between two.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The number of the operation, from 1.
    pub op: u64,
    pub(super) state: State,
}

impl Moment {
    /// How many operations are not durable.
    pub fn unsynced(&self) -> usize {
        let files = self.state.inodes.iter();
        files.map(|inode| inode.pending.len() + inode.doubtful.len()).sum::<usize>()
            + self.state.pending_names.len()
    }

    /// The disk when the process dies at this moment and the machine goes on: what it wrote is still seen, synced
    /// or not.
    pub fn kill(&self) -> SimDisk {
        let mut state = self.state.clone();
        for inode in &mut state.inodes {
            inode.locked_by = None;
        }
        SimDisk::with_state(state)
    }

    /// Disks that a crash at this moment could leave, at most `most` of them.
    pub fn crash(&self, seed: u64, most: u64) -> Vec<SimDisk> {
        let combinations = 4u64.checked_pow(self.unsynced() as u32).unwrap_or(u64::MAX);
        let exhaustive = self.unsynced() as u32 <= EXHAUSTIVE_OPS_MAX && combinations <= most;
        let mut rng = Rng::new(seed ^ self.op);
        let count = if exhaustive { combinations } else { most };
        (0..count)
            .map(|n| {
                let choice = if exhaustive { n } else { rng.next_u64() };
                self.crash_as(choice, &mut rng)
            })
            .collect()
    }

    /// The disk that is left when the fates are the digits of `choice`.
    fn crash_as(&self, mut choice: u64, rng: &mut Rng) -> SimDisk {
        let mut state = self.state.clone();
        let mut fate = || {
            let fate = Fate::number(choice);
            // Beyond 32 operations the digits come round again.
            choice = choice.rotate_right(2);
            fate
        };
        let mut names = std::mem::take(&mut state.durable_names);
        for op in state.pending_names.drain(..) {
            if matches!(fate(), Fate::Kept | Fate::Zeros) {
                let _ = op.apply(&mut names);
            }
        }
        for inode in &mut state.inodes {
            let ops: Vec<FileOp> = inode.doubtful.drain(..).chain(inode.pending.drain(..)).collect();
            for op in ops {
                fate().apply(&op, &mut inode.durable, rng);
            }
            inode.cached = inode.durable.clone();
            inode.locked_by = None;
        }
        state.names = names.clone();
        state.durable_names = names;
        SimDisk::with_state(state)
    }
}
