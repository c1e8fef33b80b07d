//! Forks, archives, purges, and names that are free again: what becomes of sessions, also when the daemon dies.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Place, Pty, TestDaemon, moment, rounds, until};

use crate::support::{daemon, json_lines, start_slow, wait_state};

fn history(place: &Place, session: &str) -> Vec<Value> {
    json_lines(&place.ctx(&["history", session, "--json"]).ok())
}

fn listed(place: &Place, more: &[&str]) -> Vec<Value> {
    json_lines(&place.ctx(&[&["ls", "--json"], more].concat()).ok())
}

/// The names on a list.
fn names(place: &Place, more: &[&str]) -> Vec<String> {
    let all = listed(place, more);
    let mut names: Vec<String> =
        all.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}

/// Waits until a list has these names and no others: lists may follow a moment behind.
fn wait_listed(place: &Place, more: &[&str], wanted: &[&str]) {
    until(&format!("a list of {wanted:?}"), || (names(place, more) == wanted).then_some(()));
}

/// The id of a live session.
fn id_of(place: &Place, name: &str) -> String {
    records(place, name)[0]["session_id"].as_str().unwrap().to_owned()
}

/// Makes a fork; its id.
fn fork(place: &Place, source: &str, name: &str) -> String {
    place.ctx(&["fork", source, "--name", name]).ok().trim().to_owned()
}

fn send(place: &Place, session: &str, text: &str) -> String {
    place.ctx(&["send", "--session", session, text]).ok()
}

/// The records of a log, read strictly: whole lines, no gap, no half command.
fn records(place: &Place, session: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.session_dir(session).join("events.jsonl")).unwrap();
    assert!(text.ends_with('\n'), "a torn tail in {session}");
    let records = json_lines(&text);
    for (at, record) in records.iter().enumerate() {
        assert_eq!(record["seq"], at as u64, "{session}");
    }
    assert_eq!(records[records.len() - 1]["more"], Value::Null, "half a command at the end of {session}");
    records
}

#[test]
fn a_fork_says_the_same_with_the_same_ids_and_then_each_goes_its_way() {
    let mut daemon = daemon();
    send(&daemon, "one", "in both");
    let made = daemon.ctx(&["fork", "coder/one", "--name", "two"]);
    assert!(made.stderr.contains("coder/two was forked from coder/one"), "{made:?}");
    let id = made.ok().trim().to_owned();
    assert_eq!(id_of(&daemon, "two"), id);
    let shared = history(&daemon, "coder/one");
    assert_eq!(history(&daemon, "coder/two"), shared);

    send(&daemon, "one", "only in one");
    send(&daemon, "two", "only in two");
    let (one, two) = (daemon.ctx(&["history", "coder/one"]).ok(), daemon.ctx(&["history", "coder/two"]).ok());
    assert!(one.contains("only in one") && !one.contains("only in two"), "{one}");
    assert!(two.contains("only in two") && !two.contains("only in one"), "{two}");

    // Ending, purging and damaging one leaves the other as it is, also for the next daemon.
    let before = fs::read(daemon.session_dir("two").join("events.jsonl")).unwrap();
    daemon.ctx(&["end", "--yes", "coder/one"]).ok();
    daemon.ctx(&["purge", "--yes", "coder/one"]).ok();
    assert_eq!(fs::read(daemon.session_dir("two").join("events.jsonl")).unwrap(), before);
    daemon.stop();
    daemon.start_again();
    assert_eq!(history(&daemon, "coder/two")[..shared.len()], shared[..]);
    assert_eq!(send(&daemon, "two", "still there"), "still there\n");

    // What was copied was audited where it happened: here it begins with the fork.
    daemon.stop();
    let audit = json_lines(&fs::read_to_string(daemon.root().join(".state/audit.jsonl")).unwrap());
    let of_fork = |event: &str| {
        audit.iter().filter(|line| line["session"] == id.as_str() && line["event"] == event).count()
    };
    assert_eq!((of_fork("session.created"), of_fork("run.created")), (1, 2));
}

