//! Other users: known by the kernel, with files of their own, and without a way to anyone else's.

use std::os::unix::fs::MetadataExt;

use rustix::process::{Gid, Uid};
use serde_json::json;

use super::support::Daemon;

const UID: u32 = 54_321;
const GID: u32 = 54_322;

/// Does something as another user: the ids of one thread alone are changed.
fn as_other<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(UID), Gid::from_raw(GID));
            rustix::thread::set_thread_groups(&[]).expect("this test needs root");
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        other.join().unwrap()
    })
}

#[test]
fn another_user_has_files_of_their_own_under_a_directory_of_root() {
    let daemon = Daemon::start();
    as_other(|| daemon.client().say("mine", "m", "hello"));
    let shelf = daemon.root().join(format!("home/{UID}/agent/coder/session"));
    let dir = shelf.join("mine");
    let of = |name: &str| {
        let data =
            std::fs::symlink_metadata(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        (data.uid(), data.gid(), data.mode() & 0o777)
    };
    // Nobody but the daemon can put anything into the directories; the user's group reads them.
    for path in [dir.clone(), shelf, daemon.root().join(format!("home/{UID}"))] {
        let data = std::fs::metadata(&path).unwrap();
        assert_eq!((data.uid(), data.gid(), data.mode() & 0o777), (0, GID, 0o750), "{}", path.display());
    }
    for name in ["events.jsonl", "messages.jsonl", "latest.md", "state", "meta.json", "updated_at"] {
        let (uid, gid, mode) = of(name);
        assert_eq!((uid, gid), (UID, GID), "{name}");
        assert_eq!(mode & 0o077 & !0o040, 0, "{name}: {mode:o}: others must not read it");
    }
    assert_eq!(as_other(|| std::fs::read_to_string(dir.join("latest.md")).unwrap()), "hello\n");
    let planted = as_other(|| std::fs::write(dir.join("planted"), "x"));
    assert!(planted.is_err(), "the directory is not theirs to write");
}

#[test]
fn another_users_session_and_run_are_eacces_and_do_not_exist_for_the_api() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", json!([{"text": "private"}, {"sleep_ms": 600_000}]));
    let start = client.until("delta").swap_remove(0);
    let (session, run) = (start["session_id"].as_str().unwrap(), start["run"].as_str().unwrap());
    as_other(|| {
        let mut other = daemon.client();
        for request in [
            json!({"op": "resume", "id": "r", "session": session}),
            json!({"op": "send", "id": "r", "session": session, "input": "let me in"}),
        ] {
            other.ask(request);
            assert_eq!(other.refused("EACCES")["request"], "r");
        }
        other.ask(json!({"op": "cancel", "id": run}));
        assert_eq!(other.refused("EACCES")["request"], run);
        other.ask(json!({"op": "cancel", "id": run, "session": session}));
        assert_eq!(other.refused("EACCES")["request"], run);
        for (method, path) in [
            ("GET", format!("/sessions/{session}")),
            ("GET", format!("/sessions/{session}/runs")),
            ("POST", format!("/sessions/{session}/runs/{run}/cancel")),
            ("POST", format!("/sessions/{session}/resume")),
            ("DELETE", format!("/sessions/{session}?confirm=true")),
            ("DELETE", format!("/sessions/{session}/queued-message")),
        ] {
            let answer = daemon.api(method, &path);
            assert_eq!((answer.status, answer.code()), (404, "ENOENT"), "{method} {path}");
        }
        assert_eq!(daemon.api("GET", "/projects/default/sessions").ok()["items"], json!([]));
        assert_eq!(daemon.api("GET", "/status").ok()["sessions"], 0);
        // The same name is free for them.
        assert_ne!(other.say("default", "m", "my own"), run);
    });
    assert_eq!(daemon.shown_all().len(), 2, "the daemon's owner sees all");
    assert_eq!(daemon.shown_of(0, "default")["state"], "running", "nothing has happened to it");
    let secret = daemon.session("default").join("messages.jsonl");
    assert!(as_other(|| std::fs::read(&secret)).is_err(), "nor can they read its files");
}

#[test]
fn another_user_of_a_daemon_that_is_not_root_is_refused() {
    let daemon = Daemon::as_user(UID, GID);
    let mut client = daemon.client();
    client.send("default", "m", "x");
    assert_eq!(client.refused("EACCES")["request"], "m");
    as_other(|| daemon.client().say("default", "m", "x"));
}
