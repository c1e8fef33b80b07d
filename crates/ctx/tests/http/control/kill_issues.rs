//! `kill -9` around issues: their audit lines, the closing checkpoint, and a session that is bound from the beginning.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{moment, until};

use super::kill::{killed_while, killed_while_asking, kills, restart};
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
    for round in 0..6 {
        // One for each round: an issue has room for so many todos, and a fast machine adds hundreds a second.
        let issue = http.new_issue("Mend");
        let line = Line::to(&http);
        let at = format!("/issues/{issue}/todos");
        let added = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&added);
        let adding = std::thread::spawn(move || {
            for n in 0.. {
                let body = json!({ "text": format!("todo {round}.{n}") }).to_string();
                if line.ask("POST", &at, Some(&body)).is_none_or(|response| response.status != 201) {
                    return;
                }
                counted.store(n, Ordering::Relaxed);
            }
            unreachable!("it goes on until the daemon is gone")
        });
        until("some todos", || (added.load(Ordering::Relaxed) >= 4).then_some(()));
        std::thread::sleep(Duration::from_millis(round * 37));
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

#[test]
fn a_closing_checkpoint_resolves_its_issue_once_whenever_the_daemon_dies() {
    let mut http = daemon(&[]);
    let mut met = [0; 3];
    for round in kills() {
        let (id, checkpoint) = http.paused("before", "after");
        let issue = http.new_issue("To be closed");
        let bind = json!({ "issue_id": issue }).to_string();
        http.call("PUT", &path(&id, "bind"), Some(&bind)).json(200);
        let at = path(&id, &format!("checkpoints/{checkpoint}/resume"));
        let resolve = Some(r#"{"resolve":true}"#);
        let answered = killed_while(&mut http, moment(round, 16_500), &at, resolve);
        let resumed = http.checkpoint(&id, &checkpoint)["resumed_at"].is_u64();
        let status = || text(&http.get(&format!("/issues/{issue}")), "status").to_owned();
        let resolved = status() == "resolved";
        assert!(resumed || !resolved, "it is resolved by going on");
        assert!(resolved || !answered, "what was answered is there");
        met[usize::from(resumed) + usize::from(resolved)] += 1;
        assert_eq!(http.state(&id), if resumed { "idle" } else { "paused" });
        // Whoever asks again finishes what was left.
        let again = http.call("POST", &at, resolve);
        if resolved {
            assert_eq!(again.code(409), "EBUSY", "all of it was done");
        } else {
            again.json(200);
        }
        http.wait_for(&id, "idle");
        assert_eq!(status(), "resolved");
        assert_eq!(http.of_type(&id, "checkpoint_resumed").len(), 1);
        let records = http.project_records();
        let of_issue = |record: &&Value| record["issue_id"] == json!(issue) && record["status"] == "resolved";
        assert_eq!(records.iter().filter(of_issue).count(), 1);
        assert_eq!(http.done(&id, "and on")["state"], "done");
    }
    println!("neither, resumed, both: {met:?}");
}

#[test]
fn a_session_that_is_made_with_an_issue_is_made_once_and_bound_whenever_the_daemon_dies() {
    let mut http = daemon(&[]);
    let mut met = [0; 3];
    for round in kills() {
        let issue = http.new_issue("Sent to an agent");
        let body = json!({ "bound_issue": issue, "name": format!("s{round}") }).to_string();
        let key = format!("Idempotency-Key: key-{round}\r\n");
        let at = "/projects/default/sessions";
        let answered = killed_while_asking(&mut http, moment(round, 22_500), at, &key, Some(&body));
        let sessions = |http: &Http| -> Vec<Value> {
            http.get(at)["items"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|one| one["name"] == format!("s{round}"))
                .cloned()
                .collect()
        };
        let found = sessions(&http);
        assert!(found.len() <= 1, "{found:?}");
        let bound = found.first().is_some_and(|one| one["bound_issue"] == json!(issue));
        assert!(bound || !answered, "what was answered is there");
        met[found.len() + usize::from(bound)] += 1;
        let made = Line::to(&http).ask_with("POST", at, &key, Some(&body)).unwrap().json(201);
        assert_eq!(made["bound_issue"], json!(issue));
        assert_eq!(sessions(&http).len(), 1, "once");
        assert!(found.first().is_none_or(|one| one["id"] == made["id"]), "the very same");
        assert_eq!(http.get(&format!("/issues/{issue}"))["session_id"], made["id"]);
        let id = text(&made, "id");
        assert_eq!(http.of_type(id, "bound").len(), 1, "bound once");
        assert_eq!(http.done(id, "hello")["state"], "done");
    }
    println!("neither, made, both: {met:?}");
}

/// Takes the last lines off a log of a daemon that is dead, as if it had died before it wrote them.
fn cut(log: &std::path::Path, keep: impl Fn(&Value) -> bool) {
    let text = std::fs::read_to_string(log).unwrap();
    let kept: Vec<&str> =
        text.lines().take_while(|line| keep(&serde_json::from_str(line).unwrap())).collect();
    assert!(kept.len() < text.lines().count(), "there is something to cut off");
    std::fs::write(log, kept.join("\n") + "\n").unwrap();
}

/// The moment that the kills above seldom meet: resumed, and not resolved.
#[test]
fn a_daemon_that_died_between_the_resume_and_the_resolve_resolves_when_it_is_asked_again() {
    let mut http = daemon(&[]);
    let (id, checkpoint) = http.paused("before", "after");
    let issue = http.new_issue("To be closed");
    http.call("PUT", &path(&id, "bind"), Some(&json!({ "issue_id": issue }).to_string())).json(200);
    let at = path(&id, &format!("checkpoints/{checkpoint}/resume"));
    let resolve = Some(r#"{"resolve":true}"#);
    http.call("POST", &at, resolve).json(200);
    http.wait_for(&id, "idle");
    http.daemon.kill();
    let log = http.daemon.root().join(".state/project/default/events.jsonl");
    cut(&log, |record| record["type"] != "issue_changed");
    http.daemon.start_again();
    assert_eq!(http.get(&format!("/issues/{issue}"))["status"], "open");
    http.call("POST", &at, resolve).json(200);
    assert_eq!(http.get(&format!("/issues/{issue}"))["status"], "resolved");
    assert_eq!(http.of_type(&id, "checkpoint_resumed").len(), 1, "and does not go on twice");
    assert_eq!(http.call("POST", &at, resolve).code(409), "EBUSY", "once");
}

/// Made, and not bound.
#[test]
fn a_daemon_that_died_between_the_create_and_the_bind_binds_when_it_is_asked_again() {
    let mut http = daemon(&[]);
    let issue = http.new_issue("Sent to an agent");
    let body = json!({ "bound_issue": issue, "name": "sent" }).to_string();
    let ask = |http: &Http| {
        let key = "Idempotency-Key: one-and-only\r\n";
        Line::to(http).ask_with("POST", "/projects/default/sessions", key, Some(&body)).unwrap().json(201)
    };
    let made = ask(&http);
    http.daemon.kill();
    let log = format!("home/{}/agent/coder/session/sent/events.jsonl", rustix::process::getuid().as_raw());
    cut(&http.daemon.root().join(log), |record| record["type"] != "bound");
    http.daemon.start_again();
    assert_eq!(http.get(&format!("/sessions/{}", text(&made, "id")))["bound_issue"], Value::Null);
    let again = ask(&http);
    assert_eq!((&again["id"], &again["bound_issue"]), (&made["id"], &json!(issue)));
    assert_eq!(ask(&http)["id"], made["id"]);
    assert_eq!(http.of_type(text(&made, "id"), "bound").len(), 1);
}
