//! The seed's failure modes, seen through HTTP: what went wrong is told, and the session can go on.

use serde_json::{Value, json};
use testkit::until;

use crate::support::{ENDLESS, Http, builder};

/// Plays a script to its end; the run.
fn play(http: &Http, session: &str, steps: Value) -> Value {
    let posted = http.post(session, &json!({ "script": steps }).to_string());
    http.wait_for(session, "idle");
    http.get(&format!("/sessions/{session}/runs/{}", posted["run_id"].as_str().unwrap()))
}

#[test]
fn a_model_that_fails_fails_the_run_and_not_the_session() {
    let http = Http::of(builder().env("CTX_LIMITS_MODEL_ATTEMPTS", "1"));
    let id = http.playing();
    for (error, code) in [
        ("unreachable", "EHOSTDOWN"),
        ("rate_limit", "EAGAIN"),
        ("overflow", "EOVERFLOW"),
        ("broken_stream", "EPIPE"),
        ("empty", "ENODATA"),
    ] {
        let run = play(&http, &id, json!([{ "text": "as far as this" }, { "error": error }]));
        assert_eq!((&run["state"], &run["error"]["code"]), (&json!("failed"), &json!(code)), "{run}");
        assert!(!run["error"]["message"].as_str().unwrap().is_empty());
        let messages = http.get(&format!("/sessions/{id}/messages"))["items"].clone();
        let last = messages.as_array().unwrap().last().unwrap();
        assert_eq!(last["content"], "as far as this", "what had come is kept");
    }
    assert_eq!(play(&http, &id, json!([{ "text": "well again" }]))["state"], "done");
}

#[test]
fn a_killed_daemon_leaves_a_failed_run_and_a_session_that_goes_on() {
    let mut http = Http::start();
    let id = http.playing();
    let queued = http.playing();
    let mut others = Vec::new();
    for _ in 0..3 {
        let other = http.playing();
        http.post(&other, ENDLESS);
        others.push(other);
    }
    let run = http.post(&id, ENDLESS)["run_id"].as_str().unwrap().to_owned();
    assert_eq!(http.post(&queued, "later")["state"], "queued");
    http.daemon.kill();
    http.daemon.start_again();
    let shown = http.get(&format!("/sessions/{id}/runs/{run}"));
    assert_eq!(shown["state"], "failed");
    assert_eq!(
        (&shown["error"]["code"], &shown["error"]["reason"]),
        (&json!("EINTR"), &json!("daemon_crash_during_run"))
    );
    assert_eq!((http.state(&id), http.state(&queued)), ("idle".to_owned(), "queued".to_owned()));
    until("the audit event", || {
        let found = http.get(&format!("/audit?session={id}&event=session.crash_recovered"));
        (found["items"].as_array()?.len() == 1).then_some(())
    });
    http.call("POST", &format!("/sessions/{queued}/resume"), None).json(202);
    http.wait_for(&queued, "idle");
    assert_eq!(play(&http, &id, json!([{ "text": "on we go" }]))["state"], "done");
}

#[test]
fn a_daemon_that_is_stopped_fails_its_runs_and_says_so() {
    let mut http = Http::of(builder().env("CTX_LIMITS_STOP_GRACE_MS", "300"));
    let id = http.playing();
    let run = http.post(&id, ENDLESS)["run_id"].as_str().unwrap().to_owned();
    assert_eq!(http.daemon.stop(), 0);
    http.daemon.start_again();
    let shown = http.get(&format!("/sessions/{id}/runs/{run}"));
    assert_eq!(shown["error"]["reason"], "daemon_shutdown", "{shown}");
    assert_eq!(http.state(&id), "idle");
}

#[test]
fn a_fork_of_nothing_is_not_found() {
    let http = Http::start();
    let body = json!({ "resume_from": "01ARZ3NDEKTSV4RRFFQ69G5FAV" }).to_string();
    assert_eq!(http.call("POST", "/projects/default/sessions", Some(&body)).code(404), "ENOENT");
    assert_eq!(http.get("/projects/default/sessions")["items"], json!([]));
}

#[test]
fn a_hundred_messages_come_back_in_order_also_after_a_restart() {
    let mut http = Http::of(builder().env("CTX_LIMITS_REQUESTS_PER_SECOND", "100000"));
    let id = http.session("{}");
    http.python("hundred.py", &[&id]).ok();
    http.daemon.kill();
    http.daemon.start_again();
    let page = http.get(&format!("/sessions/{id}/messages?limit=1000"));
    let said: Vec<&str> =
        page["items"].as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap()).collect();
    let wanted: Vec<String> = (0..100).flat_map(|n| [format!("m{n}"), format!("m{n}")]).collect();
    assert_eq!(said, wanted);
}
