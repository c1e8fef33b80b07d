//! `make run`: the demo starts a daemon, its agent repairs a program, and it says where to look.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{CTX, place};

#[test]
fn the_demos_agent_repairs_its_project() {
    let place = place();
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
    assert!(ctx(&["log", "coder/fix"]).contains("everything is allowed (--yes)"));
    let pid = Pid::from_child(&run);
    kill_process(pid, Signal::TERM).unwrap();
    assert!(run.wait().unwrap().success());
}
