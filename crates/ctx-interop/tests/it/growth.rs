//! A source that grows: what was read before is read again as it was, and the new follows.

use crate::support::{fixtures, read_all};
use ctx_interop::records::{Dated, make, records, session_id};
use ctx_interop::{Agent, Event, Transcript, What, claude, codex, goose, opencode};
use ctx_session::conversation::{Conversation, Part};
use ctx_session::record::{Body, Imported, MessageBody, RunBody, Scope, SessionBody, Usage};
use ctx_session::rules::Known;
use ctx_session::session::RunState;
use ctx_session::{Record, Session, Timestamp, Ulid};
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

/// A session to which readings of a source were brought, one after the other.
struct Log {
    known: Known,
    session: Session,
    conversation: Conversation,
    seq: u64,
    usage: Usage,
    /// Records that say that a run was cancelled or failed.
    bad_ends: usize,
}

/// How a run ended, and what it cost.
type Ends = Vec<(RunState, Usage)>;

impl Log {
    fn new(agent: Agent, first: &Transcript) -> Log {
        let meta = json!({
            "session_id": session_id(agent, first), "name": "a", "scope": Scope::Private, "owner": 1000,
            "agent": "codex", "project": "default", "cwd": "/w", "model": "m", "app": "test", "origin": {}
        });
        let meta = serde_json::from_value(meta).unwrap();
        let session = Session::new(meta, 0, first.created.unwrap_or_default());
        let (known, conversation, usage) = (Known::default(), Conversation::default(), Usage::default());
        Log { known, session, conversation, seq: 1, usage, bad_ends: 0 }
    }

    /// How many records were new.
    fn import(&mut self, agent: Agent, found: &Transcript) -> usize {
        let made = make(agent, found);
        let records: Vec<_> = made.records.into_iter().map(|made| (made.time, made.body)).collect();
        let left = made.superseded.into_iter().chain(self.known.made_whole(&records));
        let superseded: Vec<Ulid> = self.known.counting(left).collect();
        let new = records.into_iter().filter_map(|(time, body)| Some((time, self.known.take(time, body)?)));
        let mut new: Vec<(Timestamp, Body)> = new.collect();
        let added = new.len();
        if !superseded.is_empty() {
            let (import_id, at) = (Ulid(1), Timestamp::default());
            let by = Imported { import_id, by: 0, records: 0, at, restored: Vec::new(), superseded };
            let by = Body::Session(SessionBody::Imported(by));
            self.known.add(at, &by);
            new.push((at, by));
        }
        for (time, body) in new {
            if let Body::Message(MessageBody::AssistantFinished(done)) = &body {
                self.usage = self.usage.plus(done.usage.unwrap_or_default());
            }
            let is_bad = matches!(body, Body::Run(RunBody::Cancelled(_) | RunBody::Failed(_)));
            self.bad_ends += usize::from(is_bad);
            let record = Record { seq: self.seq, time, body };
            self.seq += 1;
            self.session.apply(&record);
            self.conversation.apply(&record);
        }
        added
    }

    fn said(&self) -> Vec<(Ulid, Vec<Part>)> {
        let messages = self.conversation.messages(&self.session.ledger);
        messages.iter().map(|message| (message.id, message.content.clone())).collect()
    }

    fn ends(&self) -> Ends {
        self.session.runs().map(|run| (run.state.clone(), run.usage)).collect()
    }
}

/// The sessions of a case that are one file each, with their bytes.
fn files(agent: Agent, case: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let store = crate::support::list(agent, &case.join("files"));
    let of = |path: &std::path::Path| (path.display().to_string(), std::fs::read(path).unwrap());
    store.entries.iter().map(|entry| of(&entry.path)).collect()
}

#[test]
fn a_source_that_is_imported_while_it_grows_comes_to_what_it_is_as_a_whole() {
    for (agent, label, case, _) in crate::support::cases() {
        if label.ends_with("/large") || label == "codex/forked" {
            continue;
        }
        for (name, bytes) in files(agent, &case) {
            let read = |bytes: &[u8]| match agent {
                Agent::Codex => codex::read(bytes, &name).0,
                Agent::Claude => claude::read_some(bytes, &name, true),
                Agent::Gemini if name.ends_with("l") => ctx_interop::gemini::read_log(bytes, &name),
                Agent::Aider => ctx_interop::aider::read(bytes, None, &name),
                _ => Transcript::default(),
            };
            let whole = read(&bytes);
            let mut at_once = Log::new(agent, &whole);
            at_once.import(agent, &whole);
            let ends = ends_of_writes(agent, &bytes);
            for step in [1, 3, 7] {
                let mut grown = Log::new(agent, &whole);
                for end in ends.iter().step_by(step) {
                    // Some readings end within a line.
                    let more = if step == 3 && agent != Agent::Aider { 20 } else { 0 };
                    let part = read(&bytes[..(end + 1 + more).min(bytes.len())]);
                    // Before its first record has come, it is nobody's.
                    if part.native_id == whole.native_id && part.created == whole.created {
                        grown.import(agent, &part);
                    }
                }
                grown.import(agent, &whole);
                assert_eq!(grown.ends(), at_once.ends(), "{label}, {step} lines at a time");
                assert_eq!(grown.usage, at_once.usage, "{label}, {step} lines at a time");
                assert_eq!(grown.said(), at_once.said(), "{label}, {step} lines at a time");
                assert_eq!(grown.import(agent, &whole), 0, "{label}: once more is nothing");
                assert_eq!(grown.bad_ends, at_once.bad_ends, "{label}: an end that stays comes once");
            }
        }
    }
}

