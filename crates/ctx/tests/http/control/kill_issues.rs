//! `kill -9` around issues: their audit lines, the closing checkpoint, and a session that is bound from the beginning.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::until;

use super::kill::{ROUNDS, killed_while, restart};
use super::{Line, daemon, path, text};
use crate::support::Http;

impl Http {
    fn new_issue(&self, title: &str) -> String {
        let body = json!({ "title": title }).to_string();
        let made = self.call("POST", "/projects/default/issues", Some(&body)).json(201);
        text(&made, "id").to_owned()
    }

    /// The records of the project `default`, as its log has them.
    fn project_records(&self) -> Vec<Value> {
        let log = self.daemon.root().join(".state/project/default/events.jsonl");
        let log = std::fs::read_to_string(log).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// What of a project's log the audit log must have: name and seq, in order.
fn expected(records: &[Value]) -> Vec<(String, u64)> {
    let name = |record: &Value| match text(record, "type") {
        "project_added" => Some("project.added"),
        "issue_created" => Some("issue.created"),
        "issue_changed" => Some("issue.changed"),
        "todo_added" => Some("todo.added"),
        "todo_changed" => Some("todo.changed"),
        _ => None,
    };
    let named = |record: &Value| Some((name(record)?.to_owned(), record["seq"].as_u64()?));
    records.iter().filter_map(named).collect()
}

/// The audit lines of the project, oldest first.
fn audited(http: &Http) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = http.get(&format!("/audit?limit=1000{cursor}"));
        for line in page["items"].as_array().unwrap() {
            if line["project_id"] == "default" {
                found.push((text(line, "event").to_owned(), line["project_seq"].as_u64().unwrap()));
            }
        }
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    found.reverse();
    found
}

#[test]
fn what_is_done_to_issues_is_audited_once_however_often_the_daemon_dies() {
    let mut http = daemon(&[]);
    let issue = http.new_issue("Mend");
    for round in 0..6 {
        let line = Line::to(&http);
        let at = format!("/issues/{issue}/todos");
        let adding = std::thread::spawn(move || {
            for n in 0.. {
                let body = json!({ "text": format!("todo {round}.{n}") }).to_string();
                if line.ask("POST", &at, Some(&body)).is_none_or(|response| response.status != 201) {
                    return n;
                }
            }
            unreachable!("it goes on until the daemon is gone")
        });
        std::thread::sleep(Duration::from_millis(20 + round * 37));
        restart(&mut http);
        adding.join().unwrap();
    }
    let wanted = expected(&http.project_records());
    assert!(wanted.len() > 20, "too few to tell: {}", wanted.len());
    until("the audit log", || (audited(&http).len() >= wanted.len()).then_some(()));
    assert_eq!(audited(&http), wanted);
    restart(&mut http);
    assert_eq!(audited(&http), wanted, "and not again");
}
