//! The seed's list for the concurrency throttle, through the daemon.

use serde_json::{Value, json};

use super::support::{Client, Daemon, kinds, read_messages, until};

fn endless() -> Value {
    json!([{"text": "busy"}, {"sleep_ms": 600_000}])
}

/// A daemon with room for two runs, and both places taken.
fn full() -> (Daemon, Client, Vec<String>) {
    let daemon = Daemon::with(&[("CTX_LIMITS_RUNNING_PER_PROJECT", "2")]);
    let mut client = daemon.client();
    let mut runs = Vec::new();
    for name in ["a", "b"] {
        client.play(name, "m", endless());
        runs.push(
            client.until("delta").iter().find(|f| f["type"] == "start").unwrap()["run"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    (daemon, client, runs)
}

fn free_a_place(client: &mut Client, run: &str) {
    client.ask(json!({"op": "cancel", "id": run}));
    assert_eq!(client.until_done().last().unwrap()["status"], "cancelled");
}

#[test]
fn under_the_limit_a_message_runs() {
    let (daemon, _client, _) = full();
    for name in ["a", "b"] {
        let shown = daemon.shown(name);
        assert_eq!((&shown["state"], &shown["queued"]), (&json!("running"), &json!(false)));
    }
    assert_eq!(daemon.api("GET", "/status").ok()["running"], 2);
}

#[test]
fn at_the_limit_a_message_is_kept_and_queued() {
    let (daemon, _busy, _) = full();
    let mut client = daemon.client();
    client.send("c", "m", "wait for me");
    let queued = client.expect("queued");
    assert_eq!((&queued["reason"], &queued["session"]), (&json!("concurrency_limit"), &json!("c")));
    let shown = daemon.shown("c");
    assert_eq!(
        (&shown["state"], &shown["queued"], &shown["reason"]),
        (&json!("queued"), &json!(true), &json!("concurrency_limit"))
    );
    assert_eq!((&shown["pending_run"], &shown["limit"]["scope"]), (&queued["run"], &json!("per_project")));
    let runs = daemon.api("GET", &format!("/sessions/{}/runs", shown["id"].as_str().unwrap())).ok();
    assert_eq!((&runs["items"][0]["id"], &runs["items"][0]["state"]), (&queued["run"], &json!("pending")));
    assert_eq!(read_messages(&daemon.session("c"))[0]["content"][0]["text"], "wait for me");
    assert_eq!(daemon.file("c", "state"), "active\n");
    // A second message is not queued behind it; a retry of the first is.
    client.send("c", "m2", "me too");
    assert_eq!(client.refused("EBUSY")["request"], "m2");
    let mut other = daemon.client();
    other.send("c", "m", "wait for me");
    assert_eq!(other.expect("queued")["run"], queued["run"]);
    assert_eq!(daemon.log("c").of_type("user").len(), 1);
}

#[test]
fn a_queued_run_is_resumed_by_its_operator_when_a_place_is_free() {
    let (daemon, mut busy, runs) = full();
    let mut client = daemon.client();
    client.send("c", "m", "at last");
    let queued = client.expect("queued");
    let id = daemon.shown("c")["id"].as_str().unwrap().to_owned();
    let refused = daemon.api("POST", &format!("/sessions/{id}/resume"));
    assert_eq!((refused.status, refused.code()), (409, "EBUSY"), "still no place");
    free_a_place(&mut busy, &runs[0]);
    client.expect_silence();
    assert_eq!(daemon.shown("c")["state"], "queued", "nothing is dequeued by itself");
    let resumed = daemon.api("POST", &format!("/sessions/{id}/resume"));
    assert_eq!((resumed.status, &resumed.body["run_id"]), (202, &queued["run"]));
    let frames = client.until_done();
    assert_eq!(
        kinds(&frames),
        ["start", "delta", "delta", "message", "usage", "done"],
        "its frames follow on the same connection"
    );
    assert!(frames.iter().all(|frame| frame["run"] == queued["run"]));
    let again = daemon.api("POST", &format!("/sessions/{id}/resume"));
    assert_eq!((again.status, again.code()), (404, "ENOENT"), "nothing is queued any more");
}

#[test]
fn a_discarded_message_is_superseded_and_the_session_idle() {
    let (daemon, _busy, _) = full();
    let mut client = daemon.client();
    client.send("c", "m", "never mind");
    client.expect("queued");
    let id = daemon.shown("c")["id"].as_str().unwrap().to_owned();
    assert_eq!(daemon.api("DELETE", &format!("/sessions/{id}/queued-message")).status, 204);
    assert_eq!(client.expect("done")["status"], "cancelled");
    assert_eq!((&daemon.shown("c")["state"], daemon.file("c", "state").as_str()), (&json!("idle"), "idle\n"));
    let messages = read_messages(&daemon.session("c"));
    assert_eq!((&messages[1]["type"], &messages[1]["ids"][0]), (&json!("superseded"), &messages[0]["id"]));
    assert_eq!(daemon.api("DELETE", &format!("/sessions/{id}/queued-message")).code(), "ENOENT");
}

#[test]
fn cancelling_a_queued_run_discards_it() {
    let (daemon, _busy, _) = full();
    let mut client = daemon.client();
    client.send("c", "m", "never mind");
    let run = client.expect("queued")["run"].clone();
    client.ask(json!({"op": "cancel", "id": run}));
    assert_eq!(client.expect("done")["status"], "cancelled");
    client.expect_silence();
    daemon.log("c").every_run_ends_once();
}

#[test]
fn what_is_queued_stays_queued_over_a_restart() {
    let (mut daemon, _busy, _) = full();
    daemon.client().send("c", "m", "patient");
    until("the session to be queued", || {
        let listed = daemon.api("GET", "/projects/default/sessions?state=queued").ok();
        (listed["items"].as_array()?.len() == 1).then_some(())
    });
    daemon.kill();
    daemon.start_again();
    let shown = daemon.shown("c");
    assert_eq!(shown["state"], "queued");
    for name in ["a", "b"] {
        assert_eq!(daemon.shown(name)["state"], "idle");
    }
    let mut client = daemon.client();
    client.ask(json!({"op": "resume", "session": "c"}));
    client.expect("queued");
    assert_eq!(
        daemon.api("POST", &format!("/sessions/{}/resume", shown["id"].as_str().unwrap())).status,
        202
    );
    assert_eq!(kinds(&client.until_done()).first(), Some(&"start"));
}

#[test]
fn the_limit_of_an_operator_holds_over_all_projects() {
    let daemon = Daemon::with(&[("CTX_LIMITS_RUNNING_PER_OPERATOR", "1")]);
    let mut client = daemon.client();
    client.play("a", "m", endless());
    client.until("delta");
    client.send("b", "m", "x");
    client.expect("queued");
    assert_eq!(daemon.shown("b")["limit"]["scope"], "per_operator");
}

#[test]
fn the_last_place_is_given_once() {
    let daemon = Daemon::with(&[("CTX_LIMITS_RUNNING_PER_PROJECT", "3")]);
    let barrier = std::sync::Barrier::new(12);
    let first: Vec<(Client, Value)> = std::thread::scope(|scope| {
        let sends: Vec<_> = (0..12)
            .map(|number| {
                let (mut client, barrier) = (daemon.client(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    client.play(&format!("s{number}"), "m", endless());
                    let frame = client.frame();
                    (client, frame)
                })
            })
            .collect();
        sends.into_iter().map(|send| send.join().unwrap()).collect()
    });
    let started = first.iter().filter(|(_, frame)| frame["type"] == "start").count();
    let queued = first.iter().filter(|(_, frame)| frame["type"] == "queued").count();
    assert_eq!((started, queued), (3, 9));
}

#[test]
fn a_client_that_leaves_while_it_is_queued_leaves_no_connection_behind() {
    let (daemon, _busy, _) = full();
    let sockets =
        || daemon.open_files().iter().filter(|path| path.to_string_lossy().starts_with("socket:")).count();
    let before = sockets();
    for number in 0..5 {
        let mut client = daemon.client();
        client.send(&format!("q{number}"), "m", "x");
        client.expect("queued");
    }
    until("the connections to be let go", || (sockets() <= before).then_some(()));
}
