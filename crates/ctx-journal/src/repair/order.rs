//! Brings records that are out of their place back to it: lines that someone or something moved. Pure.
//!
//! A whole record keeps its seq, so its place is known: where that seq is missing, or after all others. Where the record is
//! missing that was due in its place, its seq is more likely to be wrong itself; such a record is left to the plan.

use std::collections::HashMap;

use super::reading::{Raw, Reading, Skipped, Spot};

/// A line to be moved.
struct Move {
    /// Its place among the lines.
    from: usize,
    /// The line that it goes in front of.
    to: usize,
    seq: u64,
}

/// Records that are there, in the order of their seqs.
struct Present {
    /// From a seq to the one due after it.
    spans: Vec<(u64, u64)>,
}

impl Present {
    fn covers(&self, seq: u64) -> bool {
        let after = self.spans.partition_point(|(from, _)| *from <= seq);
        let before = after.checked_sub(1).and_then(|at| self.spans.get(at));
        before.is_some_and(|(_, next)| seq < *next)
    }

    /// Whether a record is missing between others; or comes after all of them, and is none whose seq alone is wrong: the
    /// record that was due where it stands is there, or lost to a bad line before it, which explains no second one.
    fn wants(&self, skipped: &Skipped, is_behind_bad: bool) -> bool {
        let is_later =
            || skipped.due.is_some_and(|due| self.covers(due) || (is_behind_bad && self.covers(due + 1)));
        !self.covers(skipped.seq) && (skipped.seq < self.next() || is_later())
    }

    fn next(&self) -> u64 {
        self.spans.last().map_or(0, |(_, next)| *next)
    }

    fn add(&mut self, seq: u64) {
        let at = self.spans.partition_point(|(from, _)| *from <= seq);
        self.spans.insert(at, (seq, seq + 1));
    }
}

/// The lines in the order in which the log is to be read; nothing where they are in it.
pub(super) fn in_order(raws: &[Raw], reading: &Reading) -> Option<Vec<Raw>> {
    let by_start: HashMap<usize, usize> = raws.iter().enumerate().map(|(at, raw)| (raw.start, at)).collect();
    // Where each record stands, by its line.
    let mut placed: Vec<(u64, u64, usize)> = Vec::new();
    for (start, seq, next) in reading.present() {
        let at = raws.partition_point(|raw| raw.next <= start);
        placed.push((seq, next, at));
    }
    placed.sort_unstable();
    let mut present = Present { spans: placed.iter().map(|(seq, next, _)| (*seq, *next)).collect() };
    let mut waiting: Vec<&Skipped> = reading.skipped.iter().collect();
    let mut moves = Vec::new();
    // One that is back may be what another waits for.
    loop {
        let before = waiting.len();
        waiting.retain(|skipped| {
            let from = by_start.get(&skipped.start).copied();
            let before = from.and_then(|from| raws.get(from.checked_sub(1)?));
            let is_behind_bad = before.is_some_and(|raw| reading.why.contains_key(&raw.number));
            let is_wanted = present.wants(skipped, is_behind_bad);
            let to = from.filter(|_| is_wanted).and_then(|_| place_of(skipped.seq, &placed));
            let (Some(from), Some(to)) = (from, to) else { return true };
            present.add(skipped.seq);
            moves.push(Move { from, to, seq: skipped.seq });
            false
        });
        if waiting.len() == before {
            break;
        }
    }
    if moves.is_empty() { None } else { Some(moved(raws, moves)) }
}

/// The line that a record goes in front of, by those that are there.
fn place_of(seq: u64, placed: &[(u64, u64, usize)]) -> Option<usize> {
    let after = placed.partition_point(|(other, _, _)| *other < seq);
    let before = after.checked_sub(1).and_then(|at| placed.get(at));
    match placed.get(after) {
        // Several records on one line are parted first; then there is nothing between them.
        Some((_, _, at)) if before.is_some_and(|(_, _, earlier)| earlier >= at) => None,
        Some((_, _, at)) => Some(*at),
        None => Some(before.map_or(0, |(_, _, at)| at + 1)),
    }
}

/// The lines with some of them moved.
fn moved(raws: &[Raw], mut moves: Vec<Move>) -> Vec<Raw> {
    moves.sort_by_key(|one| (one.to, one.seq));
    let leaving: HashMap<usize, u64> = moves.iter().map(|one| (one.from, one.seq)).collect();
    let mut coming = moves.iter().peekable();
    let mut ordered = Vec::with_capacity(raws.len() + moves.len());
    for at in 0..=raws.len() {
        while let Some(one) = coming.next_if(|one| one.to <= at) {
            let Some(raw) = raws.get(one.from) else { continue };
            let (line, offset) = match raws.get(at) {
                Some(target) => (target.number, target.start),
                None => (raw.number, raw.start),
            };
            ordered.push(Raw { spot: Spot::Comes { seq: one.seq, line, offset }, ..*raw });
        }
        let Some(raw) = raws.get(at) else { continue };
        match leaving.get(&at) {
            Some(seq) => ordered.push(Raw { spot: Spot::Leaves { seq: *seq }, ..*raw }),
            None => ordered.push(*raw),
        }
    }
    ordered
}