/// Where an agent has written something whole: a line, or of Aider, which writes a reply at once, a notice after it.
fn ends_of_writes(agent: Agent, bytes: &[u8]) -> Vec<usize> {
    let mut end = 0;
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(|line| {
        end += line.len();
        (line, end - 1)
    });
    lines
        .filter(|(line, _)| agent != Agent::Aider || (line.starts_with(b"> ") && line.ends_with(b"  \n")))
        .map(|(_, end)| end)
        .collect()
}

#[test]
fn what_was_damaged_and_is_whole_again_is_there_once() {
    for (agent, case) in [
        (Agent::Codex, "codex/tools"),
        (Agent::Codex, "codex-0.50/tools"),
        (Agent::Claude, "claude/tools"),
        (Agent::Claude, "claude/unicode"),
    ] {
        let (name, bytes) = files(agent, &fixtures().join(case)).remove(0);
        let read = |bytes: &[u8]| match agent {
            Agent::Codex => codex::read(bytes, &name).0,
            _ => claude::read(bytes, &name),
        };
        let whole = read(&bytes);
        let mut intact = Log::new(agent, &whole);
        intact.import(agent, &whole);
        let sorted = |log: &Log| {
            let mut said =
                log.said().into_iter().map(|(id, part)| format!("{id} {part:?}")).collect::<Vec<_>>();
            said.sort();
            said
        };
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        for bad in 1..lines.len() {
            let mut damaged = lines.clone();
            damaged[bad] = b"{\"damaged\n";
            let damaged = read(&damaged.concat());
            for readings in [[&damaged, &whole], [&whole, &damaged]] {
                let mut log = Log::new(agent, &whole);
                readings.iter().for_each(|found| assert!(log.import(agent, found) < 1_000));
                assert_eq!(sorted(&log), sorted(&intact), "{case}: line {}", bad + 1);
                // Tokens stand with the text of their call; where that cannot be read, for themselves.
                if !String::from_utf8_lossy(lines[bad]).contains("assistant") {
                    assert_eq!(log.usage, intact.usage, "{case}: line {}", bad + 1);
                }
            }
        }
    }
}

#[test]
fn a_prompt_that_was_typed_anew_leaves_what_came_of_the_first() {
    let line = |kind: &str, uuid: &str, parent: &str, content: Value| {
        let time = format!("2026-11-15T06:00:0{}.000Z", uuid.len());
        let parent = (!parent.is_empty()).then_some(parent);
        let message = json!({ "id": format!("m{uuid}"), "role": kind, "content": content });
        json!({ "type": kind, "uuid": uuid, "parentUuid": parent, "timestamp": time, "message": message,
            "sessionId": "11111111-2222-4333-8444-555555555555" })
        .to_string()
            + "\n"
    };
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    let call = |id: &str| json!([{ "type": "tool_use", "id": id, "name": "Bash", "input": {} }]);
    let result = |id: &str| json!([{ "type": "tool_result", "tool_use_id": id, "content": id }]);
    // Two calls at once are a fork of the tree too, but nobody left one of them.
    let first = [
        line("user", "a", "", json!("one")),
        line("assistant", "bb", "a", call("c1")),
        line("assistant", "ccc", "bb", call("c2")),
        line("user", "dddd", "bb", result("c1")),
        line("user", "eeeee", "ccc", result("c2")),
        line("assistant", "ffffff", "eeeee", text("first")),
        line("user", "ggggggg", "ffffff", json!("twoo")),
        line("assistant", "hhhhhhhh", "ggggggg", text("abandoned")),
    ]
    .concat();
    let anew = line("user", "iiiiiiiii", "ffffff", json!("two"))
        + &line("assistant", "j", "iiiiiiiii", text("second"));
    let read = |text: &str| claude::read(text.as_bytes(), "s.jsonl");
    let whole = read(&(first.clone() + &anew));
    let texts = |log: &Log| {
        let said = log.said().into_iter().flat_map(|(_, parts)| parts);
        let texts = said.filter_map(|part| match part {
            Part::Text { text } => Some(text),
            Part::ToolResult { text, .. } => Some(text),
            _ => None,
        });
        texts.collect::<Vec<_>>()
    };
    let mut at_once = Log::new(Agent::Claude, &whole);
    at_once.import(Agent::Claude, &whole);
    assert_eq!(texts(&at_once), ["one", "c1", "c2", "first", "two", "second"]);
    let mut grown = Log::new(Agent::Claude, &whole);
    grown.import(Agent::Claude, &read(&first));
    assert!(texts(&grown).contains(&"abandoned".to_owned()));
    grown.import(Agent::Claude, &whole);
    assert_eq!(texts(&grown), texts(&at_once));
    assert_eq!(grown.import(Agent::Claude, &whole), 0);
}
