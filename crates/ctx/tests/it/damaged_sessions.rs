//! Damage in sessions of every state, made from real logs of ours: each stays what it was, `doctor` names the line, and
//! `repair` mends it. What damage there is, `damage.rs` has row by row.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use testkit::{Place, TestDaemon, until};

use crate::support::{build, json_lines, start_slow, wait_state};

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// The log of the session in a directory.
fn log_path(place: &Place, dir: &str) -> PathBuf {
    place.root().join(format!("home/{}/agent/coder/session/{dir}/events.jsonl", uid()))
}

fn send(place: &Place, session: &str, text: &str) {
    assert_eq!(place.ctx(&["send", "--session", session, text]).ok(), format!("{text}\n"));
}

/// Every session, by its id.
fn sessions(place: &Place) -> Vec<Value> {
    json_lines(&place.ctx(&["ls", "--all", "--archived", "--json"]).ok())
}

fn state_of(place: &Place, id: &str) -> String {
    let all = sessions(place);
    let one = all.iter().find(|session| session["id"] == id);
    let one = one.unwrap_or_else(|| panic!("{id} is not among {all:?}"));
    one["state"].as_str().unwrap().to_owned()
}

fn id_in(place: &Place, dir: &str) -> String {
    let text = fs::read_to_string(log_path(place, dir)).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    first["session_id"].as_str().unwrap().to_owned()
}

/// What the user said in a session.
fn said(place: &Place, session: &str) -> Vec<String> {
    let lines = json_lines(&place.ctx(&["history", session, "--json"]).ok());
    let by_user = lines.iter().filter(|line| line["role"] == "user");
    by_user.map(|line| line["content"].as_str().unwrap().to_owned()).collect()
}

fn problems(place: &Place) -> Vec<Value> {
    let told = place.ctx(&["doctor", "--json"]).stdout;
    json_lines(&told)[0]["problems"].as_array().unwrap().clone()
}

/// Changes one line of a log, the first that has a text in it; its number.
fn change(place: &Place, dir: &str, with: &str, change: impl Fn(&str) -> String) -> usize {
    let path = log_path(place, dir);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = lines
        .iter()
        .position(|line| line.contains(with))
        .unwrap_or_else(|| panic!("{with} is not in {text}"));
    lines[at] = change(&lines[at]);
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    at + 1
}

/// What a crash or a bad disk may do to the last record of a log.
fn spoil_end(place: &Place, dir: &str, how: &str) {
    let path = log_path(place, dir);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    match how {
        "cut" => bytes.truncate(bytes.len() - 1),
        "zeroes" => bytes[last..].fill(0),
        "gone" => bytes.truncate(last),
        _ => bytes[last] = b'x',
    }
    fs::write(&path, bytes).unwrap();
}

/// The one that has ended and the one that has its name now.
fn ended_and_live(daemon: &TestDaemon) -> (String, String) {
    send(daemon, "x", "old");
    let old = id_in(daemon, "x");
    daemon.ctx(&["end", "--yes", "coder/x"]).ok();
    send(daemon, "x", "new");
    (old, id_in(daemon, "x"))
}

#[test]
fn an_ended_session_that_lost_its_end_stays_ended_also_when_its_name_is_used_again() {
    for how in ["cut", "zeroes", "gone", "changed"] {
        let mut daemon = build().start();
        let (old, new) = ended_and_live(&daemon);
        assert_eq!(daemon.stop(), 0);
        spoil_end(&daemon, &format!("x+{old}"), how);
        // The one that is alive may be damaged too; it keeps its name.
        change(&daemon, "x", "session_meta", |line| line.replacen("\"agent\":", "\"agenT\":", 1));
        daemon.start_again();
        assert_eq!(
            (state_of(&daemon, &old), state_of(&daemon, &new)),
            ("ended".into(), "idle".into()),
            "{how}"
        );
        send(&daemon, "x", "more");
        assert_eq!(said(&daemon, "coder/x"), ["new", "more"], "{how}");
        assert_eq!(said(&daemon, &old), ["old"], "{how}");
        assert!(daemon.ctx(&["fork", &old, "--name", "again"]).code == 0, "{how}");
        assert_eq!(daemon.stop(), 0);
        daemon.ctx(&["repair", "--all", "--apply"]).ok();
        daemon.ctx(&["doctor"]).ok();
        daemon.start_again();
        assert_eq!(
            (state_of(&daemon, &old), state_of(&daemon, &new)),
            ("ended".into(), "idle".into()),
            "{how}"
        );
        assert!(log_path(&daemon, &format!("x+{old}")).with_file_name("messages.jsonl").exists(), "{how}");
    }
}

