//! Coming back to a session: after a lost connection and after a restart, without a gap and without a repeat.

use serde_json::{Value, json};

use super::support::{Client, Daemon, ids, kinds, text_of};

/// A run that streams for a while: the text it says, and the steps.
fn long_run() -> (String, Value) {
    let pieces: Vec<String> = (0..40).map(|number| format!("piece {number:02} of it. ")).collect();
    let steps: Vec<Value> =
        pieces.iter().flat_map(|piece| [json!({"text": piece}), json!({"sleep_ms": 5})]).collect();
    (pieces.concat(), Value::Array(steps))
}

fn resume(client: &mut Client, session: &str, after: Option<&Value>) {
    let mut request = json!({"op": "resume", "id": "r", "session": session});
    if let Some(after) = after {
        request["after"] = after.clone();
    }
    client.ask(request);
}

#[track_caller]
fn strictly_growing(frames: &[Value]) {
    assert!(ids(frames).is_sorted_by(|a, b| a < b), "ids must grow strictly: {frames:?}");
}

#[test]
fn a_run_is_seen_whole_over_several_lost_connections() {
    let daemon = Daemon::start();
    let (text, steps) = long_run();
    let mut client = daemon.client();
    client.play("default", "m", steps);
    let mut frames = client.until("delta");
    while frames.last().unwrap()["type"] != "done" {
        let last = frames.last().unwrap()["id"].clone();
        client = daemon.client();
        resume(&mut client, "default", Some(&last));
        for _ in 0..7 {
            frames.push(client.frame());
            if frames.last().unwrap()["type"] == "done" {
                break;
            }
        }
    }
    strictly_growing(&frames);
    assert_eq!(text_of(&frames), text, "no piece is missing and none comes twice");
    assert_eq!(
        kinds(&frames).iter().filter(|kind| **kind != "delta").copied().collect::<Vec<_>>(),
        ["start", "message", "done"]
    );
}

#[test]
fn whoever_resumes_from_the_beginning_sees_everything_and_then_what_comes() {
    let daemon = Daemon::start();
    let mut other = daemon.client();
    let runs = [other.say("default", "m1", "first"), other.say("default", "m2", "second")];
    let mut client = daemon.client();
    resume(&mut client, "default", None);
    let mut frames = client.until_done();
    frames.extend(client.until_done());
    let seen: Vec<&str> =
        frames.iter().filter(|f| f["type"] == "start").map(|f| f["run"].as_str().unwrap()).collect();
    assert_eq!(seen, runs);
    client.expect_silence();
    other.say("default", "m3", "third");
    frames.extend(client.until_done());
    strictly_growing(&frames);
    let said: Vec<&Value> =
        frames.iter().filter(|f| f["type"] == "message").map(|f| &f["content"][0]["text"]).collect();
    assert_eq!(said, ["first", "second", "third"]);
    // A message sent on this very connection is shown once.
    client.send("default", "m4", "fourth");
    frames.extend(client.until_done());
    strictly_growing(&frames);
    client.expect_silence();
}

#[test]
fn after_a_crash_in_the_middle_of_a_run_the_log_tells_the_rest() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.say("default", "m0", "before");
    let (_, mut steps) = long_run();
    steps.as_array_mut().unwrap().push(json!({"sleep_ms": 60_000}));
    client.play("default", "m", steps);
    let mut frames = client.until("start");
    frames.extend((0..10).map(|_| client.frame()));
    daemon.kill();
    daemon.start_again();
    let mut client = daemon.client();
    resume(&mut client, "default", Some(&frames.last().unwrap()["id"]));
    let after = client.until_done();
    assert_eq!(kinds(&after), ["error", "done"]);
    assert_eq!(
        (&after[0]["code"], &after[0]["reason"]),
        (&json!("EINTR"), &json!("daemon_crash_during_run"))
    );
    assert_eq!(after[1]["status"], "error");
    frames.extend(after);
    strictly_growing(&frames);
    client.say("default", "m2", "the session goes on");
}

#[test]
fn after_a_restart_finished_messages_come_from_the_log() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.say("default", "m1", "one");
    client.send("default", "m2", "two");
    let frames = client.until_done();
    daemon.restart();
    let mut client = daemon.client();
    resume(&mut client, "default", Some(&frames[0]["id"]));
    let again = client.until_done();
    assert_eq!(kinds(&again), ["message", "usage", "done"], "deltas were in memory alone");
    assert_eq!(again[0], frames[3], "the same event with the same id");
    client.expect_silence();
}

#[test]
fn a_reader_that_falls_behind_the_ring_sees_no_hole() {
    let daemon = Daemon::with(&[("CTX_LIMITS_LIVE_RING_BYTES", "4096")]);
    let mut client = daemon.client();
    let long = "0123456789abcdef".repeat(4_000);
    client.play(
        "default",
        "m",
        json!([{"text": "early "}, {"sleep_ms": 50}, {"text": long}, {"sleep_ms": 300}, {"text": "end"}]),
    );
    let first = client.until("delta");
    // Four times what the ring holds; where it was too fast for us, the message comes first.
    let mut later = Vec::new();
    while text_of(&later).len() < 16 * 1024 && kinds(&later).last() != Some(&"message") {
        later.push(client.frame());
    }
    drop(client);
    let mut client = daemon.client();
    resume(&mut client, "default", Some(&first.last().unwrap()["id"]));
    let frames = client.until_done();
    strictly_growing(&frames);
    let whole = format!("early {long}end");
    let seen = format!("{}{}", text_of(&first), text_of(&frames));
    assert!(whole.starts_with(&seen), "deltas are a beginning of the text, without a hole");
    let message = frames.iter().find(|frame| frame["type"] == "message").unwrap();
    assert_eq!(message["content"][0]["text"], whole);
}

#[test]
fn what_cannot_be_resumed_is_refused() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    resume(&mut client, "nobody", None);
    assert_eq!(client.refused("ENOENT")["request"], "r");
    client.say("default", "m", "x");
    resume(&mut client, "default", Some(&json!("999.0")));
    assert_eq!(client.refused("EINVAL")["request"], "r");
    for bad in ["", "1", "x.y", "-1.0"] {
        resume(&mut client, "default", Some(&json!(bad)));
        assert_eq!(client.refused("EINVAL")["request"], "r");
    }
}
