//! `kill -9` in the middle of what a run does for the operator: a summary, a delegate, a proposal, a call that waits.

use serde_json::{Value, json};
use testkit::{moment, rounds, until};

use super::approvals::{asking, waiting};
use super::compaction::{filler, summing_up};
use super::kill::{killed_while, restart};
use super::project::{proposed, session};
use super::{daemon, path, text};
use crate::support::Http;

/// The newest run has failed with the daemon, and the audit log says so.
fn was_cut_off(http: &Http, id: &str, run: &str) {
    assert_eq!(http.state(id), "idle");
    let shown = http.get(&path(id, &format!("runs/{run}")));
    assert_eq!((&shown["state"], &shown["error"]["code"]), (&json!("failed"), &json!("EINTR")), "{shown}");
    assert_eq!(shown["error"]["reason"], "daemon_crash_during_run");
    let recovered = http.audit(id, "session.crash_recovered", 1);
    assert_eq!(recovered[0]["data"]["failed_run_id"], json!(run));
}

#[test]
fn a_summary_that_was_being_made_leaves_nothing() {
    let mut http = daemon(&[]);
    summing_up(&http, json!([{ "text": "half a summ" }, { "sleep_ms": 600_000 }, { "text": "ary" }]));
    let id = http.playing();
    http.done(&id, &filler("first", 400));
    http.done(&id, &filler("second", 400));
    let before = http.messages(&id, false);
    let begun = http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"summarize"}"#)).json(202);
    assert_eq!(http.state(&id), "running");
    restart(&mut http);
    was_cut_off(&http, &id, text(&begun, "run_id"));
    assert_eq!(http.get(&path(&id, "compactions"))["items"], json!([]));
    assert_eq!((http.messages(&id, false), http.messages(&id, true).len()), (before, 0));
    // It can be tried again, and the session goes on.
    summing_up(&http, json!([{ "text": "whole" }]));
    http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"summarize"}"#)).json(202);
    http.wait_for(&id, "idle");
    assert_eq!(http.messages(&id, true).len(), 2);
    assert_eq!(http.done(&id, &filler("third", 400))["state"], "done");
}

/// Ends what a test that fails would leave.
struct Left(std::path::PathBuf);

impl Drop for Left {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(&self.0).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn a_delegate_that_was_at_work_leaves_nothing_and_the_message_can_be_sent_again() {
    let mut http = daemon(&[]);
    let pid = http.daemon.path("pid");
    let _left = Left(pid.clone());
    let command = format!("echo $$ > {} && exec sleep 600", pid.display());
    let id = session(&http, &format!("{{strategy: delegate, delegate: [sh, -c, '{command}']}}"));
    for name in ["first", "second", "third"] {
        http.done(&id, &filler(name, 4 * 2_048));
    }
    let run = text(&http.post(&id, &filler("fourth", 4 * 2_048)), "run_id").to_owned();
    until("the delegate", || {
        std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')).then_some(())
    });
    restart(&mut http);
    let leader = std::fs::read_to_string(&pid).unwrap();
    until("the delegate to be gone with the daemon", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", leader.trim())).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z')).then_some(())
    });
    was_cut_off(&http, &id, &run);
    assert_eq!(http.get(&path(&id, "compactions"))["items"], json!([]));
    assert!(http.messages(&id, true).is_empty());
    http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"drop"}"#)).json(202);
    http.wait_for(&id, "idle");
    assert_eq!(http.done(&id, &filler("fifth", 400))["state"], "done");
}

#[test]
fn an_approval_in_the_middle_of_a_run_is_done_whole_or_not_at_all() {
    let mut http = daemon(&[]);
    let id = session(&http, "{strategy: checkpoint, lower: 0.3}");
    let (mut done, mut not) = (0, 0);
    let (mut run, mut checkpoint) = proposed(&http, &id);
    for round in rounds(3) {
        let compaction = text(&checkpoint, "compaction_id").to_owned();
        let at = path(&id, &format!("compactions/{compaction}/approve"));
        let before = http.messages(&id, true).len();
        let answered = killed_while(&mut http, moment(round, 20_000), &at, Some(r#"{"summary":"S"}"#));
        let made = http.get(&path(&id, &format!("compactions/{compaction}")));
        let approved = made["state"] == "applied";
        assert!(approved || !answered, "what was answered is there");
        let went_on = |http: &Http| -> Vec<Value> {
            let created = http.of_type(&id, "run_created");
            created.into_iter().filter(|created| created["continues"] == json!(run)).collect()
        };
        if approved {
            done += 1;
            assert!(http.messages(&id, true).len() > before);
            let next = went_on(&http);
            assert_eq!(next.len(), 1, "one run goes on with the work");
            // It was done before the daemon died, or has failed with it.
            http.wait_for(&id, "idle");
            let shown = http.get(&path(&id, &format!("runs/{}", text(&next[0], "turn_id"))));
            assert!(["done", "failed"].contains(&text(&shown, "state")), "{shown}");
        } else {
            not += 1;
            assert_eq!((http.state(&id).as_str(), http.messages(&id, true).len()), ("paused", before));
            assert!(went_on(&http).is_empty());
            http.call("POST", &at, None).json(200);
            http.wait_for(&id, "idle");
            assert_eq!(went_on(&http).len(), 1);
        }
        (run, checkpoint) = fill(&http, &id);
    }
    println!("approvals in a run: {done} done, {not} not");
}

/// Fills the window once more, until a compaction is proposed.
fn fill(http: &Http, id: &str) -> (String, Value) {
    loop {
        let run = text(&http.post(id, &filler("more", 4 * 1_024)), "run_id").to_owned();
        let state = until("the run's end", || {
            let state = http.state(id);
            (state != "running").then_some(state)
        });
        if state == "paused" {
            let session = http.get(&format!("/sessions/{id}"));
            return (run, http.checkpoint(id, text(&session, "checkpoint")));
        }
    }
}

#[test]
fn a_pause_with_a_call_that_waits_stays_and_the_call_is_interrupted() {
    let mut http = asking(&[]);
    let (id, approval) = waiting(&http);
    let made = http.call("POST", &path(&id, "checkpoints"), None).json(201);
    restart(&mut http);
    let session = http.get(&format!("/sessions/{id}"));
    assert_eq!((&session["state"], &session["checkpoint"]), (&json!("paused"), &made["id"]));
    assert_eq!((&session["pending_approvals"], &session["current_run"]), (&json!(0), &approval["run_id"]));
    let all = http.get(&path(&id, "approvals?all=true"));
    assert_eq!(all["items"][0]["state"], "interrupted");
    let answer = path(&id, &format!("approvals/{}", text(&approval, "id")));
    assert_eq!(http.call("POST", &answer, Some(r#"{"decision":"allow"}"#)).code(409), "EBUSY");
    assert_eq!(http.resume(&id, text(&made, "id"))["state"], "running");
    http.wait_for(&id, "idle");
    let run = http.get(&path(&id, &format!("runs/{}", text(&approval, "run_id"))));
    assert_eq!(
        (&run["state"], &run["tool_calls"][0]["status"]),
        (&json!("done"), &json!("interrupted")),
        "{run}"
    );
    assert_eq!(http.audit(&id, "approval.settled", 1)[0]["data"]["outcome"], "interrupted");
}
