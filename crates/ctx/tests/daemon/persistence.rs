//! The seed's lists for persistence and crash recovery, through the daemon.

use serde_json::{Value, json};

use super::support::{Daemon, read_messages};

#[test]
fn a_hundred_messages_come_back_in_order() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    for number in 0..100 {
        client.say("default", &format!("m{number}"), &format!("message {number}"));
    }
    daemon.restart();
    let messages = read_messages(&daemon.session("default"));
    let said = |role: &str| -> Vec<Value> {
        messages
            .iter()
            .filter(|line| line["role"] == role)
            .map(|line| line["content"][0]["text"].clone())
            .collect()
    };
    let expected: Vec<Value> = (0..100).map(|number| json!(format!("message {number}"))).collect();
    assert_eq!(said("user"), expected);
    assert_eq!(said("assistant"), expected);
    daemon.log("default").agrees_with(&messages);
}

#[test]
fn a_finished_run_has_all_its_fields_also_after_a_restart() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.play(
        "default",
        "m",
        json!([{"usage": {"input": 12, "output": 5}}, {"text": "a"}, {"sleep_ms": 20}]),
    );
    let run = client.until_done().pop().unwrap()["run"].clone();
    let id = daemon.shown("default")["id"].as_str().unwrap().to_owned();
    let path = format!("/sessions/{id}/runs");
    let before = daemon.api("GET", &path).ok();
    let shown = &before["items"][0];
    assert_eq!((&shown["id"], &shown["session_id"], &shown["state"]), (&run, &json!(id), &json!("done")));
    assert_eq!(
        (&shown["tokens_in"], &shown["tokens_out"], &shown["error"]),
        (&json!(12), &json!(5), &Value::Null)
    );
    let number = |field: &str| shown[field].as_u64().unwrap();
    assert!(number("completed_at") >= number("created_at") && number("duration_ms") >= 20, "{shown}");
    daemon.restart();
    assert_eq!(daemon.api("GET", &path).ok(), before);
}

#[test]
fn a_session_survives_a_restart_as_it_was() {
    let mut daemon = Daemon::start();
    daemon.client().say("default", "m", "x");
    let before = daemon.shown("default");
    for kill in [false, true] {
        if kill {
            daemon.kill()
        } else {
            daemon.stop()
        }
        daemon.start_again();
        assert_eq!(daemon.shown("default"), before);
    }
}

#[test]
fn a_crash_during_a_run_fails_the_run_and_settles_its_tools() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", json!([
        {"text": "looking"}, {"tool": {"name": "fs.list", "input": {"path": "/work"}}}, {"text": "found"}, {"sleep_ms": 600_000},
    ]));
    client.until("tool_result");
    client.until("delta");
    daemon.kill();
    daemon.start_again();
    let log = daemon.log("default");
    log.every_run_ends_once();
    let failed = log.of_type("failed")[0];
    assert_eq!((&failed["code"], &failed["reason"]), (&json!("EINTR"), &json!("daemon_crash_during_run")));
    assert_eq!(log.records.last().unwrap()["trigger"], "crash_recovered");
    assert_eq!(daemon.file("default", "state"), "idle\n");
    let count = log.records.len();
    // A second crash right after recovery finds nothing left to do.
    daemon.kill();
    daemon.start_again();
    assert_eq!(daemon.log("default").records.len(), count);
    daemon.client().say("default", "m2", "the session goes on");
}

#[test]
fn a_crash_between_runs_changes_nothing() {
    let mut daemon = Daemon::start();
    daemon.client().say("default", "m", "x");
    let before = daemon.file("default", "events.jsonl");
    daemon.kill();
    daemon.start_again();
    assert_eq!(daemon.file("default", "events.jsonl"), before);
}

#[test]
fn a_torn_tail_is_cut_off_and_kept_beside() {
    let mut daemon = Daemon::start();
    daemon.client().say("default", "m", "x");
    let whole = daemon.file("default", "events.jsonl");
    daemon.kill();
    let path = daemon.session("default").join("events.jsonl");
    std::fs::write(&path, format!("{whole}{{\"schema_version\":1,\"seq\":99,\"ti")).unwrap();
    daemon.start_again();
    daemon.client().say("default", "m2", "y");
    assert!(daemon.file("default", "events.jsonl").starts_with(&whole));
    daemon.log("default").every_run_ends_once();
    let names = std::fs::read_dir(daemon.session("default")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().any(|name| name.to_string_lossy().starts_with("events.jsonl.torn-")));
}
