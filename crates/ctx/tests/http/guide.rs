//! The walk through of `docs/guides/http.md`: every command, in order, in one real shell.

use std::process::{Command, Stdio};

use testkit::{Place, finish};

fn shell_blocks(page: &str) -> String {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.collect()
}

#[test]
fn the_guides_commands_do_what_it_says() {
    let place = Place::new(env!("CARGO_BIN_EXE_ctx"));
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_ctx")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    // A person waits until the daemon is up; so does this shell. Whatever happens, the daemon goes with it.
    let waiting = "until ctx status >/dev/null 2>&1; do kill -0 $! || exit 1; sleep 0.05; done";
    let begin = format!("ctx serve 2>/dev/null & trap \"kill $!; wait\" EXIT; {waiting} #");
    let script = shell_blocks(include_str!("../../../../docs/guides/http.md")).replace("ctx serve &", &begin);
    let mut command = Command::new("bash");
    command.args(["-eu", "-o", "pipefail", "-c", &script]).stdin(Stdio::null());
    command.env("PATH", path).env("HOME", place.home()).env("CTX_ROOT", place.root());
    let said = finish(command.current_dir(place.workspace())).ok();
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
