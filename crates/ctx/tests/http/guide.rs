//! The walks through of `docs/guides`: every command, in order, in one real shell.

use std::process::{Command, Stdio};

use expect_test::expect;
use testkit::{Place, finish};

fn shell_blocks(page: &str) -> String {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.collect()
}

/// Runs the commands of a guide in a place of their own; what they print.
pub fn walk(page: &str) -> String {
    let place = Place::new(env!("CARGO_BIN_EXE_ctx"));
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_ctx")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    // Whatever happens, the daemon goes with the shell.
    let script = format!("trap 'ctx stop' EXIT\n{}", shell_blocks(page));
    let mut command = Command::new("timeout");
    command.args(["120", "bash", "-eu", "-o", "pipefail", "-c", &script]).stdin(Stdio::null());
    command.env("PATH", path).env("HOME", place.home()).env("CTX_ROOT", place.root());
    finish(command.current_dir(place.workspace())).ok()
}

#[test]
fn the_guides_commands_do_what_it_says() {
    let said = walk(include_str!("../../../../docs/guides/http.md"));
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        "running",
        "user: hello over HTTP",
        "assistant: hello over HTTP",
        "the same run",
        "debug:script",
        "cancelled",
        "state_changed",
        "ended",
        "true",
        "EKEYREJECTED",
        "1",
        "kept",
        "",
        "shell_destroyed",
    ];
    assert_eq!(lines.get(..expected.len()), Some(&expected[..]), "{said}");
    assert!(lines.last().is_some_and(|line| line.contains("EKEYREJECTED")), "{said}");
}

#[test]
fn the_commands_of_the_guide_to_subagents_do_what_it_says() {
    let said = walk(include_str!("../../../../docs/guides/subagents.md"));
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        "Both agree.",
        "2",
        "exit code 1",
        "Subagent brief exceeded walltime limit.",
        "subagent brief killed",
    ];
    assert_eq!(lines, expected, "{said}");
}

#[test]
fn the_commands_of_the_guide_to_issues_do_what_it_says() {
    let said = walk(include_str!("../../../../docs/guides/issues.md"));
    // Ages are of the moment.
    let said: String = said.lines().filter(|line| !line.starts_with("ISSUE")).map(ageless).collect();
    expect![[r#"
        #1 open 0/0 Dates are wrong in March
        1. [ ] write a test that fails
        on it
        1. [ ] write a test that fails
        2. [>] fix the parser
        1. [x] write a test that fails
        2. [>] fix the parser
        1. [x] write a test that fails
        2. [>] fix the parser (ask about leap seconds)
        1. [x] write a test that fails
        2. [>] fix the parser (ask about leap seconds)
        status   resolved
        #1 closed 1/2 Dates are wrong in March
    "#]]
    .assert_eq(&said);
}

/// A row of the table without its age.
fn ageless(line: &str) -> String {
    let words = line.split_whitespace().enumerate().filter(|(at, _)| *at != 3).map(|(_, word)| word);
    if line.starts_with('#') { words.collect::<Vec<_>>().join(" ") + "\n" } else { format!("{line}\n") }
}
