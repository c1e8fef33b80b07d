//! The seed's failure modes, seen through HTTP and WebSocket against a real daemon: what went wrong is told, and the session
//! can go on. Each row of the seed's table, and its lists for the throttle, reattaching and persistence, with the test
//! that holds it; a test below sees to it that every name is there. What a subagent's cage, walltime and memory do comes
//! with subagents.
//!
//! Failure modes
//! - LLM provider unreachable during run: failures::a_model_that_fails_fails_the_run_and_not_the_session
//! - Database write failure, a message is posted: failures::on_a_full_disk_a_message_is_refused_and_nothing_is_lost
//! - Database write failure, during a run: failures::a_disk_that_fills_up_during_a_run_is_told_on_its_socket_when_there_is_room
//! - Database write failure, a session that is lost: failures::a_session_that_has_failed_says_so_and_takes_nothing_more
//! - Daemon SIGKILL during run: failures::a_killed_daemon_leaves_a_failed_run_and_a_session_that_goes_on
//! - Daemon stopped during run: failures::a_daemon_that_is_stopped_fails_its_runs_and_says_so
//! - Daemon stopped, sockets: closings::a_daemon_that_stops_says_so_on_every_socket
//! - WebSocket disconnect mid-run, within the buffer: sockets::a_connection_that_breaks_hundreds_of_times_loses_no_frame
//! - WebSocket disconnect mid-run, beyond it: sockets::what_is_read_again_after_a_gap_is_exactly_what_was_missed
//! - Checkpoint resume with edited prompts fails: control::seed::a_run_that_fails_after_an_edited_prompt_leaves_the_session_idle
//! - Fork source session not found: failures::a_fork_of_nothing_is_not_found
//!
//! Concurrency throttle tests
//! - Under limit: queue::at_the_projects_limit_a_message_is_kept_and_waits
//! - At per-project limit: queue::at_the_projects_limit_a_message_is_kept_and_waits
//! - At per-operator limit: throttle::sixteen_run_across_projects_and_the_seventeenth_waits
//! - Resume from queued: queue::at_the_projects_limit_a_message_is_kept_and_waits
//! - Resume when still at limit: queue::at_the_projects_limit_a_message_is_kept_and_waits
//! - Discard queued message: queue::a_discarded_message_is_superseded_and_its_run_cancelled
//! - Paused session frees slot: control::checkpoints::a_paused_session_frees_its_slot_and_needs_one_to_go_on
//! - Session creation ignores concurrency: throttle::creating_sessions_asks_no_limit
//! - System count broadcast: sockets::the_system_socket_tells_every_change_of_the_running_count
//!
//! Reattach tests
//! - Clean reattach within buffer window: sockets::who_comes_back_is_shown_what_was_missed
//! - Reattach after buffer overflow, too much: sockets::more_than_is_kept_is_resume_failed
//! - Reattach after buffer overflow, too long: sockets::longer_than_is_kept_is_resume_failed
//! - Full re-fetch: sockets::what_is_read_again_after_a_gap_is_exactly_what_was_missed
//! - Multi-device conflict: sockets::one_operator_is_attached_others_observe_and_one_can_take_over
//! - Disconnect detection, ping and pong: sockets::a_client_that_answers_no_ping_is_gone_after_two
//! - Disconnect detection, close frames: closings::who_does_not_keep_to_the_protocol_is_told_which_rule_was_broken
//!
//! Persistence tests
//! - Message ordering: failures::a_hundred_messages_come_back_in_order_also_after_a_restart
//! - Session survives restart: failures::a_killed_daemon_leaves_a_failed_run_and_a_session_that_goes_on
//! - Run recording: api::a_conversation_from_the_first_message_to_the_end
//! - Fork: lifecycle::a_session_begins_as_a_copy_of_another

use std::io::{BufRead, BufReader, Read, Write};

use serde_json::{Value, json};
use testkit::{SmallDisk, until};

use crate::support::{ENDLESS, Http, builder};

#[test]
fn every_line_names_a_test_that_is_there() {
    assert!(crate::control::seed::lines_with_tests(include_str!("failures.rs")) > 25);
}

/// A daemon whose root is a disk of its own.
fn on_small_disk(kib: usize) -> (Http, SmallDisk) {
    let builder = builder();
    let disk = SmallDisk::mount(builder.place().root(), kib);
    (Http::of(builder), disk)
}

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
    let mut http = Http::of(builder());
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

