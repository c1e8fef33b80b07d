//! What the tests share: the binary, and a few words for common steps.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use testkit::{DaemonBuilder, Place, TestDaemon, until};

pub const CTX: &str = env!("CARGO_BIN_EXE_ctx");

pub fn place() -> Place {
    Place::new(CTX)
}

pub fn daemon() -> TestDaemon {
    TestDaemon::start(CTX)
}

pub fn build() -> DaemonBuilder {
    TestDaemon::build(CTX)
}

/// A message for `debug/script` that takes a minute, unless it is cancelled.
pub const SLOW: &str = r#"{"script":[{"text":"beg\u0075n"},{"sleep_ms":60000},{"text":"never"}]}"#;

/// Starts a run that takes a minute and waits until it has said something; its id.
pub fn start_slow(daemon: &TestDaemon, session: &str) -> String {
    let args = ["send", "--json", "--model", "debug:script", "--session", session, SLOW];
    let mut child = daemon.command(&args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let delta = lines.find(|line| line.contains(r#""type":"delta""#)).unwrap();
    // It goes on without the one who started it.
    child.kill().unwrap();
    child.wait().unwrap();
    json_lines(&delta)[0]["run"].as_str().unwrap().to_owned()
}

/// Waits until `ctx ls` shows a session of coder in a state.
pub fn wait_state(daemon: &Place, session: &str, state: &str) {
    wait_state_of(daemon, &format!("coder/{session}"), state);
}

/// Waits until `ctx ls` shows a session in a state.
pub fn wait_state_of(daemon: &Place, session: &str, state: &str) {
    let wanted = (format!("\"session\":\"{session}\""), format!("\"state\":\"{state}\""));
    until(&format!("{session} to be {state}"), || {
        let listed = daemon.ctx(&["ls", "-A", "--all", "--json"]).stdout;
        listed.lines().any(|line| line.contains(&wanted.0) && line.contains(&wanted.1)).then_some(())
    });
}

/// The lines of a text as JSON.
pub fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}
