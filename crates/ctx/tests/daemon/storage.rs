//! Disks that fail: full, full in the middle of a run, read-only, and owned by another daemon.

use std::io::Read;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::support::{Daemon, ReadOnly, SmallDisk, read_messages, until};

/// A daemon whose root is a disk of its own.
fn on_small_disk(kib: usize) -> (SmallDisk, Daemon) {
    let mut daemon = Daemon::new();
    let disk = SmallDisk::mount(daemon.root(), kib);
    daemon.start_again();
    (disk, daemon)
}

/// Runs `ctx serve` to its end: its exit code and what it said.
fn serve_to_its_end(daemon: &Daemon) -> (Option<i32>, String) {
    let mut child = daemon.serve().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

#[test]
fn on_a_full_disk_a_message_is_refused_and_nothing_is_lost() {
    let (disk, mut daemon) = on_small_disk(2048);
    let mut client = daemon.client();
    client.say("default", "m1", "there was room");
    disk.fill();
    for (session, id) in [("default", "m2"), ("default", "m3"), ("new", "m1")] {
        client.send(session, id, &"x".repeat(20_000));
        assert_eq!(client.refused("ENOSPC")["request"], id);
    }
    let log = daemon.log("default");
    assert_eq!(log.of_type("user").len(), 1, "nothing of what was refused is there");
    disk.free();
    client.say("default", "m2", "room again");
    client.say("new", "m1", "here too");
    daemon.kill();
    daemon.start_again();
    let log = daemon.log("default");
    log.every_run_ends_once();
    log.agrees_with(&read_messages(&daemon.session("default")));
    assert_eq!(log.of_type("user").len(), 2);
}

#[test]
fn a_disk_that_fills_up_during_a_run_stops_it_and_its_end_is_written_when_there_is_room() {
    let (disk, mut daemon) = on_small_disk(8 * 1024);
    let mut client = daemon.client();
    let list = json!({"tool": {"name": "fs.list", "input": {"path": "/work"}}});
    let mut steps = vec![json!({"text": "x".repeat(8_000)})];
    for _ in 0..30 {
        steps.extend([json!({"sleep_ms": 200}), json!({"text": "y".repeat(8_000)}), list.clone()]);
    }
    client.play("default", "m", json!(steps));
    client.until("tool_result");
    disk.fill();
    let failing = until("the session to be failing", || {
        let shown = daemon.shown("default");
        (!shown["failing"].is_null()).then_some(shown)
    });
    assert_eq!((&failing["state"], &failing["failing"]["code"]), (&json!("running"), &json!("ENOSPC")));
    assert!(daemon.said_by(&["ls"]).contains("failing"));
    let listed: Value = serde_json::from_str(&daemon.said_by(&["ls", "--json"])).unwrap();
    assert_eq!((&listed["state"], &listed["failing"]["code"]), (&json!("running"), &json!("ENOSPC")));
    client.send("default", "m2", "not now");
    let refused = client.until("error").pop().unwrap();
    assert_eq!((&refused["request"], &refused["code"]), (&json!("m2"), &json!("ENOSPC")));
    disk.free();
    let frames = client.until_done();
    // The commit of the end brings the files up too.
    until("the files to show the end", || (daemon.file("default", "state") == "idle\n").then_some(()));
    let error = frames.iter().find(|frame| frame["type"] == "error").unwrap();
    assert_eq!((&error["code"], &error["reason"]), (&json!("ENOSPC"), &json!("disk_full")));
    assert_eq!(frames.last().unwrap()["status"], "error");
    assert!(daemon.shown("default")["failing"].is_null());
    assert!(!daemon.said_by(&["ls"]).contains("failing"));
    client.say("default", "m3", "the session goes on");
    let log = daemon.log("default");
    log.every_run_ends_once();
    log.agrees_with(&read_messages(&daemon.session("default")));
    daemon.restart();
    assert_eq!(daemon.log("default").records.len(), log.records.len());
}

#[test]
fn a_full_disk_at_shutdown_is_settled_by_the_next_start() {
    let (disk, mut daemon) = on_small_disk(1024);
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "busy"}, {"sleep_ms": 600_000}]));
    client.until("delta");
    disk.fill();
    daemon.signal(Signal::TERM);
    daemon.wait();
    disk.free();
    daemon.start_again();
    daemon.log("default").every_run_ends_once();
    daemon.client().say("default", "m2", "goes on");
}

