//! The strategy `checkpoint`: a compaction that is proposed, and the operator's answer to it.

use serde_json::{Value, json};

use super::compaction::filler;
use super::{daemon, path, sent, text};
use crate::support::{Http, Response};

/// A session with three exchanges that waits for an answer to a proposal; it and the checkpoint.
fn proposed(http: &Http) -> (String, Value) {
    let id = http.playing();
    for name in ["first", "second", "third"] {
        http.done(&id, &filler(name, 400));
    }
    let checkpoint = propose(http, &id);
    (id, checkpoint)
}

pub fn propose(http: &Http, id: &str) -> Value {
    http.call("POST", &path(id, "compactions"), Some(r#"{"strategy":"checkpoint"}"#)).json(202);
    http.wait_for(id, "paused");
    let session = http.get(&format!("/sessions/{id}"));
    http.checkpoint(id, text(&session, "checkpoint"))
}

fn answer(http: &Http, id: &str, checkpoint: &Value, act: &str, body: Option<Value>) -> Response {
    let at = path(id, &format!("compactions/{}/{act}", text(checkpoint, "compaction_id")));
    http.call("POST", &at, body.map(|body| body.to_string()).as_deref())
}

#[test]
fn a_proposal_changes_nothing_and_waits_at_a_checkpoint_of_its_own() {
    let http = Http::start();
    let (id, checkpoint) = proposed(&http);
    assert_eq!(
        (&checkpoint["created_by"], &checkpoint["reason"]),
        (&json!("compaction"), &json!("compaction_pending"))
    );
    let made = &checkpoint["compaction"];
    assert_eq!((&made["id"], &made["state"]), (&checkpoint["compaction_id"], &json!("proposed")));
    assert_eq!((&made["checkpoint_id"], &made["strategy"]), (&checkpoint["id"], &json!("checkpoint")));
    assert_eq!(made["superseded_message_ids"].as_array().map(Vec::len), Some(4), "two exchanges of three");
    assert!(text(made, "summary").starts_with("4 messages were left out here"), "a placeholder: {made}");
    assert!(http.messages(&id, true).is_empty(), "nothing is superseded yet");
    let run = http.get(&path(&id, &format!("runs/{}", text(&checkpoint, "run_id"))));
    assert_eq!((&run["state"], &run["finish_reason"]), (&json!("done"), &json!("awaiting_compaction")));
    assert_eq!(http.get(&format!("/sessions/{id}"))["current_run"], Value::Null, "its run is over");
    let told = &http.audit(&id, "compaction.proposed", 1)[0]["data"];
    assert_eq!(told["compaction_id"], made["id"]);
}

#[test]
fn an_approved_proposal_takes_effect_as_it_is() {
    let http = Http::start();
    let (id, checkpoint) = proposed(&http);
    let done = answer(&http, &id, &checkpoint, "approve", None).json(200);
    assert_eq!(
        (&done["state"], &done["run_id"]),
        (&json!("idle"), &Value::Null),
        "there was no work to go on with"
    );
    assert_eq!(http.state(&id), "idle");
    assert_eq!(http.messages(&id, true).len(), 4);
    assert!(http.checkpoint(&id, text(&checkpoint, "id"))["resumed_at"].is_u64());
    let made = http.get(&path(&id, &format!("compactions/{}", text(&checkpoint, "compaction_id"))));
    assert_eq!((&made["state"], &made["fallback_occurred"]), (&json!("applied"), &json!(false)));
    assert_eq!(answer(&http, &id, &checkpoint, "approve", None).code(409), "EBUSY", "once");
    assert_eq!(answer(&http, &id, &checkpoint, "reject", None).code(409), "EBUSY");
    assert_eq!(http.audit(&id, "compaction.approved", 1)[0]["data"]["messages_superseded"], 4);
}

#[test]
fn an_operator_edits_a_proposal_and_approves_it() {
    let http = Http::start();
    let (id, checkpoint) = proposed(&http);
    let proposed = checkpoint["compaction"]["superseded_message_ids"].as_array().unwrap();
    let first_two = json!(proposed[..2]);
    let edits = json!({ "superseded_message_ids": first_two, "summary": "MY OWN WORDS" });
    answer(&http, &id, &checkpoint, "approve", Some(edits)).json(200);
    let made = http.get(&path(&id, &format!("compactions/{}", text(&checkpoint, "compaction_id"))));
    assert_eq!((&made["superseded_message_ids"], &made["summary"]), (&first_two, &json!("MY OWN WORDS")));
    assert!(made["summary_message_id"].is_string());
    let estimate = |field: &str, made: &Value| made[field].as_f64().unwrap();
    let (before, after) = (estimate("threshold_estimate", &made), estimate("after_estimate", &made));
    let proposed = estimate("after_estimate", &checkpoint["compaction"]);
    assert!(proposed < after && after < before, "of what really went: {proposed}, {after}, {before}");
    let request = sent(&http.dump(&id));
    assert!(request.contains("MY OWN WORDS") && request.contains("answer to second"), "{request}");
    assert!(!request.contains("answer to first"), "{request}");
}

#[test]
fn edits_that_make_no_sense_approve_nothing() {
    let http = Http::start();
    let (id, checkpoint) = proposed(&http);
    let missing = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let list = http.get(&path(&id, "messages?limit=1000"));
    let last = list["items"].as_array().unwrap().last().unwrap()["id"].clone();
    for body in [
        json!({ "superseded_message_ids": [missing] }),
        json!({ "superseded_message_ids": [last] }),
        json!({ "superseded_message_ids": [], "summary": "of nothing" }),
        json!({ "superseded_message_ids": ["x"] }),
        json!({ "superseded_message_ids": "all" }),
        json!({ "summaries": "x" }),
    ] {
        assert_eq!(answer(&http, &id, &checkpoint, "approve", Some(body)).code(400), "EINVAL");
    }
    assert_eq!(http.state(&id), "paused");
    assert!(http.messages(&id, true).is_empty());
}

#[test]
fn a_rejected_proposal_leaves_everything_as_it_was() {
    let http = Http::start();
    let (id, checkpoint) = proposed(&http);
    let before = http.messages(&id, false);
    let made = answer(&http, &id, &checkpoint, "reject", None).json(200);
    assert_eq!(
        (&made["state"], &made["fallback_occurred"], &made["fallback_reason"]),
        (&json!("rejected"), &json!(true), &json!("operator_rejected"))
    );
    assert_eq!(http.state(&id), "idle");
    assert_eq!((http.messages(&id, false), http.messages(&id, true).len()), (before, 0));
    assert_eq!(http.checkpoint(&id, text(&checkpoint, "id"))["rolled_back"], true);
    assert_eq!(http.audit(&id, "compaction.rejected", 1).len(), 1);
    // Another way can be tried.
    let second = propose(&http, &id);
    assert_ne!(second["compaction_id"], checkpoint["compaction_id"]);
}

#[test]
fn a_proposal_comes_to_nothing_in_a_fork_and_with_the_end_of_its_session() {
    let http = Http::start();
    let (id, checkpoint) = proposed(&http);
    let cid = text(&checkpoint, "compaction_id");
    let outcome = |session: &str| {
        let made = http.get(&path(session, &format!("compactions/{cid}")));
        (text(&made, "state").to_owned(), made["fallback_reason"].clone())
    };
    let fork = http.session(&json!({ "resume_from": id }).to_string());
    assert_eq!(outcome(&fork), ("rejected".to_owned(), json!("session_forked")));
    assert_eq!(outcome(&id), ("proposed".to_owned(), Value::Null), "it waits in the source");
    http.call("DELETE", &format!("/sessions/{id}?confirm=true"), None).json(204);
    assert_eq!(outcome(&id), ("rejected".to_owned(), json!("session_ended")));
    let told = &http.audit(&id, "compaction.rejected", 1)[0]["data"];
    assert_eq!((&told["compaction_id"], &told["reason"]), (&json!(cid), &json!("session_ended")));
}

#[test]
fn resuming_its_checkpoint_approves_and_rolling_back_rejects() {
    let http = Http::start();
    let (id, checkpoint) = proposed(&http);
    http.resume(&id, text(&checkpoint, "id"));
    assert_eq!((http.state(&id).as_str(), http.messages(&id, true).len()), ("idle", 4));
    http.done(&id, &filler("fourth", 400));
    let second = propose(&http, &id);
    http.at_checkpoint(&id, text(&second, "id"), "rollback").json(200);
    let made = http.get(&path(&id, &format!("compactions/{}", text(&second, "compaction_id"))));
    assert_eq!((http.state(&id).as_str(), &made["state"]), ("idle", &json!("rejected")));
    assert_eq!(http.messages(&id, true).len(), 4, "what was superseded before stays so");
}

#[test]
fn a_proposal_needs_no_slot_when_there_is_no_work_to_go_on_with() {
    let http = daemon(&[("RUNNING_PER_PROJECT", "1")]);
    let (id, checkpoint) = proposed(&http);
    let other = http.running();
    assert_eq!(answer(&http, &id, &checkpoint, "approve", None).json(200)["state"], "idle");
    assert_eq!((http.state(&id).as_str(), http.state(&other).as_str()), ("idle", "running"));
}