#[test]
fn on_a_full_disk_a_message_is_refused_and_nothing_is_lost() {
    let (mut http, disk) = on_small_disk(2048);
    let id = http.session("{}");
    http.post(&id, "there was room");
    http.wait_for(&id, "idle");
    disk.fill();
    let post = |http: &Http, client_id: &str| {
        let body = json!({ "text": "x".repeat(20_000), "client_id": client_id }).to_string();
        http.call("POST", &format!("/sessions/{id}/messages"), Some(&body))
    };
    for client_id in ["second", "second", "third"] {
        let refused = post(&http, client_id);
        assert_eq!(refused.code(507), "ENOSPC");
        assert!(!refused.json(507)["error"]["message"].as_str().unwrap().is_empty());
    }
    assert_eq!(http.call("POST", "/projects/default/sessions", Some("{}")).code(507), "ENOSPC");
    let said = |http: &Http| -> Vec<usize> {
        let page = http.get(&format!("/sessions/{id}/messages"));
        page["items"].as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap().len()).collect()
    };
    let small = "there was room".len();
    assert_eq!(
        (said(&http), http.state(&id).as_str()),
        (vec![small; 2], "idle"),
        "it can be read all the while"
    );
    disk.free();
    let posted = post(&http, "second").json(202);
    http.wait_for(&id, "idle");
    assert_eq!(
        post(&http, "second").json(202)["run_id"],
        posted["run_id"],
        "nothing of the refused ones was kept"
    );
    http.session("{}");
    http.daemon.kill();
    http.daemon.start_again();
    assert_eq!(said(&http), [small, small, 20_000, 20_000]);
}

#[test]
fn a_disk_that_fills_up_during_a_run_is_told_on_its_socket_when_there_is_room() {
    let (http, disk) = on_small_disk(8 * 1024);
    let mut client = http.python_begins("reattach.py", &["disk_full"]);
    let mut said = BufReader::new(client.stdout.take().unwrap()).lines();
    let id = said.next().expect("a session").unwrap();
    disk.fill();
    until("the session to be failing", || {
        let shown = http.get(&format!("/sessions/{id}"));
        (shown["failing"]["code"] == "ENOSPC" && shown["state"] == "running").then_some(())
    });
    disk.free();
    let mut error = String::new();
    client.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(client.wait().unwrap().success(), "{error}");
    assert_eq!(http.state(&id), "idle");
}

/// Nothing makes a session fail today: a write that fails is refused or taken up again. A log that says so is believed.
#[test]
fn a_session_that_has_failed_says_so_and_takes_nothing_more() {
    let mut http = Http::start();
    let id = http.session(r#"{"name":"lost"}"#);
    http.post(&id, "said before");
    http.wait_for(&id, "idle");
    let dir = http.get(&format!("/sessions/{id}"))["dir_name"].as_str().unwrap().to_owned();
    let records = http.call("GET", &format!("/sessions/{id}/records"), None).text;
    let last: Value = serde_json::from_str(records.lines().last().unwrap()).unwrap();
    assert_eq!(http.daemon.stop(), 0);
    let found = std::process::Command::new("find")
        .arg(http.daemon.root())
        .args(["-path", &format!("*/{dir}/events.jsonl")])
        .output()
        .unwrap();
    let log = String::from_utf8(found.stdout).unwrap();
    let mut log = std::fs::File::options().append(true).open(log.trim()).expect("the log");
    let line = |n: u64, mut fields: Value| {
        fields["schema_version"] = json!(1);
        fields["seq"] = json!(last["seq"].as_u64().unwrap() + n);
        fields["time"] = last["time"].clone();
        fields.to_string()
    };
    let failed = line(
        1,
        json!({ "type": "session_failed", "code": "EIO", "reason": "disk", "message": "the disk is broken", "more": true }),
    );
    let moved = line(
        2,
        json!({ "type": "state_changed", "from": "idle", "to": "failed", "trigger": "session_failed", "batch": 2 }),
    );
    writeln!(log, "{failed}\n{moved}").unwrap();
    drop(log);
    http.daemon.start_again();
    let shown = http.get(&format!("/sessions/{id}"));
    assert_eq!(
        (&shown["state"], &shown["failure"]["message"]),
        (&json!("failed"), &json!("the disk is broken"))
    );
    http.python("reattach.py", &["failed", &id]).ok();
    assert_eq!(
        http.call("POST", &format!("/sessions/{id}/messages"), Some(r#"{"text":"x"}"#)).code(409),
        "ESHUTDOWN"
    );
    assert_eq!(
        http.get(&format!("/sessions/{id}/messages"))["items"][0]["content"],
        "said before",
        "it can be read"
    );
    let again = http.session(r#"{"name":"lost"}"#);
    assert_ne!(again, id, "its name is free");
    assert_eq!(
        http.call("DELETE", &format!("/sessions/{id}?confirm=true"), None).status,
        204,
        "it can be ended"
    );
}
