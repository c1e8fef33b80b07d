//! What there is in a damaged log: its lines, which records in them are used, and what is wrong with the others. Pure.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};

use ctx_session::Timestamp;

use super::versions::Settled;
use super::{Judge, salvage};
use crate::Entry;
use crate::damage::DamageKind;
use crate::format::{self, NotARecord, RECORD_BYTES_MAX};
use crate::lines::{Line, LineForm};
use crate::path::LogPath;
use crate::scan::{Scanned, Scanner};

/// A line of the damaged log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw {
    pub number: u64,
    pub start: usize,
    pub end: usize,
    /// Where the next line begins; the same as `end` when the LF is missing.
    pub next: usize,
    pub spot: Spot,
    /// It is a part of a line with several records.
    pub is_part: bool,
}

/// Where a line stands in the sound log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    Stays,
    /// It goes back to where its record belongs.
    Leaves {
        seq: u64,
    },
    /// It comes from elsewhere, to stand before a line.
    Comes {
        seq: u64,
        line: u64,
        offset: usize,
    },
}

impl Raw {
    /// The line of the file that it is, or is a part of.
    pub fn whole_line(&self, bytes: &[u8]) -> Raw {
        let before = memchr::memrchr(b'\n', bytes.get(..self.start).unwrap_or_default());
        let after = memchr::memchr(b'\n', bytes.get(self.start..).unwrap_or_default());
        let start = before.map_or(0, |lf| lf + 1);
        let (end, next) = match after {
            Some(lf) => (self.start + lf, self.start + lf + 1),
            None => (bytes.len(), bytes.len()),
        };
        Raw { start, end, next, ..*self }
    }

    /// Why it is no record, if it is none.
    pub(super) fn why_bad(&self, bytes: &[u8]) -> Option<String> {
        let line = bytes.get(self.start..self.end).unwrap_or_default();
        match self.form() {
            LineForm::TooLong => Some(format!("{} bytes are too long for a record", line.len())),
            LineForm::Unended => Some("the line is cut off".to_owned()),
            LineForm::Whole => match format::parse(line) {
                Ok(_) | Err(NotARecord::NewerVersion(_)) => None,
                Err(NotARecord::Bad(reason)) => Some(format!("not a record: {reason}")),
            },
        }
    }

    pub fn form(&self) -> LineForm {
        match (self.next > self.end, self.end - self.start > RECORD_BYTES_MAX) {
            (_, true) => LineForm::TooLong,
            (true, false) => LineForm::Whole,
            (false, false) => LineForm::Unended,
        }
    }
}

/// A record that is used, as a range of the damaged log.
#[derive(Debug, Clone)]
pub(super) struct Used {
    pub range: Range<usize>,
    pub seq: u64,
    pub next: u64,
    pub time: Timestamp,
    pub becomes: Becomes,
}

/// What is written of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Becomes {
    /// What stands there.
    Same,
    /// What it was before it was damaged.
    Text(Vec<u8>),
    /// That it is lost.
    Lost,
}

/// A whole record that is not used where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skipped {
    pub start: usize,
    pub seq: u64,
    /// The seq that was due there, where that is known.
    pub due: Option<u64>,
}

/// Whether records are looked for in lines that are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Salvage {
    Yes,
    No,
}

/// What the scanner makes of a log.
#[derive(Default, Clone)]
pub(super) struct Reading {
    pub used: Vec<Used>,
    /// Usable records of a command at the end that is not whole: where they begin, and their seqs.
    held: Vec<(usize, u64)>,
    pub skipped: Vec<Skipped>,
    /// What is wrong with a line, by its number.
    pub why: HashMap<u64, String>,
    /// Lines whose seq alone is wrong, with the seq that was due.
    pub strays: HashMap<u64, (u64, u64)>,
    /// Record 0 as it stands, if it can be used.
    pub first: Option<Entry>,
}

impl Reading {
    /// Where each usable record begins, its seq, and the one due after it.
    pub fn present(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        let used = self.used.iter().map(|used| (used.range.start, used.seq, used.next));
        used.chain(self.held.iter().map(|(start, seq)| (*start, *seq, seq + 1)))
    }
}

/// The lines of a log. One with several records in it is as many lines here: each ends with a record.
pub(super) fn lines_of(bytes: &[u8], salvage: Salvage) -> Vec<Raw> {
    let mut raws = Vec::new();
    let (mut number, mut start) = (0, 0);
    let ends = memchr::memchr_iter(b'\n', bytes).map(|lf| (lf, lf + 1));
    let last = (bytes.last().is_some_and(|byte| *byte != b'\n')).then_some((bytes.len(), bytes.len()));
    for (end, next) in ends.chain(last) {
        number += 1;
        let line = Raw { number, start, end, next, spot: Spot::Stays, is_part: false };
        let salvaged = match (salvage, line.why_bad(bytes)) {
            (Salvage::Yes, Some(_)) => salvage::records(bytes.get(start..end).unwrap_or_default()),
            (Salvage::Yes, None) | (Salvage::No, _) => Vec::new(),
        };
        let base = start;
        for (_, after) in salvaged.iter().zip(salvaged.iter().skip(1)) {
            let cut = base + after.start;
            raws.push(Raw { start, end: cut, next: cut, is_part: true, ..line });
            start = cut;
        }
        raws.push(Raw { start, is_part: start > base, ..line });
        start = next;
    }
    raws
}

