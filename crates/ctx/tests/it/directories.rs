//! The directory decides: each has its own agent and sessions, and a project file that came with a clone grants nothing
//! before the operator agreed to it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use testkit::{Outcome, TestDaemon, finish};

use crate::support::{daemon, json_lines};

/// A directory of the test's own, with what is above it.
fn make(daemon: &TestDaemon, below: &str) -> PathBuf {
    let dir = daemon.path(below);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// The program in a directory.
fn within(daemon: &TestDaemon, dir: &Path, args: &[&str]) -> Outcome {
    finish(daemon.command(args).current_dir(dir).stdin(Stdio::null()))
}

fn sessions(daemon: &TestDaemon, dir: &Path, args: &[&str]) -> Vec<(String, Value)> {
    let all: Vec<&str> = ["ls", "--json"].into_iter().chain(args.iter().copied()).collect();
    let rows = json_lines(&within(daemon, dir, &all).ok());
    rows.into_iter().map(|row| (row["session"].as_str().unwrap().to_owned(), row)).collect()
}

fn names(rows: &[(String, Value)]) -> Vec<&str> {
    let mut names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn two_directories_have_their_own_agent_and_see_nothing_of_each_other() {
    let daemon = daemon();
    let (one, two) = (make(&daemon, "a/app"), make(&daemon, "b/app"));
    assert_eq!(within(&daemon, &one, &["send", "said in one"]).ok(), "said in one\n");
    assert_eq!(within(&daemon, &two, &["send", "said in two"]).ok(), "said in two\n");
    assert_eq!(names(&sessions(&daemon, &one, &[])), ["app/default"]);
    assert_eq!(names(&sessions(&daemon, &two, &[])), ["app-2/default"], "the name was taken");
    let history = within(&daemon, &two, &["history"]).ok();
    assert!(history.contains("said in two") && !history.contains("said in one"), "{history}");
    assert_eq!(within(&daemon, &one, &["latest"]).ok(), "said in one\n");
    // A bare name is one of this directory's.
    within(&daemon, &one, &["send", "--session", "plan", "a plan"]).ok();
    assert_eq!(within(&daemon, &one, &["latest", "plan"]).ok(), "a plan\n");
    assert!(within(&daemon, &two, &["latest", "plan"]).fails(1).contains("did you mean app/plan"));
    assert_eq!(
        names(&sessions(&daemon, &two, &["-A"])),
        ["app-2/default", "app/default", "app/plan"],
        "all that there are"
    );
    let (_, row) = &sessions(&daemon, &one, &["--dir", one.to_str().unwrap()])[0];
    assert_eq!((row["dir"].as_str(), row["cwd"].as_str()), (one.to_str(), Some("/work")));
    // The workspace of the daemon is `default`'s.
    daemon.ctx(&["send", "said to coder"]).ok();
    assert_eq!(names(&sessions(&daemon, &daemon.workspace(), &[])), ["coder/default"]);
    // One that nobody has worked in has none, and reading makes none.
    let fresh = make(&daemon, "fresh");
    assert!(sessions(&daemon, &fresh, &[]).is_empty());
    assert!(within(&daemon, &fresh, &["history"]).fails(1).contains("no session in this directory"));
    assert!(!daemon.root().join("agent/fresh.d").exists());
    // It is named from elsewhere by --dir.
    daemon.ctx(&["send", "--dir", fresh.to_str().unwrap(), "from afar"]).ok();
    assert_eq!(within(&daemon, &fresh, &["latest"]).ok(), "from afar\n");
}

#[test]
fn a_work_tree_is_one_project_and_a_session_begins_where_its_client_is() {
    let daemon = daemon();
    let sub = make(&daemon, "repo/src/deep");
    make(&daemon, "repo/.git");
    within(&daemon, &sub, &["send", "hello"]).ok();
    let top = daemon.path("repo");
    let rows = sessions(&daemon, &top, &[]);
    assert_eq!(names(&rows), ["repo/default"]);
    let row = &rows[0].1;
    assert_eq!((row["cwd"].as_str(), row["dir"].as_str()), (Some("/work/src/deep"), sub.to_str()));
    // The agent is described by coder's files, as they are at every run.
    let prompt = daemon.root().join("agent/repo.d/prompt");
    assert_eq!(
        std::fs::read(&prompt).unwrap(),
        std::fs::read(daemon.root().join("agent/coder.d/prompt")).unwrap()
    );
    let mount = std::fs::read_to_string(daemon.root().join("agent/repo.d/mount")).unwrap();
    assert_eq!(mount, format!("{} /work rw\n", top.display()));
    std::fs::write(daemon.root().join("agent/coder.d/model"), "debug/script\n").unwrap();
    let answer = within(&daemon, &sub, &["send", r#"{"script":[{"text":"as coder is now"}]}"#]).ok();
    assert_eq!(answer, "as coder is now\n");
}

#[test]
fn the_directory_and_the_agent_are_the_same_after_a_restart_and_the_workspace_is_that_of_the_start() {
    let mut daemon = daemon();
    let app = make(&daemon, "src/app");
    within(&daemon, &app, &["send", "before"]).ok();
    daemon.ctx(&["send", "in the workspace"]).ok();
    daemon.kill();
    daemon.start_again();
    assert_eq!(within(&daemon, &app, &["send", "after"]).ok(), "after\n");
    assert_eq!(names(&sessions(&daemon, &app, &[])), ["app/default"]);
    let history = within(&daemon, &app, &["history"]).ok();
    assert!(history.contains("before") && history.contains("after"), "{history}");
    // A session keeps the workspace that it began with, whatever a later start says.
    let moved = make(&daemon, "elsewhere");
    daemon.stop();
    let table = daemon.root().join("agent/coder.d/mount");
    let text = std::fs::read_to_string(&table).unwrap();
    assert!(text.contains(daemon.workspace().to_str().unwrap()), "{text}");
    let mut other = daemon.command(&["serve", "--detach", "--listen", "127.0.0.1:0", "--workspace"]);
    finish(other.arg(&moved)).ok();
    let text = std::fs::read_to_string(&table).unwrap();
    assert!(text.ends_with(&format!("{} /work rw\n", moved.display())), "{text}");
    std::fs::write(daemon.workspace().join("here.txt"), "of the first").unwrap();
    let read = r#"{"script":[{"tool":{"name":"fs.read","input":{"path":"/work/here.txt"}}},{"dump":true}]}"#;
    let said =
        finish(daemon.command(&["send", "--model", "debug:script", "coder", read]).current_dir(&moved)).ok();
    assert!(said.contains("of the first"), "{said}");
    let fresh = daemon
        .command(&["send", "-s", "new", "--model", "debug:script", "coder", read])
        .current_dir(&moved)
        .output();
    let fresh = String::from_utf8_lossy(&fresh.unwrap().stdout).into_owned();
    assert!(!fresh.contains("of the first"), "{fresh}");
    daemon.ctx(&["stop"]).ok();
}

#[test]
fn home_is_never_a_project_and_a_session_there_can_only_read() {
    let place = crate::support::place();
    let mut serve = place.command(&["serve", "--detach", "--listen", "127.0.0.1:0"]);
    finish(&mut serve).ok();
    let home = place.home();
    std::fs::write(home.join("note.txt"), "a note at home").unwrap();
    std::fs::create_dir(home.join(".git")).unwrap();
    let read = r#"{"script":[{"tool":{"name":"fs.read","input":{"path":"note.txt"}}},{"dump":true}]}"#;
    let said = finish(place.command(&["send", "--model", "debug:script", read]).current_dir(&home));
    assert!(
        said.stderr.contains("is your home directory and never a project: the agent can only read here"),
        "{}",
        said.stderr
    );
    assert!(said.ok().contains("a note at home"));
    let listed = finish(place.command(&["ls", "--json"]).current_dir(&home)).ok();
    let row = &json_lines(&listed)[0];
    assert_eq!((row["session"].as_str(), row["project"].as_str()), (Some("coder/default"), Some("default")));
    let shown = finish(place.command(&["log", "--json", "coder/default"]).current_dir(&home)).ok();
    assert!(shown.contains(r#""read_only":true"#), "{shown}");
    // Elsewhere the same session has the files that it began with, and that is what is said.
    let said = finish(place.command(&["send", "hello"]).current_dir("/"));
    let began = format!("this session began in {}", home.canonicalize().unwrap().display());
    assert!(said.stderr.contains(&began) && !said.stderr.contains("no files"), "{}", said.stderr);
    // A directory below it is one.
    let app = home.join("app");
    std::fs::create_dir(&app).unwrap();
    let said = finish(place.command(&["send", "hello"]).current_dir(&app));
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("hello\n", ""));
    finish(&mut place.command(&["stop"])).ok();
}

#[test]
fn what_a_project_file_grants_holds_only_after_the_operator_agreed() {
    let daemon = daemon();
    let clone = make(&daemon, "clone/.ctx");
    let clone = clone.parent().unwrap();
    let write = |policy: &str| {
        let text = format!("version: 1\nproject: clone\nprimary: {{model: main}}\npolicy: [{policy}]\n");
        std::fs::write(clone.join(".ctx/project.yaml"), text).unwrap();
    };
    // What grants nothing needs no agreement.
    write("deny fs.read *.env, allow fs.read");
    assert_eq!(within(&daemon, clone, &["send", "hello"]).ok(), "hello\n");
    write("allow fs.write");
    let refused = within(&daemon, clone, &["send", "--session", "new", "hello"]).fails(13);
    assert!(
        refused.contains("policy: allow fs.write") && refused.contains("`ctx project trust clone`"),
        "{refused}"
    );
    assert_eq!(within(&daemon, clone, &["send", "old ones go on"]).ok(), "old ones go on\n");
    let listed = daemon.ctx(&["project", "ls"]).ok();
    assert!(listed.contains("not trusted"), "{listed}");
    assert!(within(&daemon, clone, &["project", "trust"]).fails(2).contains("--yes"));
    let trusted = within(&daemon, clone, &["project", "trust", "--yes", "--json"]).ok();
    assert_eq!(json_lines(&trusted)[0]["trusted"], true);
    assert_eq!(within(&daemon, clone, &["send", "--session", "new", "hello"]).ok(), "hello\n");
    // Another file is another question.
    write("allow fs.write, allow shell.exec");
    within(&daemon, clone, &["send", "--session", "newer", "hello"]).fails(13);
    write("allow fs.write");
    within(&daemon, clone, &["send", "--session", "newer", "hello"]).ok();
    let audit = daemon.ctx(&["audit", "--json"]).ok();
    assert!(audit.contains("project.trusted"), "{audit}");
}

#[test]
fn issues_are_those_of_the_directory_unless_another_project_is_named() {
    let daemon = daemon();
    let (one, two) = (make(&daemon, "one"), make(&daemon, "two"));
    assert_eq!(within(&daemon, &one, &["issue", "new", "Of one"]).ok(), "1\n");
    assert_eq!(within(&daemon, &two, &["issue", "new", "Of two"]).ok(), "1\n");
    for (dir, named, title) in [(&one, None, "Of one"), (&two, None, "Of two"), (&two, Some("one"), "Of one")]
    {
        let args: Vec<&str> =
            ["issue", "show", "1", "--json"].into_iter().chain(named.map(|_| "-p")).chain(named).collect();
        assert_eq!(json_lines(&within(&daemon, dir, &args).ok())[0]["title"], title, "{args:?}");
    }
    within(&daemon, &one, &["todo", "--issue", "1", "add", "first"]).ok();
    assert!(within(&daemon, &one, &["issue", "ls"]).ok().contains("0/1"));
    assert!(within(&daemon, &two, &["issue", "ls"]).ok().contains("0/0"));
    assert!(daemon.ctx(&["issue", "ls"]).ok().is_empty(), "the project `default` has none");
}
