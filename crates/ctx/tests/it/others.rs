//! A root that several people use: what others than its owner ask goes through the daemon, and is answered the same.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Outcome, TestDaemon, finish, until};

use crate::support::{daemon, json_lines};

const UID: u32 = 54_321;
const GID: u32 = 54_322;

/// A daemon of root's, whose place others can reach.
fn shared() -> TestDaemon {
    let daemon = daemon();
    for below in ["", "work", "home"] {
        std::fs::set_permissions(daemon.path(below), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    daemon
}

/// Runs `ctx` as another user. These tests need root, as the suite has it.
fn theirs(daemon: &TestDaemon, args: &[&str]) -> Outcome {
    finish(daemon.command(args).uid(UID).gid(GID).stdin(Stdio::null()))
}

fn json(outcome: Outcome) -> Vec<Value> {
    json_lines(&outcome.ok())
}

/// Two sessions of theirs and one of the owner's, all of them searchable.
fn talked() -> TestDaemon {
    let daemon = shared();
    daemon.ctx(&["send", "--session", "mine", "the owner's secret gnu"]).ok();
    theirs(&daemon, &["send", "--session", "herd", "a gnu in the herd"]).ok();
    theirs(&daemon, &["send", "--session", "other", "no such animal"]).ok();
    until("their words to be searchable", || {
        (theirs(&daemon, &["search", "animal"]).code == 0).then_some(())
    });
    until("the owner's words to be searchable", || {
        (daemon.ctx(&["search", "secret"]).code == 0).then_some(())
    });
    daemon
}

#[test]
fn another_user_searches_their_own_sessions_with_every_filter() {
    let daemon = talked();
    let found = |args: &[&str]| {
        let outcome = theirs(&daemon, &[&["search", "--json"], args].concat());
        let hits = json_lines(&outcome.stdout);
        let shown = |hit: &Value| {
            assert!(hit["seq"].as_u64().is_some() && hit["standing"] == "counts", "{hit}");
            format!("{} {}", hit["session"].as_str().unwrap(), hit["role"].as_str().unwrap())
        };
        hits.iter().map(shown).collect::<Vec<_>>()
    };
    let mut both = found(&["gnu"]);
    both.sort();
    assert_eq!(both, ["coder/herd assistant", "coder/herd user"], "not the owner's");
    assert_eq!(found(&["gnu", "--role", "user"]), ["coder/herd user"]);
    assert_eq!(found(&["gnu", "-n", "1"]).len(), 1);
    assert_eq!(found(&["gnu", "-n", "0", "--newest"]).len(), 2);
    assert_eq!(found(&["gn*", "--session", "coder/herd", "--since", "1h", "--agent", "coder"]).len(), 2);
    assert_eq!(found(&["\"in the herd\"", "--project", "default"]).len(), 2);
    for none in [&["gnu", "--until", "1h"][..], &["gnu", "--agent", "nobody"], &["secret"], &["gnu -herd"]] {
        assert_eq!(found(none), [""; 0], "{none:?}");
    }
    let nothing = theirs(&daemon, &["search", "secret"]);
    assert!(nothing.code == 1 && nothing.stderr.contains("nothing found"), "{nothing:?}");
    theirs(&daemon, &["search", "***"]).fails(2);
    let text = theirs(&daemon, &["search", "herd", "--role", "user"]).ok();
    assert!(
        text.contains("coder/herd  ") && text.contains("  user  ") && text.contains("a gnu in the herd"),
        "{text}"
    );
}

#[test]
fn another_user_counts_lists_and_reads_the_audit_of_their_own() {
    let daemon = talked();
    let stats = &json(theirs(&daemon, &["stats", "--json"]))[0];
    assert_eq!((&stats["sessions"], &stats["messages_by_role"]["user"]), (&json!(2), &json!(2)));
    assert_eq!(json(theirs(&daemon, &["stats", "nobody", "--json"]))[0]["sessions"], 0);
    assert!(theirs(&daemon, &["stats"]).ok().contains("sessions            2"));

    let names = |args: &[&str]| -> Vec<String> {
        let rows = json(theirs(&daemon, &[&["ls", "--json"], args].concat()));
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["-t", "animal"]), ["other"], "what was said, not only names");
    assert_eq!(names(&["-t", "secret"]), [""; 0]);
    assert_eq!(names(&["-t", "erd"]), ["herd"], "a part of a name");

    until("their audit lines", || {
        let lines = json(theirs(&daemon, &["audit", "--json", "-n", "0"]));
        let done = lines.iter().filter(|line| line["event"] == "run.completed").count();
        (done == 2).then_some(())
    });
    let lines = json(theirs(&daemon, &["audit", "--json", "-n", "0"]));
    assert!(lines.iter().all(|line| line["user"] == UID && line["session_seq"].is_u64()), "{lines:?}");
    let of_herd = ["audit", "--json", "--session", "coder/herd", "--event", "run.created", "--since", "1h"];
    assert_eq!(json(theirs(&daemon, &of_herd)).len(), 1);
    assert_eq!(json(theirs(&daemon, &["audit", "--json", "--user", "0"])), [json!(null); 0]);
    assert_eq!(json(theirs(&daemon, &["audit", "--json", "--until", "1d"])), [json!(null); 0]);
    let mine = json_lines(&daemon.ctx(&["audit", "--json", "-n", "0", "--user", "0"]).ok());
    assert!(mine.len() > 1 && mine.iter().all(|line| line["user"] == 0), "{mine:?}");
}

#[test]
fn another_user_is_told_when_no_daemon_answers() {
    let mut daemon = talked();
    assert_eq!(daemon.stop(), 0);
    for command in [&["search", "gnu"][..], &["stats"], &["audit"]] {
        let said = theirs(&daemon, command).fails(69);
        assert!(said.contains("no daemon is running") && said.contains("ctx ls"), "{command:?}: {said}");
    }
    let listed = theirs(&daemon, &["ls", "--json", "-t", "herd"]);
    assert!(listed.stderr.contains("only names and titles"), "{}", listed.stderr);
    assert_eq!(json(listed)[0]["name"], "herd");
}

#[test]
fn whoever_looks_is_told_what_they_can_do_about_damage() {
    let mut daemon = shared();
    daemon.ctx(&["send", "--session", "same", "the owner's"]).ok();
    theirs(&daemon, &["send", "--session", "same", "damaged"]).ok();
    assert_eq!(daemon.stop(), 0);
    let log = format!("home/{UID}/agent/coder/session/same/events.jsonl");
    let path = daemon.root().join(&log);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"text\":\"damaged\"", "\"text\":\"damaged", 1)).unwrap();
    let advice = |told: Outcome| {
        let found = json_lines(&told.stdout)[0]["problems"].as_array().unwrap().clone();
        let one = found.iter().find(|problem| problem["path"] == log.as_str());
        one.unwrap_or_else(|| panic!("{found:?}"))["fix"].as_str().unwrap().to_owned()
    };
    // They cannot write where it lies; the owner can, and has another session of that name.
    let told = advice(theirs(&daemon, &["doctor", "--json"]));
    assert!(told.contains("the daemon's owner (uid 0)"), "{told}");
    let refused = theirs(&daemon, &["repair", "coder/same", "--apply"]).fails(1);
    assert!(refused.contains("the daemon's owner (uid 0)") && refused.contains("--all"), "{refused}");
    let told = advice(daemon.ctx(&["doctor", "--json"]));
    assert!(told.contains("ctx repair --all") && !told.contains("coder/same"), "{told}");
    daemon.ctx(&["repair", "--all", "--apply"]).ok();
    daemon.ctx(&["doctor"]).ok();
}