#[test]
fn an_ended_session_that_is_called_by_its_id_stays_ended_when_it_loses_its_end() {
    let mut daemon = build().start();
    send(&daemon, "x", "old");
    let id = daemon.ctx(&["fork", "coder/x"]).ok().trim().rsplit('/').next().unwrap().to_owned();
    assert_eq!(id_in(&daemon, &id), id, "a fork that is given no name is called by its id");
    daemon.ctx(&["end", "--yes", &id]).ok();
    assert_eq!(said(&daemon, &id), ["old"]);
    assert_eq!(daemon.stop(), 0);
    let shelf = fs::read_dir(log_path(&daemon, "x").ancestors().nth(2).unwrap()).unwrap();
    let mut dirs = shelf.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    spoil_end(&daemon, &dirs.find(|dir| dir.starts_with(&id)).unwrap(), "gone");
    daemon.start_again();
    assert_eq!(state_of(&daemon, &id), "ended");
    assert_eq!(said(&daemon, &id), ["old"]);
}

#[test]
fn an_ended_session_that_lost_its_end_stays_ended_while_it_has_its_name() {
    for how in ["cut", "zeroes", "gone", "changed"] {
        let mut daemon = build().start();
        send(&daemon, "x", "old");
        let old = id_in(&daemon, "x");
        daemon.ctx(&["end", "--yes", "coder/x"]).ok();
        assert_eq!(daemon.stop(), 0);
        spoil_end(&daemon, "x", how);
        daemon.start_again();
        assert_eq!(state_of(&daemon, &old), "ended", "{how}");
        assert_eq!(said(&daemon, &old), ["old"], "{how}");
        let records = fs::read_to_string(log_path(&daemon, "x")).unwrap();
        assert!(
            records.lines().last().unwrap().contains(r#""to":"ended""#),
            "{how}: its end is in the log again"
        );
        send(&daemon, "x", "new");
        assert_eq!(
            (said(&daemon, "coder/x"), said(&daemon, &old)),
            (vec!["new".into()], vec!["old".into()]),
            "{how}"
        );
    }
}

#[test]
fn a_log_of_another_session_is_not_over_because_the_files_beside_it_are() {
    let mut daemon = build().start();
    send(&daemon, "x", "old");
    send(&daemon, "y", "other");
    daemon.ctx(&["end", "--yes", "coder/x"]).ok();
    assert_eq!(daemon.stop(), 0);
    let (x, y) = (log_path(&daemon, "x"), log_path(&daemon, "y"));
    fs::copy(&y, &x).unwrap();
    fs::remove_dir_all(y.parent().unwrap()).unwrap();
    daemon.start_again();
    assert_eq!(state_of(&daemon, &id_in(&daemon, "x")), "idle");
    assert_eq!(said(&daemon, "coder/x"), ["other"]);
}

#[test]
fn an_ended_session_whose_end_a_repair_left_out_is_ended_and_shown_again() {
    let mut daemon = build().start();
    let (old, _) = ended_and_live(&daemon);
    assert_eq!(daemon.stop(), 0);
    let dir = format!("x+{old}");
    spoil_end(&daemon, &dir, "zeroes");
    daemon.ctx(&["repair", &old, "--apply"]).ok();
    daemon.ctx(&["doctor"]).ok();
    daemon.start_again();
    assert_eq!(state_of(&daemon, &old), "ended");
    for (file, wanted) in [("state", "done\n"), ("latest.md", "old")] {
        let shown = fs::read_to_string(log_path(&daemon, &dir).with_file_name(file)).unwrap();
        assert!(shown.starts_with(wanted), "{file}: {shown}");
    }
    assert_eq!(said(&daemon, &old), ["old"]);
    daemon.ctx(&["purge", "--yes", &old]).ok();
    assert_eq!(daemon.stop(), 0);
    daemon.ctx(&["doctor"]).ok();
}

/// A session of which a message is damaged stays in its state, and so it does after the repair.
#[track_caller]
fn stays(state: &str, make: impl Fn(&TestDaemon) -> String) {
    let mut daemon = build().env("CTX_LIMITS_IDLE_UNLOAD_MS", "50").start();
    for text in ["first", "second", "third"] {
        send(&daemon, "x", text);
    }
    let dir = make(&daemon);
    let id = id_in(&daemon, &dir);
    let of = |daemon: &TestDaemon| {
        let all = sessions(daemon);
        let one = all.iter().find(|session| session["id"] == id.as_str()).cloned();
        let one = one.unwrap_or_else(|| panic!("{id} is not among {all:?}"));
        (one["state"].clone(), one["archived"].clone(), one["name"].clone())
    };
    let before = of(&daemon);
    assert_eq!(before.0, state);
    assert_eq!(daemon.stop(), 0);
    let line = change(&daemon, &dir, "\"text\":\"second\"", |line| line[..line.len() / 2].to_owned());
    // A fork that nobody has looked at has none yet.
    let _ = fs::remove_file(log_path(&daemon, &dir).with_file_name("messages.jsonl"));
    let found = problems(&daemon);
    let path = format!("home/{}/agent/coder/session/{dir}/events.jsonl", uid());
    let is_it = |problem: &Value| problem["path"] == path.as_str() && problem["line"] == line;
    assert!(found.iter().any(is_it), "{state}: line {line} is not among {found:?}");
    daemon.start_again();
    assert_eq!(of(&daemon), before, "while it is damaged");
    assert_eq!(daemon.stop(), 0);
    let damaged = fs::read(log_path(&daemon, &dir)).unwrap();
    let done = daemon.ctx(&["repair", &id, "--apply", "--json"]).ok();
    let kept = daemon.root().join(json_lines(&done)[0]["original"].as_str().unwrap());
    assert_eq!(fs::read(kept).unwrap(), damaged, "{state}: the original is kept");
    daemon.ctx(&["doctor"]).ok();
    daemon.start_again();
    assert_eq!(of(&daemon), before, "after the repair");
    let texts = said(&daemon, &id);
    assert!(texts.starts_with(&["first".to_owned(), "third".to_owned()]), "{state}: {texts:?}");
}

#[test]
fn a_damaged_message_leaves_a_session_ended_archived_paused_or_forked() {
    stays("ended", |daemon| {
        daemon.ctx(&["end", "--yes", "coder/x"]).ok();
        "x".to_owned()
    });
    stays("idle", |daemon| {
        daemon.ctx(&["archive", "coder/x"]).ok();
        "x".to_owned()
    });
    stays("paused", |daemon| {
        start_slow(daemon, "x");
        daemon.ctx(&["pause", "coder/x"]).ok();
        wait_state(daemon, "x", "paused");
        "x".to_owned()
    });
    stays("idle", |daemon| {
        daemon.ctx(&["fork", "coder/x", "--name", "y"]).ok();
        until("the fork to be listed", || {
            sessions(daemon).iter().any(|session| session["name"] == "y").then_some(())
        });
        "y".to_owned()
    });
}
