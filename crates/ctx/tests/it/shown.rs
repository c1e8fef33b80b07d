//! What `show` and `export` put before a person: through a pager, in full, and saying what they leave out.

use testkit::{Pty, TestDaemon, until};

use crate::support::{build, daemon, json_lines, wait_state};

/// A short conversation, whose daemon is gone.
fn short() -> TestDaemon {
    let mut daemon = daemon();
    daemon.ctx(&["send", "--session", "one", "**bold** words"]).ok();
    assert_eq!(daemon.stop(), 0);
    daemon
}

#[test]
fn a_pager_that_is_less_keeps_colours_and_leaves_by_itself() {
    let daemon = short();
    let mut pty = Pty::ctx_with(&daemon, &["show", "coder/one"], &[("PAGER", "less")]);
    // All fits on the screen: nobody has to press a key.
    assert_eq!(pty.wait(), 0);
    let shown = pty.shown();
    assert!(shown.contains("\u{1b}[1mbold") && !shown.contains("ESC["), "{shown:?}");
}

#[test]
fn what_the_user_has_set_for_less_holds() {
    let daemon = short();
    let print = "cat >/dev/null; echo with LESS=$LESS";
    let said = |environment: &[(&str, &str)]| {
        let mut pty = Pty::ctx_with(&daemon, &["show", "coder/one"], environment);
        assert_eq!(pty.wait(), 0);
        pty.shown().to_owned()
    };
    assert!(said(&[("PAGER", print)]).contains("with LESS=FRX"));
    assert!(said(&[("PAGER", print), ("LESS", "i")]).contains("with LESS=i\r"));
}

#[test]
fn a_pager_that_cannot_be_started_costs_nothing() {
    let daemon = short();
    for pager in ["no-such-pager-here", "", "cat", "/"] {
        let mut pty = Pty::ctx_with(&daemon, &["show", "coder/one"], &[("PAGER", pager)]);
        assert_eq!(pty.wait(), 0, "{pager}");
        assert_eq!(pty.shown().matches(" words").count(), 2, "{pager}: {}", pty.shown());
    }
}

#[test]
fn how_a_pager_ends_and_what_it_does_not_read_is_no_error() {
    let daemon = short();
    for pager in ["head -n 1", "exit 3", "cat; exit 1"] {
        let mut pty = Pty::ctx_with(&daemon, &["show", "coder/one"], &[("PAGER", pager)]);
        assert_eq!(pty.wait(), 0, "{pager}: {}", pty.shown());
        assert!(!pty.shown().contains("error:"), "{pager}: {}", pty.shown());
    }
}

#[test]
fn ctrl_c_is_the_pagers() {
    let daemon = short();
    let pager = "trap 'echo caught' INT; cat >/dev/null; echo ready; read line </dev/tty; echo read $line";
    let mut pty = Pty::ctx_with(&daemon, &["show", "coder/one"], &[("PAGER", pager)]);
    pty.wait_for("ready");
    pty.type_keys("\x03");
    pty.wait_for("caught");
    pty.type_keys("enough\r");
    assert_eq!(pty.wait(), 0, "ctx was still there, and left after it: {}", pty.shown());
}

#[test]
fn output_that_is_too_long_for_its_record_is_shown_and_exported_whole() {
    let mut daemon = build().env("CTX_LIMITS_TOOL_OUTPUT_BYTES", "1000").start();
    let long: String = (0..500).map(|n| format!("line {n} of the file\n")).collect();
    std::fs::write(daemon.workspace().join("long.txt"), &long).unwrap();
    let script =
        r#"{"script":[{"tool":{"name":"fs.read","input":{"path":"/work/long.txt"}}},{"text":"read"}]}"#;
    daemon.ctx(&["send", "--model", "debug:script", "--session", "one", script]).ok();
    assert_eq!(daemon.stop(), 0);
    let last = "line 499 of the file";
    assert!(!daemon.ctx(&["show", "coder/one"]).ok().contains(last), "it is folded");
    let full = daemon.ctx(&["show", "coder/one", "--full"]).ok();
    assert!(full.contains(last) && !full.contains("output cut"), "{full}");
    let markdown = daemon.ctx(&["export", "coder/one", "--to", "markdown"]).ok();
    assert!(markdown.contains(last) && !markdown.contains("output cut"));
    let lines = json_lines(&daemon.ctx(&["export", "coder/one", "--to", "jsonl"]).ok());
    let result = lines.iter().find(|line| line["role"] == "tool").unwrap();
    assert!(result["content"][0]["text"].as_str().unwrap().contains(&long), "{result}");

    // Without the blob there is still its beginning, and a word about the rest.
    let uid = rustix::process::getuid().as_raw();
    let blobs = daemon.root().join(format!("home/{uid}/agent/coder/session/one/blobs"));
    std::fs::remove_dir_all(blobs).unwrap();
    let full = daemon.ctx(&["show", "coder/one", "--full"]).ok();
    assert!(full.contains("line 0 of the file") && full.contains("the rest cannot be read"), "{full}");
}

