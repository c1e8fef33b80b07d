//! Terminals as scripts use them: started in the background, typed at, read, closed.

use ctx_terminal::{Mode, ToHolder};
use testkit::until;

use super::{Terms, python};
use crate::support::json_lines;

#[test]
fn a_terminal_that_is_opened_in_the_background_is_printed_as_json() {
    let terms = Terms::start();
    let opened =
        &json_lines(&terms.ctx(&["term", "run", "--detach", "--json", "--name", "n", "--", "cat"]).ok())[0];
    assert_eq!((&opened["name"], &opened["state"]), (&"n".into(), &"detached".into()), "{opened}");
    terms.ctx(&["term", "close", "n"]).ok();
}

#[test]
fn a_script_drives_a_program() {
    let terms = Terms::start();
    let id = terms.run("work", &["sh"]);
    terms.ctx(&["term", "send", "work", "echo $((6 * 7)) $CTX_TERMINAL", "--enter"]).ok();
    terms.shows("work", &format!("42 {id}"));
    terms.ctx(&["term", "send", &id, "stty size; pwd", "--key", "Enter"]).ok();
    let screen = terms.shows("work", "24 80");
    assert!(screen.contains(&terms.workspace().display().to_string()), "{screen}");
    let screen = &json_lines(&terms.ctx(&["term", "screen", "work", "--json"]).ok())[0];
    assert_eq!((&screen["cols"], &screen["rows"]), (&80.into(), &24.into()));
    let listed = terms.listed("work");
    assert_eq!((listed["id"].as_str(), listed["state"].as_str()), (Some(id.as_str()), Some("detached")));
    assert_eq!(
        (&listed["exit_code"], &listed["session"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    until("silence to be waiting", || (terms.listed("work")["waiting"] == "input").then_some(()));
    terms.ctx(&["term", "send", "work", "printf '\\a'", "--enter"]).ok();
    until("the bell", || (terms.listed("work")["waiting"] == "bell").then_some(()));
    assert!(terms.ctx(&["term", "ls"]).ok().contains("rings"));
    // Beside the sessions too, unless it is them that are asked for.
    assert!(terms.ctx(&["ls"]).ok().contains("rings"));
    assert!(!terms.ctx(&["ls", "--state", "idle"]).ok().contains("rings"));
    terms.ctx(&["term", "send", "work", "exit 7", "--enter"]).ok();
    let ended = terms.ended("work");
    assert_eq!((&ended["exit_code"], &ended["reason"]), (&7.into(), &"exited".into()));
    // The last screen and the transcript stay. A part of the id will do.
    assert!(terms.screen(&id[id.len() - 8..].to_lowercase()).contains("exit 7"));
    assert!(terms.screen("work").contains("exit 7"));
    assert!(terms.ctx(&["term", "export", "work", "--to", "text"]).ok().contains("42 "));
    assert_eq!(terms.ctx(&["term", "ls", "--json"]).ok(), "");
    // A name is free again when its terminal has ended.
    terms.run("work", &["cat"]);
    assert_eq!(terms.listed(&id)["state"], "closed");
    terms.ctx(&["term", "close", "work"]).ok();
    assert_eq!(terms.ended("work")["reason"], "closed");
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let terms = Terms::start();
    terms.run("one", &["cat"]);
    for (args, code, said) in [
        (["run", "--detach", "--name", "one", "--", "cat"].as_slice(), 1, "is running; choose another name"),
        (&["run", "--detach", "--name", "a b", "--", "cat"], 2, "a name has up to 64"),
        (&["run", "--detach", "--name=-x", "--", "cat"], 2, "does not begin with `-`"),
        (&["run", "--detach", "--cols", "0", "--rows", "9", "--", "cat"], 2, "0 is not in 1.."),
        (&["run", "--detach", "--", "/no/such/program"], 1, "there is no program `/no/such/program`"),
        (&["run", "--detach", "--", "no-such-program"], 1, "there is no program `no-such-program`"),
        (&["run", "--", "cat"], 2, "--detach starts the program in the background"),
        (&["screen", "two"], 1, "`ctx term ls --all` lists them"),
        (&["attach", "../one"], 1, "no terminal"),
        (&["send", "one", "--key", "C-cc"], 2, "no key `C-cc`; keys are Enter, Tab,"),
    ] {
        let outcome = terms.ctx(&[&["term"], args].concat());
        assert!(
            outcome.code == code && outcome.stderr.contains(said),
            "{args:?}: {} {}",
            outcome.code,
            outcome.stderr
        );
    }
    assert_eq!(json_lines(&terms.ctx(&["term", "ls", "--all", "--json"]).ok()).len(), 1);
    terms.run("over", &["true"]);
    terms.ended("over");
    assert!(terms.ctx(&["term", "send", "over", "x"]).fails(1).contains("the terminal `over` has ended"));
    assert!(terms.ctx(&["term", "attach", "over"]).fails(1).contains("the terminal `over` has ended"));
}

/// The process at the other end of a socket.
fn holder_of(socket: &str) -> i32 {
    let stream = ctx_terminal::connect(std::path::Path::new(socket)).unwrap();
    rustix::net::sockopt::socket_peercred(&stream).unwrap().pid.as_raw_nonzero().get()
}

#[test]
fn keys_reach_the_program_and_signals_do_what_they_do_in_a_terminal() {
    let terms = Terms::start();
    let id = terms.run("keys", &["cat", "-v"]);
    // The holder is called what the guide calls it.
    let pid = terms.listed(&id)["socket"].as_str().map(holder_of).unwrap();
    assert_eq!(std::fs::read(format!("/proc/{pid}/cmdline")).unwrap(), b"ctx\0hold\0");
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "ctx\n");
    terms
        .ctx(&["term", "send", "keys", "x", "--key", "Up", "--key", "M-q", "--key", "F5", "--key", "Enter"])
        .ok();
    terms.shows("keys", "x^[[A^[q^[[15~");
    // Ctrl-C is a signal here, however the daemon was started.
    terms.ctx(&["term", "send", "keys", "--key", "C-c"]).ok();
    assert_eq!(terms.ended("keys")["exit_code"], 130);
}

#[test]
fn cursor_keys_are_sent_as_the_program_has_asked_for_them() {
    let terms = Terms::start();
    terms.run("curses", &["sh", "-c", "printf 'ready\\033[?1h'; exec cat -v"]);
    terms.shows("curses", "ready");
    let keys = ["--key", "Up", "--key", "Home", "--key", "S-Up", "--key", "Enter"];
    terms.ctx(&[&["term", "send", "curses"], &keys[..]].concat()).ok();
    terms.shows("curses", "\n^[OA^[OH^[[1;2A");
}

#[test]
fn a_program_that_takes_no_input_is_said_to_and_everything_else_works() {
    let terms = Terms::start();
    terms.run("stuck", &["sh", "-c", "echo up; exec sleep 100000"]);
    terms.shows("stuck", "up");
    let much = "a line that is typed\n".repeat(5_000);
    let refused = (0..12).find_map(|_| {
        let sent = terms.ctx(&["term", "send", "stuck", &much]);
        (sent.code != 0).then_some(sent)
    });
    let said = refused.expect("a refusal").fails(1);
    assert!(said.contains("the program takes no input: ") && said.contains(" bytes of it wait"), "{said}");
    assert!(terms.screen("stuck").contains("typed"));
    assert!(terms.listed("stuck")["bytes"].as_u64().unwrap() > 0, "its holder has answered");
    terms.ctx(&["term", "close", "stuck"]).ok();
    assert_eq!(terms.ended("stuck")["reason"], "closed");
    // Somebody who is attached pastes as much: they wait, and nobody else does.
    terms.run("pasted", &["sh", "-c", "echo up; exec sleep 100000"]);
    let mut person = terms.holder("pasted", Mode::Write, 0);
    person.send(&ToHolder::Input(much.repeat(20).into_bytes())).unwrap();
    terms.shows("pasted", "typed");
    assert!(terms.ctx(&["term", "send", "pasted", "x"]).fails(1).contains("takes no input"));
    terms.ctx(&["term", "close", "pasted"]).ok();
}

#[test]
fn asciinema_plays_the_export() {
    let terms = Terms::start();
    terms.run(
        "cast",
        &["sh", "-c", "printf '\\033[31mred\\033[0m caf\\303'; sleep 0.2; printf '\\251 \\347\\225\\214\\n'"],
    );
    terms.ended("cast");
    let file = terms.path("show.cast");
    terms.ctx(&["term", "export", "cast", "--to", "asciicast", "-o", file.to_str().unwrap()]).ok();
    let played = testkit::finish(python("asciinema").args(["cat"]).arg(&file)).ok();
    assert!(played.contains("\u{1b}[31mred\u{1b}[0m café 界"), "{played}");
    let played = testkit::finish(python("asciinema").args(["play", "--speed", "100"]).arg(&file)).ok();
    assert!(played.contains("café 界"), "{played}");
    let replayed = terms.ctx(&["term", "replay", "cast", "--speed", "0"]).ok();
    assert!(replayed.contains("café 界"), "{replayed}");
}

#[test]
fn the_list_of_sessions_begins_with_the_terminals_where_there_are_no_sessions() {
    let terms = Terms::start();
    terms.run("alone", &["cat"]);
    let listed = terms.ctx(&["ls"]).ok();
    assert!(listed.starts_with("TERMINAL"), "{listed}");
}
