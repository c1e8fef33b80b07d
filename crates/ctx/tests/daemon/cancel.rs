//! Cancelling: once, twice, too late, from elsewhere, and at the very moment a run ends by itself.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{moment, rounds};

use super::support::{Daemon, ids, kinds, text_of};

fn endless() -> Value {
    json!([{"text": "as far as this"}, {"sleep_ms": 600_000}])
}

#[test]
fn a_cancelled_run_keeps_what_it_has_said() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.play("default", "m", endless());
    let mut frames = client.until("delta");
    let run = frames[0]["run"].clone();
    client.ask(json!({"op": "cancel", "id": run}));
    frames.extend(client.until_done());
    assert_eq!(kinds(&frames), ["start", "delta", "message", "done"]);
    assert_eq!(frames[3]["status"], "cancelled");
    assert_eq!(text_of(&frames), "as far as this");
    let log = daemon.log("default");
    log.every_run_ends_once();
    assert_eq!(log.of_type("assistant_finished")[0]["finish_reason"], "cancelled");
    assert_eq!(
        (daemon.file("default", "latest.md").as_str(), daemon.file("default", "state").as_str()),
        ("as far as this\n", "idle\n")
    );
    client.say("default", "m2", "the session goes on");
}

#[test]
fn cancelling_from_another_connection_tells_both() {
    let daemon = Daemon::start();
    let (mut client, mut other) = (daemon.client(), daemon.client());
    client.play("default", "m", endless());
    let run = client.until("delta")[0]["run"].clone();
    other.ask(json!({"op": "cancel", "id": run}));
    let told = other.expect("done");
    assert_eq!(
        (&told["run"], &told["status"], &told["session"]),
        (&run, &json!("cancelled"), &json!("default"))
    );
    assert_eq!(client.until_done().last().unwrap()["status"], "cancelled");
    // Twice is the same as once.
    for who in [&mut client, &mut other] {
        who.ask(json!({"op": "cancel", "id": run}));
        assert_eq!(who.expect("done")["status"], "cancelled");
        who.expect_silence();
    }
    daemon.log("default").every_run_ends_once();
}

#[test]
fn cancelling_after_the_end_answers_with_the_end_also_after_a_restart() {
    let mut daemon = Daemon::start();
    let run = daemon.client().say("default", "m", "x");
    daemon.client().say("elsewhere", "m", "x");
    let mut client = daemon.client();
    client.ask(json!({"op": "cancel", "id": run}));
    assert_eq!(client.expect("done")["status"], "ok");
    daemon.restart();
    let mut client = daemon.client();
    client.ask(json!({"op": "cancel", "id": run, "session": "default"}));
    assert_eq!(client.expect("done")["status"], "ok");
    client.ask(json!({"op": "cancel", "id": run, "session": "elsewhere"}));
    assert_eq!(client.refused("ENOENT")["request"], run);
}

#[test]
fn an_unknown_run_is_enoent() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let run = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    client.ask(json!({"op": "cancel", "id": run}));
    assert_eq!(client.refused("ENOENT")["request"], run);
    client.say("default", "m", "x");
    client.ask(json!({"op": "cancel", "id": run}));
    assert_eq!(client.refused("ENOENT")["request"], run);
}

/// Races a cancel from another connection against the end of each run; how many of each there were.
fn race(daemon: &Daemon, session: &str) -> (usize, usize) {
    let (mut client, mut other) = (daemon.client(), daemon.client());
    let (mut done, mut cancelled) = (0, 0);
    for round in rounds(34) {
        let steps = json!([{"text": "a"}, {"sleep_ms": round % 4}, {"text": "b"}]);
        client.play(session, &format!("m{round}"), steps);
        let run = client.expect("start")["run"].clone();
        std::thread::sleep(Duration::from_micros(moment(round, 4_000)));
        other.ask(json!({"op": "cancel", "id": run}));
        let frames = client.until_done();
        assert!(ids(&frames).is_sorted_by(|a, b| a < b), "{frames:?}");
        let status = &frames.last().unwrap()["status"];
        let told = other.expect("done");
        assert_eq!((&told["run"], &told["status"]), (&run, status), "both are told the same end");
        match status.as_str() {
            Some("ok") => done += 1,
            Some("cancelled") => cancelled += 1,
            Some(_) | None => panic!("neither done nor cancelled: {frames:?}"),
        }
    }
    (done, cancelled)
}

#[test]
fn cancel_against_the_end_of_a_run_hundreds_of_times_gives_one_end() {
    let daemon = Daemon::with(&[("CTX_LIMITS_RUNNING_PER_PROJECT", "64")]);
    std::thread::scope(|scope| {
        for session in ["race1", "race2", "race3", "race4"] {
            let daemon = &daemon;
            scope.spawn(move || {
                let told = race(daemon, session);
                let log = daemon.log(session);
                log.every_run_ends_once();
                let logged = (log.of_type("run_finished").len(), log.of_type("cancelled").len());
                assert_eq!(told, logged, "clients were told what the log says");
            });
        }
    });
}
