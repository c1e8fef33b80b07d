//! `kill -9` in every state that waits for the operator, and in the middle of what they ask for.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{moment, rounds};

use super::proposals::propose;
use super::{Line, daemon, path, script, text};
use crate::support::Http;

/// How often the daemon is killed in the middle of one thing.
pub fn kills() -> Range<u64> {
    rounds(5)
}

pub fn restart(http: &mut Http) {
    http.daemon.kill();
    http.daemon.start_again();
}

#[test]
fn a_paused_session_is_paused_after_a_restart_and_goes_on() {
    let mut http = daemon(&[]);
    let (id, checkpoint) = http.paused("before", "after");
    http.edit(&id, &checkpoint, "HOLD THE LINE").json(200);
    let run = text(&http.get(&format!("/sessions/{id}")), "current_run").to_owned();
    restart(&mut http);
    let session = http.get(&format!("/sessions/{id}"));
    assert_eq!((&session["state"], &session["checkpoint"]), (&json!("paused"), &json!(checkpoint)));
    assert_eq!(session["current_run"], json!(run), "the run waits with it");
    assert_eq!(http.checkpoint(&id, &checkpoint)["prompt_edits"][0]["content"], "HOLD THE LINE");
    assert_eq!(http.resume(&id, &checkpoint)["run_id"], json!(run));
    http.wait_for(&id, "idle");
    assert_eq!(http.messages(&id, false).last().unwrap().1, "after");
    assert!(text(&http.dump(&id), "prompt").contains("HOLD THE LINE"));
}

#[test]
fn a_pause_in_the_middle_of_an_answer_goes_on_after_a_restart() {
    let mut http = daemon(&[]);
    let (id, made) =
        http.paused_midway(&json!([{ "text": "once" }, { "sleep_ms": 3_000 }, { "text": " more" }]));
    restart(&mut http);
    assert_eq!(http.state(&id), "paused");
    assert_eq!(http.resume(&id, text(&made, "id"))["state"], "running");
    http.wait_for(&id, "idle");
    let answers: Vec<(String, String)> =
        http.messages(&id, false).into_iter().filter(|(role, _)| role == "assistant").collect();
    assert_eq!(answers.last().unwrap().1, "once more", "{answers:?}");
}

#[test]
fn a_proposed_compaction_waits_through_a_restart() {
    let mut http = daemon(&[]);
    let id = http.playing();
    http.done(&id, "one");
    http.done(&id, "two");
    let checkpoint = propose(&http, &id);
    restart(&mut http);
    assert_eq!(http.state(&id), "paused");
    let again = http.checkpoint(&id, text(&checkpoint, "id"));
    assert_eq!(again["compaction"], checkpoint["compaction"]);
    let at = path(&id, &format!("compactions/{}/approve", text(&checkpoint, "compaction_id")));
    http.call("POST", &at, None).json(200);
    assert_eq!((http.state(&id).as_str(), http.messages(&id, true).len()), ("idle", 2));
}