#[test]
fn a_damaged_source_leaves_its_fork_whole() {
    let mut daemon = daemon();
    send(&daemon, "one", "first");
    send(&daemon, "one", "second");
    fork(&daemon, "coder/one", "two");
    let two = history(&daemon, "coder/two");
    daemon.stop();
    fs::write(daemon.session_dir("one").join("events.jsonl"), "garbage\n").unwrap();
    daemon.start_again();
    assert_eq!(history(&daemon, "coder/two"), two);
    assert_eq!(send(&daemon, "two", "third"), "third\n");
}

#[test]
fn a_fork_of_a_running_session_is_idle_and_the_run_goes_on() {
    let daemon = daemon();
    start_slow(&daemon, "busy");
    let id = daemon.ctx(&["fork", "coder/busy"]).ok();
    let name = format!("coder/{}", id.trim());
    wait_state(&daemon, id.trim(), "idle");
    assert_eq!(send(&daemon, id.trim(), "meanwhile"), "meanwhile\n");
    let states: Vec<Value> = listed(&daemon, &[]).iter().map(|session| session["state"].clone()).collect();
    assert!(states.contains(&"running".into()), "the source works on: {states:?}");
    assert!(daemon.ctx(&["history", &name]).ok().contains("meanwhile"));
    daemon.ctx(&["cancel", "coder/busy"]).ok();
    records(&daemon, id.trim());
}

#[test]
fn a_fork_of_a_session_that_is_over_can_be_gone_on_with() {
    let daemon = daemon();
    send(&daemon, "old", "long ago");
    daemon.ctx(&["end", "--yes", "coder/old"]).ok();
    fork(&daemon, "coder/old", "new");
    assert_eq!(send(&daemon, "new", "again"), "again\n");
    assert!(daemon.ctx(&["history", "coder/new"]).ok().contains("long ago"));
}

#[test]
fn a_fork_from_a_record_has_what_was_said_until_then() {
    let daemon = daemon();
    send(&daemon, "one", "first");
    let place = records(&daemon, "one").len() - 1;
    send(&daemon, "one", "second");
    let made = daemon.ctx(&["fork", "coder/one", "--name", "two", "--at", &place.to_string(), "--json"]);
    let made: Value = serde_json::from_str(&made.ok()).unwrap();
    assert_eq!((&made["forked_from"]["seq"], &made["state"]), (&place.into(), &"idle".into()));
    assert_eq!(daemon.ctx(&["latest", "coder/two"]).ok(), "first\n");

    let said = daemon.ctx(&["fork", "coder/one", "--at", "1"]).fails(2);
    assert!(said.contains("in the middle of a command"), "{said}");
    assert!(daemon.ctx(&["fork", "coder/one", "--at", "9999"]).fails(1).contains("no record 9999"));
    assert!(daemon.ctx(&["fork", "coder/one", "--name", "two"]).fails(1).contains("EEXIST"));
    assert!(daemon.ctx(&["fork", "coder/none"]).fails(1).contains("coder/none"));
    wait_listed(&daemon, &["--all"], &["one", "two"]);
}

#[test]
fn the_client_ids_of_a_source_start_new_runs_in_its_fork() {
    let daemon = daemon();
    let run = |session: &str| {
        daemon
            .ctx(&["send", "--detach", "--id", "mine", "--session", session, "hello"])
            .ok()
            .trim()
            .to_owned()
    };
    let first = run("one");
    wait_state(&daemon, "one", "idle");
    fork(&daemon, "coder/one", "two");
    let second = run("two");
    assert_ne!(first, second);
    assert_eq!((run("one"), run("two")), (first, second), "each remembers its own");
}

#[test]
fn what_is_put_away_is_not_listed_and_a_message_brings_it_back() {
    let mut daemon = daemon();
    send(&daemon, "kept", "hello");
    send(&daemon, "other", "hello");
    daemon.ctx(&["archive", "coder/kept"]).ok();
    daemon.ctx(&["archive", "coder/kept"]).ok();
    wait_listed(&daemon, &[], &["other"]);
    // Once the index file does not name it any more, it is found all the same.
    until("the index file", || {
        let list = daemon.session_dir("kept").with_file_name("index").join("list");
        fs::read_to_string(list).is_ok_and(|names| names == "other\n").then_some(())
    });
    assert_eq!(names(&daemon, &["--archived"]), ["kept", "other"]);
    assert!(daemon.ctx(&["history", "coder/kept"]).ok().contains("hello"));

    // Also without its index, the next daemon knows.
    daemon.kill();
    fs::remove_file(daemon.root().join(".state/index.db")).unwrap();
    daemon.start_again();
    assert_eq!(names(&daemon, &[]), ["other"]);
    assert_eq!(names(&daemon, &["--archived"]), ["kept", "other"]);
    let api = json_lines(&daemon.ctx(&["archive", "coder/kept", "--json"]).ok());
    assert_eq!(api[0]["archived"], true);
    send(&daemon, "kept", "back");
    wait_listed(&daemon, &[], &["kept", "other"]);

    daemon.ctx(&["archive", "coder/kept"]).ok();
    daemon.ctx(&["archive", "coder/kept", "--undo"]).ok();
    start_slow(&daemon, "kept");
    assert!(daemon.ctx(&["archive", "coder/kept"]).fails(1).contains("EBUSY"));
}

