//! What `show` and `export` put before a person: through a pager, in full, and saying what they leave out.

use testkit::{Pty, TestDaemon};

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
fn times_say_that_they_are_utc_and_a_name_is_said_once() {
    let daemon = short();
    let shown = daemon.ctx(&["show", "coder/one"]).ok();
    assert_eq!(shown.matches("coder/one").count(), 1, "{shown}");
    let said = shown.lines().find_map(|line| line.strip_prefix("user ")).unwrap();
    assert!(said.ends_with('Z') && said.len() == "2026-11-15 06:00:00Z".len(), "{said}");
    assert!(daemon.ctx(&["search", "bold"]).ok().contains("Z ("));
}
