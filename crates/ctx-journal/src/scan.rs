//! Tells usable records from damage, line after line. Pure: lines come in, records and damage go out.
//!
//! What counts is settled at the end of each command. Everything after the last settled line is the tail:
//! bytes that are cut, not records, or an unfinished command. The rules for what is not as it should be:
//!
//! - A bad line is skipped. If records follow that were written later, it was damage in the middle, and all
//!   records around it are used, also those of a command that lost one of its records to it: the command
//!   was once whole, or nothing would have been written after it.
//! - If the hole is in the last write (`batch` says how far that reaches back), it may be the work of a crash,
//!   and the command was never acknowledged: it belongs to the tail as a whole.
//! - A seq that was there is skipped: the first occurrence wins. So is one that was missing where it belongs: records
//!   are handed out in their order, and a repair puts it back. A seq that jumps ahead waits for the record
//!   after it: if that goes on from there, records are missing between; if not, the jump was the mistake,
//!   and one flipped digit does not make every later record look old.
//! - A record of a newer format is not damage, and nothing is written behind it: that would take the place of what
//!   this ctx cannot read. Among records that were written later it is passed over. In the middle of a command that began
//!   as ours it can be no other ctx's: its version is damaged, and it is used.
//! - A record of type `lost`, left by a repair, stands for several seqs. How many is only its word: a record
//!   after it that it claims is lost is used.

use std::ops::{ControlFlow, Range};

use ctx_session::Timestamp;

use crate::Entry;
use crate::damage::{Damage, DamageKind};
use crate::format::{self, COMMAND_BYTES_MAX, Envelope, NotARecord};
use crate::lines::{Line, LineForm};
use crate::path::LogPath;

/// A log of nothing but damage must not fill memory with reports of it.
const REPORTS_MAX: usize = 1000;

/// A usable record that is not settled yet.
struct Held {
    entry: Entry,
    end: u64,
    batch: u64,
    /// The seq that is due after it.
    next: u64,
}

impl Held {
    fn new(line: &Line<'_>, envelope: &Envelope<'_>, time: Timestamp, text: &str) -> Held {
        let entry = Entry {
            seq: envelope.seq,
            time,
            kind: envelope.kind.to_string(),
            more: envelope.more,
            line: line.number,
            offset: line.offset,
            text: text.to_owned(),
        };
        let next = format::seq_after(&entry.kind, entry.seq, text);
        Held { batch: envelope.batch(), entry, end: line.end, next }
    }
}

pub(crate) struct Scanner {
    log: LogPath,
    /// The seq that is due; `None` before the first record when reading begins in the middle.
    due: Option<u64>,
    held: Vec<Held>,
    held_bytes: usize,
    /// The first record after the latest gap among the held ones.
    after_gap: Option<u64>,
    /// A record whose seq jumped ahead, waiting for the one after it.
    jumped: Option<Held>,
    /// The seq of the record before this one, if that stands for more than one.
    claims_lost: Option<u64>,
    /// The gaps so far, to tell a record that is out of its place from a repeat.
    gaps: Vec<Range<u64>>,
    damage: Vec<Damage>,
    tail_damage: Vec<Damage>,
    /// The first record of a newer format behind the last command that is ours.
    newer_tail: Option<Newer>,
    settled: Settled,
}

/// Where a record of a newer format stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Newer {
    /// From 1; 0 where lines are not counted.
    pub line: u64,
    pub offset: u64,
    pub version: u64,
}

/// How far the log is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Where the tail begins.
    pub end: u64,
    /// The number of lines before it, where lines are counted.
    pub lines: u64,
    /// The seq that the next record gets.
    pub next: u64,
}

/// What a whole scan gives.
pub(crate) struct Scanned {
    pub settled: Settled,
    pub damage: Vec<Damage>,
    /// What was wrong in the tail; one thing, a torn tail, to the person who hears of it.
    pub tail_damage: Vec<Damage>,
    /// The first record of a newer format behind the last command that is ours.
    pub newer_tail: Option<Newer>,
    /// Usable records of a command at the end that is not whole.
    pub held: Vec<Entry>,
}

/// Who gets the records.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(Entry) -> ControlFlow<()>;

impl Scanner {
    /// Scans from the start of a log.
    pub fn from_start(log: &LogPath) -> Self {
        Scanner::new(log, Some(0), Settled { end: 0, lines: 0, next: 0 })
    }

    /// Scans from a line in the middle, whatever its seq.
    pub fn from_middle(log: &LogPath, offset: u64) -> Self {
        Scanner::new(log, None, Settled { end: offset, lines: 0, next: 0 })
    }

    fn new(log: &LogPath, due: Option<u64>, settled: Settled) -> Self {
        Scanner {
            log: log.clone(),
            due,
            held: Vec::new(),
            held_bytes: 0,
            after_gap: None,
            jumped: None,
            claims_lost: None,
            gaps: Vec::new(),
            damage: Vec::new(),
            tail_damage: Vec::new(),
            newer_tail: None,
            settled,
        }
    }

    pub fn line(&mut self, line: Line<'_>, sink: Sink<'_>) -> ControlFlow<()> {
        let wrong = match line.form {
            LineForm::TooLong => DamageKind::LongLine { bytes: line.end - line.offset },
            LineForm::Unended => DamageKind::BadLine { reason: "cut off".to_owned() },
            LineForm::Whole => match format::parse(line.bytes) {
                Ok((envelope, time, text)) => {
                    return self.record(Held::new(&line, &envelope, time, text), sink);
                }
                Err(NotARecord::Bad(reason)) => DamageKind::BadLine { reason },
                Err(NotARecord::NewerVersion(version)) => {
                    if let Some(ours) = self.goes_on(&line) {
                        self.report_entry(&ours.entry, DamageKind::WrongVersion { version });
                        return self.record(ours, sink);
                    }
                    let newer = Newer { line: line.number, offset: line.offset, version };
                    self.newer_tail.get_or_insert(newer);
                    DamageKind::NewerVersion { version }
                }
            },
        };
        self.report(line.number, line.offset, wrong, format::excerpt(line.bytes));
        ControlFlow::Continue(())
    }

