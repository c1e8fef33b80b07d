//! What a user can do with the directory of their own terminals, which is theirs to write: lead the daemon elsewhere, or
//! keep it waiting. Each of these worked in November 2026.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::until;

use super::support::Daemon;
use super::users::{UID, as_other};

/// The other user's directory of terminals, and what a real one of theirs says of itself.
fn theirs(daemon: &Daemon) -> (PathBuf, Value) {
    let command = json!({ "command": ["true"], "cwd": "/" });
    let id = as_other(|| daemon.api_with("POST", "/terminals", &command).ok()["id"].clone());
    let dir = daemon.root().join(format!(".state/hold/{UID}"));
    let about = std::fs::read(dir.join(id.as_str().unwrap()).join("about.json")).unwrap();
    (dir, serde_json::from_slice(&about).unwrap())
}

/// A terminal that nobody opened: a directory with a file that says what it is.
fn planted(dir: &Path, about: &Value, number: usize) -> (String, PathBuf) {
    let id = format!("01ARZ3NDEKTSV4RRFFQ69G5F{number:02}");
    let place = dir.join(&id);
    std::fs::create_dir(&place).unwrap();
    let mut about = about.clone();
    about["id"] = json!(id);
    std::fs::write(place.join("about.json"), about.to_string()).unwrap();
    (id, place)
}

#[test]
fn a_link_in_the_place_of_a_terminals_socket_lets_nobody_speak_as_the_daemon() {
    let daemon = Daemon::start();
    let (dir, about) = theirs(&daemon);
    let told = |text: &str| json!({ "text": text, "keys": [] });
    as_other(|| {
        for (number, socket) in ["agent/coder.sock", ".state/api.sock"].into_iter().enumerate() {
            let (id, place) = planted(&dir, &about, number);
            symlink(daemon.root().join(socket), place.join("sock")).unwrap();
            let request = json!({"op": "send", "id": "m", "session": "planted", "input": "by the daemon"});
            let answer =
                daemon.api_with("POST", &format!("/terminals/{id}/input"), &told(&format!("\n{request}\n")));
            assert_eq!((answer.status, answer.code()), (409, "ESHUTDOWN"), "{answer:?}");
            assert_eq!(daemon.api("GET", &format!("/terminals/{id}")).ok()["state"], "closed");
        }
    });
    daemon.client().say("own", "m", "hello");
    let names: Vec<Value> = daemon.shown_all().into_iter().map(|session| session["name"].clone()).collect();
    assert_eq!(names, ["own"], "nothing was said in the daemon's name");
}

#[test]
fn pipes_and_endless_files_in_the_place_of_a_terminals_keep_nobody_waiting() {
    let daemon = Daemon::start();
    let (dir, about) = theirs(&daemon);
    let pipe = |path: PathBuf| {
        rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    };
    let endless = |path: PathBuf| std::fs::File::create(path).unwrap().set_len(8 << 40).unwrap();
    let last = as_other(|| {
        for (number, file) in ["about.json", "end.json"].into_iter().enumerate() {
            let (_, place) = planted(&dir, &about, 2 * number);
            let _ = std::fs::remove_file(place.join(file));
            pipe(place.join(file));
            let (_, place) = planted(&dir, &about, 2 * number + 1);
            endless(place.join(file));
        }
        let (id, place) = planted(&dir, &about, 8);
        pipe(place.join("transcript"));
        assert!(daemon.api("GET", "/terminals?all=true").ok()["items"].as_array().unwrap().len() < 8);
        daemon.api_with("POST", "/terminals", &json!({ "command": ["true"], "cwd": "/" })).ok();
        id
    });
    as_other(|| {
        for part in ["transcript", "screen"] {
            let answer = daemon.api("GET", &format!("/terminals/{last}/{part}"));
            assert_eq!(answer.status, 500, "{part}: {answer:?}");
        }
    });
}

#[test]
fn holders_that_do_not_answer_keep_only_their_user_waiting() {
    let daemon = Daemon::start();
    let (dir, about) = theirs(&daemon);
    // They take connections, and then say nothing.
    let mute: Vec<UnixListener> = as_other(|| {
        let listen = |number| UnixListener::bind(planted(&dir, &about, number).1.join("sock")).unwrap();
        (0..4).map(listen).collect()
    });
    let new = json!({ "command": ["true"], "cwd": "/" });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| as_other(|| daemon.api_with("POST", "/terminals", &new)));
        until("the daemon to ask the first of them", || {
            mute.iter().find_map(|socket| socket.set_nonblocking(true).and_then(|()| socket.accept()).ok())
        });
        daemon.api_with("POST", "/terminals", &new).ok();
        assert!(!waiting.is_finished(), "nobody else has waited for them");
        waiting.join().unwrap().ok();
    });
}

#[test]
fn a_terminal_of_a_user_without_an_account_has_no_group_of_anybody() {
    let daemon = Daemon::start();
    let command = json!({ "command": ["sh", "-c", "echo groups: $(id -G); sleep 1000"], "cwd": "/" });
    as_other(|| {
        let opened = daemon.api_with("POST", "/terminals", &command).ok();
        let at = format!("/terminals/{}", opened["id"].as_str().unwrap());
        let text = until("what it says", || {
            let shown = daemon.api("GET", &format!("{at}/screen")).ok();
            shown["text"].as_str().filter(|text| text.contains("groups: ")).map(str::to_owned)
        });
        assert_eq!(text.trim(), "groups: 65534");
        assert_eq!(daemon.api("DELETE", &at).status, 204);
    });
}
