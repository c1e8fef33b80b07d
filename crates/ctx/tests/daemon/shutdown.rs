//! SIGTERM: no new work, a while for runs to end, and nothing left open.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::support::{Daemon, connect, kinds, read_messages, until};

#[test]
fn a_run_that_ends_within_the_grace_time_is_done() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "almost "}, {"sleep_ms": 700}, {"text": "there"}]));
    client.until("delta");
    daemon.signal(Signal::TERM);
    let frames = client.until_done();
    assert_eq!(frames.last().unwrap()["status"], "ok", "{frames:?}");
    assert!(daemon.wait().success());
    assert_eq!(
        (daemon.file("default", "latest.md").as_str(), daemon.file("default", "state").as_str()),
        ("almost there\n", "idle\n")
    );
}

#[test]
fn a_run_that_does_not_end_is_failed_with_what_it_said_and_views_are_flushed() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "as far as this"}, {"sleep_ms": 600_000}]));
    let mut frames = client.until("delta");
    let asked = Instant::now();
    daemon.signal(Signal::TERM);
    frames.extend(client.until_done());
    assert!(asked.elapsed() >= Duration::from_millis(4_900), "runs have 5 s to end");
    assert_eq!(kinds(&frames), ["start", "delta", "message", "error", "done"]);
    assert_eq!((&frames[3]["code"], &frames[3]["reason"]), (&json!("EINTR"), &json!("daemon_shutdown")));
    assert!(daemon.wait().success());
    let log = daemon.log("default");
    log.every_run_ends_once();
    log.agrees_with(&read_messages(&daemon.session("default")));
    assert_eq!(log.of_type("failed")[0]["reason"], "daemon_shutdown");
    assert_eq!(
        (daemon.file("default", "latest.md").as_str(), daemon.file("default", "state").as_str()),
        ("as far as this\n", "idle\n")
    );
    assert_eq!(std::fs::read_to_string(daemon.session("index/list")).unwrap(), "default\n");
    daemon.start_again();
    assert_eq!(
        daemon.log("default").records.len(),
        log.records.len(),
        "the next start has nothing to settle"
    );
}

#[test]
fn while_it_stops_new_work_is_refused_and_afterwards_nothing_is_left() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "busy"}, {"sleep_ms": 3_000}]));
    client.until("delta");
    let mut late = daemon.client();
    daemon.signal(Signal::TERM);
    // A new id every time: a message that was accepted before the signal arrived may be asked for again at any time.
    let mut ids = 0..;
    let refused = until("a refusal", || {
        late.send("late", &format!("m{}", ids.next().unwrap()), "x");
        let frame = late.frame();
        match frame["type"].as_str() {
            Some("error") => Some(frame),
            // The signal has not arrived yet.
            _ => {
                late.until_done();
                None
            }
        }
    });
    assert_eq!(refused["code"], "EHOSTDOWN");
    assert_eq!(refused["request"], format!("m{}", ids.start - 1));
    assert_eq!(client.until_done().last().unwrap()["status"], "ok");
    assert!(daemon.wait().success());
    for name in [".state/daemon.json", ".state/api.sock", "agent/coder.sock", "status"] {
        assert!(!daemon.root().join(name).exists(), "{name} is left behind");
    }
    assert!(connect(&daemon.socket()).is_err());
}

#[test]
fn index_files_are_written_at_once_when_it_stops() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    for name in ["a", "b", "c"] {
        client.say(name, "m", "x");
    }
    daemon.stop();
    assert_eq!(std::fs::read_to_string(daemon.session("index/list")).unwrap(), "c\nb\na\n");
    assert_eq!(std::fs::read_to_string(daemon.session("index/current")).unwrap(), "c\n");
}
