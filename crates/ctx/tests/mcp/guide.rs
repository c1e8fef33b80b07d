//! `docs/guides/shells.md` and the policy of `redaction-and-fence.md`: calls, budgets, settings and commands do what
//! the pages say.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use testkit::Place;

use crate::support::{Host, Running, place};

const GUIDE: &str = include_str!("../../../../docs/guides/shells.md");
const FENCE: &str = include_str!("../../../../docs/guides/redaction-and-fence.md");

/// The block of the guide that holds a text.
#[track_caller]
fn block(holding: &str) -> &'static str {
    block_of(GUIDE, holding)
}

#[track_caller]
fn block_of(page: &'static str, holding: &str) -> &'static str {
    let mut blocks = page.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.contains(holding)).expect("a block of the guide");
    block.split_once('\n').expect("lines").1
}

/// The cells in backticks of the first column of the table under a heading of this name.
fn column(heading: &str) -> Vec<&'static str> {
    let rows = GUIDE.lines().skip_while(|line| !line.starts_with(&format!("| {heading} |"))).skip(2);
    rows.map_while(|row| row.strip_prefix("| `")?.split_once("` |")).map(|(cell, _)| cell).collect()
}

/// A program of this place's own, found before the others.
fn program(place: &Place, name: &str, script: &str) -> String {
    let bin = place.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

/// A call of a tool as the page writes it, and what it says comes back.
fn calls(block: &str) -> Vec<(String, Value, Option<Value>)> {
    // A line that is indented goes on with the one before it.
    let joined = block.replace("\n ", " ");
    let parse = |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    joined
        .lines()
        .map(|line| {
            let (call, answer) =
                line.split_once("->").map_or((line, None), |(call, answer)| (call, Some(answer)));
            let (tool, arguments) = call.split_once(' ').expect("a tool and its arguments");
            (tool.to_owned(), parse(arguments), answer.map(parse))
        })
        .collect()
}

#[test]
fn the_calls_of_the_guide_are_answered() {
    let place = place();
    std::fs::create_dir(place.workspace().join("app")).unwrap();
    let cargo = "echo; echo \"running in $ENV\"; echo 'test a ... ok'; for n in 1 2 3; do echo; done
        echo 'test b ... FAILED'; echo 'error: test failed' >&2; exit 101";
    let path = program(&place, "cargo", cargo);
    let mut host = Host::with(place.command(&["mcp"]).env("PATH", path));
    let calls = calls(block("session_create {}"));
    assert_eq!(calls.len(), 3);
    let mut answers = Vec::new();
    for (tool, arguments, says) in calls {
        let answer = host.call(&tool, arguments);
        for (key, value) in says.iter().filter_map(Value::as_object).flatten() {
            assert_eq!(&answer[key], value, "{answer}");
        }
        answers.push(answer);
    }
    let [_, moved, tested] = answers.as_slice() else { panic!("{answers:?}") };
    assert!(moved["cwd"].as_str().unwrap().ends_with("/app"), "{moved}");
    assert_eq!((&tested["exit_code"], &tested["stderr"]), (&json!(101), &json!("error: test failed\n")));
    assert_eq!(tested["stdout"], "\n\ntest b ... FAILED\n", "{tested}");
}

#[test]
fn every_budget_of_the_guide_keeps_what_it_says() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    let command = "i=0; while [ $i -lt 4123 ]; do i=$((i+1)); \
                   if [ $i = 100 ]; then echo error; else echo $i; fi; done";
    let budgets = column("budget");
    let shown: Vec<String> = budgets
        .iter()
        .map(|budget| {
            let budget: Value = serde_json::from_str(budget).unwrap();
            let exec = json!({"session_id": shell, "command": command, "budget": budget});
            let answer = host.call("session_exec", exec);
            let text = answer["stdout"].as_str().unwrap();
            let ends = (text.lines().next().unwrap(), text.lines().last().unwrap());
            format!("{} {} {}..{}", answer["budget"]["stdout"]["mode"], text.lines().count(), ends.0, ends.1)
        })
        .collect();
    let five_thousand_characters = shown.last().unwrap();
    assert!(five_thousand_characters.starts_with("\"all\" ") && five_thousand_characters.ends_with("..4123"));
    assert_eq!(
        shown[..shown.len() - 1],
        [
            "\"tail\" 201 [… 3923 lines …]..4123",
            "\"head\" 51 1..[… 4073 lines …]",
            "\"head_tail\" 41 1..4123",
            "\"grep\" 5 98..102"
        ]
    );
}