#[test]
fn a_read_only_root_is_said_clearly() {
    let mut daemon = Daemon::new();
    let disk = SmallDisk::mount(daemon.root(), 1024);
    daemon.start_again();
    daemon.client().say("default", "m", "x");
    daemon.stop();
    disk.read_only(true);
    let (code, said) = serve_to_its_end(&daemon);
    assert_eq!(code, Some(13), "{said}");
    assert!(said.contains(&daemon.root().display().to_string()) && said.contains("ead-only"), "{said}");
    assert!(said.contains("--root"), "it says what to do: {said}");
    disk.read_only(false);
    daemon.start_again();
    daemon.client().say("default", "m2", "writable again");
}

#[test]
fn a_root_that_becomes_read_only_refuses_and_goes_on_when_it_is_writable_again() {
    let daemon = Daemon::with(&[("CTX_LIMITS_IDLE_UNLOAD_MS", "50")]);
    let mut client = daemon.client();
    client.say("default", "m1", "x");
    until("the log to be closed", || (daemon.api("GET", "/status").ok()["loaded"] == 0).then_some(()));
    let covered = ReadOnly::cover(&daemon.root().join("home"));
    for (session, id) in [("default", "m2"), ("new", "m1"), ("default", "m2")] {
        client.send(session, id, "y");
        let refused = client.frame();
        assert_eq!((&refused["type"], &refused["request"]), (&json!("error"), &json!(id)), "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(&format!("session/{session}")) && message.contains("ead-only"), "{refused}");
    }
    let failing = &daemon.shown("default")["failing"];
    assert_eq!(failing["reason"], "log_unusable", "whoever looks is told: {failing}");
    client.ask(json!({"op": "send", "scope": "temp", "id": "m", "input": "z"}));
    assert_eq!(client.until_done().last().unwrap()["status"], "ok", "what needs no disk goes on");
    drop(covered);
    client.say("default", "m2", "y");
    assert!(daemon.shown("default")["failing"].is_null());
    client.say("new", "m1", "y");
    let log = daemon.log("default");
    log.every_run_ends_once();
    assert_eq!(log.of_type("user").len(), 2);
    assert_eq!(daemon.file("default", "latest.md"), "y\n");
}

#[test]
fn a_second_daemon_on_the_same_root_says_so_and_leaves() {
    let daemon = Daemon::start();
    daemon.client().say("default", "m", "x");
    let (code, said) = serve_to_its_end(&daemon);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("another daemon") && said.contains(&daemon.pid().to_string()), "{said}");
    daemon.client().say("default", "m2", "the first one is unharmed");
}

#[test]
fn a_start_on_a_full_disk_serves_reads_and_purges() {
    let (disk, mut daemon) = on_small_disk(16 * 1024);
    let mut client = daemon.client();
    for id in ["m1", "m2", "m3", "m4"] {
        client.say("old", id, &"x".repeat(400_000));
    }
    client.say("default", "m1", "still to be read");
    daemon.ctx(&["end", "--yes", "coder/old"]).ok();
    client.play("busy", "m", json!([{"text": "begun"}, {"sleep_ms": 600_000}]));
    client.until("delta");
    daemon.kill();
    disk.fill();
    daemon.start_again();
    assert!(daemon.said_by(&["history", "--session", "default"]).contains("still to be read"));
    assert!(daemon.said_by(&["ls", "--all"]).contains("coder/old"));
    assert!(daemon.api("GET", "/projects/default/sessions").ok()["items"].as_array().is_some());
    let mut client = daemon.client();
    client.send("default", "m2", &"x".repeat(20_000));
    assert_eq!(client.refused("ENOSPC")["request"], "m2");
    daemon.ctx(&["purge", "--yes", "coder/old"]).ok();
    assert!(!daemon.session("old").exists());
    assert!(!daemon.said_by(&["ls", "--all"]).contains("coder/old"));
}

#[test]
fn an_index_that_a_full_disk_has_no_room_for_is_made_when_there_is_some() {
    let (disk, mut daemon) = on_small_disk(4 * 1024);
    daemon.client().say("default", "m1", "found again");
    daemon.kill();
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        let _ = std::fs::remove_file(daemon.root().join(".state").join(name));
    }
    disk.fill();
    daemon.start_again();
    assert!(daemon.said_by(&["history"]).contains("found again"));
    disk.free();
    until("the index", || {
        let found = daemon.api("GET", "/search?q=found");
        (found.status == 200 && found.body["items"].as_array().is_some_and(|items| !items.is_empty()))
            .then_some(())
    });
}
