//! Other users: known by the kernel, with files of their own, and without a way to anyone else's.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;

use rustix::process::{Gid, Uid};
use serde_json::json;

use super::support::{Daemon, connect, text_of};

pub const UID: u32 = 54_321;
pub const GID: u32 = 54_322;

/// Does something as a user: the ids of one thread alone are changed.
pub fn as_user<T: Send>(uid: u32, gid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::thread::set_thread_groups(&[]).expect("this test needs root");
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        other.join().unwrap()
    })
}

pub fn as_other<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    as_user(UID, GID, work)
}

#[test]
fn the_files_of_another_user_are_the_daemons_and_they_alone_read_them() {
    let daemon = Daemon::start();
    as_other(|| daemon.client().say("mine", "m", "hello"));
    daemon.wait_for_index(UID);
    let shelf = daemon.root().join(format!("home/{UID}/agent/coder/session"));
    let mut paths = vec![shelf.clone(), daemon.root().join(format!("home/{UID}"))];
    let mut pending = vec![shelf.join("mine"), shelf.join("index")];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        paths.push(path);
    }
    assert!(paths.len() > 12, "{paths:?}");
    for path in paths {
        // The group's bits are the mask of the ACL; the group itself has no right.
        let data = std::fs::metadata(&path).unwrap();
        let mode = if data.is_dir() { 0o750 } else { 0o640 };
        assert_eq!((data.uid(), data.gid(), data.mode() & 0o777), (0, 0, mode), "{}", path.display());
        let reads = |uid, gid| {
            as_user(uid, gid, || match path.is_dir() {
                true => std::fs::read_dir(&path).is_ok(),
                false => std::fs::read(&path).is_ok(),
            })
        };
        assert!(reads(UID, GID), "{}", path.display());
        assert!(!reads(UID + 1, GID), "nor by the same group: {}", path.display());
        let changed = as_other(|| match path.is_dir() {
            true => std::fs::write(path.join("planted"), "x").is_ok(),
            false => std::fs::OpenOptions::new().append(true).open(&path).is_ok(),
        });
        let renamed = as_other(|| std::fs::rename(&path, path.with_extension("renamed")).is_ok());
        assert!(!changed && !renamed, "{}", path.display());
    }
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
        for path in ["checkpoints".to_owned(), format!("checkpoints/{run}/rollback")] {
            let asked = |id: &str| {
                let answer =
                    daemon.api_with("POST", &format!("/sessions/{id}/{path}"), &json!({ "files": true }));
                (answer.status, answer.code().to_owned())
            };
            assert_eq!(asked(session), (404, "ENOENT".to_owned()), "{path}");
            assert_eq!(asked(session), asked("01ARZ3NDEKTSV4RRFFQ69G5FAV"), "{path}");
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

/// What a tool gave, of all frames of a run.
fn read_by(daemon: &Daemon, session: &str, path: &str) -> String {
    let mut client = daemon.client();
    let read = json!({"tool": {"name": "fs.read", "input": {"path": path}}});
    client.play(session, "m", json!([read, {"dump": true}]));
    text_of(&client.until_done())
}

fn private_file(daemon: &Daemon, name: &str, uid: u32) {
    let path = daemon.workspace().join(name);
    std::fs::write(&path, format!("the text of {uid}")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&path, Some(uid), None).unwrap();
}

#[test]
fn another_users_agent_reads_their_files_and_not_roots() {
    let daemon = Daemon::start();
    private_file(&daemon, "roots", 0);
    private_file(&daemon, "theirs", UID);
    let read = |path: &str| as_other(|| read_by(&daemon, &format!("of-{path}"), path));
    let roots = read("roots");
    assert!(roots.contains("EACCES") && !roots.contains("the text of 0"), "{roots}");
    let theirs = read("theirs");
    assert!(theirs.contains(&format!("the text of {UID}")), "{theirs}");
    assert!(read_by(&daemon, "own", "roots").contains("the text of 0"), "the daemon's own user reads all");
}

#[test]
fn a_workspace_that_a_user_may_not_enter_is_not_worked_in_for_them() {
    let daemon = Daemon::start();
    private_file(&daemon, "roots", 0);
    std::fs::set_permissions(daemon.workspace(), std::fs::Permissions::from_mode(0o700)).unwrap();
    as_other(|| {
        let mut client = daemon.client();
        client.send("closed", "m", "x");
        assert_eq!(client.refused("EACCES")["request"], "m");
        client.ask(json!({"op": "send", "session": "closed", "id": "n", "input": "x", "cwd": "/"}));
        let done = client.until_done();
        assert_eq!(done.last().unwrap()["status"], "ok", "without files they may talk: {done:?}");
    });
}

#[test]
fn the_agent_of_a_daemon_without_root_reads_its_users_files() {
    let daemon = Daemon::as_user(UID, GID);
    private_file(&daemon, "roots", 0);
    private_file(&daemon, "theirs", UID);
    let read = |path: &str| as_other(|| read_by(&daemon, &format!("of-{path}"), path));
    let roots = read("roots");
    assert!(roots.contains("EACCES") && !roots.contains("the text of 0"), "{roots}");
    assert!(read("theirs").contains(&format!("the text of {UID}")));
}

#[test]
fn a_daemon_without_root_follows_no_link_in_the_place_of_a_project() {
    let daemon = Daemon::as_user(UID, GID);
    let (dir, outside) = (daemon.path("src"), daemon.path("outside"));
    as_other(|| {
        std::fs::create_dir_all(dir.join(".ctx")).unwrap();
        let file = "version: 1\nproject: src\nprimary: {model: \"debug:script\"}\n";
        std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
        std::fs::create_dir(&outside).unwrap();
        for (place, text) in [(&dir, "inside"), (&outside, "outside")] {
            std::fs::write(place.join("note"), format!("the note {text}")).unwrap();
        }
    });
    let mut add = daemon.command(&["project", "add", dir.to_str().unwrap()]);
    testkit::finish(add.uid(UID).gid(GID)).ok();
    let script = json!([{"tool": {"name": "fs.read", "input": {"path": "note"}}}, {"dump": true}]);
    let socket = daemon.root().join("agent/src.sock");
    as_other(|| {
        let mut client = connect(&socket).unwrap();
        client.play("default", "first", script.clone());
        assert!(text_of(&client.until_done()).contains("the note inside"));
        std::fs::rename(&dir, daemon.path("away")).unwrap();
        std::os::unix::fs::symlink(&outside, &dir).unwrap();
        client.play("default", "second", script.clone());
        assert_eq!(client.refused("EACCES")["request"], "second");
        std::fs::remove_file(&dir).unwrap();
        std::fs::rename(daemon.path("away"), &dir).unwrap();
        client.play("default", "third", script);
        assert!(text_of(&client.until_done()).contains("the note inside"));
    });
}
