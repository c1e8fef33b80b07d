//! The examples of the README and of the guide to projects work: every `sh` block, in order, in one real shell.

#![expect(clippy::unwrap_used, reason = "a test may stop")]

use std::path::Path;
use std::process::{Command, Stdio};

/// The `sh` blocks of a page, joined.
fn shell_blocks(page: &str) -> String {
    let mut script = String::new();
    let mut inside = false;
    for line in page.lines() {
        match (inside, line) {
            (false, "```sh") => inside = true,
            (true, "```") => inside = false,
            (true, line) => {
                script.push_str(line);
                script.push('\n');
            }
            (false, _) => {}
        }
    }
    script
}

fn run(script: &str) -> (bool, String) {
    let home = tempfile::tempdir().unwrap();
    let project = home.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_ctx")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    // Whatever happens, the daemon goes with the shell.
    let script = format!("trap 'ctx stop' EXIT\n{script}");
    let output = Command::new("bash")
        .args(["-eu", "-o", "pipefail", "-c", &script])
        .current_dir(&project)
        .env("HOME", home.path())
        .env("PATH", path)
        // A guide that names no root must not use that of this machine.
        .env("CTX_ROOT", home.path().join("ctx"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), format!("{said}\n--- stderr ---\n{talk}"))
}

#[test]
fn the_readmes_examples_do_what_they_say() {
    let page = include_str!("../../../../README.md");
    let (ok, said) = run(&shell_blocks(page));
    assert!(ok, "{said}");
    for expected in [
        "hello, ctx",
        "a second conversation",
        "app/plan",
        "app/default",
        "claude mcp add-json --scope user ctx ",
        "no shells yet",
        "hello from a script",
        "\"type\":\"done\"",
    ] {
        assert!(said.contains(expected), "{expected:?} is missing in:\n{said}");
    }
}

#[test]
fn the_guide_to_projects_does_what_it_says() {
    let page = include_str!("../../../../docs/guides/projects.md");
    let (ok, said) = run(&shell_blocks(page));
    assert!(ok, "{said}");
    let mut rest = said.as_str();
    for expected in [
        "valid: project music",
        "hello, music",
        "music    ready",
        "idle stale",
        "unknown key `modle` in `primary`; did you mean `model`?",
        "exit code 2\nexit code 2\n",
        "still here",
        "back again",
        "assistant",
    ] {
        let at = rest.find(expected);
        let at = at.unwrap_or_else(|| panic!("{expected:?} is missing, or out of order, in:\n{said}"));
        rest = &rest[at + expected.len()..];
    }
}

#[test]
fn an_example_that_fails_would_be_noticed() {
    let (ok, said) = run("ctx frobnicate\n");
    assert!(!ok, "{said}");
}

#[test]
fn the_guide_to_terminals_does_what_it_says() {
    let page = include_str!("../../../../docs/guides/terminals.md");
    let (ok, said) = run(&shell_blocks(page));
    assert!(ok, "{said}");
    let mut rest = said.as_str();
    for expected in ["the answer is 42", "demo", "exited 3", "\"version\":2", "exit 3", "closed"] {
        let at = rest.find(expected);
        assert!(at.is_some(), "{expected:?} is missing in:\n{said}");
        rest = rest.split_at(at.unwrap_or_default()).1;
    }
}

#[test]
fn the_guide_to_imports_does_what_it_says() {
    let page = include_str!("../../../../docs/guides/import.md");
    let (ok, said) = run(&shell_blocks(page));
    assert!(ok, "{said}");
    for expected in [
        "AGENT  SESSIONS",
        "1 sessions were read; 7 records of 1 of them would be imported",
        "1 sessions were read; 7 records of 1 of them were imported",
        "1 sessions were read; 0 records of 0 of them were imported",
        "There are three.",
        "thank you",
        "0 sessions were removed, 1 were kept",
        "claude --resume ",
        "codex resume ",
    ] {
        assert!(said.contains(expected), "{expected:?} is missing in:\n{said}");
    }
}