#[test]
fn only_a_session_that_is_over_is_purged_and_its_audit_lines_stay() {
    let daemon = daemon();
    send(&daemon, "gone", "a secret word");
    let id = id_of(&daemon, "gone");
    assert!(daemon.ctx(&["purge", "--yes", "coder/gone"]).fails(1).contains("EBUSY"));
    daemon.ctx(&["end", "--yes", "coder/gone"]).ok();
    assert!(daemon.ctx(&["purge", "coder/gone"]).fails(2).contains("--yes"), "nobody is there to ask");
    let dir = daemon.session_dir("gone");
    assert!(dir.exists());
    daemon.ctx(&["purge", "--yes", "coder/gone"]).ok();
    assert!(!dir.exists());
    daemon.ctx(&["history", &id]).fails(1);
    assert!(daemon.ctx(&["purge", "--yes", &id]).fails(1).contains("ENOENT"));
    wait_listed(&daemon, &["--all", "--archived"], &[]);
    let left = fs::read_dir(daemon.root().join(".state/trash")).unwrap().count();
    assert_eq!(left, 0, "nothing of it is left");
    let audit = until("the audit log", || {
        let text = fs::read_to_string(daemon.root().join(".state/audit.jsonl")).ok()?;
        text.contains("session.ended").then_some(text)
    });
    assert!(audit.contains(&id), "what happened is still known");
    let [line] = purges(&daemon).try_into().unwrap();
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(
        (&line["session"], &line["user"], &line["data"]["name"]),
        (&id.into(), &uid.into(), &"gone".into())
    );
}

/// The lines of the audit log that tell of purges.
fn purges(daemon: &TestDaemon) -> Vec<Value> {
    json_lines(&daemon.ctx(&["audit", "--json", "--event", "session.purged", "-n", "0"]).ok())
}

#[test]
fn a_purge_that_a_crash_cut_short_is_told_once_and_one_that_never_happened_is_not() {
    let mut daemon = daemon();
    send(&daemon, "gone", "hello");
    let id = id_of(&daemon, "gone");
    daemon.ctx(&["end", "--yes", "coder/gone"]).ok();
    daemon.ctx(&["purge", "--yes", &id]).ok();
    let [line] = <[Value; 1]>::try_from(purges(&daemon)).unwrap();
    assert_eq!(daemon.stop(), 0);
    // What the daemon had in the trash just before it was done.
    let (audit, trash) = (daemon.root().join(".state/audit.jsonl"), daemon.root().join(".state/trash"));
    let told = fs::read_to_string(&audit).unwrap();
    let at = told.lines().position(|line| line.contains("session.purged")).unwrap();
    let untold: String = told.lines().take(at).flat_map(|line| [line, "\n"]).collect();
    for (before, with_log) in [(&told, true), (&untold, true), (&untold, false)] {
        fs::write(&audit, before).unwrap();
        fs::create_dir_all(trash.join("3")).unwrap();
        fs::write(trash.join("3/notice"), line.to_string()).unwrap();
        if with_log {
            fs::create_dir_all(trash.join("3/log")).unwrap();
            fs::write(trash.join("3/log/events.jsonl"), "what is left of it").unwrap();
        }
        daemon.start_again();
        until("the trash to be cleared", || (fs::read_dir(&trash).unwrap().count() == 0).then_some(()));
        let found = purges(&daemon);
        let expected: &[&Value] = if with_log { &[&line["data"]] } else { &[] };
        assert_eq!(found.iter().map(|line| &line["data"]).collect::<Vec<_>>(), expected);
        assert_eq!(daemon.stop(), 0);
    }
}

