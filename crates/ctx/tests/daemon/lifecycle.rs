//! Sessions come, rest, end and leave their name to others.

use std::time::{Duration, Instant};

use serde_json::json;

use super::support::{Daemon, until};

#[test]
fn an_idle_session_is_unloaded_and_loaded_again_when_asked() {
    let daemon = Daemon::with(&[("CTX_LIMITS_IDLE_UNLOAD_MS", "100")]);
    let log = daemon.session("default").join("events.jsonl");
    for round in 0..3 {
        let run = daemon.client().say("default", &format!("m{round}"), "x");
        until("the session to be unloaded", || {
            (daemon.api("GET", "/status").ok()["loaded"] == 0).then_some(())
        });
        // Who reads the log for the search index or a view has it open for a moment.
        until("no descriptor to be kept", || (!daemon.open_files().contains(&log)).then_some(()));
        let file = std::fs::File::options().write(true).open(&log).unwrap();
        let lock = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        assert!(lock.is_ok(), "nor a lock");
        drop(file);
        let mut client = daemon.client();
        client.send("default", &format!("m{round}"), "x");
        assert_eq!(client.until_done()[0]["run"], run, "it remembers");
    }
    assert_eq!(daemon.log("default").of_type("user").len(), 3);
}

#[test]
fn loading_and_unloading_all_the_time_loses_nobodys_request() {
    let daemon = Daemon::with(&[("CTX_LIMITS_IDLE_UNLOAD_MS", "1")]);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let daemon = &daemon;
            scope.spawn(move || {
                let mut client = daemon.client();
                let session = format!("s{}", number / 2);
                for round in 0..60 {
                    // Two clients share a session: one of them may be told that it is busy, never anything else.
                    let id = format!("c{number}-{round}");
                    until("a place in the session", || {
                        client.send(&session, &id, "x");
                        let first = client.frame();
                        if first["type"] == "error" {
                            assert_eq!(first["code"], "EBUSY", "{first}");
                            return None;
                        }
                        assert_eq!(client.until_done().last().unwrap()["status"], "ok");
                        std::thread::sleep(Duration::from_micros(round * 37 % 2_500));
                        Some(())
                    });
                }
            });
        }
    });
    for session in ["s0", "s1"] {
        let log = daemon.log(session);
        log.every_run_ends_once();
        assert_eq!(log.of_type("user").len(), 120);
    }
}

#[test]
fn a_session_that_is_followed_stays_loaded() {
    let daemon = Daemon::with(&[("CTX_LIMITS_IDLE_UNLOAD_MS", "50")]);
    daemon.client().say("default", "m", "x");
    let mut watching = daemon.client();
    watching.ask(json!({"op": "resume", "session": "default"}));
    watching.until_done();
    // Longer than it would have stayed without a reader.
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        assert_eq!(daemon.api("GET", "/status").ok()["loaded"], 1);
        std::thread::sleep(Duration::from_millis(20));
    }
    daemon.client().say("default", "m2", "y");
    assert_eq!(watching.until_done().last().unwrap()["status"], "ok");
}

#[test]
fn an_ended_session_leaves_its_name_to_the_next() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.say("default", "m", "first life");
    let first = daemon.shown("default")["id"].as_str().unwrap().to_owned();
    let unconfirmed = daemon.api("DELETE", &format!("/sessions/{first}"));
    assert_eq!((unconfirmed.status, unconfirmed.code()), (400, "EINVAL"));
    assert_eq!(daemon.api("DELETE", &format!("/sessions/{first}?confirm=true")).status, 204);
    let (own, freed) = (daemon.session("default"), daemon.session(&format!("default+{first}")));
    assert!(own.is_dir() && !freed.exists(), "it stays where it is until its name is used again");
    assert_eq!(std::fs::read_to_string(own.join("state")).unwrap(), "done\n");
    let shown = daemon.api("GET", &format!("/sessions/{first}")).ok();
    assert_eq!((&shown["state"], &shown["dir_name"]), (&json!("ended"), &json!("default")));

    client.say("default", "m", "second life");
    assert!(own.is_dir() && freed.is_dir());
    assert_eq!(std::fs::read_to_string(freed.join("state")).unwrap(), "done\n");
    let second = daemon.log("default").records[0]["session_id"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    // What is over can be read by its id, and not written.
    client.ask(json!({"op": "send", "id": "r", "session": first, "input": "still there?"}));
    assert_eq!(client.refused("ESHUTDOWN")["request"], "r");
    let mut reader = daemon.client();
    reader.ask(json!({"op": "resume", "session": first}));
    let messages = reader.until_done();
    assert!(messages.iter().any(|frame| frame["content"][0]["text"] == "first life"), "{messages:?}");
    daemon.restart();
    assert_eq!(daemon.api("GET", &format!("/sessions/{first}")).ok()["state"], "ended");
    assert_eq!(daemon.api("GET", &format!("/sessions/{second}")).ok()["state"], "idle");
    daemon.client().say("default", "m2", "goes on");
}

#[test]
fn ending_a_running_session_cancels_its_run_and_tells_its_clients() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "cut off"}, {"sleep_ms": 600_000}]));
    client.until("delta");
    let id = daemon.shown("default")["id"].as_str().unwrap().to_owned();
    assert_eq!(daemon.api("DELETE", &format!("/sessions/{id}?confirm=true")).status, 204);
    assert_eq!(client.until_done().last().unwrap()["status"], "cancelled");
    let log = daemon.log("default");
    log.every_run_ends_once();
    assert_eq!((log.state(), &log.of_type("cancelled")[0]["reason"]), ("ended", &json!("session_ended")));
    client.say("default", "m", "a new one");
}

#[test]
fn a_removed_session_directory_harms_no_other_session() {
    let mut daemon = Daemon::with(&[("CTX_LIMITS_IDLE_UNLOAD_MS", "50")]);
    let mut client = daemon.client();
    for name in ["kept", "removed"] {
        client.say(name, "m", "x");
    }
    until("the sessions to be unloaded", || (daemon.api("GET", "/status").ok()["loaded"] == 0).then_some(()));
    std::fs::remove_dir_all(daemon.session("removed")).unwrap();
    let lost = daemon.shown("removed")["id"].as_str().unwrap().to_owned();
    // Its name is free at once.
    client.say("removed", "m2", "anybody there?");
    assert_ne!(daemon.shown("removed")["id"], json!(lost));
    client.say("kept", "m2", "still here");
    let names: Vec<_> = daemon.shown_all().into_iter().map(|session| session["name"].clone()).collect();
    assert!(names.contains(&json!("kept")), "{names:?}");
    daemon.restart();
    let mut client = daemon.client();
    client.say("kept", "m3", "after a restart");
    client.say("removed", "m", "the name is free again");
}

#[test]
fn clocks_before_1970_and_after_9999_panic_nothing() {
    for moment in ["1960-01-01 00:00:00", "9999-12-31 23:59:59"] {
        let found = std::process::Command::new("faketime").args([moment, "env"]).output().unwrap();
        let library = String::from_utf8_lossy(&found.stdout).into_owned();
        let library = library.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).unwrap().to_owned();
        let clock = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME", &format!("@{moment}")),
            ("DONT_FAKE_MONOTONIC", "1"),
        ];
        let daemon = Daemon::with(&clock);
        daemon.client().say("default", "m", "what time is it");
        assert!(daemon.said_by(&["history"]).contains("what time is it"));
        let refused = daemon.api("GET", "/status");
        assert!(refused.status == 503 && refused.body.to_string().contains("clock"), "{refused:?}");
        assert!(!daemon.stderr().contains("panicked"), "{}", daemon.stderr());
    }
}
