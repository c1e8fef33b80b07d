//! Lists, search, counts and the audit log: found by what was said, with and without a daemon.

use serde_json::Value;
use testkit::{Place, Pty, TestDaemon, until};

use crate::support::{daemon, json_lines, place};

/// Three sessions, whose daemon is gone.
fn left_behind() -> TestDaemon {
    let mut daemon = daemon();
    for (session, text) in [
        ("disk", "the disk is full of disk images"),
        ("build", "the build is flaky on the second disk"),
        ("old", "an old story"),
    ] {
        daemon.ctx(&["send", "--session", session, text]).ok();
    }
    daemon.ctx(&["rename", "coder/build", "Flaky build"]).ok();
    daemon.ctx(&["end", "--yes", "coder/old"]).ok();
    assert_eq!(daemon.stop(), 0);
    daemon
}

fn found(place: &Place, args: &[&str]) -> Vec<String> {
    let outcome = place.ctx(&[&["search", "--json"], args].concat());
    let hits = json_lines(&outcome.stdout);
    hits.iter()
        .map(|hit| format!("{} {}", hit["session"].as_str().unwrap(), hit["role"].as_str().unwrap()))
        .collect()
}

#[test]
fn what_was_said_is_found_ranked_and_filtered() {
    let root = left_behind();
    let all = found(&root, &["disk"]);
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(all[0].starts_with("coder/disk"), "it says it twice: {all:?}");
    assert_eq!(found(&root, &["disk", "--role", "user", "--session", "coder/build"]), ["coder/build user"]);
    assert_eq!(found(&root, &["disk", "full", "--role", "assistant"]), ["coder/disk assistant"]);
    assert_eq!(found(&root, &["\"second disk\"", "-n", "1"]).len(), 1);
    assert_eq!(found(&root, &["disk", "-n", "0"]).len(), 4, "no limit");
    assert_eq!(found(&root, &["stor*", "--agent", "coder", "--project", "default"]).len(), 2);
    assert_eq!(found(&root, &["disk", "--since", "1h"]).len(), 4);
    for none in
        [&["disk", "--until", "1h"][..], &["disk", "--agent", "other"], &["nowhere"], &["disk -full -flaky"]]
    {
        assert_eq!(found(&root, none), [""; 0], "{none:?}");
    }
    let outcome = root.ctx(&["search", "nowhere"]);
    assert!(outcome.code == 1 && outcome.stderr.contains("nothing found"), "{outcome:?}");
    root.ctx(&["search", "--since", "yesterday", "disk"]).fails(2);
    root.ctx(&["search", "***"]).fails(2);
    let text = root.ctx(&["search", "flaky"]).ok();
    assert!(text.contains("coder/build  Flaky build") && text.contains("the build is flaky on"), "{text}");
    assert!(!text.contains('\x1b'), "no colours into a pipe");
}

#[test]
fn a_phrase_can_be_left_out_and_a_title_is_found_in_any_case() {
    let mut daemon = daemon();
    daemon.ctx(&["send", "--session", "one", "the quick brown fox"]).ok();
    daemon.ctx(&["send", "--session", "two", "a brown quick fox"]).ok();
    daemon.ctx(&["rename", "coder/two", "Über ÄÖ"]).ok();
    assert_eq!(daemon.stop(), 0);
    let of_two = ["coder/two assistant", "coder/two user"];
    let sorted = |args: &[&str]| {
        let mut found = found(&daemon, args);
        found.sort();
        found
    };
    assert_eq!(sorted(&["fox -\"quick brown\""]), of_two);
    assert_eq!(sorted(&["fox -\"never said\""]).len(), 4);
    assert_eq!(sorted(&["fox", "-n", "0"]).len(), 4);
    assert_eq!(sessions(&daemon, &["--text", "äö"]), ["two"]);
}

