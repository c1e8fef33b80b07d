//! Every row of the seed's table of audit events whose part exists, with the data it names, in the log of a real daemon.

use serde_json::{Value, json};
use testkit::until;

use crate::support::{ENDLESS, Http, builder};

/// The seed's table: an event and its data. Terminals have no events yet.
const TABLE: &[(&str, &[&str])] = &[
    ("session.created", &["session_id", "project_id", "user_id", "forked_from"]),
    ("session.queued", &["session_id", "run_id", "message_id", "reason", "running_count", "limit"]),
    ("session.resumed_from_queue", &["session_id", "run_id", "user_id", "running_count"]),
    ("session.queued_discarded", &["session_id", "run_id", "message_id", "user_id"]),
    ("session.state", &["session_id", "from_state", "to_state", "trigger"]),
    ("session.attached", &["session_id", "user_id", "device_hint"]),
    ("session.detached", &["session_id", "user_id", "reason"]),
    ("session.ended", &["session_id", "user_id", "run_count", "duration"]),
    ("session.crash_recovered", &["session_id", "failed_run_id"]),
    ("run.created", &["run_id", "session_id", "message_preview"]),
    ("run.completed", &["run_id", "state", "duration_ms", "tokens"]),
    ("run.cancelled", &["run_id", "session_id", "user_id"]),
    ("checkpoint.created", &["checkpoint_id", "session_id", "created_by", "reason"]),
    ("checkpoint.resumed", &["checkpoint_id", "session_id", "prompts_edited"]),
    ("checkpoint.rolled_back", &["checkpoint_id", "session_id", "messages_superseded"]),
    ("prompt.edited", &["checkpoint_id", "target", "old_hash", "new_hash"]),
];

/// Of these the data may be null in some lines: a session that is no fork, a device that did not say what it is.
const MAY_BE_NULL: &[&str] = &["forked_from", "device_hint"];

impl Http {
    /// The audit events of a name, oldest first, once there are so many.
    fn events(&self, name: &str, at_least: usize) -> Vec<Value> {
        until(&format!("{at_least} of {name}"), || {
            let page = self.get(&format!("/audit?event={name}&limit=1000"));
            let mut items = page["items"].as_array().unwrap().clone();
            items.reverse();
            (items.len() >= at_least).then_some(items)
        })
    }

    fn ask(&self, method: &str, path: &str, body: &str, status: u16) -> Value {
        self.call(method, path, Some(body)).json(status)
    }
}

/// The queue, a cancel, and one that is ended: what the events of the first half tell of.
fn queue(http: &Http) -> (String, String) {
    let (first, second, third) = (http.playing(), http.session("{}"), http.session("{}"));
    let run = http.post(&first, ENDLESS)["run_id"].as_str().unwrap().to_owned();
    for session in [&second, &third] {
        assert_eq!(http.post(session, "wait")["state"], "queued");
    }
    assert_eq!(http.call("DELETE", &format!("/sessions/{third}/queued-message"), None).status, 204);
    http.ask("POST", &format!("/sessions/{first}/runs/{run}/cancel"), "{}", 200);
    http.ask("POST", &format!("/sessions/{second}/resume"), "{}", 202);
    http.wait_for(&second, "idle");
    let fork = json!({ "resume_from": second }).to_string();
    http.ask("POST", "/projects/default/sessions", &fork, 201);
    assert_eq!(http.call("DELETE", &format!("/sessions/{third}?confirm=true"), None).status, 204);
    (second, third)
}

/// A pause with an edit, going on, a pause, going back.
fn control(http: &Http) -> String {
    let id = http.playing();
    http.post(&id, ENDLESS);
    let pause = |reason: &str| {
        http.wait_for(&id, "running");
        let body = json!({ "reason": reason }).to_string();
        let made = http.ask("POST", &format!("/sessions/{id}/checkpoints"), &body, 201);
        format!("/sessions/{id}/checkpoints/{}", made["id"].as_str().unwrap())
    };
    let checkpoint = pause("to look");
    let edit = r#"{"content":"another prompt"}"#;
    http.ask("PUT", &format!("{checkpoint}/prompts/primary"), edit, 200);
    http.ask("POST", &format!("{checkpoint}/resume"), "{}", 200);
    let checkpoint = pause("to go back");
    http.ask("POST", &format!("{checkpoint}/rollback"), "{}", 200);
    id
}

#[test]
fn every_event_of_the_table_has_the_data_it_names() {
    let mut http = Http::of(builder().env("CTX_LIMITS_RUNNING_PER_PROJECT", "1"));
    let me = http.get("/projects/default")["owner"].clone();
    let (second, third) = queue(&http);
    let paused = control(&http);
    http.python("reattach.py", &["clean_reattach"]).ok();
    let crashed = http.playing();
    let lost = http.post(&crashed, ENDLESS)["run_id"].clone();
    http.wait_for(&crashed, "running");
    http.daemon.kill();
    http.daemon.start_again();

    for (name, data) in TABLE {
        let found = http.events(name, 1);
        for event in &found {
            assert_eq!(event["user_id"], me, "{event}");
            for field in *data {
                let value = &event["data"][field];
                assert!(!value.is_null() || MAY_BE_NULL.contains(field), "{field} of {event}");
            }
        }
    }
    let one = |name: &str| http.events(name, 1).remove(0)["data"].clone();
    let queued = one("session.queued");
    assert_eq!(
        (&queued["reason"], &queued["running_count"], &queued["limit"]),
        (&json!("per_project"), &json!(1), &json!(1))
    );
    let resumed = one("session.resumed_from_queue");
    assert_eq!((&resumed["session_id"], &resumed["running_count"]), (&json!(second), &json!(1)));
    assert_eq!(one("session.queued_discarded")["session_id"], json!(third));
    assert_eq!(
        http.events("session.created", 1).iter().filter(|e| !e["data"]["forked_from"].is_null()).count(),
        1
    );
    let ended = one("session.ended");
    assert_eq!((&ended["session_id"], &ended["run_count"]), (&json!(third), &json!(1)));
    assert_eq!(one("session.crash_recovered")["failed_run_id"], lost);
    assert_eq!(one("checkpoint.created")["reason"], "to look");
    assert_eq!(one("checkpoint.resumed")["prompts_edited"], json!(["primary"]));
    assert_eq!(one("checkpoint.rolled_back")["session_id"], json!(paused));
    // Who posted is in the record itself, and so in the session's events too.
    let records = http.call("GET", &format!("/sessions/{second}/records"), None).text;
    let moves: Vec<Value> = records
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|record| record["type"] == "state_changed")
        .collect();
    assert_eq!((&moves[0]["trigger"], &moves[0]["by"]), (&json!("concurrency_limit"), &me));
}
