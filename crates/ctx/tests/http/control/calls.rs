//! A tool call and its result, whatever comes between them: a notice, a summary, a pause, a rollback.

use serde_json::{Value, json};
use testkit::until;

use super::approvals::{answer, asking, waiting};
use super::compaction::summing_up;
use super::{daemon, dumped, path, script, sent, text};
use crate::support::Http;

const CONTENT: &str = "what the file says";
/// What is said of a call that never came to a result.
const INVENTED: &str = "the run ended before this tool did";

fn with_note() -> Http {
    let http = daemon(&[]);
    std::fs::write(http.daemon.workspace().join("note.txt"), CONTENT).unwrap();
    http
}

fn read_note() -> Value {
    json!({ "name": "fs.read", "input": { "path": "/work/note.txt" } })
}

fn checkpoint_call() -> Value {
    json!({ "name": "checkpoint", "input": {} })
}

fn checkpoint_of(http: &Http, id: &str) -> String {
    text(&http.get(&format!("/sessions/{id}")), "checkpoint").to_owned()
}

/// What the model was sent last, as it says itself.
fn last_dump(http: &Http, id: &str) -> Value {
    http.wait_for(id, "idle");
    dumped(&http.messages(id, false).last().unwrap().1)
}

/// Every call is followed by its result before anything else is said, and no result stands alone.
#[track_caller]
fn is_whole(request: &Value) {
    let mut open: Vec<Value> = Vec::new();
    for part in
        request["messages"].as_array().unwrap().iter().flat_map(|turn| turn["content"].as_array().unwrap())
    {
        match text(part, "type") {
            "tool_call" => open.push(part["call_id"].clone()),
            "tool_result" => {
                assert!(open.contains(&part["call_id"]), "a result without its call: {request}");
                open.retain(|call| *call != part["call_id"]);
            }
            _ => assert!(open.is_empty(), "text between a call and its result: {request}"),
        }
    }
    assert!(open.is_empty(), "a call without its result: {request}");
}

#[test]
fn a_notice_does_not_come_between_a_call_and_its_result() {
    let http = with_note();
    let id = http.playing();
    http.post(&id, &script(json!([{ "tool": [checkpoint_call(), read_note()] }, { "dump": true }])));
    http.wait_for(&id, "paused");
    let checkpoint = checkpoint_of(&http, &id);
    http.edit(&id, &checkpoint, "ANOTHER COURSE").json(200);
    http.resume(&id, &checkpoint);
    let request = last_dump(&http, &id);
    is_whole(&request);
    assert!(sent(&request).contains(CONTENT) && !sent(&request).contains(INVENTED), "{request}");
    assert!(sent(&request).contains("System prompts were updated"), "{request}");
}

#[test]
fn a_call_that_was_approved_after_a_notice_has_its_real_result_and_the_pack_says_so() {
    let http = asking(&[]);
    let id = http.session(r#"{"name":"packed"}"#);
    http.call("PUT", &format!("/sessions/{id}"), Some(r#"{"model_override":"debug:script"}"#)).json(200);
    http.post(&id, &script(json!([{ "tool": read_note() }, { "dump": true }])));
    let approval = until("the approval", || {
        http.get(&path(&id, "approvals"))["items"].as_array().unwrap().first().cloned()
    });
    let made = http.call("POST", &path(&id, "checkpoints"), None).json(201);
    http.edit(&id, text(&made, "id"), "ANOTHER COURSE").json(200);
    http.resume(&id, text(&made, "id"));
    answer(&http, &id, &approval, json!({ "decision": "allow" })).json(200);
    let request = last_dump(&http, &id);
    is_whole(&request);
    assert!(sent(&request).contains(CONTENT) && !sent(&request).contains(INVENTED), "{request}");
    // The pack has the messages in the order in which they were sent.
    let uid = rustix::process::getuid().as_raw();
    let dir = http.daemon.root().join(format!("home/{uid}/agent/coder/session/packed"));
    let pack: Value = serde_json::from_slice(&std::fs::read(dir.join("context/pack.json")).unwrap()).unwrap();
    let roles = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| text(one, "role").to_owned()).collect()
    };
    assert_eq!(roles(&pack["messages"]), roles(&request["messages"]));
    assert_eq!(roles(&pack["messages"]), ["user", "assistant", "tool", "system"]);
    assert!(sent(&http.dump(&id)).contains(CONTENT), "in later runs too");
}

#[test]
fn a_summary_does_not_come_between_a_call_and_its_result() {
    let http = with_note();
    summing_up(&http, json!([{ "text": "IN SHORT" }]));
    let id = http.playing();
    let list = json!({ "name": "fs.list", "input": { "path": "/work" } });
    let run = http.done(&id, &script(json!([{ "tool": [read_note(), list] }, { "text": "x".repeat(400) }])));
    http.done(&id, "and another");
    let user = run["operator_message"]["id"].clone();
    let call = run["tool_calls"][0]["id"].clone();
    for pinned in [&user, &call] {
        http.call("PUT", &path(&id, &format!("messages/{}/pin", pinned.as_str().unwrap())), None).json(200);
    }
    http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"summarize"}"#)).json(202);
    http.wait_for(&id, "idle");
    let request = http.dump(&id);
    is_whole(&request);
    assert!(sent(&request).contains("IN SHORT"), "{request}");
    assert!(sent(&request).contains(CONTENT) && !sent(&request).contains(INVENTED), "{request}");
}