#[test]
fn what_is_purged_is_gone_from_the_index_and_the_audit_log_keeps_what_it_says() {
    let mut daemon = daemon();
    for session in ["gone", "stays"] {
        for turn in 0..12 {
            daemon.ctx(&["send", "--session", session, &format!("{session}quokka in turn {turn}")]).ok();
        }
    }
    daemon.ctx(&["end", "--yes", "coder/gone"]).ok();
    daemon.ctx(&["purge", "--yes", "coder/gone"]).ok();
    until("the index to forget it", || found(&daemon, &["gonequokka"]).is_empty().then_some(()));
    assert_eq!(daemon.stop(), 0);
    let has = |file: &str, text: &str| {
        let bytes = std::fs::read(daemon.root().join(".state").join(file)).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    assert!(has("index.db", "staysquokka") && !has("index.db", "gonequokka"));
    assert!(has("audit.jsonl", "gonequokka"), "as the help says");
    assert!(daemon.ctx(&["purge", "--help"]).ok().contains("first 80 characters"));
}

#[test]
fn text_without_spaces_is_found_by_any_part_of_it() {
    let mut daemon = daemon();
    daemon.ctx(&["send", "--session", "tokyo", "明日は東京towerで日本語を話します。"]).ok();
    daemon.ctx(&["send", "--session", "seoul", "한국어를 배웁니다"]).ok();
    daemon.ctx(&["send", "--session", "days", "本日は毎日です"]).ok();
    assert_eq!(daemon.stop(), 0);
    for word in ["日本", "日本語", "本語", "話し", "東京tow*", "\"東京tower\"", "語"] {
        let all = found(&daemon, &[word]);
        assert_eq!(all.len(), 2, "{word}: {all:?}");
        assert!(all.iter().all(|hit| hit.starts_with("coder/tokyo")), "{word}: {all:?}");
    }
    assert_eq!(found(&daemon, &["한국"]).len(), 2, "without the ending");
    assert_eq!(found(&daemon, &["日 -本語"]).len(), 2);
    assert_eq!(found(&daemon, &["語日"]), [""; 0], "in that order");
    assert_eq!(sessions(&daemon, &["--text", "日本"]), ["tokyo"]);
    let shown = daemon.ctx(&["search", "日本", "--role", "user"]).ok();
    assert!(shown.contains("明日は東京towerで日本語を話します"), "{shown}");
    // What goes is forgotten in the form it was given.
    daemon.start_again();
    let id =
        json_lines(&daemon.ctx(&["ls", "--json", "-t", "日本"]).ok())[0]["id"].as_str().unwrap().to_owned();
    daemon.ctx(&["end", "--yes", &id]).ok();
    daemon.ctx(&["purge", "--yes", &id]).ok();
    until("the purge to show", || found(&daemon, &["日本"]).is_empty().then_some(()));
    daemon.ctx(&["doctor", "--deep"]).ok();
}

#[test]
fn what_a_rollback_took_back_is_hinted_at() {
    let daemon = daemon();
    let script = r#"{"script":[{"text":"kept"},{"tool":{"name":"checkpoint","input":{"reason":"look"}}},{"text":"the regretted answer"}]}"#;
    daemon.ctx(&["send", "--detach", "--model", "debug:script", "--session", "work", script]).ok();
    crate::support::wait_state(&daemon, "work", "paused");
    daemon.ctx(&["resume", "coder/work"]).ok();
    crate::support::wait_state(&daemon, "work", "idle");
    until("the answer to be found", || {
        (found(&daemon, &["regretted", "--role", "assistant"]).len() == 1).then_some(())
    });
    daemon.ctx(&["rollback", "--yes", "coder/work"]).ok();
    until("the rollback to show", || {
        found(&daemon, &["regretted", "--role", "assistant"]).is_empty().then_some(())
    });
    let told = daemon.ctx(&["search", "regretted", "--role", "assistant"]);
    assert!(told.code == 1 && told.stderr.contains("--superseded"), "{told:?}");
    let all = daemon.ctx(&["search", "regretted", "--role", "assistant", "--superseded"]);
    assert!(all.stdout.contains("(removed from context)") && !all.stderr.contains("--superseded"), "{all:?}");
    let nothing = daemon.ctx(&["search", "nowhere"]);
    assert!(!nothing.stderr.contains("--superseded"), "{nothing:?}");
}

#[test]
fn hits_are_marked_on_a_terminal() {
    let root = left_behind();
    let mut pty = Pty::ctx(&root, &["search", "flaky", "-n", "1"]);
    pty.wait_for("\x1b[33m\x1b[1mflaky");
    assert_eq!(pty.wait(), 0);
}

#[test]
fn a_search_before_the_index_is_there_says_what_to_do() {
    let root = left_behind();
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(root.root().join(format!(".state/index.db{suffix}")));
    }
    let said = root.ctx(&["search", "disk"]).fails(1);
    assert!(said.contains("no index yet") && said.contains("ctx reindex"), "{said}");
    // Lists do without.
    let names = |args: &[&str]| sessions(&root, args);
    assert_eq!(names(&["--sort", "name"]), ["build", "disk"]);
    assert_eq!(names(&["--text", "flaky"]), ["build"]);
    assert_eq!(names(&["--state", "ended"]), ["old"]);
    root.ctx(&["reindex"]).ok();
    assert_eq!(found(&root, &["disk"]).len(), 4);
}

