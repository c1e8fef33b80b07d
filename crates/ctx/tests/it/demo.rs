//! `make run`: the demo starts a daemon, its agent repairs a program, and it says where to look.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{CTX, place};

#[test]
fn the_demos_agent_repairs_its_project() {
    let place = place();
    // Its agent's commands have the rights of nobody, who must reach the project.
    std::fs::set_permissions(place.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let demo = place.path("demo");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo");
    let mut command = Command::new(script);
    command.args([Path::new(CTX), &demo]).stdin(Stdio::null()).stdout(Stdio::piped());
    // As in every other test: nothing of the machine's own configuration.
    command.env("HOME", place.path("home")).env("XDG_CONFIG_HOME", place.path("config"));
    command.env("CTX_SERVE_LISTEN", "127.0.0.1:0");
    let mut run = command.spawn().unwrap();
    let lines = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = String::new();
    for line in lines {
        said += &format!("{line}\n");
        if line.starts_with("Ctrl-C here") {
            break;
        }
    }
    for part in [
        "2 and 3 are -1, not 5",
        "sum.sh subtracted. Now it adds.",
        "the test passes",
        "ctx show coder/fix",
        "ctx audit",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let ctx = |args: &[&str]| {
        let mut command = Command::new(CTX);
        command.args(args).env("CTX_ROOT", demo.join("root")).env("HOME", place.path("home"));
        testkit::finish(&mut command).ok()
    };
    let shown = ctx(&["show", "coder/fix"]);
    assert!(shown.contains("    -echo $(( $1 - $2 ))\n    +echo $(( $1 + $2 ))\n"), "{shown}");
    let log = ctx(&["log", "coder/fix", "--json"]);
    let log: Vec<serde_json::Value> = crate::support::json_lines(&log);
    let finished = log.iter().filter(|record| record["type"] == "tool_finished");
    let tests: Vec<&serde_json::Value> =
        finished.filter(|record| record["summary"]["exit_code"].is_i64()).collect();
    let codes: Vec<&serde_json::Value> = tests.iter().map(|record| &record["summary"]["exit_code"]).collect();
    assert_eq!(codes, [1, 0], "the test fails in the cage, and then passes: {tests:?}");
    assert!(tests[1]["output"].as_str().unwrap().starts_with("the test passes\n"), "{tests:?}");
    let context = log.iter().find(|record| record["type"] == "context").unwrap();
    assert!(context["cage"].as_str().unwrap().starts_with("uid="), "{context}");
    assert!(ctx(&["log", "coder/fix"]).contains("everything is allowed (--yes)"));
    let pid = Pid::from_child(&run);
    kill_process(pid, Signal::TERM).unwrap();
    assert!(run.wait().unwrap().success());
}