    /// A record of another version with which a command of ours goes on.
    fn goes_on(&self, line: &Line<'_>) -> Option<Held> {
        let before = self.held.last().filter(|before| before.entry.more && self.jumped.is_none())?;
        let ours = format::as_record_of_ours(line.bytes, before.next)?;
        let (envelope, time, text) = format::parse(&ours).ok()?;
        Some(Held::new(line, &envelope, time, text))
    }

    fn record(&mut self, record: Held, sink: Sink<'_>) -> ControlFlow<()> {
        let seq = record.entry.seq;
        if self.claims_lost.take().is_some_and(|claimed| claimed < seq) {
            self.due = self.due.map(|due| due.min(seq));
        }
        if let Some(jumped) = self.jumped.take() {
            if record.entry.seq > jumped.entry.seq {
                self.accept(jumped, sink)?;
            } else {
                let kind =
                    DamageKind::StraySeq { seq: jumped.entry.seq, expected: self.due.unwrap_or_default() };
                self.report_entry(&jumped.entry, kind);
            }
        }
        match self.due {
            Some(due) if record.entry.seq > due => {
                self.jumped = Some(record);
                ControlFlow::Continue(())
            }
            Some(due) if record.entry.seq < due => {
                let seq = record.entry.seq;
                let is_missing = self.gaps.iter().any(|gap| gap.contains(&seq));
                let kind =
                    if is_missing { DamageKind::Misplaced { seq } } else { DamageKind::Repeat { seq } };
                self.report_entry(&record.entry, kind);
                if self.held.is_empty() {
                    self.settle(&record.entry, record.end);
                }
                ControlFlow::Continue(())
            }
            Some(_) | None => self.accept(record, sink),
        }
    }

    fn accept(&mut self, record: Held, sink: Sink<'_>) -> ControlFlow<()> {
        let seq = record.entry.seq;
        if let Some(due) = self.due.filter(|due| *due < seq) {
            self.report_gap(due, &record.entry);
            self.after_gap = Some(seq);
        }
        self.due = Some(record.next);
        self.claims_lost = (record.next > seq + 1).then_some(seq);
        self.held_bytes += record.entry.text.len();
        // The write that this record ends began here, so nothing before it is in doubt.
        let write_began = (seq + 1).saturating_sub(record.batch);
        let whole = !record.entry.more && self.after_gap.is_none_or(|after| write_began >= after);
        self.held.push(record);
        // No command of ours is that long; holding on would only fill memory.
        let too_much = self.held_bytes > 2 * COMMAND_BYTES_MAX;
        if whole || too_much { self.release(sink) } else { ControlFlow::Continue(()) }
    }

    /// The held records are good: hands them out.
    fn release(&mut self, sink: Sink<'_>) -> ControlFlow<()> {
        self.after_gap = None;
        self.held_bytes = 0;
        if let Some(Held { entry, end, next, .. }) = self.held.last() {
            self.settled = Settled { end: *end, lines: entry.line, next: *next };
            self.damage.append(&mut self.tail_damage);
            self.newer_tail = None;
        }
        self.held.drain(..).try_for_each(|held| sink(held.entry))
    }

    fn settle(&mut self, entry: &Entry, end: u64) {
        self.settled.end = end;
        self.settled.lines = entry.line;
        self.damage.append(&mut self.tail_damage);
    }

    pub fn finish(mut self, sink: Sink<'_>) -> Scanned {
        if let Some(jumped) = self.jumped.take() {
            // The sink has no more to stop.
            let _ = self.accept(jumped, sink);
        }
        if self.settled.next == 0 && self.due.is_some() {
            self.damage.push(self.damage_at(1, 0, DamageKind::MissingMeta, String::new()));
        }
        let Scanner { settled, damage, tail_damage, newer_tail, held, .. } = self;
        let held = held.into_iter().map(|held| held.entry).collect();
        Scanned { settled, damage, tail_damage, newer_tail, held }
    }

    /// What was found so far, when reading stops early.
    pub fn into_damage(self) -> Vec<Damage> {
        self.damage
    }

    fn report_gap(&mut self, due: u64, entry: &Entry) {
        if self.gaps.len() < REPORTS_MAX {
            self.gaps.push(due..entry.seq);
        }
        let mut from = due;
        if due == 0 {
            self.report_entry(entry, DamageKind::MissingMeta);
            from = 1;
        }
        if from < entry.seq {
            self.report_entry(entry, DamageKind::Gap { from, to: entry.seq });
        }
    }

    fn report_entry(&mut self, entry: &Entry, kind: DamageKind) {
        self.report(entry.line, entry.offset, kind, format::excerpt(entry.text.as_bytes()));
    }

    fn report(&mut self, line: u64, offset: u64, kind: DamageKind, excerpt: String) {
        if self.damage.len() + self.tail_damage.len() < REPORTS_MAX {
            let damage = self.damage_at(line, offset, kind, excerpt);
            self.tail_damage.push(damage);
        }
    }

    fn damage_at(&self, line: u64, offset: u64, kind: DamageKind, excerpt: String) -> Damage {
        Damage { log: self.log.clone(), line, offset, kind, excerpt }
    }
}
