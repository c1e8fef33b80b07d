//! A source that grows: what was read before is read again as it was, and the new follows.

use crate::support::{fixtures, read_all};
use ctx_interop::records::{Dated, records, session_id};
use ctx_interop::{Agent, Event, What, claude, codex, goose, opencode};
use ctx_session::record::Body;
use serde_json::{Value, json};

/// What identifies a record.
fn identity(record: &Dated) -> String {
    match &record.body {
        Body::Run(_) => String::new(),
        body => {
            let json: serde_json::Value = serde_json::from_str(&body.to_json()).unwrap();
            let id = ["message_id", "call_id", "compaction_id"].iter().find_map(|name| json.get(name));
            format!("{}:{}", body.name(), id.unwrap())
        }
    }
}

#[test]
fn every_prefix_of_a_source_gives_a_prefix_of_its_records() {
    for (agent, case) in [
        (Agent::Codex, "codex/tools"),
        (Agent::Codex, "codex-0.50/tools"),
        (Agent::Claude, "claude/tools"),
        // Here a record stands above the one that it answers.
        (Agent::Claude, "claude/interactive"),
    ] {
        let files = fixtures().join(case).join("files");
        let path = crate::support::list(agent, &files).entries[0].path.clone();
        let bytes = std::fs::read(&path).unwrap();
        let name = path.display().to_string();
        let read = |bytes: &[u8]| match agent {
            Agent::Codex => codex::read(bytes, &name).0,
            _ => claude::read(bytes, &name),
        };
        let id = session_id(agent, &read(&bytes));
        let whole: Vec<String> =
            records(agent, &read(&bytes)).iter().map(identity).filter(|id| !id.is_empty()).collect();
        for (end, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            let found = read(&bytes[..=end]);
            if found.created.is_some() {
                assert_eq!(
                    session_id(agent, &found),
                    id,
                    "{case}: it is the same session from its first record on"
                );
            }
            let part = records(agent, &found);
            let steps = |id: &&String| !id.starts_with("assistant");
            let part: Vec<String> = part.iter().map(identity).filter(|id| !id.is_empty()).collect();
            let known: Vec<&String> = whole.iter().filter(steps).collect();
            for id in part.iter().filter(steps) {
                assert!(known.contains(&id), "{case}: {id} is gone later");
            }
        }
    }
}

#[test]
fn reading_twice_gives_the_same_records() {
    for (agent, label, case, _) in crate::support::cases() {
        let first = read_all(agent, &case.join("files"));
        let second = read_all(agent, &case.join("files"));
        for (one, other) in first.iter().zip(&second) {
            assert_eq!(records(agent, one), records(agent, other), "{label}");
        }
    }
}

/// The files below a directory with their contents.
fn contents(dir: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for path in crate::support::sorted(dir) {
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            all.push((path, bytes));
        }
    }
    all
}

#[test]
fn no_byte_of_a_source_changes() {
    for name in ["opencode/interrupted-kill9-tool", "opencode/tools", "goose/tools", "codex/tools"] {
        let agent = Agent::of_name(name.split('/').next().unwrap()).unwrap();
        let files = fixtures().join(name).join("files");
        let before = contents(&files);
        assert_eq!(read_all(agent, &files).len(), 1);
        assert!(before == contents(&files), "{name}");
    }
}

#[test]
fn a_database_that_is_written_to_meanwhile_is_read_as_it_was_at_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sessions.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode=wal; PRAGMA synchronous=off;
         CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT, working_dir TEXT, created_at TEXT);
         CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content_json TEXT, created_timestamp INTEGER);
         INSERT INTO sessions VALUES ('s', 'n', '/w', '2026-11-15 06:16:46');",
    )
    .unwrap();
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = is_over.clone();
    // Two rows a transaction: a reader that sees an odd number has read in the middle of one.
    let writer = std::thread::spawn(move || {
        let row = "INSERT INTO messages (session_id, role, content_json, created_timestamp) VALUES ('s', 'user', '[{\"type\":\"text\",\"text\":\"hello\"}]', 1794723284);";
        let mut written = 0;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            db.execute_batch(&format!("BEGIN; {row} {row} COMMIT;")).unwrap();
            written += 2;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        written
    });
    let mut last = 0;
    for _ in 0..10 {
        let found = read_all(Agent::Goose, dir.path()).pop().unwrap();
        assert_eq!(found.messages() % 2, 0);
        assert!(found.messages() >= last && found.damage.is_empty());
        last = found.messages();
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(writer.join().unwrap() >= last, "the writer was never refused");
    assert!(last > 0);
}