#[test]
fn the_policy_of_the_guide_lets_run_what_it_says() {
    let place = place();
    std::fs::write(place.path("policy"), block_of(FENCE, "allow git")).unwrap();
    let policy = place.path("policy");
    let mut host = Host::with(&mut place.command(&["mcp", "--policy", policy.to_str().unwrap()]));
    let shell = host.create();
    assert_eq!(host.exec(&shell, "git --version")["exit_code"], 0);
    assert_eq!(host.exec(&shell, "echo yes")["stdout"], "yes\n");
    for refused in
        ["grep x y", "rm -f x", "true && rm -f x", "bash -c \"rm -f x\"", "r''m -f x", "/bin/rm -f x"]
    {
        let why = host.refused("session_exec", json!({"session_id": shell, "command": refused}));
        assert!(why.contains("rm") || why.contains("grep"), "{refused}: {why}");
    }
}

#[test]
fn the_settings_and_the_set_up_of_the_guide_are_understood() {
    let place = place();
    let config = place.path("config.toml");
    std::fs::write(&config, block("policy_file =")).unwrap();
    let shown = place.ctx(&["config", "show", "--config", config.to_str().unwrap()]).ok();
    for (key, value) in [("shells.max", "8"), ("shells.policy_file", "\"/etc/ctx/policy\"")] {
        let row = shown.lines().find(|row| row.split_whitespace().next() == Some(key));
        assert_eq!(row.and_then(|row| row.split_whitespace().nth(1)), Some(value), "{shown}");
    }
    for host in ["claude-code", "codex", "cursor", "vscode", "gemini", "opencode"] {
        assert!(GUIDE.contains(&format!("`{host}`")), "{host}");
        assert!(place.ctx(&["mcp", "config", host]).ok().contains("mcp"), "{host}");
        let with =
            ["mcp", "--policy", "/etc/ctx/policy", "--max-shells", "3", "config", "--root", "/r", host];
        let said = place.ctx(&with).ok();
        for option in ["--root", "/r", "--max-shells", "3", "--policy", "/etc/ctx/policy"] {
            assert!(said.contains(option), "{host} does not get {option}: {said}");
        }
    }
}

#[test]
fn the_commands_of_the_guide_show_what_shells_did() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    host.exec(&shell, "echo permission denied >&2; false");
    let listed = place.ctx(&["shells", "list", "--json"]).ok();
    let log = serde_json::from_str::<Value>(&listed).unwrap()["log"].as_str().unwrap().to_owned();
    let lines: Vec<&str> = block("ctx shells show").lines().collect();
    let (follow, rest) = lines.split_last().unwrap();
    for line in rest {
        let said = sh(&place, &line.replace("01K9X", &log[..20]));
        assert!(said.contains(&log) || said.contains("permission denied"), "{line}: {said}");
    }
    // The last one goes on until it is stopped.
    let words: Vec<&str> = follow.split('#').next().unwrap().split_whitespace().skip(1).collect();
    let watch = Running::start(&mut place.command(&words));
    testkit::until("the watcher", || {
        host.exec(&shell, "echo beacon");
        watch.line_now()
    });
}

/// Runs a line as a person would type it.
fn sh(place: &Place, line: &str) -> String {
    let bin = std::path::Path::new(crate::support::CTX).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = std::process::Command::new("timeout");
    command.args(["60", "bash", "-eu", "-c", line]).current_dir(place.workspace());
    command.env("PATH", path).env("HOME", place.home()).env("CTX_ROOT", place.root());
    testkit::finish(command.stdin(std::process::Stdio::null())).ok()
}
