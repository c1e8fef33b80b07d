//! What a sound log would be, decided from the bytes of the damaged one. Pure.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};

use ctx_session::Timestamp;

use super::{Anew, Change, First, Piece, Plan, RepairError, Where, salvage};
use crate::Entry;
use crate::damage::DamageKind;
use crate::error::JournalError;
use crate::format::{self, LOST, NotARecord, RECORD_BYTES_MAX};
use crate::lines::{Line, LineForm};
use crate::path::LogPath;
use crate::scan::{Newer, Scanned, Scanner};

/// A line of the damaged log.
#[derive(Debug, Clone, Copy)]
struct Raw {
    number: u64,
    start: usize,
    end: usize,
    /// Where the next line begins; the same as `end` when the LF is missing.
    next: usize,
}

impl Raw {
    fn form(&self) -> LineForm {
        match (self.next > self.end, self.end - self.start > RECORD_BYTES_MAX) {
            (_, true) => LineForm::TooLong,
            (true, false) => LineForm::Whole,
            (false, false) => LineForm::Unended,
        }
    }
}

/// A record that is used, as a range of the damaged log.
#[derive(Debug, Clone)]
struct Used {
    range: Range<usize>,
    seq: u64,
    next: u64,
    time: Timestamp,
}

/// What the scanner makes of a log.
#[derive(Default)]
struct Reading {
    used: Vec<Used>,
    /// What is wrong with a line, by its number.
    why: HashMap<u64, String>,
    /// Lines whose seq alone is wrong, with the seq that was due.
    strays: HashMap<u64, (u64, u64)>,
    /// Record 0 as it stands, if it can be used.
    first: Option<Entry>,
}

/// Decides what is to be done about a log. `now` goes into the records that hold the place of lost ones.
pub fn plan(log: &LogPath, bytes: &[u8], now: Timestamp, first: First<'_>) -> Result<Plan, RepairError> {
    let raws = lines_of(bytes);
    let reading = read(log, bytes, &raws)?;
    let mut building = Building::new(log, bytes, now, &reading);
    let anew = first(reading.first.as_ref());
    match &anew {
        Some(anew) if anew.at == Where::First => {
            let time = reading.used.first().map_or(now, |used| used.time);
            building.put_first(anew, time, reading.first.is_some());
        }
        None if reading.used.is_empty() => return Err(RepairError::NothingUsable { log: log.clone() }),
        Some(_) | None => {}
    }
    let from = building.due;
    let mut used = reading.used.iter().filter(|used| used.seq >= from).peekable();
    for raw in &raws {
        let mut mine = Vec::new();
        while let Some(next) = used.next_if(|used| used.range.start < raw.next) {
            mine.push(next);
        }
        building.line(raw, &mine);
    }
    if let Some(anew) = anew.filter(|anew| anew.at == Where::Last) {
        building.put_last(&anew, raws.len() as u64 + 1);
    }
    Ok(building.finish())
}

fn lines_of(bytes: &[u8]) -> Vec<Raw> {
    let mut raws = Vec::new();
    let mut start = 0;
    for lf in memchr::memchr_iter(b'\n', bytes) {
        raws.push(Raw { number: raws.len() as u64 + 1, start, end: lf, next: lf + 1 });
        start = lf + 1;
    }
    if start < bytes.len() {
        raws.push(Raw { number: raws.len() as u64 + 1, start, end: bytes.len(), next: bytes.len() });
    }
    raws
}