#[test]
fn an_answer_that_is_being_written_comes_when_it_is_whole() {
    let row = |id: &str, owner: &str, data: Value| opencode::Row {
        id: id.into(),
        owner: owner.into(),
        data: data.to_string(),
        file: "f".into(),
    };
    let begun = 1_794_723_284_000u64;
    let message = row("m", "", json!({ "role": "assistant", "time": { "created": begun } }));
    let part = row("p", "m", json!({ "type": "text", "text": "It beg", "time": { "start": begun } }));
    let said = |after: u64| {
        let now = ctx_session::Timestamp::from_millis(begun + after);
        opencode::read(
            opencode::Session::default(),
            std::slice::from_ref(&message),
            std::slice::from_ref(&part),
            now,
        )
        .events
        .len()
    };
    assert_eq!(said(2_000), 0, "it may go on");
    assert_eq!(said(3_600_000), 1, "it was cut off");
}

#[test]
fn the_tokens_of_a_session_of_goose_are_counted_once_however_it_grows() {
    let row = |id: i64, role: &str, text: &str| goose::Row {
        id,
        role: role.into(),
        content: json!([{ "type": "text", "text": text }]).to_string(),
        created: 1_794_723_284,
        metadata: None,
    };
    let rows = [row(1, "user", "a"), row(2, "assistant", "b"), row(3, "user", "c"), row(4, "assistant", "d")];
    let spent = |rows: &[goose::Row], input: u64| {
        let session =
            goose::Session { id: "s".into(), input_tokens: Some(input), ..goose::Session::default() };
        let found = goose::read(&session, rows, "f");
        let with = |event: &Event| matches!(event.what, What::Assistant { tokens: Some(_), .. });
        found.events.iter().filter(|event| with(event)).map(|event| event.key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(spent(&rows[..2], 10), spent(&rows, 25), "the same answer has them");
}

#[test]
fn a_file_that_is_written_to_meanwhile_is_read_up_to_a_whole_record() {
    let files = fixtures().join("codex/tools/files");
    let source = std::fs::read(&crate::support::list(Agent::Codex, &files).entries[0].path).unwrap();
    let home = tempfile::tempdir().unwrap();
    let name = "rollout-2026-11-15T06-14-05-01a1ddd7-6d81-7641-8ef6-f0383a499768.jsonl";
    let path = home.path().join(name);
    std::fs::write(&path, b"").unwrap();
    let whole = codex::read(&source, name).0;
    // In pieces that end within lines, as a program with a small buffer writes.
    let bytes = source.clone();
    let writer = std::thread::spawn(move || {
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        for piece in bytes.chunks(997) {
            std::io::Write::write_all(&mut file, piece).unwrap();
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    });
    let mut last = 0;
    loop {
        let is_over = writer.is_finished();
        let found = read_all(Agent::Codex, home.path()).pop().unwrap();
        assert!(found.damage.len() <= 1, "{:?}", found.damage);
        assert!(found.damage.iter().all(|damage| damage.why.contains("cut off")), "{:?}", found.damage);
        let keys = |found: &ctx_interop::Transcript| {
            found.events.iter().map(|event| event.key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(keys(&found), keys(&whole)[..found.events.len()], "a beginning of what it becomes");
        assert!(found.events.len() >= last);
        last = found.events.len();
        if is_over {
            break;
        }
    }
    writer.join().unwrap();
    assert_eq!(last, whole.events.len());
}
