//! The queue: what waits, why, and what can be done about it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use serde_json::json;

use crate::support::{SLOW, build, json_lines, start_slow, wait_state};

#[test]
fn a_message_over_the_limit_waits_until_someone_starts_it() {
    let daemon = build().env("CTX_LIMITS_RUNNING_PER_PROJECT", "1").start();
    assert!(daemon.ctx(&["queue"]).ok().is_empty());
    start_slow(&daemon, "first");

    let queued = daemon.ctx(&["send", "--detach", "--session", "second", "patience"]);
    assert!(queued.stderr.contains("queued: 1 of 1 runs in this project are busy"), "{}", queued.stderr);
    assert!(queued.stderr.contains("ctx queue resume coder/second"));
    let run = queued.ok();
    let waiting = json_lines(&daemon.ctx(&["queue", "list", "--json"]).ok());
    for words in [&["queue", "--json"][..], &["queue", "ls", "--json"]] {
        assert_eq!(json_lines(&daemon.ctx(words).ok()), waiting, "{words:?}");
    }
    assert_eq!((&waiting[0]["name"], &waiting[0]["pending_run"]), (&"second".into(), &run.trim().into()));
    let table = daemon.ctx(&["queue"]).ok();
    assert!(
        table.contains("coder/second") && table.contains("1 of 1 runs in this project were busy"),
        "{table}"
    );

    assert!(daemon.ctx(&["queue", "resume", "coder/second"]).fails(1).contains("EBUSY"), "no room yet");
    daemon.ctx(&["cancel", "coder/first"]).ok();
    let resumed = json_lines(&daemon.ctx(&["queue", "resume", "--json"]).ok());
    assert_eq!(resumed[0]["run_id"], run.trim(), "the only one that waits needs no name");
    wait_state(&daemon, "second", "idle");
    assert_eq!(daemon.ctx(&["latest", "coder/second"]).ok(), "patience\n");
    assert!(daemon.ctx(&["queue", "resume"]).fails(1).contains("no queued messages"));
}

#[test]
fn a_member_of_a_space_gets_the_room_that_a_run_of_its_owner_had() {
    let daemon = build().env("CTX_LIMITS_RUNNING_PER_PROJECT", "1").start();
    for below in ["", "work", "home"] {
        std::fs::set_permissions(daemon.path(below), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    daemon.ctx(&["space", "new", "team", "--group", "daemon"]).ok();
    let shared = ["send", "-a", "coder", "--space", "team", "--session", "shared"];
    daemon.ctx(&[&shared[..], &["hello"]].concat()).ok();
    start_slow(&daemon, "first");
    // Nothing tells the member of the owner's runs.
    let mut member = daemon.command(&[&shared[..], &["from a member"]].concat());
    member.uid(1).gid(1).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let member = member.spawn().unwrap();
    testkit::until("the message to be queued", || {
        (!daemon.ctx(&["queue", "list", "--json"]).ok().is_empty()).then_some(())
    });
    daemon.ctx(&["cancel", "coder/first"]).ok();
    let answered = member.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(answered.stdout).unwrap(), "from a member\n");
}

#[test]
fn what_waits_can_be_dropped() {
    let daemon = build().env("CTX_LIMITS_RUNNING_PER_PROJECT", "1").start();
    start_slow(&daemon, "first");
    daemon.ctx(&["send", "--detach", "--session", "second", SLOW]).ok();
    daemon.ctx(&["send", "--detach", "--session", "third", SLOW]).ok();
    let said = daemon.ctx(&["queue", "discard"]).fails(2);
    assert!(said.contains("2 sessions have a queued message") && said.contains("coder/third"), "{said}");
    daemon.ctx(&["queue", "discard", "coder/second"]).ok();
    assert_eq!(json_lines(&daemon.ctx(&["queue", "list", "--json"]).ok()).len(), 1);
    assert!(
        daemon
            .ctx(&["history", "coder/second", "--all"])
            .ok()
            .contains("removed from context: discarded from the queue")
    );
    daemon.ctx(&["cancel", "coder/third"]).ok();
    assert!(daemon.ctx(&["queue"]).ok().is_empty());
}

#[test]
fn a_message_keeps_what_came_with_it_while_it_waits() {
    let mut daemon = build().env("CTX_LIMITS_RUNNING_PER_PROJECT", "1").start();
    start_slow(&daemon, "first");
    let write = |name: &str| {
        let input = json!({ "path": format!("/work/{name}"), "content": "x" });
        json!({ "script": [{ "tool": { "name": "fs.write", "input": input } }, { "text": "went on" }] })
            .to_string()
    };
    let send = |session: &str, flags: &[&str]| {
        let args = [
            &["send", "-a", "coder", "--model", "debug:script", "--session", session],
            flags,
            &["--detach", &write(session)],
        ];
        daemon.ctx(&args.concat()).ok();
    };
    send("yes", &["--yes", "--net", "host"]);
    send("rule", &["--allow", "fs.write *rule"]);
    // The first run is gone with its daemon; what waits is in the log.
    daemon.kill();
    daemon.start_again();
    for session in ["yes", "rule"] {
        daemon.ctx(&["queue", "resume", &format!("coder/{session}")]).ok();
        wait_state(&daemon, session, "idle");
        assert!(daemon.workspace().join(session).exists(), "{session}: it was allowed with the message");
    }
    let log = json_lines(&daemon.ctx(&["log", "coder/yes", "--json"]).ok());
    let find = |kind: &str| log.iter().find(|record| record["type"] == kind).unwrap();
    assert_eq!(find("run_created")["wishes"], json!({ "approvals": "allow", "net": "host" }));
    assert_eq!(find("context")["approvals"], "allow");
    assert!(find("context")["cage"].as_str().unwrap().contains("net=host"), "{log:?}");
}
