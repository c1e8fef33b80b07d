//! What a sound log would be, decided from the bytes of the damaged one. Pure.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use ctx_session::Timestamp;

use super::reading::{Becomes, Raw, Reading, Salvage, Spot, Used, lines_of, read};
use super::versions::{self, Settled};
use super::{Anew, Change, Judge, Piece, Plan, RepairError, Versions, Where, order, salvage};
use crate::damage::DamageKind;
use crate::format::{self, LOST};
use crate::lines::LineForm;
use crate::path::LogPath;

/// How much of a line is told of it.
const EXCERPT_BYTES: usize = 1 << 20;

/// The lines of a log in the order in which they are to be read, and what that gives: no less than a log that is opened as
/// it is. What is salvaged, or back in its place, may make another record look like a part of a command that was never
/// finished; then it is not worth it.
fn best(
    log: &LogPath,
    bytes: &[u8],
    versions: Versions,
) -> Result<(Vec<Raw>, Settled, Reading), RepairError> {
    let plain = lines_of(bytes, Salvage::No);
    // What readers see too; a repair respells keys besides.
    let as_opened = versions::find_damaged(log, bytes, &plain, versions)?;
    let mut settled = as_opened.clone();
    for raw in plain.iter().filter(|raw| raw.why_bad(bytes).is_some()) {
        let line = bytes.get(raw.start..raw.end).unwrap_or_default();
        if let (false, Some(was)) = (settled.contains_key(&raw.start), salvage::respelt(line)) {
            settled.insert(raw.start, was);
        }
    }
    let raws = lines_of(bytes, Salvage::Yes);
    let reading = read(log, bytes, &raws, &settled, Salvage::Yes);
    if reading.is_sound() {
        return Ok((raws, settled, reading));
    }
    let used = read(log, bytes, &plain, &as_opened, Salvage::No);
    let respelt = read(log, bytes, &plain, &settled, Salvage::No);
    let mut ways = Vec::new();
    for (raws, settled, reading, salvage) in [
        (raws, &settled, reading, Salvage::Yes),
        (plain.clone(), &settled, respelt, Salvage::No),
        (plain, &as_opened, used.clone(), Salvage::No),
    ] {
        if let Some(ordered) = order::in_order(&raws, &reading) {
            let again = read(log, bytes, &ordered, settled, salvage);
            // Not for the price of one that was there.
            if again.has_all_of(&reading) {
                ways.push((ordered, settled, again));
            }
        }
        ways.push((raws, settled, reading));
    }
    // The last way is the log as it is.
    let way = ways.into_iter().find(|(_, _, reading)| reading.has_all_of(&used));
    let (raws, settled, reading) = way.unwrap_or((Vec::new(), &as_opened, Reading::default()));
    Ok((raws, settled.clone(), reading))
}

/// Decides what is to be done about a log. `now` goes into the records that hold the place of lost ones.
pub fn plan(log: &LogPath, bytes: &[u8], now: Timestamp, judge: Judge<'_>) -> Result<Plan, RepairError> {
    let (raws, settled, mut reading) = best(log, bytes, judge.versions)?;
    reading.judge(bytes, &settled, judge);
    let mut building = Building::new(log, bytes, now, &reading);
    let anew = (judge.first)(reading.first.as_ref());
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
        if matches!(raw.spot, Spot::Leaves { .. }) {
            building.leave(raw);
            continue;
        }
        while let Some(next) = used.next_if(|used| (raw.start..raw.next).contains(&used.range.start)) {
            mine.push(next);
        }
        building.line(raw, &mine);
    }
    if let Some(anew) = anew.filter(|anew| anew.at == Where::Last) {
        building.put_last(&anew, raws.len() as u64 + 1);
    }
    Ok(building.finish())
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
    /// The line that was last shown as one that goes.
    shown: u64,
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
            shown: 0,
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

    /// A line whose record goes back to its place.
    fn leave(&mut self, raw: &Raw) {
        let Spot::Leaves { seq } = raw.spot else { return };
        let was = excerpt(self.bytes.get(raw.start..raw.end).unwrap_or_default());
        let change = self.pending(raw.number, raw.start);
        change.was.push(was);
        change.why.push(format!("record {seq} is out of order"));
    }

    fn line(&mut self, raw: &Raw, mine: &[&Used]) {
        let is_intact = match mine {
            [one] => {
                let is_whole = one.range == (raw.start..raw.end) && raw.form() == LineForm::Whole;
                is_whole && !raw.is_part && one.becomes == Becomes::Same
            }
            _ => false,
        };
        if let (Spot::Comes { seq, line, offset }, [one]) = (raw.spot, mine) {
            self.fill_gap(raw, one);
            let change = self.pending(line, offset);
            change.why.push(format!("record {seq} belongs here, and stands in line {}", raw.number));
            self.put(one);
            self.aside(one.range.end..raw.end);
        } else if !is_intact {
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
        let line = raw.whole_line(self.bytes);
        let was = excerpt(self.bytes.get(line.start..line.end).unwrap_or_default());
        let mut why = self.why.get(&raw.number).cloned();
        if self.replace_first && why.is_none() {
            self.replace_first = false;
            why = Some("its place is taken".to_owned());
        }
        let why = why.unwrap_or_else(|| "a command that was never finished".to_owned());
        if let Some((seq, expected)) = self.strays.get(&raw.number) {
            self.stray = Some((raw.start..raw.end, *seq, *expected));
        }
        let is_shown = std::mem::replace(&mut self.shown, raw.number) == raw.number;
        let change = self.pending(raw.number, raw.start);
        if !is_shown {
            change.was.push(was);
        }
        if !change.why.contains(&why) {
            change.why.push(why);
        }
        let mut at = raw.start;
        for one in mine {
            self.aside(at..one.range.start);
            at = one.range.end;
            self.fill_gap(raw, one);
            self.put(one);
        }
        self.aside(at..raw.end);
    }

    /// Writes a record on a line of its own.
    fn put(&mut self, one: &Used) {
        match &one.becomes {
            Becomes::Same => self.write_line(self.bytes.get(one.range.clone()).unwrap_or_default().to_vec()),
            Becomes::Text(text) => self.write_line(text.clone()),
            Becomes::Lost => {
                self.aside(one.range.clone());
                self.write_lost(one.seq, one.next, one.time);
            }
        }
        (self.due, self.time) = (one.next, Some(one.time));
    }

    /// Holds the place of records from one seq to another.
    fn write_lost(&mut self, from: u64, to: u64, time: Timestamp) {
        let through = to.saturating_sub(1);
        let body = format!(r#"{{"type":"{LOST}","through":{through},"repaired_at":"{}"}}"#, self.now);
        self.write(from, time, &body);
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
        self.write_lost(from, to, self.time.unwrap_or(before.time));
    }

    /// The one record that is missing, when it stands just there under a seq that nobody else has.
    fn restored(&mut self, from: u64, to: u64) -> Option<Vec<u8>> {
        let (range, seq, expected) = self.stray.take()?;
        // Another bad line there may as well be what is left of it.
        let is_alone = self.pending.as_ref().is_some_and(|change| change.was.len() == 1);
        if !is_alone || expected != from || to != from + 1 || self.used_seqs.contains(&seq) {
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
        format::encode(&mut line, seq, format::Times::One(time), &[body.to_owned()]);
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

/// A line as reports show it: with what is not text replaced, and not all of a very long one.
fn excerpt(line: &[u8]) -> String {
    let cut = line.get(..EXCERPT_BYTES);
    let text = String::from_utf8_lossy(cut.unwrap_or(line));
    let plain = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    plain.chain(cut.map(|_| '…')).collect()
}
