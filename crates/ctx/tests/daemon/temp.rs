//! Temp sessions: in memory, listed nowhere, gone with their last connection.

use std::path::Path;

use serde_json::json;

use super::support::{Client, Daemon, kinds, until};

fn send(client: &mut Client, name: &str, id: &str, input: &str) {
    client.ask(json!({
        "op": "send", "scope": "temp", "session": name, "id": id, "input": input, "model_override": "debug:script",
    }));
}

fn files_under(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { dirs.push(path) } else { found.push(path.display().to_string()) }
        }
    }
    found
}

#[test]
fn a_temp_session_leaves_no_file_and_is_not_listed() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    send(&mut client, "secret", "m1", "one");
    assert_eq!(client.until_done().last().unwrap()["status"], "ok");
    send(&mut client, "secret", "m2", "two");
    assert_eq!(client.until_done().last().unwrap()["status"], "ok");
    assert_eq!(daemon.api("GET", "/projects/default/sessions").ok()["items"], json!([]));
    assert_eq!(files_under(&daemon.root().join("home")), Vec::<String>::new());
    // Another connection of the same user finds it, with everything that was said.
    let mut other = daemon.client();
    other.ask(json!({"op": "resume", "scope": "temp", "session": "secret"}));
    assert_eq!(kinds(&other.until_done()).last(), Some(&"done"));
    // The private session of that name is another one.
    client.say("secret", "m1", "in the open");
    assert_eq!(daemon.log("secret").of_type("user").len(), 1);
}

#[test]
fn a_temp_session_goes_with_its_last_connection() {
    let daemon = Daemon::start();
    let (mut one, mut two) = (daemon.client(), daemon.client());
    send(&mut one, "t", "m", "x");
    one.until_done();
    send(&mut two, "t", "m2", "y");
    two.until_done();
    drop(one);
    // Still held by the second connection: the retry finds the run of the first.
    send(&mut two, "t", "m", "x");
    assert_eq!(kinds(&two.until_done()), ["start", "message", "done"]);
    drop(two);
    until("the session to be forgotten", || {
        let mut client = daemon.client();
        client.ask(json!({"op": "resume", "scope": "temp", "session": "t", "id": "r"}));
        let frame = client.frame();
        (frame["code"] == "ENOENT").then_some(())
    });
    until("its task to be gone", || (daemon.api("GET", "/status").ok()["loaded"] == 0).then_some(()));
}

#[test]
fn the_run_of_a_temp_session_is_cancelled_when_the_client_goes() {
    let daemon = Daemon::with(&[("CTX_LIMITS_RUNNING_PER_PROJECT", "1")]);
    let mut client = daemon.client();
    let endless = super::support::script(json!([{"text": "busy"}, {"sleep_ms": 600_000}]));
    send(&mut client, "t", "m", &endless);
    client.until("delta");
    drop(client);
    // Its place is free again.
    until("a free place", || {
        let mut client = daemon.client();
        send(&mut client, "next", "m", "x");
        let first = client
            .try_frame()
            .unwrap_or_else(|e| panic!("{e} {}", daemon.stderr()))
            .unwrap_or_else(|| panic!("{}", daemon.stderr()));
        (first["type"] == "start").then_some(())
    });
}

#[test]
fn temp_sessions_do_not_survive_a_restart() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    send(&mut client, "t", "m", "x");
    client.until_done();
    daemon.restart();
    let mut client = daemon.client();
    client.ask(json!({"op": "resume", "scope": "temp", "session": "t"}));
    client.refused("ENOENT");
    assert_eq!(files_under(&daemon.root().join("home")), Vec::<String>::new());
}
