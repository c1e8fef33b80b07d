//! What the tests share: logs, bodies, times, and every kind of journal to run a test over.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ctx_journal::sim::SimDisk;
use ctx_journal::{Damage, Entry, FileJournal, Journal, JournalError, LogPath, LogWriter, Opened, Owner};
use ctx_session::Timestamp;

pub const PATH: &str = "home/0/agent/coder/session/default/events.jsonl";

pub fn log() -> LogPath {
    LogPath::new(PATH).unwrap()
}

pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_794_722_400_000 + seconds * 1000)
}

pub fn me() -> Owner {
    Owner::own()
}

pub fn body(kind: &str, text: &str) -> String {
    format!(r#"{{"type":"{kind}","text":"{text}"}}"#)
}

/// The bodies of a command of several records.
pub fn command(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| body("note", text)).collect()
}

pub fn meta() -> Vec<String> {
    vec![r#"{"type":"session_meta","name":"default"}"#.to_owned()]
}

pub fn create(journal: &dyn Journal) -> Box<dyn LogWriter> {
    journal.create(&log(), me(), at(0), &meta()).unwrap()
}

pub fn open(journal: &dyn Journal) -> Result<(Opened, Vec<Entry>), JournalError> {
    let mut entries = Vec::new();
    let opened = journal.open(&log(), at(100), &mut |entry| entries.push(entry))?;
    Ok((opened, entries))
}

pub fn read(journal: &dyn Journal, from: u64) -> (Vec<Entry>, Vec<Damage>) {
    let mut entries = Vec::new();
    let damage = journal
        .read(&log(), from, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })
        .unwrap();
    (entries, damage)
}

pub fn read_back(journal: &dyn Journal) -> Vec<Entry> {
    let mut entries = Vec::new();
    journal
        .read_back(&log(), &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })
        .unwrap();
    entries
}

pub fn seqs(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.seq).collect()
}

/// Runs a test over every kind of journal.
pub fn over_every_journal(test: impl Fn(&dyn Journal)) {
    let dir = tempfile::tempdir().unwrap();
    test(&real(dir.path()));
    test(&FileJournal::in_memory());
    test(&FileJournal::new(Arc::new(SimDisk::new())));
}

pub fn real(root: &Path) -> FileJournal {
    FileJournal::at(root).unwrap()
}