#[test]
fn what_was_compacted_is_found_and_what_is_left_out_is_said() {
    let daemon = daemon();
    for text in ["one needle", "two", "three"] {
        daemon.ctx(&["send", "--session", "work", text]).ok();
    }
    daemon.ctx(&["compact", "coder/work", "--strategy", "checkpoint"]).ok();
    wait_state(&daemon, "work", "paused");
    daemon.ctx(&["compact", "approve", "coder/work", "--summary", "numbers were said"]).ok();
    wait_state(&daemon, "work", "idle");
    testkit::until("what was compacted to be found, and marked", || {
        let hits = json_lines(&daemon.ctx(&["search", "--json", "needle"]).stdout);
        (hits.len() == 2 && hits.iter().all(|hit| hit["standing"] == "compacted")).then_some(())
    });
    assert!(daemon.ctx(&["search", "needle"]).ok().contains("(compacted)"));

    let hidden = "4 messages removed from context";
    let shown = daemon.ctx(&["show", "coder/work"]).ok();
    assert!(shown.contains(hidden) && shown.contains("--full") && !shown.contains("needle"), "{shown}");
    let full = daemon.ctx(&["show", "coder/work", "--full"]).ok();
    assert!(full.contains("needle") && !full.contains("not shown"), "{full}");
    let export =
        |more: &[&str]| daemon.ctx(&[&["export", "coder/work", "--to", "markdown"], more].concat()).ok();
    assert!(export(&[]).contains(hidden) && !export(&[]).contains("needle"));
    assert!(!export(&["--all"]).contains(hidden) && export(&["--all"]).contains("needle"));
}