/// Has the scanner decide what is used, with what can be salvaged of bad lines on lines of its own.
fn read(log: &LogPath, bytes: &[u8], raws: &[Raw]) -> Result<Reading, RepairError> {
    let mut reading = Reading::default();
    let Reading { used, why, first, .. } = &mut reading;
    let mut sink = |entry: Entry| {
        let start = usize::try_from(entry.offset).unwrap_or(usize::MAX);
        let next = format::seq_after(&entry.kind, entry.seq, &entry.text);
        let range = start..start.saturating_add(entry.text.len());
        used.push(Used { range, seq: entry.seq, next, time: entry.time });
        if entry.seq == 0 {
            *first = Some(entry);
        }
        ControlFlow::Continue(())
    };
    let mut scanner = Scanner::from_start(log);
    for raw in raws {
        let line = bytes.get(raw.start..raw.end).unwrap_or_default();
        let bad = match (raw.form(), format::parse(line)) {
            (LineForm::Whole, Ok(_) | Err(NotARecord::NewerVersion(_))) => None,
            (LineForm::Whole, Err(NotARecord::Bad(reason))) => Some(format!("not a record: {reason}")),
            (LineForm::TooLong, _) => Some(format!("{} bytes are too long for a record", line.len())),
            (LineForm::Unended, _) => Some("the line is cut off".to_owned()),
        };
        let salvaged = if bad.is_some() { salvage::records(line) } else { Vec::new() };
        why.extend(bad.map(|reason| (raw.number, reason)));
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
    let Scanned { damage, tail_damage, newer, .. } = scanner.finish(&mut sink);
    // What this ctx cannot read is not its to mend, wherever it stands.
    if let Some(Newer { line, version, .. }) = newer {
        return Err(JournalError::TooNew { log: log.clone(), line, version }.into());
    }
    for found in damage.into_iter().chain(tail_damage) {
        match found.kind {
            // Told by what is put in their place.
            DamageKind::Gap { .. } | DamageKind::MissingMeta => continue,
            DamageKind::StraySeq { seq, expected } => {
                reading.strays.insert(found.line, (seq, expected));
            }
            _ => {}
        }
        reading.why.entry(found.line).or_insert_with(|| found.kind.to_string());
    }
    Ok(reading)
}

/// The plan while it is made, line by line.
struct Building<'a> {
    bytes: &'a [u8],
    now: Timestamp,
    why: &'a HashMap<u64, String>,
    strays: &'a HashMap<u64, (u64, u64)>,
    used_seqs: HashSet<u64>,
    plan: Plan,
    /// Lines that change, up to the next one that does not.
    pending: Option<Change>,
    /// The one line among them whose seq alone is wrong.
    stray: Option<(Range<usize>, u64, u64)>,
    due: u64,
    time: Option<Timestamp>,
    /// Record 0 is put in anew, so the one that is there goes.
    replace_first: bool,
}

