//! A client id is used once: a retry is answered with the run it started, whatever became of it.

use std::sync::Barrier;

use serde_json::{Value, json};

use super::support::{Daemon, kinds, text_of};

#[test]
fn a_retry_of_a_finished_run_gets_start_message_and_done_also_after_a_restart() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    client.send("default", "m", "once");
    let first = client.until_done();
    let live = |frame: &&Value| ["delta", "usage"].iter().any(|kind| frame["type"] == *kind);
    let told: Vec<Value> = first.iter().filter(|frame| !live(frame)).cloned().collect();
    client.send("default", "m", "once");
    assert_eq!(client.until_done(), told, "the same events, without what is live alone");
    daemon.restart();
    let mut client = daemon.client();
    client.send("default", "m", "once");
    assert_eq!(client.until_done(), told);
    // Also for whoever follows the whole session.
    client.ask(json!({"op": "resume", "session": "default", "after": told.last().unwrap()["id"]}));
    client.send("default", "m", "once");
    assert_eq!(client.until_done(), told);
    client.expect_silence();
    assert_eq!(daemon.log("default").of_type("user").len(), 1);
}

#[test]
fn a_retry_while_the_run_goes_on_joins_it() {
    let daemon = Daemon::start();
    let steps = json!([{"text": "slow answer"}, {"sleep_ms": 600_000}]);
    let (mut one, mut two) = (daemon.client(), daemon.client());
    one.play("default", "m", steps.clone());
    let start = one.expect("start");
    // Twice on the same connection, and once on another.
    one.play("default", "m", steps.clone());
    two.play("default", "m", steps);
    let mut two_saw = two.until("delta");
    // It ends when both have joined it: what one connection asks for is done in its order.
    one.ask(json!({"op": "cancel", "id": start["run"]}));
    let one_saw = one.until_done();
    two_saw.extend(two.until_done());
    assert_eq!(two_saw[0], start);
    assert_eq!(two_saw[1..], one_saw, "both see the same events");
    assert_eq!(text_of(&two_saw), "slow answer");
    one.expect_silence();
    assert_eq!(daemon.log("default").of_type("user").len(), 1);
}

#[test]
fn a_retry_of_an_old_run_does_not_end_the_frames_of_a_new_one() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let old = client.say("default", "old", "yesterday");
    client.play("default", "new", json!([{"text": "a"}, {"sleep_ms": 300}, {"text": "b"}]));
    let new = client.expect("start")["run"].as_str().unwrap().to_owned();
    client.send("default", "old", "yesterday");
    let mut frames = client.until_done();
    frames.extend(client.until_done());
    let of = |run: &str| frames.iter().filter(|f| f["run"] == run).cloned().collect::<Vec<Value>>();
    assert_eq!(kinds(&of(&old)), ["start", "message", "done"]);
    assert_eq!(kinds(&of(&new)), ["delta", "delta", "message", "done"]);
}

#[test]
fn a_retry_of_a_failed_run_tells_how_it_failed() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let steps = json!([{"text": "as far as "}, {"error": "broken_stream"}]);
    client.play("default", "m", steps.clone());
    let first = client.until_done();
    assert_eq!(kinds(&first), ["start", "delta", "message", "error", "done"]);
    assert_eq!((&first[3]["code"], &first[4]["status"]), (&json!("EPIPE"), &json!("error")));
    client.play("default", "m", steps);
    let again = client.until_done();
    assert_eq!(kinds(&again), ["start", "message", "error", "done"]);
    assert_eq!(again[2..], first[3..]);
}

#[test]
fn client_ids_belong_to_their_session() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let here = client.say("here", "same", "x");
    let there = client.say("there", "same", "x");
    assert_ne!(here, there);
}

#[test]
fn the_same_message_sent_by_many_at_once_is_there_once() {
    let daemon = Daemon::start();
    for round in 0..10 {
        let barrier = Barrier::new(6);
        let id = format!("m{round}");
        let runs: Vec<String> = std::thread::scope(|scope| {
            let sends: Vec<_> = (0..6)
                .map(|_| {
                    let (mut client, id, barrier) = (daemon.client(), &id, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        client.say("default", id, "x")
                    })
                })
                .collect();
            sends.into_iter().map(|send| send.join().unwrap()).collect()
        });
        assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
        assert_eq!(daemon.log("default").of_type("user").len(), round + 1);
    }
}
