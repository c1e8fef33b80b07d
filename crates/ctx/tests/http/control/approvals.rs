//! Tool calls that wait for the operator: allowed, denied, forgotten, and met by a pause.

use serde_json::{Value, json};
use testkit::until;

use super::{daemon, dumped, path, script, sent, text};
use crate::support::Http;

/// A daemon whose agent asks before it reads a file.
pub fn asking(limits: &[(&str, &str)]) -> Http {
    let http = daemon(limits);
    std::fs::write(http.daemon.workspace().join("note.txt"), "what the file says").unwrap();
    std::fs::write(http.daemon.root().join("agent/coder.d/policy"), "ask fs.read\n").unwrap();
    http
}

/// Reads the file, then dumps what the model was sent.
pub fn reading() -> String {
    script(json!([
        { "tool": { "name": "fs.read", "input": { "path": "/work/note.txt" } } }, { "dump": true }
    ]))
}

/// A session whose model waits to read, and the approval.
pub fn waiting(http: &Http) -> (String, Value) {
    let id = http.playing();
    http.post(&id, &reading());
    let approval = until("the approval", || {
        http.get(&path(&id, "approvals"))["items"].as_array().unwrap().first().cloned()
    });
    (id, approval)
}

pub fn answer(http: &Http, id: &str, approval: &Value, body: Value) -> crate::support::Response {
    let at = path(id, &format!("approvals/{}", text(approval, "id")));
    http.call("POST", &at, Some(&body.to_string()))
}

/// What the model was sent once the call was settled.
pub fn then_sent(http: &Http, id: &str) -> String {
    http.wait_for(id, "idle");
    sent(&dumped(&http.messages(id, false).last().unwrap().1))
}