/// Has the scanner decide what is used, with what can be salvaged of bad lines on lines of its own.
pub(super) fn read(
    log: &LogPath,
    bytes: &[u8],
    raws: &[Raw],
    settled: &Settled,
    salvage: Salvage,
) -> Reading {
    let mut reading = Reading::default();
    let Reading { used, why, first, .. } = &mut reading;
    let mut sink = |entry: Entry| {
        let start = usize::try_from(entry.offset).unwrap_or(usize::MAX);
        let next = format::seq_after(&entry.kind, entry.seq, &entry.text);
        let range = start..start.saturating_add(entry.text.len());
        used.push(Used { range, seq: entry.seq, next, time: entry.time, becomes: Becomes::Same });
        if entry.seq == 0 {
            *first = Some(entry);
        }
        ControlFlow::Continue(())
    };
    let mut scanner = Scanner::from_start(log);
    for raw in raws.iter().filter(|raw| !matches!(raw.spot, Spot::Leaves { .. })) {
        let line = bytes.get(raw.start..raw.end).unwrap_or_default();
        let line = settled.get(&raw.start).map_or(line, Vec::as_slice);
        let bad = if settled.contains_key(&raw.start) { None } else { raw.why_bad(bytes) };
        let salvaged = match salvage {
            Salvage::Yes if bad.is_some() => salvage::records(line),
            Salvage::Yes | Salvage::No => Vec::new(),
        };
        // Of a line with several records, what is wrong with all of it.
        why.extend(bad.map(|_| (raw.number, raw.whole_line(bytes).why_bad(bytes).unwrap_or_default())));
        let (number, offset, end) = (raw.number, raw.start as u64, raw.next as u64);
        if salvaged.is_empty() {
            // This sink never stops.
            let _ = scanner.line(Line { number, offset, end, bytes: line, form: raw.form() }, &mut sink);
        }
        for range in salvaged {
            let (offset, end) = (offset + range.start as u64, offset + range.end as u64);
            let piece = line.get(range).unwrap_or_default();
            let _ =
                scanner.line(Line { number, offset, end, bytes: piece, form: LineForm::Whole }, &mut sink);
        }
    }
    let scanned = scanner.finish(&mut sink);
    reading.note(scanned);
    reading
}

impl Reading {
    /// Whether there is nothing but records that are used.
    pub fn is_sound(&self) -> bool {
        self.why.is_empty() && self.skipped.is_empty() && self.held.is_empty()
    }

    /// Whether every record that another reading uses is used in this one.
    pub fn has_all_of(&self, other: &Reading) -> bool {
        let mine: HashSet<u64> = self.used.iter().map(|used| used.seq).collect();
        other.used.iter().all(|used| mine.contains(&used.seq))
    }

    /// Takes over what the scanner found wrong.
    fn note(&mut self, scanned: Scanned) {
        let place = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let Scanned { damage, tail_damage, held, .. } = scanned;
        self.held = held.iter().map(|entry| (place(entry.offset), entry.seq)).collect();
        for found in damage.into_iter().chain(tail_damage) {
            let start = place(found.offset);
            match found.kind {
                // Told by what is put in their place.
                DamageKind::Gap { .. } | DamageKind::MissingMeta => continue,
                DamageKind::StraySeq { seq, expected } => {
                    self.strays.insert(found.line, (seq, expected));
                    self.skipped.push(Skipped { start, seq, due: Some(expected) });
                }
                DamageKind::Repeat { seq } | DamageKind::Misplaced { seq } => {
                    self.skipped.push(Skipped { start, seq, due: None });
                }
                DamageKind::TornTail { .. }
                | DamageKind::TornTailUncut { .. }
                | DamageKind::BadLine { .. }
                | DamageKind::LongLine { .. }
                | DamageKind::NewerVersion { .. }
                | DamageKind::WrongVersion { .. } => {}
            }
            self.why.entry(found.line).or_insert_with(|| found.kind.to_string());
        }
    }

    /// Says what becomes of records whose version is damaged, or whose fields do not fit their type.
    pub fn judge(&mut self, bytes: &[u8], settled: &Settled, judge: Judge<'_>) {
        for used in &mut self.used {
            let line = memchr::memchr_iter(b'\n', bytes.get(..used.range.start).unwrap_or_default());
            let ours = settled.get(&used.range.start);
            let text = match ours {
                Some(ours) => ours.as_slice(),
                None => bytes.get(used.range.clone()).unwrap_or_default(),
            };
            let Ok((envelope, time, read)) = format::parse(text) else { continue };
            let entry = Entry {
                seq: used.seq,
                time,
                kind: envelope.kind.to_string(),
                more: envelope.more,
                line: 0,
                offset: used.range.start as u64,
                text: read.to_owned(),
            };
            let unfit = (judge.fits)(&entry);
            if ours.is_none() && unfit.is_none() {
                continue;
            }
            let number = line.count() as u64 + 1;
            let mut why = self.why.remove(&number).into_iter().collect::<Vec<_>>();
            if ours.is_some() {
                let stood = bytes.get(used.range.start..used.range.start + text.len()).unwrap_or_default();
                why.push(match salvage::respelt(stood).is_some_and(|was| was == text) {
                    true => "a key of its envelope has a wrong byte".to_owned(),
                    false => "its `schema_version` is damaged: the lines around it are ours".to_owned(),
                });
                // Its length may be another than that of what stands there.
                let end = bytes.get(used.range.start..).and_then(|rest| memchr::memchr(b'\n', rest));
                used.range.end = end.map_or(bytes.len(), |end| used.range.start + end);
                used.becomes = Becomes::Text(text.to_vec());
            }
            if let Some(unfit) = unfit {
                used.becomes = unfit.was.map_or(Becomes::Lost, |was| Becomes::Text(was.into_bytes()));
                why.push(unfit.why);
            }
            self.why.insert(number, why.join("; "));
        }
    }
}