#[test]
fn another_user_has_their_own_snapshots_and_no_others() {
    let daemon = shared();
    let work = daemon.workspace();
    let write = |path: &str| {
        let call = json!({"name": "fs.write", "input": {"path": format!("/work/{path}"), "content": "1\n"}});
        json!({"script": [{"tool": call}, {"text": "done"}]}).to_string()
    };
    let args = ["send", "-a", "coder", "--model", "debug:script", "--session", "work", "--yes"];
    daemon.ctx(&[&args[..], &[&write("owners")]].concat()).ok();
    let owners = json(daemon.ctx(&["snapshots", "ls", "--json"]));
    std::os::unix::fs::chown(&work, Some(UID), Some(GID)).unwrap();
    theirs(&daemon, &[&args[..], &[&write("theirs")]].concat()).ok();
    let undone = &json(theirs(&daemon, &["undo", "coder/work", "--yes", "--json"]))[0];
    assert!(!work.join("theirs").exists(), "{undone}");

    let listed = json(theirs(&daemon, &["snapshots", "ls", "--json"]));
    let everyone = json(daemon.ctx(&["snapshots", "ls", "--json"]));
    assert_eq!((owners.len(), listed.len(), everyone.len()), (2, 3, 5), "{listed:?}");
    let undo = undone["undo"].as_str().unwrap();
    assert!(theirs(&daemon, &["snapshots", "show", undo]).ok().ends_with("0644            2 theirs\n"));
    assert_eq!(theirs(&daemon, &["snapshots", "diff", undo]).ok(), "removed  theirs\n");
    let first = listed[0]["id"].as_str().unwrap();
    assert_eq!(theirs(&daemon, &["snapshots", "diff", first, undo]).ok(), "created  theirs\n");
    let back = theirs(&daemon, &["snapshots", "restore", "--yes", undo]).ok();
    assert!(back == "created  theirs\n" && work.join("theirs").exists(), "{back}");

    let foreign = owners[0]["id"].as_str().unwrap();
    for words in [vec!["show"], vec!["diff"], vec!["restore", "--yes"]] {
        let args = [&["snapshots"], &words[..], &[foreign]].concat();
        assert!(theirs(&daemon, &args).fails(1).contains("no snapshot"));
    }
    for (method, path) in [("GET", ""), ("GET", "/changes"), ("POST", "/restore")] {
        let url = format!("http://ctx/api/v1/snapshots/{foreign}{path}");
        let mut curl = std::process::Command::new("curl");
        curl.args([
            "-s",
            "-X",
            method,
            "-H",
            "content-type: application/json",
            "--data",
            "{}",
            "--unix-socket",
        ]);
        curl.arg(daemon.root().join(".state/api.sock")).arg(url).uid(UID).gid(GID);
        let told = finish(&mut curl).ok();
        assert!(told.contains("ENOENT"), "{told}");
    }
    let over = daemon.root().join(format!(".state/hold/{UID}/over"));
    std::fs::create_dir_all(&over).unwrap();
    std::fs::write(over.join("end.json"), "{}").unwrap();
    for dir in [over.parent().unwrap(), &over] {
        std::os::unix::fs::chown(dir, Some(UID), Some(GID)).unwrap();
    }
    let pruned = &json(theirs(&daemon, &["prune", "--yes", "--json", "--older-than", "0s"]))[0];
    assert_eq!((&pruned["snapshots"], &pruned["terminals"]), (&json!(4), &json!(1)), "{pruned}");
    assert_eq!(json(daemon.ctx(&["snapshots", "ls", "--json"])), owners);
}
