//! The help of every command, so that a change is seen in review. `UPDATE_EXPECT=1 cargo test -p ctx help`
//! writes it anew.

use expect_test::expect_file;

use crate::support::place;

#[test]
fn the_help_of_every_command_is_as_it_was_reviewed() {
    let place = place();
    let overview = place.ctx(&["--help"]).ok();
    let mut all = format!("$ ctx --help\n{overview}");
    for command in commands(&overview) {
        let help = place.ctx(&[&command, "--help"]).ok();
        all.push_str(&format!("\n$ ctx {command} --help\n{help}"));
        assert!(help.contains("Examples:"), "ctx {command} has no examples");
        assert!(help.contains("\nexit codes: 0 success, 1 failed"), "ctx {command} has no exit codes");
        assert!(help.contains(&format!("Usage: ctx {command}")), "ctx {command} does not say its usage");
    }
    // Trailing blanks are not worth a difference.
    let all: String = all.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    expect_file!["./help.txt"].assert_eq(&all);
}

/// The commands that the overview lists, in all its groups.
fn commands(overview: &str) -> Vec<String> {
    let lines = overview.lines().skip_while(|line| *line != "Start:").take_while(|line| *line != "Options:");
    let listed = lines.filter(|line| line.starts_with("  "));
    let names: Vec<String> =
        listed.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.len() >= 40, "{names:?}");
    names
}

#[test]
fn the_overview_has_seven_groups_and_no_colours_in_a_pipe() {
    let place = place();
    for flag in ["--help", "-h"] {
        let overview = place.ctx(&[flag]).ok();
        for group in
            ["Start:", "Sessions:", "Control:", "Shells:", "Files and repair:", "Objects:", "Set-up:"]
        {
            assert!(overview.lines().any(|line| line == group), "{flag}: no group {group}");
        }
        assert!(!overview.contains('\x1b'), "{flag}: {overview:?}");
    }
}

#[test]
fn what_cannot_be_parsed_is_exit_2_and_says_what_would_do() {
    let place = place();
    assert!(place.ctx(&["hstory"]).fails(2).contains("history"), "the nearest command is named");
    assert!(place.ctx(&["log", "--folow"]).fails(2).contains("--follow"));
    place.ctx(&[]).fails(2);
}

#[test]
fn completions_are_for_this_program() {
    let place = place();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.ctx(&["completions", shell]).ok();
        assert!(script.contains("ctx __complete"), "{shell}");
    }
    place.ctx(&["completions", "cmd.exe"]).fails(2);
}

#[test]
fn completions_know_sessions_agents_models_and_checkpoints() {
    let daemon = crate::support::daemon();
    daemon.ctx(&["send", "--session", "plan", "hello"]).ok();
    let offered = |words: &[&str]| {
        let all: Vec<&str> = ["__complete", "--"].into_iter().chain(words.iter().copied()).collect();
        daemon.ctx(&all).ok()
    };
    assert_eq!(offered(&["show", "coder/p"]), "coder/plan\n");
    assert_eq!(offered(&["show", "pl"]), "plan\n", "a bare name of this directory");
    assert_eq!(offered(&["send", "-a", "co"]), "coder\n");
    for words in [["agent", "edit", "co"].as_slice(), &["set", "co"], &["cat", "co"], &["which", "co"]] {
        assert_eq!(offered(words), "coder\n", "{words:?}");
    }
    assert_eq!(offered(&["cat", "fs.re"]), "fs.read\n");
    assert_eq!(offered(&["model", "rm", "deb"]), "debug\n");
    assert_eq!(offered(&["chat", "--model", "debug:s"]), "debug:script\n");
    daemon
        .ctx(&["send", "--detach", "--session", "plan", "--model", "debug:script", crate::support::SLOW])
        .ok();
    daemon.ctx(&["pause", "coder/plan"]).ok();
    let checkpoint = offered(&["rollback", "coder/plan", ""]);
    assert_eq!(checkpoint.trim().len(), 26, "{checkpoint}");
    for words in [&["fork", "coder/plan", "--checkpoint", ""], &["resume", "coder/plan", "--checkpoint", ""]]
    {
        assert_eq!(offered(words), checkpoint, "{words:?}");
    }
    // In bash, whose words end at a colon.
    let bash = |line: &str| {
        let script = format!(
            "PATH={}:$PATH; eval \"$(ctx completions bash)\"; COMP_LINE={line:?}; COMP_POINT=${{#COMP_LINE}}; _ctx; echo \"${{COMPREPLY[@]}}\"",
            std::path::Path::new(crate::support::CTX).parent().unwrap().display()
        );
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &script]).env("CTX_ROOT", daemon.root()).env("HOME", daemon.home());
        testkit::finish(command.current_dir(daemon.workspace())).ok()
    };
    assert_eq!(bash("ctx show coder/p"), "coder/plan\n");
    assert_eq!(bash("ctx send --model debug:s"), "script\n");
    assert_eq!(bash("ctx send --model=debug:s"), "script\n");
    assert_eq!(bash("ctx ls --sort=na"), "name\n");
    assert_eq!(bash("ctx project tr"), "trust\n");
    // In fish, which is asked in its own words.
    let fish = |line: &str| {
        let dir = std::path::Path::new(crate::support::CTX).parent().unwrap();
        let script = format!("ctx completions fish | source; complete -C {line:?}");
        let mut command = std::process::Command::new("fish");
        let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
        command.args(["--no-config", "-c", &script]).env("PATH", path);
        command.env("CTX_ROOT", daemon.root()).env("HOME", daemon.home());
        testkit::finish(command.current_dir(daemon.workspace())).ok()
    };
    assert_eq!(fish("ctx history coder/p"), "coder/plan\n");
    assert_eq!(fish("ctx send --model debug:s"), "debug:script\n");
    assert_eq!(fish("ctx project tr"), "trust\n");
}