#[test]
fn an_export_lets_no_message_take_in_the_next_and_steers_no_terminal() {
    let mut daemon = daemon();
    daemon.ctx(&["send", "--session", "one", "see:\n```\nfn open() {\u{1b}]0;owned\u{7} \u{202e}"]).ok();
    assert_eq!(daemon.stop(), 0);
    let export = ["export", "coder/one", "--to", "markdown"];
    let text = daemon.ctx(&export).ok();
    assert!(text.contains("\u{1b}]0;owned"), "a pipe gets what was said: {text}");
    assert!(text.contains("\u{202e}\n```\n\n## Assistant"), "{text}");
    let mut pty = Pty::ctx(&daemon, &export);
    assert_eq!(pty.wait(), 0);
    let shown = pty.shown();
    assert!(shown.contains("]0;owned") && !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{shown:?}");
}

#[test]
fn times_are_local_or_say_that_they_are_utc_and_a_name_is_said_once() {
    let daemon = short();
    let shown = daemon.ctx(&["show", "--utc", "coder/one"]).ok();
    assert_eq!(shown.matches("coder/one").count(), 1, "{shown}");
    let time = |shown: &str| shown.lines().find_map(|line| line.strip_prefix("user ")).unwrap().to_owned();
    let said = time(&shown);
    assert!(said.ends_with('Z') && said.len() == "2026-11-15 06:00:00Z".len(), "{said}");
    // Five hours and a half to the east.
    let local = testkit::finish(daemon.command(&["history", "coder/one"]).env("TZ", "<+0530>-5:30")).ok();
    let minutes =
        |time: &str| time[11..13].parse::<u32>().unwrap() * 60 + time[14..16].parse::<u32>().unwrap();
    assert_eq!((minutes(&time(&local)) + 24 * 60 - minutes(&said)) % (24 * 60), 330, "{local}");
    let found = testkit::finish(daemon.command(&["search", "bold"]).env("TZ", "<+0530>-5:30")).ok();
    assert!(found.contains(&time(&local)[..10]) && !found.contains("Z ("), "{found}");
}

#[test]
fn runs_that_failed_or_were_cancelled_say_why() {
    let daemon = daemon();
    let failing = r#"{"script":[{"text":"half a sentence"},{"error":"unreachable"}]}"#;
    daemon.ctx(&["send", "--session", "one", "--model", "debug:script", failing]).fails(69);
    let run = crate::support::start_slow(&daemon, "one");
    daemon.ctx(&["cancel", "coder/one", &run]).ok();
    wait_state(&daemon, "one", "idle");
    for command in ["show", "history"] {
        let shown = daemon.ctx(&[command, "coder/one"]).ok();
        assert!(shown.contains("(EHOSTDOWN): "), "{shown}");
        let failed = shown.find("[failed: ").unwrap_or_else(|| panic!("{shown}"));
        let cancelled = shown.find("[cancelled by the operator]").unwrap_or_else(|| panic!("{shown}"));
        assert!(failed < cancelled && shown.contains(failing), "what was typed is shown as typed: {shown}");
    }
}

#[test]
fn the_context_of_the_last_run_names_instruction_files_and_why_one_was_not_loaded() {
    let daemon = daemon();
    let work = daemon.workspace();
    for dir in ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e"] {
        std::fs::create_dir(work.join(dir)).unwrap();
    }
    std::fs::write(work.join("AGENTS.md"), "use tabs\n").unwrap();
    std::fs::create_dir(work.join("a/AGENTS.md")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", work.join("a/b/AGENTS.md")).unwrap();
    std::fs::write(work.join("a/b/c/AGENTS.md"), b"caf\xe9\n").unwrap();
    std::fs::write(work.join("a/b/c/d/AGENTS.md"), "deep\n").unwrap();
    daemon.ctx(&["send", "--session", "one", "--cwd", "/work/a/b/c/d/e", "hi"]).ok();
    let shown = daemon.ctx(&["show", "--context", "coder/one"]).ok();
    let line = |path: &str| {
        let found = shown.lines().find(|line| line.contains(&format!(" {path} ")));
        found.unwrap_or_else(|| panic!("{path} is not in {shown}")).to_owned()
    };
    assert!(
        line("/work/AGENTS.md").contains("(project) ") && !line("/work/AGENTS.md").contains("not loaded")
    );
    assert!(line("/work/a/AGENTS.md").ends_with("(/work/a) not loaded: it is a directory"), "{shown}");
    assert!(line("/work/a/b/AGENTS.md").contains("not loaded: "), "{shown}");
    assert!(line("/work/a/b/c/AGENTS.md").contains("not loaded: it is not UTF-8 (byte 4)"), "{shown}");
    assert!(line("/work/a/b/c/d/AGENTS.md").contains("(/work/a/b/c/d) "), "{shown}");
    assert!(shown.starts_with("model ") && shown.contains("\ndirectory  /work/a/b/c/d/e\n"), "{shown}");
}

#[test]
fn whoever_reads_a_damaged_session_sees_where_something_is_missing() {
    let mut daemon = daemon();
    for text in ["first words", "second words", "third words"] {
        daemon.ctx(&["send", "--session", "one", text]).ok();
    }
    assert_eq!(daemon.stop(), 0);
    let uid = rustix::process::getuid().as_raw();
    let path = daemon.root().join(format!("home/{uid}/agent/coder/session/one/events.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("\"type\":\"user\"") && line.contains("second words"))
        .unwrap();
    let seq = json_lines(line)[0]["seq"].as_u64().unwrap();
    std::fs::write(&path, text.replace(line, "rubbish")).unwrap();
    let mark = format!("record {seq} is damaged or lost here");
    for args in [
        &["history", "coder/one"][..],
        &["show", "coder/one"],
        &["export", "--to", "markdown", "coder/one"],
        &["export", "--to", "jsonl", "coder/one"],
    ] {
        let shown = daemon.ctx(args).ok();
        let at = |words: &str| {
            shown.find(words).unwrap_or_else(|| panic!("{words:?} is not in {args:?}: {shown}"))
        };
        assert!(at("first words") < at(&mark) && at(&mark) < at("third words"), "{args:?}: {shown}");
    }
    daemon.start_again();
    let id = json_lines(text.lines().next().unwrap())[0]["session_id"].as_str().unwrap().to_owned();
    let socket = daemon.root().join(".state/api.sock");
    let get = |below: &str| -> serde_json::Value {
        let url = format!("http://ctx/api/v1/sessions/{id}{below}");
        let curl =
            std::process::Command::new("curl").args(["-s", "--unix-socket"]).arg(&socket).arg(url).output();
        serde_json::from_slice(&curl.unwrap().stdout).unwrap()
    };
    let damage = serde_json::json!({"lines": 1, "since_seq": seq});
    assert_eq!(get("")["damage"], damage, "{}", get(""));
    // The messages have a line in its place, also page by page, and where the session is in memory.
    let of_page = |page: &serde_json::Value| page["items"].as_array().unwrap().clone();
    for is_loaded in [false, true] {
        if is_loaded {
            daemon.ctx(&["send", "--session", "one", "fourth words"]).ok();
        }
        let all = of_page(&get("/messages"));
        let at = |words: &str| {
            all.iter().position(|message| message["content"].as_str().unwrap().contains(words)).unwrap()
        };
        assert!(at("first words") < at(&mark) && at(&mark) < at("third words"), "{all:?}");
        let gap = &all[at(&mark)];
        assert_eq!((&gap["role"], &gap["metadata"]["damage"]), (&"system".into(), &damage), "{gap}");
        let gap = gap["id"].as_str().unwrap();
        assert_eq!(of_page(&get(&format!("/messages?since={gap}"))), all[at(&mark) + 1..]);
        assert_eq!(of_page(&get(&format!("/messages?before={gap}"))), all[..at(&mark)]);
        let mut paged = Vec::new();
        let mut place = String::new();
        loop {
            let page = get(&format!("/messages?limit=1{place}"));
            paged.extend(of_page(&page));
            match page["next"].as_str() {
                Some(next) => place = format!("&cursor={next}"),
                None => break,
            }
        }
        paged.reverse();
        assert_eq!(paged, all);
    }
    let listed = json_lines(&daemon.ctx(&["ls", "--json"]).ok());
    assert_eq!(listed[0]["damage"], damage, "{listed:?}");
    assert!(daemon.ctx(&["ls"]).ok().contains("idle damaged"));
    let shown = daemon.ctx_with(&["chat", "coder/one"], "").ok();
    assert!(shown.contains("damaged or lost"), "{shown}");
    // What is repaired is not damaged any more, with the daemon and without.
    assert_eq!(daemon.stop(), 0);
    assert!(daemon.ctx(&["ls"]).ok().contains("idle damaged"));
    daemon.ctx(&["repair", "coder/one", "--apply"]).ok();
    daemon.start_again();
    until("the repaired log to be read", || (!daemon.ctx(&["ls"]).ok().contains("damaged")).then_some(()));
    assert_eq!(get("")["damage"], serde_json::Value::Null);
    // And nobody is told to repair it.
    let lost = format!("[record {seq} was lost here; the log is repaired]");
    for shown in [daemon.ctx(&["history", "coder/one"]).ok(), get("/messages").to_string()] {
        assert!(shown.contains(&lost) && !shown.contains("ctx repair"), "{shown}");
    }
}

#[test]
fn no_line_of_a_log_is_turned_around() {
    let daemon = daemon();
    daemon.ctx(&["send", "--session", "one", "rm \u{202e}txt.exe"]).ok();
    let renamed = daemon.ctx(&["rename", "coder/one", "a \u{202e}title"]);
    assert!(renamed.stderr.contains("title") && !renamed.stderr.contains('\u{202e}'), "{}", renamed.stderr);
    for args in [&["log", "coder/one"][..], &["audit"]] {
        let shown = daemon.ctx(args).ok();
        assert!(!shown.is_empty() && !shown.contains('\u{202e}'), "{args:?}: {shown:?}");
    }
}

#[test]
fn a_root_that_is_a_file_is_bad_input() {
    let place = crate::support::place();
    std::fs::write(place.path("file"), "").unwrap();
    let file = place.path("file");
    for args in [&["ls", "--root"][..], &["status", "--root"], &["serve", "--root"]] {
        let args: Vec<&str> = args.iter().copied().chain([file.to_str().unwrap()]).collect();
        let refused = place.ctx(&args);
        assert_eq!(refused.code, 2, "{args:?}: {refused:?}");
        assert!(refused.stderr.contains("is not a directory"), "{refused:?}");
    }
}
