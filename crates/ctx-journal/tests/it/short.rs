//! A log that is empty, or shorter than its first record: someone cut it, or a file system lost its end. It is taken
//! up, written to and repaired in any order, with a crash at every operation: what was acknowledged since is there
//! once, the bytes that were left are kept, and a repair ends with a sound log that says what it is.

use std::ops::ControlFlow;
use std::sync::Arc;

use ctx_journal::repair::{Anew, Judge, Where};
use ctx_journal::sim::{Rng, SimDisk};
use ctx_journal::{Entry, FileJournal, Journal, JournalError};

use crate::support::*;

const META: &str = "session_meta";

fn journal_on(disk: &SimDisk) -> FileJournal {
    FileJournal::new(Arc::new(disk.clone()))
}

/// The first record of every log here, as the journal writes it.
fn header() -> Vec<u8> {
    let disk = SimDisk::new();
    drop(create(&journal_on(&disk)));
    disk.contents(PATH).unwrap()
}

/// What may be left of it: nothing, a part, zeroes in place of a part, or rubbish.
fn left(seed: u64, rng: &mut Rng) -> Vec<u8> {
    let header = header();
    let cut = (seed as usize) % header.len();
    match rng.below(4) {
        0 => vec![0; cut],
        1 => [&header[..cut / 2], &vec![0; cut - cut / 2]].concat(),
        _ => header[..cut].to_vec(),
    }
}

/// Says what the log is where it does not say so itself; a whole record in the first place stays there.
fn repair(journal: &FileJournal) {
    let mut says = false;
    let looked = journal.read(&log(), 0, &mut |entry: Entry| {
        says |= entry.kind == META;
        ControlFlow::Continue(())
    });
    looked.unwrap();
    let first = |there: Option<&Entry>| {
        let at = if there.is_some() { Where::Last } else { Where::First };
        let anew = Anew { body: meta()[0].clone(), why: "it does not say what it is".to_owned(), at };
        // A first record that lost only its line end is whole to a repair.
        (!says && there.is_none_or(|entry| entry.kind != META)).then_some(anew)
    };
    let judge = Judge { first: &first, ..Judge::STRANGER };
    journal.repair(&log(), at(100), judge, &mut || Ok(())).unwrap();
}

/// What was tried, and after which operation of the disk it was acknowledged.
struct Tried {
    text: String,
    records: usize,
    began: u64,
    acknowledged: u64,
}

/// Works on a short log for a while.
fn work(disk: &SimDisk, rng: &mut Rng) -> Vec<Tried> {
    let mut tried: Vec<Tried> = Vec::new();
    for step in 0..1 + rng.below(4) {
        let journal = journal_on(disk);
        if rng.one_in(3) {
            repair(&journal);
            continue;
        }
        let (opened, _) = open(&journal).unwrap();
        for part in 0..rng.below(3) {
            let text = format!("{step}-{part}");
            let records = 1 + rng.below(3) as usize;
            let began = disk.ops();
            opened.writer.append_next(at(step), &command(&vec![text.as_str(); records])).unwrap();
            tried.push(Tried { text, records, began, acknowledged: disk.ops() });
        }
    }
    tried
}

/// The texts of the notes in a log, in its order.
fn notes(entries: &[Entry]) -> Vec<String> {
    let text = |entry: &Entry| {
        let value: serde_json::Value = serde_json::from_str(&entry.text).unwrap();
        value["text"].as_str().unwrap().to_owned()
    };
    entries.iter().filter(|entry| entry.kind == "note").map(text).collect()
}

#[track_caller]
fn holds(entries: &[Entry], tried: &[Tried], crashed_in: u64) {
    let mut notes = notes(entries).into_iter().peekable();
    for Tried { text, records, began, acknowledged } in tried {
        let mut there = 0;
        while notes.next_if_eq(text).is_some() {
            there += 1;
        }
        assert!(there == 0 || there == *records, "half of {text}");
        assert!(there > 0 || *acknowledged >= crashed_in, "{text} is lost");
        assert!(there == 0 || *began < crashed_in, "{text} is from the future");
    }
    assert_eq!(notes.next(), None, "twice, out of order or never tried");
}

/// The bytes that were left of the log are in it or in a file beside it.
#[track_caller]
fn is_kept(disk: &SimDisk, left: &[u8]) {
    let mut files = disk.files().into_iter().filter(|path| path.starts_with(PATH));
    let kept = files.any(|path| disk.contents(&path).unwrap().starts_with(left));
    assert!(kept, "{} bytes are gone: {:?}", left.len(), disk.files());
}

/// What the next one finds who takes it up, or repairs it first.
fn look(disk: &SimDisk, left: &[u8], tried: &[Tried], crashed_in: u64, rng: &mut Rng) {
    is_kept(disk, left);
    let journal = journal_on(disk);
    if rng.one_in(2) {
        let (opened, entries) = open(&journal).unwrap();
        holds(&entries, tried, crashed_in);
        drop(opened);
        is_kept(disk, left);
    }
    repair(&journal);
    is_kept(disk, left);
    let (opened, entries) = open(&journal).unwrap();
    holds(&entries, tried, crashed_in);
    assert_eq!(opened.damage, []);
    assert_eq!(entries.iter().filter(|entry| entry.kind == META).count(), 1, "it says what it is, once");
    let plan = journal.plan_repair(&log(), at(200), Judge::STRANGER).unwrap();
    assert!(plan.is_sound(), "{:?}", plan.changes);
    let next = opened.writer.next_seq();
    assert_eq!(next, entries.len() as u64);
    assert_eq!(opened.writer.append(next, at(300), &command(&["on"])).unwrap().first, next);
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let disk = SimDisk::new();
    let left = left(seed, &mut rng);
    disk.put(PATH, &left);
    disk.record();
    let tried = work(&disk, &mut rng);
    let mut moments = disk.take_moments();
    let mut end = disk.now();
    end.op += 1;
    moments.push(end);
    for moment in &moments {
        for after in moment.crash(seed, 4).into_iter().chain([moment.kill()]) {
            look(&after, &left, &tried, moment.op, &mut rng);
        }
    }
}

#[test]
fn a_log_shorter_than_its_first_record_goes_on_and_is_repaired_whenever_it_crashes() {
    // Every length of what is left, a few times over.
    for seed in 0..4 * header().len() as u64 {
        let told = std::panic::catch_unwind(|| run(seed));
        assert!(told.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_short_log_of_a_newer_ctx_is_left_as_it_is() {
    let newer = String::from_utf8(header()).unwrap().replace(":1,", ":2,");
    let disk = SimDisk::new();
    disk.put(PATH, newer.as_bytes());
    let refused = open(&journal_on(&disk)).map(drop).unwrap_err();
    assert!(matches!(refused, JournalError::TooNew { line: 1, .. }), "{refused}");
    assert_eq!(disk.contents(PATH).unwrap(), newer.as_bytes());
}