fn sessions(place: &Place, args: &[&str]) -> Vec<String> {
    let listed = json_lines(&place.ctx(&[&["ls", "--json"], args].concat()).ok());
    listed.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn lists_are_filtered_and_sorted_and_the_same_from_index_and_files() {
    let root = left_behind();
    let asked: [(&[&str], &[&str]); 9] = [
        (&[], &["build", "disk"]),
        (&["--all"], &["old", "build", "disk"]),
        (&["--all", "--sort", "name"], &["build", "disk", "old"]),
        (&["--all", "--sort", "created"], &["old", "build", "disk"]),
        (&["--state", "ended", "--state", "failed"], &["old"]),
        (&["--project", "default", "-n", "1"], &["build"]),
        (&["--project", "other"], &[]),
        (&["--text", "Flaky"], &["build"]),
        (&["coder", "--cwd", "/nowhere"], &[]),
    ];
    for (args, wanted) in asked {
        assert_eq!(sessions(&root, args), wanted, "{args:?} from the index");
    }
    assert_eq!(sessions(&root, &["--text", "images"]), ["disk"], "what was said is looked at too");
    let full = |args: &[&str]| json_lines(&root.ctx(&[&["ls", "--json", "--all"], args].concat()).ok());
    let by_index = full(&["--project", "default"]);
    assert_eq!(by_index, full(&[]), "the two say the same of each session");
    std::fs::remove_file(root.root().join(".state/index.db")).unwrap();
    for (args, wanted) in asked {
        assert_eq!(sessions(&root, args), wanted, "{args:?} from files");
    }
}

#[test]
fn the_columns_fit_the_terminal() {
    let root = left_behind();
    let mut pty = Pty::ctx(&root, &["ls"]);
    pty.wait_for("Flaky build");
    assert_eq!(pty.wait(), 0);
    let shown = pty.shown();
    assert!(
        shown.contains("ID")
            && shown
                .lines()
                .all(|line| line.replace("\x1b[1m", "").replace("\x1b[0m", "").trim_end().len() <= 80),
        "{shown}"
    );
    assert!(root.ctx(&["ls"]).ok().contains("PROJECT"), "a pipe gets all");
}

#[test]
fn counts_add_up() {
    let root = left_behind();
    let stats = &json_lines(&root.ctx(&["stats", "--json"]).ok())[0];
    assert_eq!((&stats["sessions"], &stats["sessions_by_state"]["ended"]), (&3.into(), &1.into()));
    assert_eq!((&stats["runs_by_state"]["done"], &stats["messages_by_role"]["user"]), (&3.into(), &3.into()));
    assert!(root.ctx(&["stats"]).ok().contains("sessions            3"), "{}", root.ctx(&["stats"]).stdout);
    assert_eq!(json_lines(&root.ctx(&["stats", "other", "--json"]).ok())[0]["sessions"], 0);
    root.ctx(&["stats", "coder", "--since", "7d"]).ok();
}

#[test]
fn what_a_fork_took_over_is_counted_once() {
    let mut daemon = daemon();
    daemon.ctx(&["send", "--session", "one", "hello"]).ok();
    daemon.ctx(&["fork", "coder/one", "--name", "two"]).ok();
    daemon.ctx(&["send", "--session", "two", "more"]).ok();
    // A fork is read into the index a moment after it was made, its messages after its runs.
    until("both sessions, and nothing twice", || {
        let stats = json_lines(&daemon.ctx(&["stats", "--json"]).ok()).remove(0);
        let counts =
            (&stats["sessions"], &stats["runs_by_state"]["done"], &stats["messages_by_role"]["user"]);
        (counts == (&2.into(), &2.into(), &2.into())).then_some(())
    });
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn the_audit_log_tells_who_did_what_newest_first() {
    let root = left_behind();
    let lines = |args: &[&str]| json_lines(&root.ctx(&[&["audit", "--json", "-n", "0"], args].concat()).ok());
    let all = lines(&[]);
    let event = |line: &Value| line["event"].as_str().unwrap().to_owned();
    assert!(event(&all[0]).starts_with("session."), "{all:?}");
    assert_eq!(event(all.last().unwrap()), "session.created");
    assert_eq!(lines(&["--event", "run.completed"]).len(), 3);
    let of_build = lines(&["--session", "coder/build"]);
    assert!(!of_build.is_empty() && of_build.len() < all.len());
    assert_eq!(lines(&["--until", "1d"]).len(), 0);
    let text = root.ctx(&["audit", "--event", "run.created"]).ok();
    assert!(text.contains("message_preview=the disk is full"), "{text}");
    assert!(root.ctx(&["audit", "--event", "run.flown"]).fails(2).contains("run.completed"));
}

#[test]
fn the_audit_log_can_be_followed() {
    let daemon = daemon();
    daemon.ctx(&["send", "hello"]).ok();
    until("the first events", || daemon.ctx(&["audit"]).ok().contains("run.completed").then_some(()));
    let mut pty = Pty::ctx(&daemon, &["audit", "-f", "--event", "session.ended"]);
    daemon.ctx(&["end", "--yes", "coder"]).ok();
    pty.wait_for("session.ended");
    pty.type_keys("\x03");
    pty.wait();
}

#[test]
fn where_there_is_no_root_there_is_something_to_do_about_it() {
    let place = place();
    for command in [&["search", "x"][..], &["stats"], &["audit"], &["reindex"], &["repair"]] {
        let said = place.ctx(command).fails(1);
        assert!(said.contains("no session yet") && said.contains("ctx chat"), "{command:?}: {said}");
    }
}
