//! A command that sums up, and the processes that it starts: none outlives it, the time it has, or the daemon.

use std::path::Path;

use serde_json::json;
use testkit::until;

use super::compaction::filler;
use super::project::session;
use super::{daemon, path, text};
use crate::support::Http;

/// Leaves the command's group, its session and its parent, like a program that makes itself a service.
const STRAY: &str = "(setsid sh -c 'echo $$ > PLACE/stray; exec sleep 600' </dev/null >/dev/null &); \
     until test -s PLACE/stray; do sleep 0.01; done; ";

/// Ends what a test that fails would leave.
struct Left(std::path::PathBuf);

impl Drop for Left {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(&self.0).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// A session whose delegate leaves a process of its own session and then does this.
fn straying(http: &Http, then: &str) -> (String, std::path::PathBuf, Left) {
    let place = http.daemon.path("");
    let script = format!("{STRAY}{then}").replace("PLACE", place.to_str().unwrap());
    let file = http.daemon.path("delegate.sh");
    std::fs::write(&file, script).unwrap();
    let id = session(http, &format!("{{strategy: delegate, delegate: [sh, {}]}}", file.display()));
    let stray = http.daemon.path("stray");
    for name in ["first", "second", "third"] {
        http.done(&id, &filler(name, 4 * 2_048));
    }
    (id, stray.clone(), Left(stray))
}

fn gone(stray: &Path) {
    let pid = std::fs::read_to_string(stray).expect("the delegate was at work");
    until("the stray process to be gone", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z')).then_some(())
    });
}

#[test]
fn what_left_the_delegates_session_ends_with_the_time_it_has() {
    let http = daemon(&[("COMPACTION_MS", "1500")]);
    let (id, stray, _left) = straying(&http, "sleep 600");
    assert_eq!(http.done(&id, &filler("fourth", 4 * 2_048))["state"], "done");
    let made = &http.get(&path(&id, "compactions"))["items"][0];
    assert!(text(made, "fallback_reason").contains("longer than 1.5 s"), "{made}");
    gone(&stray);
}

#[test]
fn what_left_the_delegates_session_ends_with_the_delegate_and_with_a_cancel() {
    let http = daemon(&[]);
    let (id, stray, _left) = straying(&http, "echo in short");
    assert_eq!(http.done(&id, &filler("fourth", 4 * 2_048))["state"], "done");
    assert_eq!(http.get(&path(&id, "compactions"))["items"][0]["summary"], "in short");
    gone(&stray);

    std::fs::remove_file(&stray).unwrap();
    let file = http.daemon.path("delegate.sh");
    let script = std::fs::read_to_string(&file).unwrap().replace("echo in short", "sleep 600");
    std::fs::write(&file, script).unwrap();
    let begun = http.call("POST", &path(&id, "compactions"), Some("{}")).json(202);
    until("the delegate", || std::fs::read_to_string(&stray).is_ok_and(|t| t.ends_with('\n')).then_some(()));
    http.call("POST", &path(&id, &format!("runs/{}/cancel", text(&begun, "run_id"))), None).json(200);
    gone(&stray);
}

#[test]
fn what_left_the_delegates_session_ends_with_a_daemon_that_is_killed() {
    let mut http = daemon(&[]);
    let (id, stray, _left) = straying(&http, "sleep 600");
    http.post(&id, &filler("fourth", 4 * 2_048));
    until("the delegate", || std::fs::read_to_string(&stray).is_ok_and(|t| t.ends_with('\n')).then_some(()));
    super::kill::restart(&mut http);
    gone(&stray);
    assert_eq!(http.state(&id), "idle");
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let http = daemon(&[]);
    let id = session(&http, "{upper: 0.5, lower: 0.3, strategy: delegate, delegate: [no-such-program-here]}");
    for name in ["first", "second", "third"] {
        http.done(&id, &filler(name, 4 * 2_048));
    }
    let made = &http.get(&path(&id, "compactions"))["items"][0];
    let why = text(made, "fallback_reason");
    assert!(why.contains("no-such-program-here") && why.contains("No such file"), "{made}");
    assert_eq!(made["plugins_fired"][0]["result_kind"], json!("error"));
}
