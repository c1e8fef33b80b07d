//! Cancel, checkpoint, resume and end against the end of the run, hundreds of times: one wins, the log shows one
//! order, and nothing hangs.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{moment, rounds, until};

use super::{Line, daemon, path, script, text};
use crate::support::Http;

const ROUNDS: u64 = 20;

pub fn races() -> Http {
    daemon(&[("RUNNING_PER_PROJECT", "64"), ("RUNNING_PER_OPERATOR", "64")])
}

/// A run that comes to its end after about so long.
fn ending(after_ms: u64) -> String {
    script(json!([{ "text": "a" }, { "sleep_ms": after_ms }, { "text": "b" }]))
}

/// Asks without a process of its own, and expects an answer.
fn ask(line: &Line, method: &str, path: &str) -> (u16, Value) {
    let response = line.ask(method, path, None).expect("an answer");
    (response.status, serde_json::from_str(&response.text).unwrap_or_default())
}

/// Begins a run; the session and the run.
fn begin(http: &Http, line: &Line, after_ms: u64) -> (String, String) {
    let id = http.playing();
    let body = json!({ "text": ending(after_ms) }).to_string();
    let posted = line.ask("POST", &path(&id, "messages"), Some(&body)).expect("an answer").json(202);
    (id, text(&posted, "run_id").to_owned())
}

/// The log tells one order: states follow each other, and every run ends once.
pub fn one_order(http: &Http, id: &str, expect_end: bool) {
    let records = http.records(id);
    let mut state = "idle".to_owned();
    for (at, record) in records.iter().enumerate() {
        assert_eq!(record["seq"], at as u64, "a gap");
        if record["type"] == "state_changed" {
            assert_eq!(record["from"], json!(state), "{records:#?}");
            state = text(record, "to").to_owned();
        }
    }
    let ends = |run: &str| {
        let is_end = |record: &&Value| {
            ["run_finished", "cancelled", "failed"].contains(&text(record, "type"))
                && record["turn_id"] == run
        };
        records.iter().filter(is_end).count()
    };
    for created in records.iter().filter(|record| record["type"] == "run_created") {
        let ended = ends(text(created, "turn_id"));
        assert!(ended == 1 || (!expect_end && ended == 0), "{records:#?}");
    }
    assert_eq!(http.state(id), state);
}

/// Waits a little, another time in every round, around the end of the run.
fn about(round: u64, after_ms: u64) {
    std::thread::sleep(Duration::from_micros(after_ms * 1_000 * (50 + moment(round, 100)) / 100));
}

#[test]
fn a_pause_and_the_end_of_the_run() {
    let http = races();
    let line = Line::to(&http);
    let (mut paused, mut late) = (0, 0);
    for round in rounds(ROUNDS) {
        let (id, _) = begin(&http, &line, 8);
        about(round, 8);
        let (status, made) = ask(&line, "POST", &path(&id, "checkpoints"));
        match status {
            201 => {
                paused += 1;
                assert_eq!(http.state(&id), "paused", "nothing goes on by itself");
                let at = path(&id, &format!("checkpoints/{}/resume", text(&made, "id")));
                assert_eq!(ask(&line, "POST", &at).0, 200);
            }
            409 => late += 1,
            other => panic!("{other}: {made}"),
        }
        until("the end", || {
            (ask(&line, "GET", &format!("/sessions/{id}")).1["state"] == "idle").then_some(())
        });
        one_order(&http, &id, true);
    }
    println!("{paused} paused, {late} late");
}

#[test]
fn a_cancel_a_pause_and_the_end_of_the_run() {
    let http = races();
    let line = Line::to(&http);
    for round in rounds(ROUNDS) {
        let (id, run) = begin(&http, &line, 6);
        let (cancel, pause) = (path(&id, &format!("runs/{run}/cancel")), path(&id, "checkpoints"));
        let (cancelled, paused) = std::thread::scope(|scope| {
            let cancelling = scope.spawn(|| {
                about(round, 6);
                ask(&line, "POST", &cancel)
            });
            let pausing = scope.spawn(|| {
                about(round + 3, 6);
                ask(&line, "POST", &pause)
            });
            (cancelling.join().unwrap(), pausing.join().unwrap())
        });
        assert_eq!(cancelled.0, 200, "{cancelled:?}");
        assert!([201, 409].contains(&paused.0), "{paused:?}");
        // A paused run is cancelled at once; one that the pause missed is over. Either way nothing is left.
        until("the end", || {
            (ask(&line, "GET", &format!("/sessions/{id}")).1["state"] == "idle").then_some(())
        });
        one_order(&http, &id, true);
    }
}

#[test]
fn resumes_a_rollback_and_an_end_of_a_paused_session() {
    let http = races();
    let line = Line::to(&http);
    for round in rounds(ROUNDS) {
        let id = http.playing();
        let checkpoint = http.pause_by_model(&id, "a", "b");
        let at = |act: &str| path(&id, &format!("checkpoints/{checkpoint}/{act}"));
        let (resume, rollback, end) = (at("resume"), at("rollback"), format!("/sessions/{id}?confirm=true"));
        let ends = round % 3 == 0;
        let (first, second, back, ended) = std::thread::scope(|scope| {
            let one = scope.spawn(|| ask(&line, "POST", &resume).0);
            let two = scope.spawn(|| ask(&line, "POST", &resume).0);
            let back = scope.spawn(|| ask(&line, "POST", &rollback).0);
            let ended = scope.spawn(|| if ends { ask(&line, "DELETE", &end).0 } else { 0 });
            (one.join().unwrap(), two.join().unwrap(), back.join().unwrap(), ended.join().unwrap())
        });
        let resumed = [first, second].iter().filter(|status| **status == 200).count();
        assert!(resumed <= 1, "only one resumes: {first} {second}");
        assert!(
            [first, second, back].iter().all(|status| [200, 409].contains(status)),
            "{first} {second} {back}"
        );
        let last = if ends { "ended" } else { "idle" };
        assert!(!ends || ended == 204, "{ended}");
        assert!(ends || resumed == 1 || back == 200, "one of them won");
        until("the end", || (ask(&line, "GET", &format!("/sessions/{id}")).1["state"] == last).then_some(()));
        one_order(&http, &id, true);
    }
}

#[test]
fn an_end_a_pause_and_the_end_of_the_run() {
    let http = races();
    let line = Line::to(&http);
    for round in rounds(ROUNDS) {
        let (id, _) = begin(&http, &line, 6);
        let (end, pause) = (format!("/sessions/{id}?confirm=true"), path(&id, "checkpoints"));
        let (ended, paused) = std::thread::scope(|scope| {
            let ending = scope.spawn(|| {
                about(round, 6);
                ask(&line, "DELETE", &end).0
            });
            let pausing = scope.spawn(|| {
                about(round + 3, 6);
                ask(&line, "POST", &pause).0
            });
            (ending.join().unwrap(), pausing.join().unwrap())
        });
        assert_eq!(ended, 204);
        assert!([201, 409].contains(&paused), "{paused}");
        assert_eq!(http.state(&id), "ended");
        one_order(&http, &id, true);
    }
}