#[test]
fn a_call_that_waited_for_an_answer_is_interrupted_and_its_run_has_failed() {
    let mut http = daemon(&[]);
    std::fs::write(http.daemon.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    let id = http.playing();
    let run = text(
        &http.post(&id, &script(json!([{ "tool": { "name": "fs.list", "input": { "path": "/work" } } }]))),
        "run_id",
    )
    .to_owned();
    testkit::until("the approval", || {
        (http.get(&format!("/sessions/{id}"))["pending_approvals"] == 1).then_some(())
    });
    restart(&mut http);
    assert_eq!(http.state(&id), "idle");
    let shown = http.get(&path(&id, &format!("runs/{run}")));
    assert_eq!((&shown["state"], &shown["error"]["code"]), (&json!("failed"), &json!("EINTR")));
    let all = http.get(&path(&id, "approvals?all=true"));
    assert_eq!(all["items"][0]["state"], "interrupted");
    assert_eq!(http.get(&format!("/sessions/{id}"))["pending_approvals"], 0);
}

/// Asks for something and kills the daemon at a moment that nobody has chosen; whether it had answered well.
pub fn killed_while(http: &mut Http, moment: u64, at: &str, body: Option<&str>) -> bool {
    killed_while_asking(http, moment, at, "", body)
}

/// The same, with more headers.
pub fn killed_while_asking(
    http: &mut Http,
    moment: u64,
    at: &str,
    headers: &str,
    body: Option<&str>,
) -> bool {
    let line = Line::to(http);
    let asking = {
        let (at, headers, body) = (at.to_owned(), headers.to_owned(), body.map(str::to_owned));
        std::thread::spawn(move || line.ask_with("POST", &at, &headers, body.as_deref()))
    };
    std::thread::sleep(Duration::from_micros(300 + moment));
    http.daemon.kill();
    let answered = asking.join().unwrap().is_some_and(|response| response.status < 300);
    http.daemon.start_again();
    answered
}

/// What counts, by id.
fn counting(http: &Http, id: &str) -> Vec<Value> {
    let list = http.get(&path(id, "messages?superseded=false&limit=1000"));
    list["items"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect()
}

#[test]
fn a_rollback_is_done_whole_or_not_at_all() {
    let mut http = daemon(&[]);
    let (mut done, mut not) = (0, 0);
    for round in kills() {
        let (id, checkpoint) = http.paused("before", "after");
        http.resume(&id, &checkpoint);
        http.wait_for(&id, "idle");
        let before = counting(&http, &id);
        let at = path(&id, &format!("checkpoints/{checkpoint}/rollback"));
        let answered = killed_while(&mut http, moment(round, 6_500), &at, None);
        assert_eq!(http.state(&id), "idle");
        let (back, after) = (http.checkpoint(&id, &checkpoint)["rolled_back"] == true, counting(&http, &id));
        assert!(back || !answered, "what was answered is there");
        let expected = if back { &before[..before.len() - 1] } else { &before[..] };
        assert_eq!(after, expected, "round {round}: {back}");
        *(if back { &mut done } else { &mut not }) += 1;
    }
    println!("rollbacks: {done} done, {not} not");
}

#[test]
fn an_approval_of_a_compaction_is_done_whole_or_not_at_all() {
    let mut http = daemon(&[]);
    let (mut done, mut not) = (0, 0);
    for round in kills() {
        let id = http.playing();
        http.done(&id, "one");
        http.done(&id, "two");
        let checkpoint = propose(&http, &id);
        let compaction = text(&checkpoint, "compaction_id");
        let at = path(&id, &format!("compactions/{compaction}/approve"));
        let answered = killed_while(&mut http, moment(round, 6_500), &at, Some(r#"{"summary":"S"}"#));
        let made = http.get(&path(&id, &format!("compactions/{compaction}")));
        let approved = made["state"] == "applied";
        assert!(approved || !answered, "what was answered is there");
        assert_eq!(http.state(&id), if approved { "idle" } else { "paused" });
        assert_eq!(http.messages(&id, true).len(), if approved { 2 } else { 0 });
        assert_eq!(counting(&http, &id).len(), if approved { 3 } else { 4 });
        *(if approved { &mut done } else { &mut not }) += 1;
    }
    println!("approvals: {done} done, {not} not");
}

#[test]
fn a_compaction_is_recorded_whole_or_its_run_has_failed() {
    let mut http = daemon(&[]);
    let (mut done, mut not) = (0, 0);
    for round in kills() {
        let id = http.playing();
        http.done(&id, "one");
        http.done(&id, "two");
        let strategy = if round % 2 == 0 { "drop" } else { "checkpoint" };
        let body = json!({ "strategy": strategy }).to_string();
        let answered = killed_while(&mut http, moment(round, 35_000), &path(&id, "compactions"), Some(&body));
        let (state, made) = (http.state(&id), http.get(&path(&id, "compactions"))["items"].clone());
        let made = made.as_array().unwrap().first().cloned();
        let begun = http.of_type(&id, "run_created").iter().any(|run| run["kind"] == "compaction");
        assert!(begun || !answered, "what was answered is there");
        match &made {
            Some(made) if made["state"] == "proposed" => assert_eq!(state, "paused"),
            Some(_) | None => assert_eq!(state, "idle"),
        }
        if strategy == "checkpoint" {
            assert!(http.messages(&id, true).is_empty());
        }
        let runs = http.get(&path(&id, "runs"))["items"].clone();
        assert!(runs.as_array().unwrap().iter().all(|run| run["state"] != "running"), "{runs}");
        *(if made.is_some() { &mut done } else { &mut not }) += 1;
    }
    println!("compactions: {done} done, {not} not");
}