#[test]
fn a_call_that_is_allowed_is_made() {
    let http = asking(&[]);
    let (id, approval) = waiting(&http);
    assert_eq!((&approval["tool"], &approval["state"]), (&json!("fs.read"), &json!("pending")));
    assert_eq!(approval["input"], json!({ "path": "/work/note.txt" }));
    assert!(text(&approval, "subject").contains("note.txt"), "{approval}");
    let wait = approval["expires_at"].as_u64().unwrap() - approval["created_at"].as_u64().unwrap();
    assert!((299_000..=301_000).contains(&wait), "{approval}");
    let calls = || {
        let run = http.get(&path(&id, &format!("runs/{}", text(&approval, "run_id"))));
        let call = &run["tool_calls"][0];
        (text(call, "state").to_owned(), call["status"].clone())
    };
    assert_eq!(calls(), ("waiting_approval".to_owned(), Value::Null));
    let session = http.get(&format!("/sessions/{id}"));
    assert_eq!((&session["state"], &session["pending_approvals"]), (&json!("running"), &json!(1)));

    // Any client of the operator may answer.
    let other = http.daemon.ctx(&["token", "new"]).ok().trim().to_owned();
    let at = path(&id, &format!("approvals/{}", text(&approval, "id")));
    let done = http.call_as(&other, "POST", &at, Some(r#"{"decision":"allow"}"#)).json(200);
    assert_eq!((&done["state"], done["settled_at"].is_u64()), (&json!("allow"), true));
    assert!(then_sent(&http, &id).contains("what the file says"));
    assert_eq!(calls(), ("finished".to_owned(), json!("ok")));
    let run = http.get(&path(&id, &format!("runs/{}", text(&approval, "run_id"))));
    let call = &run["tool_calls"][0];
    assert_eq!(call["summary"], json!({ "bytes": 18, "lines": 1 }), "{call}");
    let whole = call["created_at"].as_u64().unwrap() + call["duration_ms"].as_u64().unwrap();
    assert!(call["completed_at"].as_u64().unwrap() + 1 >= whole, "{call}");
    assert_eq!(answer(&http, &id, &approval, json!({ "decision": "deny" })).code(409), "EBUSY", "settled");
    assert_eq!(http.get(&path(&id, "approvals"))["items"], json!([]));
    assert_eq!(http.get(&path(&id, "approvals?all=true"))["items"][0]["state"], "allow");
    let asked = &http.audit(&id, "approval.requested", 1)[0];
    assert_eq!(asked["data"]["tool"], "fs.read");
    assert_eq!(asked["data"]["expires_at"], approval["expires_at"], "a time has one form at every door");
    let settled = &http.audit(&id, "approval.settled", 1)[0];
    assert_eq!((&settled["data"]["outcome"], &settled["user_id"]), (&json!("allow"), &done["by"]));
}

#[test]
fn a_call_that_is_denied_is_not_made_and_the_model_reads_why() {
    let http = asking(&[]);
    let (id, approval) = waiting(&http);
    let done = answer(&http, &id, &approval, json!({ "decision": "deny", "note": "not that file" }));
    assert_eq!(
        (&done.json(200)["state"], &done.json(200)["note"]),
        (&json!("deny"), &json!("not that file"))
    );
    let sent = then_sent(&http, &id);
    assert!(sent.contains("not that file") && !sent.contains("what the file says"), "{sent}");
    assert_eq!(http.audit(&id, "approval.settled", 1)[0]["data"]["note"], "not that file");
}

#[test]
fn what_nobody_answers_is_denied() {
    let http = asking(&[("APPROVAL_MS", "300")]);
    let id = http.playing();
    http.post(&id, &reading());
    let sent = then_sent(&http, &id);
    assert!(!sent.contains("what the file says"), "{sent}");
    let all = http.get(&path(&id, "approvals?all=true"));
    assert_eq!((&all["items"][0]["state"], &all["items"][0]["by"]), (&json!("timeout"), &Value::Null));
    assert_eq!(http.audit(&id, "approval.settled", 1)[0]["data"]["outcome"], "timeout");
}

#[test]
fn a_pause_meets_a_call_that_waits() {
    let http = asking(&[]);
    let (id, approval) = waiting(&http);
    let made = http.call("POST", &path(&id, "checkpoints"), None).json(201);
    let calls = &made["pending_tool_calls"];
    assert_eq!((&calls[0]["name"], &calls[0]["state"]), (&json!("fs.read"), &json!("waiting_approval")));
    assert_eq!(answer(&http, &id, &approval, json!({ "decision": "allow" })).code(409), "EBUSY", "paused");
    let waits = || http.get(&path(&id, "approvals"))["items"][0].clone();
    assert_eq!(
        (&waits()["state"], &waits()["expires_at"]),
        (&json!("pending"), &Value::Null),
        "its time stands still"
    );
    http.resume(&id, text(&made, "id"));
    let put_off = waits()["expires_at"].as_u64().unwrap();
    assert!(
        put_off > approval["expires_at"].as_u64().unwrap(),
        "the pause is not counted: {put_off}, {approval}"
    );
    answer(&http, &id, &approval, json!({ "decision": "allow" })).json(200);
    assert!(then_sent(&http, &id).contains("what the file says"));
}

#[test]
fn the_end_of_a_run_takes_its_approvals_with_it() {
    let http = asking(&[]);
    let (id, approval) = waiting(&http);
    http.call("POST", &path(&id, &format!("runs/{}/cancel", text(&approval, "run_id"))), None).json(200);
    assert_eq!(http.get(&path(&id, "approvals?all=true"))["items"][0]["state"], "interrupted");
    assert_eq!(http.get(&format!("/sessions/{id}"))["pending_approvals"], 0);
    assert_eq!(answer(&http, &id, &approval, json!({ "decision": "allow" })).code(409), "EBUSY");
}

#[test]
fn two_clients_answer_at_once_and_one_is_first() {
    let http = asking(&[]);
    for _ in 0..10 {
        let (id, approval) = waiting(&http);
        let line = super::Line::to(&http);
        let at = path(&id, &format!("approvals/{}", text(&approval, "id")));
        let (allowed, denied) = std::thread::scope(|scope| {
            let allow =
                scope.spawn(|| line.ask("POST", &at, Some(r#"{"decision":"allow"}"#)).unwrap().status);
            let deny = scope.spawn(|| line.ask("POST", &at, Some(r#"{"decision":"deny"}"#)).unwrap().status);
            (allow.join().unwrap(), deny.join().unwrap())
        });
        assert!([(200, 409), (409, 200)].contains(&(allowed, denied)), "{allowed} {denied}");
        assert_eq!(then_sent(&http, &id).contains("what the file says"), allowed == 200);
    }
}