#[test]
fn a_model_that_has_nothing_to_add_is_done_also_after_an_edited_prompt() {
    let http = daemon(&[]);
    for edited in [false, true] {
        let id = http.playing();
        let run = text(&http.post(&id, &script(json!([{ "tool": checkpoint_call() }]))), "run_id").to_owned();
        http.wait_for(&id, "paused");
        let checkpoint = checkpoint_of(&http, &id);
        if edited {
            http.edit(&id, &checkpoint, "ANOTHER COURSE").json(200);
        }
        http.resume(&id, &checkpoint);
        http.wait_for(&id, "idle");
        let run = http.get(&path(&id, &format!("runs/{run}")));
        assert_eq!(run["state"], "done", "edited: {edited}: {run}");
    }
}

#[test]
fn calls_behind_a_checkpoint_wait_for_the_resume_and_outlive_a_restart() {
    let mut http = with_note();
    for restarted in [false, true] {
        let id = http.playing();
        let list = json!({ "name": "fs.list", "input": { "path": "/work" } });
        http.post(
            &id,
            &script(json!([{ "tool": [list, checkpoint_call(), read_note()] }, { "dump": true }])),
        );
        http.wait_for(&id, "paused");
        let checkpoint = checkpoint_of(&http, &id);
        let shown = http.checkpoint(&id, &checkpoint);
        let waits = shown["pending_tool_calls"].as_array().unwrap();
        assert_eq!(waits.len(), 1, "{shown}");
        assert_eq!(
            (&waits[0]["name"], &waits[0]["state"]),
            (&json!("fs.read"), &json!("pending")),
            "{shown}"
        );
        if restarted {
            super::kill::restart(&mut http);
        }
        http.resume(&id, &checkpoint);
        let request = last_dump(&http, &id);
        is_whole(&request);
        assert!(sent(&request).contains(CONTENT), "restarted: {restarted}: {request}");
        assert!(!sent(&request).contains("the daemon stopped"), "{request}");
        let calls: Vec<Value> =
            http.of_type(&id, "tool_started").iter().map(|call| call["name"].clone()).collect();
        assert_eq!(calls, ["fs.list", "checkpoint", "fs.read"], "each is made once");
    }
}

#[test]
fn a_call_whose_turn_has_not_come_is_not_shown_as_running() {
    let http = asking(&[]);
    let id = http.playing();
    let list = json!({ "name": "fs.list", "input": { "path": "/work" } });
    let begun = http.post(&id, &script(json!([{ "tool": [read_note(), list] }, { "dump": true }])));
    let approval = until("the approval", || {
        http.get(&path(&id, "approvals"))["items"].as_array().unwrap().first().cloned()
    });
    let states = |calls: &Value| -> Vec<String> {
        calls.as_array().unwrap().iter().map(|call| text(call, "state").to_owned()).collect()
    };
    let of_run = || states(&http.get(&path(&id, &format!("runs/{}", text(&begun, "run_id"))))["tool_calls"]);
    assert_eq!(of_run(), ["waiting_approval", "pending"]);
    let made = http.call("POST", &path(&id, "checkpoints"), None).json(201);
    let shown = http.checkpoint(&id, text(&made, "id"));
    assert_eq!(states(&shown["pending_tool_calls"]), ["waiting_approval", "pending"]);
    http.resume(&id, text(&made, "id"));
    answer(&http, &id, &approval, json!({ "decision": "allow" })).json(200);
    is_whole(&last_dump(&http, &id));
    assert_eq!(of_run(), ["finished", "finished"]);
}

/// docs/decisions: a call and its result are one message, and a rollback does not part them.
#[test]
fn the_result_of_a_call_that_was_made_before_a_checkpoint_stays_with_it() {
    let http = asking(&[]);
    let (id, approval) = waiting(&http);
    let made = http.call("POST", &path(&id, "checkpoints"), None).json(201);
    http.resume(&id, text(&made, "id"));
    answer(&http, &id, &approval, json!({ "decision": "allow" })).json(200);
    http.wait_for(&id, "idle");
    http.at_checkpoint(&id, text(&made, "id"), "rollback").json(200);
    let counting: Vec<String> = http.messages(&id, false).into_iter().map(|(role, _)| role).collect();
    assert_eq!(counting, ["user", "assistant", "tool"], "the call and what it gave");
    assert_eq!(http.messages(&id, true).len(), 1, "what was said after it is gone");
    let request = http.dump(&id);
    is_whole(&request);
    assert!(sent(&request).contains(CONTENT), "{request}");
}
