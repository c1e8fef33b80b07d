//! The official SDK for Python drives the door.

use std::path::Path;
use std::process::Command;

use testkit::finish;

use crate::support::{CTX, place};

#[test]
fn the_official_sdk_for_python_lives_a_whole_life_with_it() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = repository.join("target/test-venv/bin/python");
    let venv =
        "the Python clients are not there: run `make test`, or `scripts/setup test` before `cargo test`";
    assert!(python.exists(), "{venv} ({})", python.display());
    let place = place();
    let temp = place.path("tmp");
    std::fs::create_dir(&temp).unwrap();
    let mut command = Command::new(python);
    command.arg(repository.join("tests/python/mcp_shells.py")).args([CTX, "mcp"]).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("TMPDIR", temp);
    command.env("HOME", place.home()).env("CTX_ROOT", place.root()).current_dir(place.workspace());
    let said = finish(&mut command).ok();
    for version in
        ["initialize: protocol 2025-11-25", "initialize: protocol 2025-06-18", "discover: protocol "]
    {
        assert!(said.contains(version), "{version}: {said}");
    }
}
