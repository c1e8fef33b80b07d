//! Going back to a checkpoint: what no longer counts, what counts again, and under which prompts it goes on.

use serde_json::json;

use super::{path, sent, text};
use crate::support::Http;

#[test]
fn going_back_leaves_out_what_came_after_and_deletes_nothing() {
    let http = Http::start();
    let (id, checkpoint) = http.paused("kept", "undone");
    http.resume(&id, &checkpoint);
    http.wait_for(&id, "idle");
    http.done(&id, "undone too");
    let before = http.messages(&id, false).len();
    let back = http.at_checkpoint(&id, &checkpoint, "rollback").json(200);
    assert_eq!((&back["id"], &back["rolled_back"]), (&json!(checkpoint), &json!(true)));
    assert_eq!(http.state(&id), "idle");
    let gone: Vec<String> = http.messages(&id, true).into_iter().map(|(_, said)| said).collect();
    assert_eq!(gone, ["undone", "undone too", "undone too"]);
    assert_eq!(http.messages(&id, false).len() + gone.len(), before, "all of it is still there");
    let request = http.dump(&id);
    assert!(sent(&request).contains("kept") && !sent(&request).contains("undone too"), "{request}");
    let told = &http.audit(&id, "checkpoint.rolled_back", 1)[0];
    assert_eq!(told["data"]["messages_superseded"], 3);
}

#[test]
fn going_back_from_a_pause_ends_the_run_and_what_it_had_begun_to_say() {
    let http = Http::start();
    let id = http.running();
    let made = http.call("POST", &path(&id, "checkpoints"), None).json(201);
    http.at_checkpoint(&id, text(&made, "id"), "rollback").json(200);
    assert_eq!(http.state(&id), "idle");
    let run = http.get(&path(&id, &format!("runs/{}", text(&made, "run_id"))));
    assert_eq!(run["state"], "cancelled");
    assert_eq!(http.messages(&id, true), [("assistant".to_owned(), "begun".to_owned())]);
    assert_eq!(http.of_type(&id, "cancelled")[0]["reason"], "rolled_back");
    assert!(!sent(&http.dump(&id)).contains(r#""text":"begun""#));
    assert_eq!(http.at_checkpoint(&id, text(&made, "id"), "resume").code(409), "EBUSY");
}

#[test]
fn going_back_to_an_old_checkpoint_supersedes_those_between() {
    let http = Http::start();
    let id = http.playing();
    let mut made = Vec::new();
    for number in ["one", "two", "three"] {
        let checkpoint = http.pause_by_model(&id, number, "");
        made.push(checkpoint.clone());
        if number != "three" {
            http.resume(&id, &checkpoint);
            http.wait_for(&id, "idle");
        }
    }
    http.at_checkpoint(&id, &made[0], "rollback").json(200);
    assert_eq!(http.state(&id), "idle");
    let first = http.checkpoint(&id, &made[0]);
    assert_eq!((&first["rolled_back"], first["superseded_by"].is_null()), (&json!(true), true));
    for later in &made[1..] {
        assert_eq!(http.checkpoint(&id, later)["superseded_by"], json!(made[0]));
        assert_eq!(http.at_checkpoint(&id, later, "resume").code(409), "EBUSY");
    }
    let counts: Vec<String> = http.messages(&id, false).into_iter().map(|(_, said)| said).collect();
    assert!(
        counts.iter().any(|said| said == "one") && !counts.iter().any(|said| said == "two"),
        "{counts:?}"
    );
    // A superseded one can be gone back to as well: it brings back what counted then.
    let newest = made.last().unwrap();
    http.at_checkpoint(&id, newest, "rollback").json(200);
    assert!(http.messages(&id, false).iter().any(|(_, said)| said == "two"));
    assert!(http.checkpoint(&id, newest)["superseded_by"].is_null());
    http.at_checkpoint(&id, &made[0], "rollback").json(200);
    // The same place again, after more was said.
    http.done(&id, "another way");
    http.at_checkpoint(&id, &made[0], "rollback").json(200);
    assert!(!http.messages(&id, false).iter().any(|(_, said)| said == "another way"));
}

#[test]
fn the_next_run_works_under_the_prompts_of_then() {
    let http = Http::start();
    let id = http.playing();
    let original = text(&http.dump(&id), "prompt").to_owned();
    let first = http.pause_by_model(&id, "one", "");
    http.edit(&id, &first, "EDITED ONCE").json(200);
    http.resume(&id, &first);
    http.wait_for(&id, "idle");
    let second = http.pause_by_model(&id, "two", "");
    http.edit(&id, &second, "EDITED TWICE").json(200);
    http.resume(&id, &second);
    http.wait_for(&id, "idle");
    assert!(text(&http.dump(&id), "prompt").contains("EDITED TWICE"));
    http.at_checkpoint(&id, &second, "rollback").json(200);
    assert!(text(&http.dump(&id), "prompt").contains("EDITED ONCE"), "what held when it was paused");
    http.at_checkpoint(&id, &first, "rollback").json(200);
    assert_eq!(text(&http.dump(&id), "prompt"), original);
}

#[test]
fn a_session_that_runs_or_waits_is_not_taken_back() {
    let http = Http::start();
    let (id, checkpoint) = http.paused("a", "b");
    http.resume(&id, &checkpoint);
    http.wait_for(&id, "idle");
    http.post(&id, &super::slow("on"));
    assert_eq!(http.at_checkpoint(&id, &checkpoint, "rollback").code(409), "EBUSY");
    assert_eq!(http.state(&id), "running");
}