impl<'a> Building<'a> {
    fn new(log: &LogPath, bytes: &'a [u8], now: Timestamp, reading: &'a Reading) -> Building<'a> {
        let (changes, pieces, set_aside) = (Vec::new(), Vec::new(), Vec::new());
        Building {
            bytes,
            now,
            why: &reading.why,
            strays: &reading.strays,
            used_seqs: reading.used.iter().map(|used| used.seq).collect(),
            plan: Plan { log: log.clone(), changes, records: 0, pieces, set_aside },
            pending: None,
            stray: None,
            due: 0,
            time: None,
            replace_first: false,
        }
    }

    /// Begins the log with a record 0 that was made anew.
    fn put_first(&mut self, anew: &Anew, time: Timestamp, is_there: bool) {
        let why = if is_there { &anew.why } else { "the log does not begin with record 0" };
        self.pending(1, 0).why.push(why.to_owned());
        self.replace_first = is_there;
        self.write(0, time, &anew.body);
        (self.due, self.time) = (1, Some(time));
    }

    /// Ends the log with a record that says what it is.
    fn put_last(&mut self, anew: &Anew, line: u64) {
        self.flush();
        self.pending(line, self.bytes.len()).why.push(anew.why.clone());
        self.write(self.due, self.time.unwrap_or(self.now), &anew.body);
    }

    fn pending(&mut self, line: u64, offset: usize) -> &mut Change {
        let (why, was, becomes) = (Vec::new(), Vec::new(), Vec::new());
        self.pending.get_or_insert(Change { line, offset: offset as u64, why, was, becomes })
    }

    fn line(&mut self, raw: &Raw, mine: &[&Used]) {
        let is_intact = match mine {
            [one] => one.range == (raw.start..raw.end) && raw.form() == LineForm::Whole,
            _ => false,
        };
        if !is_intact {
            self.change(raw, mine);
        } else if let [one] = mine {
            self.fill_gap(raw, one);
            self.flush();
            self.keep(raw.start..raw.next);
            self.plan.records += 1;
            (self.due, self.time) = (one.next, Some(one.time));
        }
    }

    /// A line that does not stay as it is: what is used of it comes on lines of its own.
    fn change(&mut self, raw: &Raw, mine: &[&Used]) {
        let was = format::excerpt(self.bytes.get(raw.start..raw.end).unwrap_or_default());
        let mut why = self.why.get(&raw.number).cloned();
        if self.replace_first && why.is_none() {
            self.replace_first = false;
            why = Some("its place is taken".to_owned());
        }
        let why = why.unwrap_or_else(|| "a command that was never finished".to_owned());
        if let Some((seq, expected)) = self.strays.get(&raw.number) {
            self.stray = Some((raw.start..raw.end, *seq, *expected));
        }
        let change = self.pending(raw.number, raw.start);
        change.was.push(was);
        if !change.why.contains(&why) {
            change.why.push(why);
        }
        let mut at = raw.start;
        for one in mine {
            self.aside(at..one.range.start);
            at = one.range.end;
            self.fill_gap(raw, one);
            let text = self.bytes.get(one.range.clone()).unwrap_or_default();
            self.write_line(text.to_vec());
            (self.due, self.time) = (one.next, Some(one.time));
        }
        self.aside(at..raw.end);
    }

    /// Holds the place of the records that are missing before one.
    fn fill_gap(&mut self, raw: &Raw, before: &Used) {
        let (from, to) = (self.due, before.seq);
        if from >= to {
            return;
        }
        let change = self.pending(raw.number, raw.start);
        let what = DamageKind::Gap { from, to }.to_string();
        change.why.push(what);
        if let Some(text) = self.restored(from, to) {
            self.write_line(text);
            return;
        }
        let body = format!(r#"{{"type":"{LOST}","through":{},"repaired_at":"{}"}}"#, to - 1, self.now);
        self.write(from, self.time.unwrap_or(before.time), &body);
    }

    /// The one record that is missing, when it stands just there under a seq that nobody else has.
    fn restored(&mut self, from: u64, to: u64) -> Option<Vec<u8>> {
        let (range, seq, expected) = self.stray.take()?;
        if expected != from || to != from + 1 || self.used_seqs.contains(&seq) {
            return None;
        }
        let head = |seq: u64| format!("{{\"schema_version\":{},\"seq\":{seq},", format::FORMAT_VERSION);
        let rest = self.bytes.get(range.clone())?.strip_prefix(head(seq).as_bytes())?;
        let text = [head(from).as_bytes(), rest].concat();
        self.plan.set_aside.retain(|aside| *aside != range);
        format::parse(&text).is_ok().then_some(text)
    }

    fn keep(&mut self, range: Range<usize>) {
        match self.plan.pieces.last_mut() {
            Some(Piece::Keep(kept)) if kept.end == range.start => kept.end = range.end,
            _ => self.plan.pieces.push(Piece::Keep(range)),
        }
    }

    fn write(&mut self, seq: u64, time: Timestamp, body: &str) {
        let mut line = Vec::new();
        format::encode(&mut line, seq, time, &[body.to_owned()]);
        line.pop();
        self.write_line(line);
    }

    /// Adds a line to the change that is under way.
    fn write_line(&mut self, mut text: Vec<u8>) {
        let shown = String::from_utf8_lossy(&text).into_owned();
        if let Some(change) = &mut self.pending {
            change.becomes.push(shown);
        }
        text.push(b'\n');
        self.plan.records += 1;
        self.plan.pieces.push(Piece::Write(text));
    }

    fn aside(&mut self, range: Range<usize>) {
        if range.start < range.end {
            self.plan.set_aside.push(range);
        }
    }

    fn flush(&mut self) {
        self.stray = None;
        self.plan.changes.extend(self.pending.take());
    }

    fn finish(mut self) -> Plan {
        self.flush();
        self.plan
    }
}
