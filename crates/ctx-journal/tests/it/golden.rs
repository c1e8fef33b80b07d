//! Logs of every released format version stay readable.

use std::sync::Arc;

use ctx_journal::sim::SimDisk;
use ctx_journal::{FORMAT_VERSION, FileJournal};

use crate::support::*;

const V1: &[u8] = include_bytes!("../golden/v1.jsonl");

#[test]
fn the_golden_log_of_version_1_is_read_whole() {
    let disk = SimDisk::new();
    disk.put(PATH, V1);
    let (opened, entries) = open(&FileJournal::new(Arc::new(disk.clone()))).unwrap();
    assert_eq!(opened.damage, []);
    assert_eq!(seqs(&entries), (0..9).collect::<Vec<_>>());
    let kinds: Vec<_> = entries.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "session_meta",
            "context",
            "user",
            "run_created",
            "assistant_started",
            "assistant_finished",
            "state_changed",
            "of_a_later_ctx",
            "session_renamed"
        ]
    );
    assert_eq!(entries[2].time, at(1));
    assert_eq!(disk.contents(PATH).unwrap(), V1);
}

#[test]
fn every_version_has_a_golden_log() {
    assert_eq!(FORMAT_VERSION, 1, "a new version needs tests/golden/v<n>.jsonl and a test here");
}

#[test]
fn what_is_written_today_is_version_1_byte_for_byte() {
    let disk = SimDisk::new();
    let journal = FileJournal::new(Arc::new(disk.clone()));
    let writer = create(&journal);
    writer.append_next(at(1), &command(&["a", "b"])).unwrap();
    let expected = concat!(
        r#"{"schema_version":1,"seq":0,"time":"2026-11-15T06:00:00.000Z","type":"session_meta","name":"default"}"#,
        "\n",
        r#"{"schema_version":1,"seq":1,"time":"2026-11-15T06:00:01.000Z","type":"note","text":"a","more":true}"#,
        "\n",
        r#"{"schema_version":1,"seq":2,"time":"2026-11-15T06:00:01.000Z","type":"note","text":"b","batch":2}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(disk.contents(PATH).unwrap()).unwrap(), expected);
}
