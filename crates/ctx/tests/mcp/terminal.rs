//! `ctx mcp` started by hand, at a terminal: it says what it waits for, and can be stopped.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use testkit::{Pty, until};

use crate::support::place;

/// Less than anybody's patience, and more than a loaded machine needs.
const AT_ONCE: Duration = Duration::from_secs(10);

#[test]
fn it_says_what_it_waits_for_and_ends_on_ctrl_c_and_on_signals() {
    for signal in [None, Some(Signal::TERM), Some(Signal::HUP), Some(Signal::INT)] {
        let place = place();
        let mut terminal = Pty::ctx(&place, &["mcp"]);
        terminal.wait_for("waiting for an MCP host");
        terminal.wait_for("`ctx mcp config HOST`");
        let since = Instant::now();
        match signal {
            Some(signal) => terminal.signal(signal),
            None => terminal.type_keys("\x03"),
        }
        assert_eq!(terminal.wait(), 0, "{signal:?}: {}", terminal.shown());
        assert!(since.elapsed() < AT_ONCE, "{signal:?} took {:?}", since.elapsed());
    }
}

#[test]
fn its_shells_end_with_it() {
    let place = place();
    let mut terminal = Pty::ctx(&place, &["mcp"]);
    let about = json!({"name": "hand", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about});
    let exec = json!({"session_id": "1_local", "command": "echo $$ >shell.pid; sleep 300"});
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "session_create"}}),
    ] {
        terminal.type_keys(&format!("{message}\r"));
    }
    terminal.wait_for(r#""session_id":"1_local""#);
    let call = json!({"name": "session_exec", "arguments": exec});
    terminal.type_keys(&format!(
        "{}\r",
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call})
    ));
    let file = place.workspace().join("shell.pid");
    let pid: i32 = until("the command", || std::fs::read_to_string(&file).ok()?.trim().parse().ok());
    terminal.type_keys("\x03");
    assert_eq!(terminal.wait(), 0);
    let proc = std::path::PathBuf::from(format!("/proc/{pid}"));
    until("the shell's end", || (!proc.exists()).then_some(()));
}
