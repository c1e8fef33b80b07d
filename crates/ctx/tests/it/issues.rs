//! Issues, todos and binding by the command line. What they mean is tested over HTTP; the guide walks through them.

use serde_json::{Value, json};

use crate::support::{daemon, json_lines};

#[test]
fn an_issue_is_named_by_number_id_or_the_beginning_of_one() {
    let daemon = daemon();
    assert!(daemon.ctx(&["issue", "ls"]).ok().is_empty());
    assert_eq!(daemon.ctx(&["issue", "new", "First"]).ok(), "1\n");
    let made = json_lines(&daemon.ctx(&["issue", "new", "Second", "--body", "b", "--json"]).ok());
    let id = made[0]["id"].as_str().unwrap();
    for word in ["2", "#2", id, &id[..25], &id.to_lowercase()[..25]] {
        let shown = json_lines(&daemon.ctx(&["issue", "show", word, "--json"]).ok());
        assert_eq!(shown[0]["title"], "Second", "{word}");
    }
    for word in ["0", "3", "nonsense", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        assert!(daemon.ctx(&["issue", "show", word]).fails(1).contains("no issue"), "{word}");
    }
    assert!(daemon.ctx(&["issue", "show", &id[..6]]).fails(2).contains("several issues"));
    assert!(daemon.ctx(&["issue", "ls", "-p", "nowhere"]).fails(1).contains("nowhere"));
    daemon.ctx(&["issue", "ls", "-p", "no/where"]).fails(2);
    daemon.ctx(&["issue", "new", " "]).fails(2);
}

#[test]
fn an_issue_is_edited_resolved_closed_and_opened_again() {
    let daemon = daemon();
    std::fs::write(daemon.path("body.md"), "from a file\n").unwrap();
    let file = daemon.path("body.md").display().to_string();
    daemon.ctx(&["issue", "new", "T", "--file", &file, "--criterion", "a", "--criterion", "b"]).ok();
    let edit = |args: &[&str]| -> Value {
        let all = [&["issue", "edit", "1", "--json"], args].concat();
        json_lines(&daemon.ctx(&all).ok()).remove(0)
    };
    assert_eq!(edit(&["--title", "U"])["body"], "from a file\n");
    let criteria = edit(&["--met", "2", "--criterion", "c"])["criteria"].clone();
    assert_eq!(
        criteria,
        json!([{"text":"a","done":false},{"text":"b","done":true},{"text":"c","done":false}])
    );
    let criteria = edit(&["--unmet", "2", "--without", "1"])["criteria"].clone();
    assert_eq!(criteria, json!([{"text":"b","done":false},{"text":"c","done":false}]));
    assert!(daemon.ctx(&["issue", "edit", "1", "--met", "3"]).fails(1).contains("the issue has 2"));
    daemon.ctx(&["issue", "edit", "1"]).fails(2);
    daemon.ctx(&["issue", "edit", "1", "--status", "doing"]).fails(2);
    assert_eq!(edit(&["--status", "in_progress"])["status"], "in_progress");
    for (word, status, listed) in [("resolve", "resolved", 0), ("reopen", "open", 1), ("close", "closed", 0)]
    {
        daemon.ctx(&["issue", word, "1"]).ok();
        assert_eq!(json_lines(&daemon.ctx(&["issue", "ls", "--json"]).ok()).len(), listed, "{word}");
        assert_eq!(json_lines(&daemon.ctx(&["issue", "ls", "--status", status, "--json"]).ok()).len(), 1);
    }
    let shown = daemon.ctx(&["issue", "show", "1"]).ok();
    assert!(shown.starts_with("#1 U\n") && shown.contains("1. [ ] b"), "{shown}");
}

#[test]
fn a_session_is_bound_and_its_todos_are_moved() {
    let daemon = daemon();
    daemon.ctx(&["issue", "new", "Work"]).ok();
    daemon.ctx(&["send", "hello"]).ok();
    assert!(daemon.ctx(&["todo", "coder"]).fails(1).contains("has no issue"));
    daemon.ctx(&["bind", "coder"]).fails(2);
    daemon.ctx(&["bind", "coder", "1", "--none"]).fails(2);
    let bound = json_lines(&daemon.ctx(&["bind", "coder", "1", "--json"]).ok());
    let said = daemon.ctx(&["bind", "coder", "1"]);
    assert!(said.stderr.contains("coder/default works on #1 Work"), "it says which: {}", said.stderr);
    for shown in [daemon.ctx(&["issue", "ls"]).ok(), daemon.ctx(&["issue", "show", "1"]).ok()] {
        assert!(shown.contains("coder/default"), "a session has a name: {shown}");
    }
    let issue = json_lines(&daemon.ctx(&["issue", "show", "1", "--json"]).ok());
    assert_eq!((&bound[0]["bound_issue"], &issue[0]["session_id"]), (&issue[0]["id"], &bound[0]["id"]));
    assert!(daemon.ctx(&["todo"]).ok().is_empty());
    daemon.ctx(&["todo", "add", "a"]).ok();
    daemon.ctx(&["todo", "coder", "add", "b"]).ok();
    daemon.ctx(&["todo", "--issue", "1", "start", "a"]).ok();
    daemon.ctx(&["todo", "coder/default", "note", "a", "n"]).ok();
    daemon.ctx(&["todo", "drop", "2"]).ok();
    assert_eq!(daemon.ctx(&["todo", "ls"]).ok(), "1. [>] a (n)\n2. [-] b\n");
    let todos = json_lines(&daemon.ctx(&["todo", "done", "1", "--json"]).ok());
    assert_eq!((&todos[0]["status"], &todos[1]["status"]), (&json!("done"), &json!("dropped")));
    let refused = daemon.ctx(&["todo", "start", "nothing like it"]).fails(1);
    let wanted = "error: no such todo; the todos are: (ENOENT)\n1. [x] a (n)\n2. [-] b\n";
    assert_eq!(refused, wanted);
    let sign_off = r#"{"script":[{"tool":{"name":"checkpoint","input":{}}},{"text":"thank you"}]}"#;
    daemon.ctx(&["send", "--detach", "--model", "debug:script", sign_off]).ok();
    crate::support::wait_state(&daemon, "default", "paused");
    let resumed = daemon.ctx(&["resume", "coder/default", "--resolve"]);
    assert!(resumed.stderr.contains("#1 Work is resolved\nrun "), "{}", resumed.stderr);
    assert!(resumed.stderr.contains("`ctx log -f coder/default` follows it"), "{}", resumed.stderr);
    daemon.ctx(&["send", "--session", "second", "hello"]).ok();
    assert!(daemon.ctx(&["bind", "coder/second", "1"]).fails(1).contains("EBUSY"));
    let unbound = json_lines(&daemon.ctx(&["bind", "coder/default", "--none", "--json"]).ok());
    assert_eq!(unbound[0]["bound_issue"], Value::Null);
    daemon.ctx(&["bind", "coder/second", "1"]).ok();
    assert!(daemon.ctx(&["todo", "coder/second"]).ok().starts_with("1. [x] a"));
}
