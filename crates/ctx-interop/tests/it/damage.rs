//! Damaged sources: what is intact is read, the rest is reported, and nothing makes a reader panic or take long.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{fixtures, read_all, sorted};
use ctx_interop::{Agent, Transcript, aider, claude, codex, gemini, goose, opencode};
use ctx_session::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

fn damaged(name: &str) -> (Transcript, Value) {
    let case = fixtures().join("damaged").join(name);
    let expected: Value =
        serde_json::from_slice(&std::fs::read(case.join("expected.json")).unwrap()).unwrap();
    let agent = Agent::of_name(name.split('-').next().unwrap()).unwrap();
    (read_all(agent, &case).pop().unwrap(), expected)
}

#[test]
fn intact_records_come_in_and_the_rest_is_reported_by_line() {
    let names = sorted(&fixtures().join("damaged"));
    assert_eq!(names.len(), 6);
    for path in names {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (found, expected) = damaged(name);
        assert_eq!(found.intact, expected["intact_records"].as_u64().unwrap(), "{name}");
        let lines: Vec<u64> = found.damage.iter().map(|damage| damage.line).collect();
        let source = expected["source_records"].as_u64().unwrap();
        match expected.get("bad_line_1based").and_then(Value::as_u64) {
            Some(line) => assert_eq!(lines, [line], "{name}"),
            None if name.contains("torn") => assert_eq!(lines, [source], "{name}"),
            None => assert!(lines.is_empty(), "{name}: {:?}", found.damage),
        }
        for damage in &found.damage {
            assert!(damage.file.ends_with(expected["file"].as_str().unwrap()), "{name}: {damage:?}");
        }
    }
}

#[test]
fn a_record_that_is_there_twice_is_told_once() {
    let (found, _) = damaged("claude-duplicated-line");
    let whole = read_all(Agent::Claude, &fixtures().join("claude/tools/files")).pop().unwrap();
    assert_eq!(found.events, whole.events);
}

#[test]
fn a_line_of_many_megabytes_is_read() {
    let path = fixtures().join("codex/tools/files");
    let bytes = std::fs::read(&crate::support::list(Agent::Codex, &path).entries[0].path).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let big = text.replacen("Chunk ID: ", &"x".repeat(5 << 20), 1);
    assert!(big.len() > text.len() + (4 << 20));
    let (found, _) = codex::read(big.as_bytes(), "rollout.jsonl");
    assert!(found.damage.is_empty());
}

#[test]
fn what_is_unknown_is_counted() {
    let lines = concat!(
        r#"{"timestamp":"2026-11-15T06:14:44.511Z","type":"session_meta","payload":{"id":"a","cwd":"/w"}}"#,
        "\n",
        r#"{"timestamp":"2026-11-15T06:14:44.511Z","type":"hologram","payload":{}}"#,
        "\n",
        r#"{"timestamp":"2026-11-15T06:14:44.511Z","type":"event_msg","payload":{"type":"applause"}}"#,
        "\n",
        r#"{"timestamp":"2026-11-15T06:14:44.511Z","type":"hologram","payload":{}}"#,
        "\n",
    );
    let (found, _) = codex::read(lines.as_bytes(), "f");
    assert_eq!(found.unknown.get("hologram"), Some(&2));
    assert_eq!(found.unknown.get("event_msg/applause"), Some(&1));
    let found = claude::read(b"{\"type\":\"hologram\"}\n", "f");
    assert_eq!(found.unknown.get("hologram"), Some(&1));
}

/// Runs a reader over bytes and holds it to a time that grows with their number alone.
fn read_with_every_reader(bytes: &[u8]) {
    let begin = Instant::now();
    let mut events = 0;
    events += codex::read(bytes, "rollout.jsonl").0.events.len();
    events += claude::read(bytes, "a.jsonl").events.len();
    events += gemini::read_log(bytes, "a.jsonl").events.len();
    events += gemini::read_json(bytes, "a.json").events.len();
    events += aider::read(bytes, Some(bytes), "a.md").events.len();
    let data = String::from_utf8_lossy(bytes).into_owned();
    let row = |id: &str, owner: &str| opencode::Row {
        id: id.into(),
        owner: owner.into(),
        data: data.clone(),
        file: "f".into(),
    };
    events +=
        opencode::read(opencode::Session::default(), &[row("m", "")], &[row("p", "m")], Timestamp::default())
            .events
            .len();
    let goose_row = goose::Row {
        id: 1,
        role: "user".into(),
        content: data.clone(),
        created: 1,
        metadata: Some(data.clone()),
    };
    events += goose::read(&goose::Session::default(), &[goose_row], "f").events.len();
    assert!(events <= 64 + bytes.len(), "{events} events out of {} bytes", bytes.len());
    let allowed = Duration::from_secs(5) + Duration::from_micros(bytes.len() as u64);
    assert!(begin.elapsed() < allowed, "{:?} for {} bytes", begin.elapsed(), bytes.len());
}

/// Files of real sessions to damage, small ones.
fn samples() -> Vec<Vec<u8>> {
    fn walk(dir: &Path, found: &mut Vec<Vec<u8>>) {
        for path in sorted(dir) {
            let is_source =
                path.extension().is_some_and(|end| end == "jsonl" || end == "md" || end == "json");
            if path.is_dir() {
                walk(&path, found);
            } else if is_source && path.metadata().unwrap().len() < 80_000 {
                found.push(std::fs::read(&path).unwrap());
            }
        }
    }
    let mut found = Vec::new();
    for agent in [
        "codex/tools",
        "codex-0.50/tools",
        "claude/tools",
        "claude/interactive",
        "gemini/resumed",
        "aider",
        "opencode-1.1/tools",
    ] {
        walk(&fixtures().join(agent), &mut found);
    }
    assert!(found.len() > 20);
    found
}

