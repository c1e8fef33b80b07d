//! What runs change in files is shown, taken back alone or with the conversation, and what a person edited stays.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::TestDaemon;

use crate::support::{daemon, json_lines};

/// Whose the workspace is where commands are run.
const ANN: u32 = 54_451;

fn writing(path: &str, content: &str) -> Value {
    json!({ "tool": { "name": "fs.write", "input": { "path": format!("/work/{path}"), "content": content } } })
}

fn reading(path: &str) -> Value {
    json!({ "tool": { "name": "fs.read", "input": { "path": format!("/work/{path}") } } })
}

fn command(text: &str) -> Value {
    json!({ "tool": { "name": "shell.exec", "input": { "command": text } } })
}

fn checkpoint() -> Value {
    json!({ "tool": { "name": "checkpoint", "input": { "reason": "here" } } })
}

fn send(daemon: &TestDaemon, steps: Value) -> testkit::Outcome {
    let text = json!({ "script": steps }).to_string();
    daemon.ctx(&["send", "-a", "coder", "--model", "debug:script", "--session", "work", "--yes", &text])
}

fn run(daemon: &TestDaemon, steps: Value) {
    send(daemon, steps).ok();
}

/// Runs until the model's own checkpoint, and from there to the end.
fn run_over_checkpoint(daemon: &TestDaemon, steps: Value) {
    let text = json!({ "script": steps }).to_string();
    let args = ["send", "-a", "coder", "--model", "debug:script", "--session", "work", "--yes", "--detach"];
    daemon.ctx(&[&args[..], &[&text]].concat()).ok();
    daemon.ctx(&["wait", "coder/work", "--for", "paused"]).ok();
    daemon.ctx(&["resume", "coder/work"]).ok();
    daemon.ctx(&["wait", "coder/work"]).ok();
}

fn read(dir: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(name)).ok()
}

fn json_of(daemon: &TestDaemon, args: &[&str]) -> Value {
    serde_json::from_str(&daemon.ctx(args).ok()).unwrap()
}

fn names(list: &Value) -> Vec<String> {
    let name = |one: &Value| match one["change"].as_str() {
        Some(change) => format!("{change} {}", one["path"].as_str().unwrap()),
        None => one["path"].as_str().unwrap().to_owned(),
    };
    list.as_array().unwrap().iter().map(name).collect()
}

/// A session with a checkpoint, and three runs after it: one that only talks, and two that write. A file is edited by hand.
fn three_runs(daemon: &mut TestDaemon, restart: bool) {
    let work = daemon.workspace();
    std::fs::write(work.join("kept"), "of the user\n").unwrap();
    std::fs::write(work.join("edited"), "one\n").unwrap();
    std::fs::write(work.join("both"), "one\n").unwrap();
    run_over_checkpoint(
        daemon,
        json!([writing("first", "before the checkpoint\n"), checkpoint(), { "text": "went on" }]),
    );
    run(daemon, json!([{ "text": "only talk" }]));
    run(
        daemon,
        json!([reading("edited"), writing("edited", "two\n"), reading("both"), writing("both", "two\n"), writing("new/a", "1\n"), { "text": "RUN-TWO" }]),
    );
    for name in ["first", "edited", "both", "new", "new/a", "kept"] {
        chown(work.join(name), Some(ANN), Some(ANN)).unwrap();
    }
    if restart {
        daemon.kill();
        daemon.start_again();
    }
    run(
        daemon,
        json!([command("echo 3 > shelled; rm -f first; echo three > /work/edited"), { "text": "RUN-THREE" }]),
    );
    // By hand, after both.
    std::fs::write(work.join("both"), "by hand\n").unwrap();
    std::fs::write(work.join("mine"), "by hand\n").unwrap();
}

