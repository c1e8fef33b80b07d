//! Logs and shells that nobody can read or look after any more hide no others, and are told of.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{Place, until};

use crate::support::{Host, Running, place};

/// A place whose root is there, so that the logs of shells are in it.
fn with_root() -> (Place, PathBuf) {
    let place = place();
    std::fs::create_dir_all(place.root()).unwrap();
    let shelf = place.root().join(".state/shell");
    (place, shelf)
}

#[test]
fn who_follows_a_shell_is_told_that_its_server_was_killed() {
    let (place, _) = with_root();
    let mut host = Host::start(&place);
    let (first, _idle) = (host.create(), host.create());
    let watch = Running::start(&mut place.command(&["watch", "--follow"]));
    until("the watcher", || {
        host.exec(&first, "echo beacon");
        watch.line_now()
    });
    host.exec_soon(&first, "sleep 300");
    let until_seen = |text: &str| while !watch.line().contains(text) {};
    until_seen("$ sleep 300");
    host.server.child.kill().unwrap();
    host.server.child.wait().unwrap();
    // In the order in which the system lets go of their logs.
    let mut wanted = vec!["was not recorded: its server was killed]", "[lost: its server was killed]"];
    while !wanted.is_empty() {
        let line = watch.line();
        wanted.retain(|text| !line.contains(text));
    }
    // Once.
    let mut other = Host::start(&place);
    let shell = other.create();
    other.exec(&shell, "echo alive");
    let mut line = String::new();
    while line != "alive" {
        assert!(!line.contains("was killed"), "{line}");
        line = watch.line();
    }
}

#[test]
fn a_log_that_cannot_be_read_hides_no_others() {
    let (place, shelf) = with_root();
    let mut host = Host::start(&place);
    let shell = host.create();
    host.exec(&shell, "echo needle");
    let [empty, link] = ["01K9X3V5E0AAAAAAAAAAAAAAAA", "01K9X3V5E0BBBBBBBBBBBBBBBB"].map(|id| shelf.join(id));
    for dir in [&empty, &link] {
        std::fs::create_dir(dir).unwrap();
    }
    std::fs::write(empty.join("events.jsonl"), "").unwrap();
    symlink("/dev/zero", link.join("events.jsonl")).unwrap();
    std::fs::create_dir(shelf.join("01K9X3V5E0CCCCCCCCCCCCCCCC")).unwrap();

    let listed = place.ctx(&["shells", "list", "--json"]);
    assert!(listed.stderr.contains("left out") && listed.stderr.contains("BBBB"), "{listed:?}");
    let rows: Vec<Value> = listed.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<(&Value, &Value)> = rows.iter().map(|row| (&row["session_id"], &row["state"])).collect();
    assert_eq!(seen, [(&json!(""), &json!("lost")), (&json!("1_local"), &json!("open"))]);
    assert!(rows[0]["updated_at"].as_str().unwrap().starts_with("2025-"), "as its id says: {rows:?}");
    let found = place.ctx(&["shells", "search", "needle"]);
    assert!(found.ok().contains("1 stdout: needle"));
    assert!(place.ctx(&["watch"]).ok().contains("\nneedle\n"));
    assert!(place.ctx(&["shells", "show", "1_local"]).ok().contains("\nneedle\n"));
    place.ctx(&["shells", "show", "01K9X3V5E0B"]).fails(70);
}

#[test]
fn a_root_whose_state_is_a_link_is_not_written_to() {
    let (place, _) = with_root();
    std::fs::create_dir(place.home().join("elsewhere")).unwrap();
    symlink(place.home().join("elsewhere"), place.root().join(".state")).unwrap();
    let mut host = Host::start(&place);
    let shell = host.create();
    assert_eq!(host.exec(&shell, "echo here")["stdout"], "here\n");
    assert!(place.ctx(&["shells"]).ok().contains("1_local"));
    assert_eq!(std::fs::read_dir(place.home().join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_shell_that_is_cancelled_before_it_is_there_is_not_left_behind() {
    let (place, _) = with_root();
    let mut host = Host::start(&place);
    for _ in 0..10 {
        let request = host.tool_soon("session_create", json!({}));
        host.cancel(request);
    }
    let open = || place.ctx(&["shells"]).stdout.matches(" open ").count();
    // One that was begun before its cancel came may still be on its way into the list, and out of it.
    until("the shells' end", || {
        let listed = host.call("session_list", json!({}))["sessions"] == json!([]);
        (listed && open() == 0).then_some(())
    });
}

#[test]
fn a_shell_says_its_directory_as_it_is() {
    let (place, _) = with_root();
    let mut host = Host::start(&place);
    let sub = place.home().join("sub");
    std::fs::create_dir(&sub).unwrap();
    let spelled = format!("{}/./sub//", place.home().display());
    let made = host.call("session_create", json!({"cwd": spelled}));
    let shell = made["session_id"].as_str().unwrap().to_owned();
    let cwd = json!(sub.to_str().unwrap());
    assert_eq!(host.call("session_list", json!({}))["sessions"][0]["cwd"], cwd);
    assert_eq!(host.exec(&shell, "true")["cwd"], cwd);
    assert_eq!(host.exec(&shell, "exit 3")["cwd"], cwd);
}