/// One way in which a file comes to harm.
#[derive(Debug, Clone)]
enum Harm {
    Set(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Repeat(usize, usize),
    Nul(usize, usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Harm::Set(at, byte)),
        any::<usize>().prop_map(Harm::Cut),
        (any::<usize>(), 0..500usize).prop_map(|(at, len)| Harm::Remove(at, len)),
        (any::<usize>(), 0..500usize).prop_map(|(at, len)| Harm::Repeat(at, len)),
        (any::<usize>(), 0..500usize).prop_map(|(at, len)| Harm::Nul(at, len)),
    ]
}

fn apply(bytes: &mut Vec<u8>, harm: &Harm) {
    if bytes.is_empty() {
        return;
    }
    let size = bytes.len();
    let place = |at: usize, len: usize| {
        let at = at % size;
        at..(at + len).min(size)
    };
    match *harm {
        Harm::Set(at, byte) => {
            let at = place(at, 0).start;
            bytes[at] = byte;
        }
        Harm::Cut(at) => bytes.truncate(place(at, 0).start),
        Harm::Remove(at, len) => drop(bytes.drain(place(at, len))),
        Harm::Repeat(at, len) => {
            let part = bytes[place(at, len)].to_vec();
            bytes.extend(part);
        }
        Harm::Nul(at, len) => bytes[place(at, len)].fill(0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn random_damage_harms_no_reader(which in any::<usize>(), harms in prop::collection::vec(harm(), 1..12)) {
        let samples = samples();
        let mut bytes = samples[which % samples.len()].clone();
        harms.iter().for_each(|harm| apply(&mut bytes, harm));
        read_with_every_reader(&bytes);
    }

    #[test]
    fn random_bytes_harm_no_reader(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        read_with_every_reader(&bytes);
    }

    #[test]
    fn random_json_harms_no_reader(words in prop::collection::vec("[\\[\\]{}\",:a-z0-9\\\\\n]{0,12}|\"type\"|\"payload\"|\"message\"|\"content\"|\"uuid\":\"a\"|\"parentUuid\":\"a\"|\"\\$set\"|\"messages\"", 0..200)) {
        read_with_every_reader(words.concat().as_bytes());
    }

    /// A damaged database is read as far as it can be, or refused.
    #[test]
    fn random_damage_harms_no_reader_of_databases(is_goose in any::<bool>(), harms in prop::collection::vec(harm(), 1..6)) {
        let (agent, case, file) = if is_goose {
            (Agent::Goose, "goose/tools", ".local/share/goose/sessions/sessions.db")
        } else {
            (Agent::Opencode, "opencode/tools", ".local/share/opencode/opencode.db")
        };
        let mut bytes = std::fs::read(fixtures().join(case).join("files").join(file)).unwrap();
        harms.iter().for_each(|harm| apply(&mut bytes, harm));
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let begin = Instant::now();
        let store = crate::support::list(agent, home.path());
        let read = store.entries.iter().filter_map(|entry| store.read(entry).ok()).map(|found| found.events.len());
        prop_assert!(read.sum::<usize>() <= bytes.len());
        prop_assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        prop_assert!(std::fs::read(&path).unwrap() == bytes, "and is not mended by us");
    }

    /// Every line that stays whole stays told: harm to one line takes no other.
    #[test]
    fn harm_to_one_line_takes_no_other(which in any::<usize>(), at in any::<usize>(), byte in 0u8..32) {
        let path = fixtures().join("codex/tools/files");
        let file = &crate::support::list(Agent::Codex, &path).entries[0].path;
        let bytes = std::fs::read(file).unwrap();
        let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).filter(|line| !line.is_empty()).collect();
        let (before, _) = codex::read(&bytes, "f");
        let place = 1 + which % (lines.len() - 1);
        let line = &mut lines[place];
        let at = at % line.len();
        line[at] = if byte == b'\n' { 0 } else { byte };
        let (after, _) = codex::read(&lines.join(&b'\n'), "f");
        prop_assert!(after.intact + 1 >= before.intact);
        prop_assert!(after.damage.len() <= 1);
        prop_assert!(after.events.len() + 1 >= before.events.len());
    }
}

#[test]
fn deep_nesting_and_long_chains_take_neither_the_stack_nor_long() {
    let deep = format!("{{\"type\":\"user\",\"message\":{}{}}}\n", "[".repeat(200_000), "]".repeat(200_000));
    read_with_every_reader(deep.as_bytes());
    let mut chain = String::new();
    for n in (0..20_000).rev() {
        chain.push_str(&format!(
            "{{\"type\":\"user\",\"uuid\":\"{n}\",\"parentUuid\":\"{}\",\"message\":{{\"content\":\"m{n}\"}}}}\n",
            n - 1
        ));
    }
    let found = claude::read(chain.as_bytes(), "f");
    assert_eq!(found.events.len(), 20_000);
    assert_eq!(found.events[0].key, "0", "told after its parent, however far up that stands");
}