fn rolls_back(restart: bool) {
    let mut daemon = daemon();
    let work = daemon.workspace();
    // Commands are not run as root: they run as whoever the workspace belongs to.
    for dir in [daemon.path(""), work.clone()] {
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    chown(&work, Some(ANN), Some(ANN)).unwrap();
    three_runs(&mut daemon, restart);
    let owner = work.join("shelled").metadata().unwrap().uid();
    assert_eq!(owner, ANN);
    let shown = json_of(&daemon, &["diff", "coder/work", "--json"]);
    let changed = ["changed both", "changed edited", "created new", "created new/a", "created shelled"];
    assert_eq!(names(&shown["files"]), changed);
    let before = daemon.ctx(&["history", "coder/work"]).ok();
    assert!(before.contains("RUN-TWO") && before.contains("RUN-THREE"), "{before}");

    let done = json_of(&daemon, &["rollback", "--yes", "--files", "--json", "coder/work"]);
    let files = &done["files"];
    let back = ["changed edited", "created first", "removed new", "removed new/a", "removed shelled"];
    assert_eq!(names(&files["changed"]), back, "{files}");
    assert_eq!(names(&files["kept"]), ["both"], "{files}");
    assert_eq!(files["uncertain"], json!([]));
    assert_eq!(read(&work, "edited").as_deref(), Some("one\n"));
    assert_eq!(read(&work, "first").as_deref(), Some("before the checkpoint\n"));
    assert_eq!(read(&work, "both").as_deref(), Some("by hand\n"));
    assert_eq!(read(&work, "mine").as_deref(), Some("by hand\n"));
    assert!(!work.join("new").exists() && !work.join("shelled").exists());
    // The conversation agrees, and its record says what happened to the files.
    let after = daemon.ctx(&["history", "coder/work"]).ok();
    assert!(!after.contains("RUN-TWO") && !after.contains("RUN-THREE"), "{after}");
    let log = json_lines(&daemon.ctx(&["log", "coder/work", "--json"]).ok());
    let record = log.iter().find(|record| record["type"] == "rolled_back").unwrap();
    assert_eq!((&record["files"]["changed"], &record["files"]["kept"]), (&json!(5), &json!(1)));
    assert_eq!(record["files"]["undo"], files["undo"]);
    // What was taken back is not the session's change any more.
    let shown = json_of(&daemon, &["diff", "coder/work", "--json"]);
    assert_eq!(
        names(&shown["files"]),
        ["changed both", "created first"],
        "what was kept is still its change"
    );
    // And all of it comes back.
    daemon.ctx(&["snapshots", "restore", "--yes", files["undo"].as_str().unwrap()]).ok();
    assert_eq!(read(&work, "edited").as_deref(), Some("three\n"));
    assert_eq!(read(&work, "shelled").as_deref(), Some("3\n"));
    assert!(!work.join("first").exists());
}

#[test]
fn a_rollback_takes_conversation_and_files_back_and_keeps_what_was_edited_by_hand() {
    rolls_back(false);
}

#[test]
fn the_same_after_a_restart_in_the_middle() {
    rolls_back(true);
}

#[test]
fn an_undo_takes_back_the_last_run_and_then_the_one_before() {
    let daemon = daemon();
    let work = daemon.workspace();
    run(&daemon, json!([writing("a", "1\n"), { "text": "one" }]));
    run(&daemon, json!([writing("b", "2\n"), { "text": "two" }]));
    std::fs::write(work.join("before"), "").unwrap();
    let look = json_of(&daemon, &["undo", "coder/work", "--dry-run", "--json"]);
    assert_eq!((names(&look["changed"]), &look["undo"]), (vec!["removed b".to_owned()], &Value::Null));
    assert!(work.join("b").exists());
    let refused = daemon.ctx(&["undo", "coder/work"]).fails(2);
    assert!(refused.contains("--yes"), "{refused}");
    let first = json_of(&daemon, &["undo", "coder/work", "--yes", "--json"]);
    assert_eq!(names(&first["changed"]), ["removed b"]);
    let second = json_of(&daemon, &["undo", "coder/work", "--yes", "--json"]);
    assert_eq!(names(&second["changed"]), ["removed a"]);
    assert!(!work.join("a").exists() && work.join("before").exists());
    let refused = daemon.ctx(&["undo", "coder/work", "--yes"]).fails(1);
    assert!(refused.contains("nothing to undo in coder/work: no run changed files"), "{refused}");
    daemon.ctx(&["snapshots", "restore", "--yes", first["undo"].as_str().unwrap()]).ok();
    assert!(work.join("a").exists() && work.join("b").exists());
}

/// A run that has written `a` and waits for an answer about `b`.
fn run_up_to_a_question(daemon: &TestDaemon) {
    let text =
        json!({ "script": [writing("a", "1\n"), writing("b", "1\n"), { "text": "done" }] }).to_string();
    let args = ["send", "-a", "coder", "--model", "debug:script", "--session", "work", "--detach"];
    daemon.ctx(&[&args[..], &["--allow", "fs.write *a", &text]].concat()).ok();
    testkit::until("the question", || {
        let waiting = daemon.ctx(&["approve", "coder/work", "--list", "--json"]).stdout;
        (!waiting.is_empty()).then_some(())
    });
}

#[test]
fn a_look_during_a_run_shows_what_it_has_changed_so_far_and_ends_nothing() {
    let daemon = daemon();
    let work = daemon.workspace();
    run_up_to_a_question(&daemon);
    assert_eq!(daemon.ctx(&["diff", "coder/work", "--stat"]).ok(), "A a\n");
    daemon.ctx(&["approve", "coder/work"]).ok();
    daemon.ctx(&["wait", "coder/work"]).ok();
    assert_eq!(daemon.ctx(&["diff", "coder/work", "--stat"]).ok(), "A a\nA b\n");
    daemon.ctx(&["undo", "coder/work", "--yes"]).ok();
    assert!(!work.join("a").exists() && !work.join("b").exists());
}

#[test]
fn what_was_kept_is_still_the_run_s_change_and_goes_back_when_nothing_is_in_the_way() {
    let daemon = daemon();
    let work = daemon.workspace();
    run(&daemon, json!([writing("a", "1\n"), { "text": "one" }]));
    run(&daemon, json!([writing("b", "2\n"), writing("c", "2\n"), { "text": "two" }]));
    std::fs::write(work.join("b"), "2\nmine\n").unwrap();
    let undo = || {
        let back = json_of(&daemon, &["undo", "coder/work", "--yes", "--json"]);
        [names(&back["changed"]), names(&back["kept"])].concat()
    };
    let stat = || daemon.ctx(&["diff", "coder/work", "--stat"]).ok();
    assert_eq!(undo(), ["removed c", "b"]);
    assert_eq!(stat(), "A a\nA b\n");
    assert_eq!(undo(), ["removed a", "b"], "the run before, and what is left");
    assert_eq!((undo(), stat().as_str()), (vec!["b".to_owned()], "A b\n"));
    std::fs::write(work.join("b"), "2\n").unwrap();
    assert_eq!((undo(), stat().as_str()), (vec!["removed b".to_owned()], ""));
    daemon.ctx(&["undo", "coder/work", "--yes"]).fails(1);
}

#[test]
fn what_was_ignored_before_a_run_stays_and_what_was_not_goes_back_whatever_the_run_does_to_the_rules() {
    let daemon = daemon();
    let work = daemon.workspace();
    for (path, text) in [(".gitignore", ".env\n"), (".env", "precious\n"), ("a.txt", "A\n")] {
        std::fs::write(work.join(path), text).unwrap();
    }
    run(
        &daemon,
        json!([
            reading(".gitignore"),
            writing(".gitignore", "*.txt\n"),
            reading("a.txt"),
            writing("a.txt", "B\n"),
            writing("c.txt", "C\n"),
            { "text": "done" }
        ]),
    );
    assert_eq!(daemon.ctx(&["diff", "coder/work", "--stat"]).ok(), "M .gitignore\nM a.txt\nA c.txt\n");
    let back = json_of(&daemon, &["undo", "coder/work", "--yes", "--json"]);
    assert_eq!(
        (names(&back["changed"]), names(&back["kept"])),
        (["changed .gitignore", "changed a.txt", "removed c.txt"].map(str::to_owned).to_vec(), Vec::new())
    );
    let texts = [".gitignore", ".env", "a.txt", "c.txt"].map(|name| read(&work, name));
    let expected =
        [Some(".env\n"), Some("precious\n"), Some("A\n"), None].map(|text| text.map(str::to_owned));
    assert_eq!(texts, expected);
}

#[test]
fn what_someone_else_changes_during_a_run_is_uncertain() {
    let daemon = daemon();
    let work = daemon.workspace();
    // The run waits for an answer about its second file while someone else writes.
    run_up_to_a_question(&daemon);
    std::fs::write(work.join("theirs"), "x").unwrap();
    daemon.ctx(&["approve", "coder/work"]).ok();
    daemon.ctx(&["wait", "coder/work"]).ok();
    let told = daemon.ctx(&["diff", "coder/work", "--stat"]).ok();
    assert_eq!(told, "A a\nA b\nA theirs ?\n");
    let back = json_of(&daemon, &["undo", "coder/work", "--yes", "--json"]);
    assert_eq!(
        (names(&back["changed"]), &back["uncertain"]),
        (
            vec!["removed a".to_owned(), "removed b".to_owned(), "removed theirs".to_owned()],
            &json!(["theirs"])
        )
    );
}

#[test]
fn old_snapshots_and_transcripts_are_pruned_and_a_rollback_s_are_not() {
    let daemon = daemon();
    run(&daemon, json!([writing("a", "1\n"), { "text": "one" }]));
    let count = || json_lines(&daemon.ctx(&["snapshots", "ls", "--json"]).ok()).len();
    assert_eq!(count(), 2);
    daemon.ctx(&["prune", "--yes", "--older-than", "1d"]).ok();
    assert_eq!(count(), 2, "they are not old");
    let sizes = daemon.ctx(&["doctor"]).ok();
    assert!(sizes.lines().any(|line| line.starts_with("sizes") && line.contains("snapshots ")), "{sizes}");
    let pruned = json_of(&daemon, &["prune", "--yes", "--json", "--older-than", "0s"]);
    assert_eq!(pruned["snapshots"], 2, "{pruned}");
    assert_eq!(count(), 0);
    // What a checkpoint needs stays until the session is purged.
    run_over_checkpoint(&daemon, json!([checkpoint(), writing("b", "2\n"), { "text": "two" }]));
    assert_eq!(count(), 3);
    daemon.ctx(&["prune", "--yes", "--older-than", "0s"]).ok();
    assert_eq!(count(), 3);
    daemon.ctx(&["end", "--yes", "coder/work"]).ok();
    daemon.ctx(&["purge", "--yes", "coder/work"]).ok();
    daemon.ctx(&["prune", "--yes", "--older-than", "1d"]).ok();
    assert_eq!(count(), 0);
}

#[test]
fn the_commands_of_the_guide_do_what_it_says() {
    let daemon = daemon();
    let app = daemon.home().join("app");
    std::fs::create_dir(&app).unwrap();
    let page = include_str!("../../../../docs/guides/undo.md");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("\n```\n").next());
    let walk: String = blocks.map(|block| format!("{block}\n")).collect();
    let bin = std::path::Path::new(crate::support::CTX).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut bash = std::process::Command::new("timeout");
    bash.args(["100", "bash", "-eu", "-o", "pipefail", "-c", &walk]).stdin(std::process::Stdio::null());
    bash.env("PATH", path).env("HOME", daemon.home()).env("CTX_ROOT", daemon.root()).current_dir(&app);
    let said = testkit::finish(&mut bash).ok();
    let expected = [
        "planned",
        "noted",
        "M notes.txt",
        "A plan.txt",
        "+++ b/plan.txt",
        "@@ -0,0 +1 @@",
        "+step 1",
        "changed  notes.txt",
        "changed  notes.txt",
        "one",
        "kept     plan.txt  it was changed again since",
        "step 1",
        "my own line",
    ];
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.get(..expected.len()), Some(&expected[..]), "{said}");
    assert!(said.ends_with("new.txt is gone\n"), "{said}");
}

