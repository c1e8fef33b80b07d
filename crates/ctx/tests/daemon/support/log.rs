//! A log read as strictly as its format allows: whole lines, whole commands, no gap.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

pub struct Log {
    pub records: Vec<Value>,
}

impl Log {
    /// Fails on anything that a log must not hold.
    #[track_caller]
    pub fn read(path: &Path) -> Log {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(text.ends_with('\n'), "{}: a torn tail: {:?}", path.display(), text.lines().last());
        let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (at, record) in records.iter().enumerate() {
            assert_eq!(record["seq"], at as u64, "{}: seq has a gap: {record}", path.display());
        }
        let last = records.last().unwrap();
        assert_eq!(last["more"], Value::Null, "{}: half a command at the end: {last}", path.display());
        Log { records }
    }

    pub fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.records.iter().filter(|record| record["type"] == kind).collect()
    }

    /// The records that end runs.
    pub fn ends(&self) -> Vec<&Value> {
        let is_end = |kind: &str| ["run_finished", "cancelled", "failed"].contains(&kind);
        self.records.iter().filter(|record| is_end(record["type"].as_str().unwrap())).collect()
    }

    /// Each run that was created ends once, but for the one that goes on or waits.
    #[track_caller]
    pub fn every_run_ends_once(&self) {
        let mut ends: HashMap<&str, usize> = HashMap::new();
        for end in self.ends() {
            *ends.entry(end["turn_id"].as_str().unwrap()).or_default() += 1;
        }
        for created in self.of_type("run_created") {
            let run = created["turn_id"].as_str().unwrap();
            assert_eq!(ends.remove(run), Some(1), "run {run} must end once");
        }
        assert!(ends.is_empty(), "ends of runs that never were: {ends:?}");
    }

    /// The state that the newest `state_changed` tells.
    pub fn state(&self) -> &str {
        let last = self.records.iter().rev().find(|record| record["type"] == "state_changed");
        last.map_or("idle", |record| record["to"].as_str().unwrap())
    }

    /// `messages.jsonl` as it must be: each message of the log, in its order, with its ids and its text.
    #[track_caller]
    pub fn agrees_with(&self, messages: &[Value]) {
        let said = |record: &&Value| match record["type"].as_str().unwrap() {
            "user" => true,
            "assistant_finished" => record["text"] != "",
            _ => false,
        };
        let spoken: Vec<(u64, &str, &str)> = self
            .records
            .iter()
            .filter(said)
            .map(|record| {
                let text = record["text"].as_str().unwrap();
                (record["seq"].as_u64().unwrap(), record["message_id"].as_str().unwrap(), text)
            })
            .collect();
        let shown: Vec<(u64, &str, &str)> = messages
            .iter()
            .filter(|line| matches!(line["role"].as_str(), Some("user" | "assistant")))
            .filter_map(|line| {
                let text = line["content"].as_array()?.iter().find_map(|part| part["text"].as_str())?;
                Some((line["seq"].as_u64()?, line["id"].as_str()?, text))
            })
            .collect();
        assert_eq!(shown, spoken, "messages.jsonl must say what the log says");
    }
}

/// The lines of `messages.jsonl` in a session's directory.
#[track_caller]
pub fn read_messages(dir: &Path) -> Vec<Value> {
    let path = dir.join("messages.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
