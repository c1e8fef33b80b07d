//! A root of an earlier ctx, whose logs belong to their users, is taken over once.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::until;

use super::support::Daemon;
use super::users::{GID, UID, as_other};

/// Gives a session's files to a user, as they belonged until November 2026.
fn give(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { give(&path) } else { chown(path, Some(UID), Some(GID)).unwrap() }
    }
}

/// A shared session as an earlier ctx kept it: a private one in another place, under another scope.
fn share(daemon: &Daemon, from: &Path) -> PathBuf {
    let to = daemon.root().join("shared/old/agent/coder/session/shared");
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::rename(from, &to).unwrap();
    let log = to.join("events.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    // Its user says that it is root's.
    let forged = text
        .replacen("\"scope\":\"private\"", "\"scope\":\"shared\",\"space\":\"old\"", 1)
        .replacen(&format!("\"owner\":{UID}"), "\"owner\":0", 1);
    assert_ne!(forged, text);
    std::fs::write(&log, forged).unwrap();
    log
}

fn events(daemon: &Daemon) -> Vec<Value> {
    daemon.api("GET", "/audit?event=root.taken_over").ok()["items"].as_array().unwrap().clone()
}

#[test]
fn logs_of_users_become_the_daemons_once_and_a_shared_one_is_whose_its_file_was() {
    let mut daemon = Daemon::start();
    as_other(|| {
        daemon.client().say("private", "m", "hello");
        daemon.client().say("shared", "m", "hello");
    });
    assert!(events(&daemon).is_empty(), "a fresh root has nothing to take over");
    daemon.stop();
    let shelf = daemon.root().join(format!("home/{UID}/agent/coder/session"));
    let shared = share(&daemon, &shelf.join("shared"));
    give(&daemon.root().join("home"));
    give(&daemon.root().join("shared"));
    std::fs::remove_file(daemon.root().join(".state/layout")).unwrap();
    // A process of theirs still has it open.
    let mut held = std::fs::OpenOptions::new().append(true).open(&shared).unwrap();
    let private = shelf.join("private/events.jsonl");
    let before = std::fs::read(&private).unwrap();

    daemon.start_again();
    let taken = until("the audit log", || Some(events(&daemon)).filter(|events| !events.is_empty()));
    assert_eq!((taken.len(), &taken[0]["data"]["logs"]), (1, &json!(2)), "{taken:?}");
    assert_eq!(daemon.shown_of(UID, "shared")["space"], "old", "it is not root's, whatever it says");
    as_other(|| {
        let seen = daemon.api("GET", "/projects/default/sessions").ok();
        assert_eq!(seen["items"].as_array().unwrap().len(), 2, "{seen}");
        daemon.client().say("private", "n", "and on it goes");
    });
    held.write_all(b"forged\n").unwrap();
    assert!(!std::fs::read_to_string(&shared).unwrap().contains("forged"), "that is another file now");
    assert!(std::fs::read(&private).unwrap().starts_with(&before), "nothing else has changed");
    for log in [&private, &shared] {
        assert_eq!(std::fs::metadata(log).unwrap().uid(), 0);
    }
    assert!(as_other(|| std::fs::read(&private).is_ok()), "they read their own");

    // Once: what is not the daemon's from now on is foreign.
    daemon.stop();
    chown(&private, Some(UID), Some(GID)).unwrap();
    daemon.start_again();
    assert_eq!(std::fs::metadata(&private).unwrap().uid(), UID);
    let seen = as_other(|| daemon.api("GET", "/projects/default/sessions").ok());
    assert_eq!(seen["items"].as_array().unwrap().len(), 1, "{seen}");
    assert_eq!(events(&daemon).len(), 1, "it is told once");
}