/// Enough files that a kill falls into the work on them.
const MANY: usize = 800;

fn contents(work: &Path) -> std::collections::BTreeSet<String> {
    let text = |n: usize| read(work, &format!("f{n}")).unwrap_or_else(|| "missing".to_owned());
    (1..=MANY).map(|n| text(n).trim_end().to_owned()).collect()
}

#[test]
fn an_undo_that_is_cut_short_by_the_daemons_death_is_finished_or_taken_back() {
    let mut daemon = daemon();
    let work = daemon.workspace();
    for dir in [daemon.path(""), work.clone()] {
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for n in 1..=MANY {
        std::fs::write(work.join(format!("f{n}")), "old\n").unwrap();
    }
    chown(&work, Some(ANN), Some(ANN)).unwrap();
    for (round, wait_ms) in [0, 10, 25, 50, 100, 200, 400].into_iter().enumerate() {
        // What was brought back belongs to who brought it back, which is root here; commands run as Ann.
        for n in 1..=MANY {
            chown(work.join(format!("f{n}")), Some(ANN), Some(ANN)).unwrap();
        }
        let new = format!("new {round}");
        let change =
            format!("for n in $(seq {MANY}); do echo '{new}' > /work/f$n; done; touch /work/extra{round}");
        run(&daemon, json!([command(&change), { "text": "done" }]));
        assert_eq!(contents(&work), [new.clone()].into());
        let mut undo = daemon.command(&["undo", "coder/work", "--yes"]);
        let mut undo = undo.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        daemon.kill();
        let _ = undo.wait();
        daemon.start_again();
        // All of it, or nothing of it, and no byte of either is lost.
        let found = contents(&work);
        let is_back = found == ["old".to_owned()].into();
        assert!(is_back || found == [new.clone()].into(), "after {wait_ms} ms: {found:?}");
        assert_eq!(work.join(format!("extra{round}")).exists(), !is_back);
        if !is_back {
            daemon.ctx(&["undo", "coder/work", "--yes"]).ok();
            assert_eq!(contents(&work), ["old".to_owned()].into());
        }
    }
}

#[test]
fn a_run_whose_files_are_not_saved_has_a_notice_that_says_why() {
    let daemon = daemon();
    // Sparse: it takes no room, and is more than is saved unasked.
    std::fs::File::create(daemon.workspace().join("large")).unwrap().set_len(1200 << 20).unwrap();
    run(&daemon, json!([writing("a", "1\n"), writing("b", "1\n"), { "text": "written" }]));
    let log = json_lines(&daemon.ctx(&["log", "coder/work", "--json"]).ok());
    let notices: Vec<&Value> = log.iter().filter(|record| record["type"] == "noticed").collect();
    let [notice] = notices[..] else { panic!("{notices:?}") };
    assert_eq!(notice["reason"], "files_not_saved");
    assert!(notice["message"].as_str().unwrap().contains("ignore some in .gitignore"), "{notice}");
    let refused = daemon.ctx(&["undo", "coder/work", "--yes"]).fails(1);
    assert!(refused.contains("the session's notices say why"), "{refused}");
    let none = daemon.ctx(&["diff", "coder/work"]);
    assert!(none.stderr.contains("no saved file changes in coder/work"), "{none:?}");
}

/// The only notice of the session `work`.
fn notice(daemon: &TestDaemon) -> String {
    let log = json_lines(&daemon.ctx(&["log", "coder/work", "--json"]).ok());
    let notices: Vec<&Value> = log.iter().filter(|record| record["type"] == "noticed").collect();
    let [notice] = notices[..] else { panic!("{notices:?}") };
    assert_eq!(notice["reason"], "files_not_saved");
    notice["message"].as_str().unwrap().to_owned()
}

const TOO_MUCH: &str = "rm precious; truncate -s 1200M large";

#[test]
fn what_was_there_before_a_run_stays_also_where_what_it_left_cannot_be_saved() {
    let (daemon, elsewhere) = (daemon(), daemon());
    for (daemon, steps) in [
        (&daemon, json!([command(TOO_MUCH), { "text": "done" }])),
        (
            &elsewhere,
            json!([command(TOO_MUCH), { "tool": { "name": "checkpoint", "input": { "reason": "here" } } }, { "text": "on" }]),
        ),
    ] {
        let work = daemon.workspace();
        std::fs::write(work.join("precious"), "mine\n").unwrap();
        if steps.as_array().unwrap().len() > 2 {
            run_over_checkpoint(daemon, steps);
        } else {
            run(daemon, steps);
        }
        let said = notice(daemon);
        assert!(said.contains("ignore some in .gitignore"), "{said}");
        // It is not the run's, and no later run ends where it does not.
        std::fs::remove_file(work.join("large")).unwrap();
        std::fs::write(work.join("edited"), "by hand\n").unwrap();
        run(daemon, json!([writing("a", "1\n"), { "text": "written" }]));
        daemon.ctx(&["undo", "coder/work", "--yes"]).ok();
        assert_eq!(daemon.ctx(&["undo", "coder/work", "--yes"]).code, 1);
        assert_eq!((read(&work, "a"), read(&work, "edited").as_deref()), (None, Some("by hand\n")));
        let restore = said.split('`').find(|words| words.starts_with("ctx snapshots restore ")).unwrap();
        let id = restore.rsplit(' ').next().unwrap();
        daemon.ctx(&["snapshots", "restore", id, "--yes"]).ok();
        assert_eq!(read(&work, "precious").as_deref(), Some("mine\n"));
    }
}

#[test]
fn a_run_that_a_stop_cut_off_takes_no_later_edits_along_where_its_end_cannot_be_saved() {
    let mut daemon = daemon();
    let work = daemon.workspace();
    run_over_checkpoint(
        &daemon,
        json!([{ "tool": { "name": "checkpoint", "input": { "reason": "here" } } }, { "text": "on" }]),
    );
    std::fs::write(work.join("precious"), "mine\n").unwrap();
    let text = json!({ "script": [command(&format!("{TOO_MUCH}; sleep 1000"))] }).to_string();
    let args = ["send", "-a", "coder", "--model", "debug:script", "--session", "work", "--yes", "--detach"];
    daemon.ctx(&[&args[..], &[&text]].concat()).ok();
    testkit::until("the command to have begun", || work.join("large").exists().then_some(()));
    daemon.kill();
    daemon.start_again();
    std::fs::remove_file(work.join("large")).unwrap();
    std::fs::write(work.join("edited"), "by hand\n").unwrap();
    daemon.ctx(&["undo", "coder/work", "--yes"]).fails(1);
    let back = daemon.ctx(&["rollback", "coder/work", "--files", "--yes"]);
    assert!(back.stderr.contains("what one run changed is not known and was left"), "{}", back.stderr);
    assert_eq!(read(&work, "edited").as_deref(), Some("by hand\n"));
    let listed = json_lines(&daemon.ctx(&["snapshots", "--json"]).ok());
    let before = listed.iter().find(|snapshot| snapshot["reason"] == "before_run").unwrap();
    daemon.ctx(&["snapshots", "restore", before["id"].as_str().unwrap(), "--yes"]).ok();
    assert_eq!(read(&work, "precious").as_deref(), Some("mine\n"));
}

/// Commands are not run as root: they run as whoever the workspace belongs to.
fn give_to_ann(daemon: &TestDaemon) {
    for dir in [daemon.path(""), daemon.workspace()] {
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let given = Command::new("chown").args(["-hR", &format!("{ANN}:{ANN}")]).arg(daemon.workspace()).status();
    assert!(given.unwrap().success());
}

#[test]
fn a_directory_that_a_command_has_closed_holds_up_nothing() {
    let daemon = daemon();
    let work = daemon.workspace();
    std::fs::create_dir(work.join("d")).unwrap();
    std::fs::write(work.join("d/x"), "1\n").unwrap();
    std::fs::write(work.join("top"), "1\n").unwrap();
    give_to_ann(&daemon);
    run(&daemon, json!([command("echo 2 >top; chmod -R 644 *"), { "text": "done" }]));
    let mode = || work.join("d").metadata().unwrap().mode() & 0o777;
    assert_eq!(
        (daemon.ctx(&["diff", "coder/work", "--stat"]).ok().as_str(), mode()),
        ("M d\nM top\n", 0o644)
    );
    let back = json_of(&daemon, &["undo", "coder/work", "--yes", "--json"]);
    assert_eq!((names(&back["changed"]).len(), names(&back["kept"]).len()), (2, 0), "{back}");
    assert_eq!((read(&work, "top").as_deref(), mode()), (Some("1\n"), 0o755));
    daemon.ctx(&["snapshots", "restore", "--yes", back["undo"].as_str().unwrap()]).ok();
    assert_eq!((read(&work, "top").as_deref(), mode()), (Some("2\n"), 0o644));
}

#[test]
fn conversation_and_files_agree_after_an_undo_of_what_was_left_was_taken_back() {
    let daemon = daemon();
    let work = daemon.workspace();
    for name in ["f1", "f2"] {
        std::fs::write(work.join(name), "0\n").unwrap();
    }
    let writes = ["f1", "f2"].map(|name| [reading(name), writing(name, "1\n")]).concat();
    run_over_checkpoint(&daemon, json!([&[checkpoint()], &writes[..], &[json!({ "text": "on" })]].concat()));
    run_over_checkpoint(&daemon, json!([checkpoint(), { "text": "on" }]));
    let listed = json_lines(&daemon.ctx(&["checkpoints", "coder/work", "--json"]).ok());
    let [one, two] = &listed[..] else { panic!("{listed:?}") };
    let roll_back = |to: &Value| {
        daemon.ctx(&["rollback", "--files", "--yes", "coder/work", to["id"].as_str().unwrap()]).ok();
    };
    std::fs::write(work.join("f2"), "hand\n").unwrap();
    roll_back(one);
    let back = json_of(&daemon, &["undo", "coder/work", "--yes", "--json"]);
    assert_eq!((names(&back["changed"]).len(), names(&back["kept"])), (0, vec!["f2".to_owned()]));
    daemon.ctx(&["snapshots", "restore", "--yes", back["undo"].as_str().unwrap()]).ok();
    assert_eq!(daemon.ctx(&["diff", "coder/work", "--stat"]).ok(), "M f2\n");
    roll_back(two);
    assert_eq!([read(&work, "f1"), read(&work, "f2")], ["1\n", "hand\n"].map(|text| Some(text.to_owned())));
}

#[test]
fn what_another_session_may_have_changed_during_a_run_is_uncertain() {
    let daemon = daemon();
    let work = daemon.workspace();
    give_to_ann(&daemon);
    let args = |session, detach: &'static [&str]| {
        [&["send", "-a", "coder", "--model", "debug:script", "--session", session, "--yes"], detach].concat()
    };
    for (theirs, expected) in [
        (writing("b", "1\n"), "A a\nA b ?\nA c\nA go\n"),
        // Of what a command may write nothing is known.
        (command("echo 1 >b"), "A a\nA b ?\nA c ?\nA go ?\n"),
    ] {
        let script = json!({ "script": [
            writing("a", "1\n"),
            command("touch begun; until [ -e go ]; do sleep 0.05; done; rm begun; echo 1 >c"),
            { "text": "done" }
        ] });
        daemon.ctx(&[&args("work", &["--detach"])[..], &[&script.to_string()]].concat()).ok();
        testkit::until("the command to have begun", || work.join("begun").exists().then_some(()));
        let script = json!({ "script": [theirs, { "text": "done" }] });
        daemon.ctx(&[&args("other", &[])[..], &[&script.to_string()]].concat()).ok();
        std::fs::write(work.join("go"), "").unwrap();
        daemon.ctx(&["wait", "coder/work"]).ok();
        assert_eq!(daemon.ctx(&["diff", "coder/work", "--stat"]).ok(), expected);
        let back = json_of(&daemon, &["undo", "coder/work", "--yes", "--json"]);
        assert_eq!(back["uncertain"].as_array().unwrap().len(), expected.matches('?').count(), "{back}");
        assert!(!work.join("b").exists());
        // The next round begins where this one began.
        let _ = std::fs::remove_file(work.join("go"));
    }
}

#[test]
fn a_damaged_snapshot_stops_the_prune_of_its_directory_alone_and_the_doctor_names_it() {
    let daemon = daemon();
    let script = json!({ "script": [writing("a", "1\n"), { "text": "done" }] }).to_string();
    for dir in ["one", "two"] {
        let dir = daemon.home().join(dir);
        std::fs::create_dir(&dir).unwrap();
        let mut send =
            daemon.command(&["send", "--session", "new", "--model", "debug:script", "--yes", &script]);
        testkit::finish(send.current_dir(&dir)).ok();
    }
    let listed = || json_lines(&daemon.ctx(&["snapshots", "--json"]).ok());
    let all = listed();
    assert_eq!(all.len(), 4);
    let damaged = format!("{}.json", all[0]["id"].as_str().unwrap());
    let stores = std::fs::read_dir(daemon.root().join(".state/snapshot")).unwrap();
    let mut lines = stores.map(|store| store.unwrap().path().join("snapshots").join(&damaged));
    std::fs::write(lines.find(|line| line.exists()).unwrap(), "{").unwrap();
    assert_eq!(daemon.ctx(&["doctor"]).code, 0);
    let said = daemon.ctx(&["doctor", "--deep"]);
    assert!(said.code == 1 && said.stdout.contains(&damaged), "{said:?}");
    let pruned = daemon.ctx(&["prune", "--yes", "--older-than", "0s"]);
    assert_eq!(pruned.code, 1);
    let named = pruned
        .stderr
        .lines()
        .any(|line| line.starts_with("not pruned: ") && line.contains("/one: ") && line.contains(&damaged));
    assert!(named && pruned.stderr.contains("removed 2 snapshots"), "{}", pruned.stderr);
    assert_eq!(listed().len(), 1, "the other of the same directory stays");
    // Its files are listed without its directory.
    std::fs::rename(daemon.home().join("one"), daemon.home().join("moved")).unwrap();
    let shown = daemon.ctx(&["snapshots", "show", all[1]["id"].as_str().unwrap()]).ok();
    assert!(shown.contains("2 a\n"), "{shown}");
}

const CHANGES: &str = r#"
printf 'tabs\n' > "$(printf 't\tb')"
printf 'two\n' > "$(printf 'old\ttab')"
printf 'two\n' > "$(printf 'odd-\377')"
printf 'one\n2\n' > 'with space'
printf 'new\n' > ' spaces "and" \quotes\ '
printf '#!/bin/sh\n' > run.sh; chmod 755 run.sh
chmod 755 tool; chmod 644 was-tool
printf 'no newline\rat its end\r' > bare
: > empty; rm was-empty
ln -s plain link; ln -sf new-target was-link
rm gone-link; rm plain; ln -s elsewhere plain
rm link-then-file; echo file > link-then-file
rm file-then-dir; mkdir file-then-dir; echo 1 > file-then-dir/in
rm -r dir-then-file; echo 1 > dir-then-file
mkdir -p deep/er; echo 1 > deep/er/file; rm -r old-dir
"#;

#[test]
fn git_applies_the_patch_of_every_kind_of_change() {
    let daemon = daemon();
    let work = daemon.workspace();
    let before = r#"
        printf 'one\n' > "$(printf 'old\ttab')"; printf 'one\n' > "$(printf 'odd-\377')"; printf 'one\n' > 'with space'
        touch tool was-tool was-empty; chmod 755 was-tool; echo x > tool
        ln -s old-target was-link; ln -s x gone-link; echo plain > plain; ln -s x link-then-file
        echo 1 > file-then-dir; mkdir -p dir-then-file/in old-dir; echo 1 > dir-then-file/in/x; echo 1 > old-dir/x
        cp -a . ../copy; git init -q ../copy"#;
    let sh = |script: &str, dir: &Path| {
        testkit::finish(Command::new("sh").args(["-euc", script]).current_dir(dir)).ok()
    };
    sh(before, &work);
    give_to_ann(&daemon);
    run(&daemon, json!([command(CHANGES), { "text": "done" }]));
    let patch = daemon.ctx(&["diff", "coder/work"]);
    assert!(!patch.stderr.contains("not in the patch"), "{}", patch.stderr);
    std::fs::write(daemon.path("p"), &patch.stdout).unwrap();
    let copy = work.with_file_name("copy");
    let applied = testkit::finish(
        Command::new("git").args(["apply", "--whitespace=nowarn"]).arg(daemon.path("p")).current_dir(&copy),
    );
    assert_eq!(applied.code, 0, "{applied:?}\n{}", patch.stdout);
    let list = "find . -path ./.git -prune -o -type f -printf '%M %p\\n' -exec md5sum {} + -o -type l -printf '%p %l\\n' | sort";
    assert_eq!(sh(list, &copy), sh(list, &work));
    // What git cannot have is said, and is not in the way.
    run(
        &daemon,
        json!([command("printf 'a\\0b' > binary; mkdir hollow; chmod 600 bare; echo 2 >> run.sh"), { "text": "done" }]),
    );
    let patch = daemon.ctx(&["diff", "coder/work"]);
    let left: Vec<&str> =
        patch.stderr.lines().filter_map(|line| line.strip_prefix("not in the patch: ")).collect();
    assert_eq!(left, ["binary", "hollow"], "{}", patch.stderr);
}

#[test]
fn a_diff_that_goes_into_a_file_is_a_patch_with_the_bytes_of_the_files() {
    let daemon = daemon();
    let dir = daemon.workspace();
    let old = [("dos", "one\r\ntwo\r\n"), ("odd", "a\x0cb\n")];
    let new = [("dos", "one\r\n2\r\n"), ("odd", "a\x0cc \x1b[31m\n")];
    let put =
        |files: [(&str, &str); 2]| files.map(|(name, text)| std::fs::write(dir.join(name), text).unwrap());
    put(old);
    let steps = new.map(|(name, text)| [reading(name), writing(name, text)]).concat();
    run(&daemon, json!(steps));
    let patch = daemon.path("changes.patch");
    std::fs::write(&patch, daemon.ctx(&["diff", "coder/work"]).ok()).unwrap();
    put(old);
    let applied = Command::new("git").arg("apply").arg(&patch).current_dir(&dir).status();
    assert!(applied.unwrap().success());
    for (name, text) in new {
        assert_eq!(read(&dir, name).as_deref(), Some(text));
    }
}