#[test]
fn nothing_is_purged_that_the_audit_log_cannot_tell_of() {
    let mut daemon = daemon();
    send(&daemon, "gone", "hello");
    let id = id_of(&daemon, "gone");
    daemon.ctx(&["end", "--yes", "coder/gone"]).ok();
    assert_eq!(daemon.stop(), 0);
    // A newer ctx was here: this one does not write to its audit log.
    let audit = daemon.root().join(".state/audit.jsonl");
    let text = fs::read_to_string(&audit).unwrap();
    let last = text.lines().last().unwrap();
    let newer = last.replacen("\"schema_version\":1", "\"schema_version\":2", 1);
    fs::write(&audit, format!("{text}{newer}\n")).unwrap();
    daemon.start_again();
    let refused = daemon.ctx(&["purge", "--yes", &id]).fails(70);
    assert!(refused.contains("nothing was purged") && refused.contains("upgrade ctx"), "{refused}");
    assert_eq!(history(&daemon, &id).len(), 2, "it is there as it was");
    assert_eq!(send(&daemon, "other", "others go on"), "others go on\n");
    assert_eq!(daemon.stop(), 0);
    assert_eq!(fs::read_to_string(&audit).unwrap(), format!("{text}{newer}\n"));
    fs::write(&audit, &text).unwrap();
    daemon.start_again();
    daemon.ctx(&["purge", "--yes", &id]).ok();
    assert_eq!(purges(&daemon).len(), 1);
}

#[test]
fn purge_asks_on_a_terminal() {
    let daemon = daemon();
    send(&daemon, "gone", "hello");
    daemon.ctx(&["end", "--yes", "coder/gone"]).ok();
    for (answer, code) in [("n\r", 1), ("y\r", 0)] {
        let mut pty = Pty::ctx(&daemon, &["purge", "coder/gone"]);
        pty.wait_for("cannot be undone. [y/N] ");
        pty.type_keys(answer);
        assert_eq!(pty.wait(), code, "{}", pty.shown());
    }
    daemon.ctx(&["history", "coder/gone"]).fails(1);
}

#[test]
fn a_name_is_free_again_when_its_session_is_over() {
    let daemon = daemon();
    send(&daemon, "default", "first");
    let first = id_of(&daemon, "default");
    daemon.ctx(&["end", "--yes", "coder/default"]).ok();
    assert_eq!(send(&daemon, "default", "second"), "second\n");
    assert_ne!(id_of(&daemon, "default"), first);
    assert!(daemon.ctx(&["history", &first]).ok().contains("first"), "the old one can still be read");
    fork(&daemon, &first, "revived");
    assert!(daemon.ctx(&["fork", &first, "--name", "default"]).fails(1).contains("EEXIST"));
}

