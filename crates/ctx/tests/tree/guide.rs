//! The guide to the tree: every command in it, in order, in one shell. `/ctx` is the root of the test.

use std::process::{Command, Stdio};

use testkit::{Place, finish};

#[test]
fn the_commands_of_the_guide_to_files_do_what_it_says() {
    let page = include_str!("../../../../docs/guides/files.md");
    let place = Place::new(env!("CARGO_BIN_EXE_ctx"));
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let blocks: String = blocks.collect();
    let script = blocks.replace("/ctx/", &format!("{}/", place.root().display()));
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_ctx")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let script = format!("trap 'ctx stop' EXIT\n{script}");
    let mut command = Command::new("timeout");
    command.args(["120", "bash", "-eu", "-o", "pipefail", "-c", &script]).stdin(Stdio::null());
    command.env("PATH", path).env("HOME", place.home()).env("CTX_ROOT", place.root());
    command.env("CTX_SERVE_LISTEN", "127.0.0.1:0");
    let said = finish(command.current_dir(place.workspace())).ok();
    let lines: Vec<&str> = said.lines().collect();
    let kept = "a task that is kept";
    let expected = ["hello", "hello", "hi", "fix this project", "what is this?", kept, kept];
    assert_eq!(lines.get(..expected.len()), Some(&expected[..]), "{said}");
    for line in ["some text", "kind: tool", "path", "refused: 2", "good", "a copy", "an alias of mine", "3"] {
        assert!(lines.iter().any(|said| said.contains(line)), "{line}: {said}");
    }
    assert!(said.contains("agent/reviewer\n") && said.contains("count            own"), "{said}");
}