/// A command whose daemon may die under it; its output if it was acknowledged.
fn tried(daemon: &TestDaemon, args: &[&str]) -> std::process::Child {
    let mut command = daemon.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn acknowledged(child: std::process::Child) -> Option<String> {
    let output = child.wait_with_output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// What must hold after any death: whole logs, and nothing half made.
fn is_sound(daemon: &TestDaemon) {
    for place in [".state/forks", ".state/trash"] {
        // A purge is told of before the last of it goes.
        until(&format!("{place} to be swept"), || {
            (fs::read_dir(daemon.root().join(place)).map_or(0, Iterator::count) == 0).then_some(())
        });
    }
    for entry in fs::read_dir(daemon.session_dir("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name != "index" {
            records(daemon, &name);
        }
    }
    until("doctor to find nothing wrong", || (daemon.ctx(&["doctor"]).code == 0).then_some(()));
}

/// Waits until a search finds so many messages.
fn wait_found(place: &Place, word: &str, wanted: usize) {
    until(&format!("{wanted} hits for {word}"), || {
        (json_lines(&place.ctx(&["search", "--json", word]).stdout).len() == wanted).then_some(())
    });
}

/// Leaves an ended session `gone` as a daemon does that dies just after its directory went; where to.
fn cut_short(place: &Place, id: &str) -> PathBuf {
    let away = place.root().join(".state/trash/3");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&away).unwrap();
    let notice = serde_json::json!({
        "time": "2026-11-15T06:00:00.000Z", "event": "session.purged", "user": 0, "session": id, "session_seq": 9,
        "data": { "session_id": id },
    });
    fs::write(away.join("notice"), notice.to_string()).unwrap();
    fs::rename(place.session_dir("gone"), away.join("log")).unwrap();
    away
}

#[test]
fn what_was_said_in_a_session_is_gone_from_search_also_when_its_purge_was_cut_short() {
    let mut daemon = daemon();
    send(&daemon, "gone", "quokka");
    send(&daemon, "other", "wombat");
    let id = id_of(&daemon, "gone");
    daemon.ctx(&["end", "--yes", "coder/gone"]).ok();
    wait_found(&daemon, "quokka", 2);
    assert_eq!(daemon.stop(), 0);
    let away = cut_short(&daemon, &id);
    // A daemon without an index tells what it can, and leaves the rest to one that has it.
    let (index, aside) = (daemon.root().join(".state/index.db"), daemon.root().join(".state/aside"));
    fs::rename(&index, &aside).unwrap();
    fs::create_dir(&index).unwrap();
    daemon.start_again();
    until("the audit log to tell", || (purges(&daemon).len() == 1).then_some(()));
    assert_eq!(daemon.stop(), 0);
    assert!(away.join("notice").exists(), "the index has not heard");
    fs::remove_dir(&index).unwrap();
    fs::rename(&aside, &index).unwrap();

    daemon.start_again();
    until("the index to hear", || (!away.exists()).then_some(()));
    is_sound(&daemon);
    wait_found(&daemon, "quokka", 0);
    wait_found(&daemon, "wombat", 2);
    assert_eq!(purges(&daemon).len(), 1);
    assert_eq!(daemon.stop(), 0);
    daemon.ctx(&["doctor", "--deep"]).ok();
}

#[test]
fn kill_9_in_the_middle_of_fork_archive_and_purge_leaves_sound_sessions() {
    let mut daemon = daemon();
    let large = "word ".repeat(60_000);
    for _ in 0..4 {
        daemon.ctx_with(&["send", "--session", "source", "-"], &large).ok();
    }
    let source = records(&daemon, "source");
    for round in rounds(4) {
        let (victim, kept) = (format!("victim{round}"), format!("kept{round}"));
        let id = fork(&daemon, "coder/source", &victim);
        fork(&daemon, "coder/source", &kept);
        let word = format!("quokka{round}");
        send(&daemon, &victim, &word);
        let said = history(&daemon, &id);
        daemon.ctx(&["end", "--yes", &format!("coder/{victim}")]).ok();
        wait_found(&daemon, &word, 2);
        let new = format!("fork{round}");
        let begun = Instant::now();
        let forking = tried(&daemon, &["fork", "coder/source", "--name", &new]);
        let purging = tried(&daemon, &["purge", "--yes", &id]);
        let archiving = tried(&daemon, &["archive", &format!("coder/{kept}")]);
        // Each round dies at another moment; when exactly is the kernel's choice.
        let when = Duration::from_millis(moment(round, 72));
        std::thread::sleep(when.saturating_sub(begun.elapsed()));
        daemon.kill();
        let (forked, purged, archived) =
            (acknowledged(forking), acknowledged(purging), acknowledged(archiving));
        daemon.start_again();

        is_sound(&daemon);
        assert_eq!(records(&daemon, "source"), source, "the source is not touched");
        let there = daemon.session_dir(&new).join("events.jsonl").exists();
        assert!(there || forked.is_none(), "an acknowledged fork is there");
        if there {
            assert_eq!(history(&daemon, &format!("coder/{new}")), history(&daemon, "coder/source"));
            assert_eq!(send(&daemon, &new, "go on"), "go on\n");
        }
        let dirs = [victim.clone(), format!("{victim}+{id}")];
        let victim_there = dirs.iter().any(|dir| daemon.session_dir(dir).exists());
        assert!(!victim_there || purged.is_none(), "an acknowledged purge is done");
        let told = purges(&daemon).iter().filter(|line| line["session"] == id.as_str()).count();
        assert_eq!(told, usize::from(!victim_there), "a purge is told once");
        if victim_there {
            assert_eq!(history(&daemon, &id), said, "it is there whole");
        }
        wait_found(&daemon, &word, if victim_there { 2 } else { 0 });
        if archived.is_some() {
            let last = records(&daemon, &kept).pop().unwrap();
            assert_eq!((&last["type"], &last["archived"]), (&"archived".into(), &true.into()), "{kept}");
        }
    }
}

#[test]
fn show_lays_a_conversation_out_and_folds_tool_output() {
    let mut daemon = daemon();
    fs::write(daemon.workspace().join("long.txt"), "line\n".repeat(40)).unwrap();
    let script = r##"{"script":[{"text":"# Plan\n\nFirst *this*:\n\n- one\n- two\n"},{"tool":{"name":"fs.read","input":{"path":"/work/long.txt"}}},{"text":"```sh\nls -l\n```"}]}"##;
    daemon.ctx(&["send", "--model", "debug:script", "--session", "one", script]).ok();
    daemon.stop();

    let piped = daemon.ctx(&["show", "coder/one"]).ok();
    assert!(!piped.contains('\u{1b}') && piped.contains("First *this*:"), "plain text: {piped}");
    assert!(piped.contains("→ fs.read") && piped.contains("more lines; --full shows them"), "{piped}");
    let full = daemon.ctx(&["show", "coder/one", "--full"]).ok();
    assert!(!full.contains("--full shows") && full.matches("\n    ").count() >= 40, "{full}");

    let mut pty = Pty::ctx(&daemon, &["show", "coder/one", "--no-pager"]);
    pty.wait_for("• ");
    pty.wait_for("ls -l");
    assert_eq!(pty.wait(), 0);
    assert!(pty.shown().contains("\u{1b}[3mthis\u{1b}[0m"), "{}", pty.shown());
}

#[test]
fn show_comes_in_a_pager_on_a_terminal() {
    let mut daemon = daemon();
    for n in 0..20 {
        send(&daemon, "one", &format!("message {n}"));
    }
    daemon.stop();
    // less waits for keys: it shows the beginning, and leaves when told to.
    let mut pty = Pty::ctx(&daemon, &["show", "coder/one"]);
    pty.wait_for("message 0");
    pty.type_keys("q");
    assert_eq!(pty.wait(), 0);
    assert!(!pty.shown().contains("message 19"), "{}", pty.shown());
}

#[test]
fn an_export_has_every_message_and_reads_well() {
    let mut daemon = daemon();
    daemon.ctx(&["send", "--session", "one", "say ``` this"]).ok();
    let script = r#"{"script":[{"tool":{"name":"fs.list","input":{"path":"/work"}}},{"text":"done"}]}"#;
    daemon.ctx(&["send", "--model", "debug:script", "--session", "one", script]).ok();
    daemon.ctx(&["rename", "coder/one", "A title"]).ok();
    daemon.stop();

    let lines = json_lines(&daemon.ctx(&["export", "coder/one", "--to", "jsonl"]).ok());
    assert_eq!((&lines[0]["type"], &lines[0]["version"]), (&"session".into(), &1.into()));
    assert_eq!((&lines[0]["title"], &lines[0]["state"]), (&"A title".into(), &"idle".into()));
    let file = fs::read_to_string(daemon.session_dir("one").join("messages.jsonl")).unwrap();
    let said: Vec<Value> = json_lines(&file);
    assert_eq!(lines.len() - 1, said.len());
    for (line, said) in lines[1..].iter().zip(&said) {
        assert_eq!((&line["type"], &line["superseded"]), (&"message".into(), &false.into()));
        for field in ["seq", "id", "run", "role", "time", "content"] {
            assert_eq!(line[field], said[field], "{field}");
        }
    }

    let path = daemon.path("talk.md");
    daemon.ctx(&["export", "coder/one", "--to", "markdown", "-o", path.to_str().unwrap()]).ok();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# A title\n\n- session: `coder/one`"), "{text}");
    for part in [
        "## User\n",
        "say ``` this",
        "**Tool call** `fs.list`",
        "```json\n",
        "**Tool result** (ok)",
        "## Assistant\n",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    daemon.ctx(&["export", "coder/one", "--to", "html"]).fails(2);
    daemon.ctx(&["export", "coder/none", "--to", "jsonl"]).fails(1);
}
