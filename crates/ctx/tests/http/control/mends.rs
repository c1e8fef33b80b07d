//! Faults that were found once: prompts of a paused run, cursors, bodies that are not read.

use serde_json::json;
use testkit::until;

use super::proposals::propose;
use super::{daemon, dumped, path, script, text};
use crate::support::Http;

fn set_prompt(http: &Http, prompt: &str) {
    std::fs::write(http.daemon.root().join("agent/coder.d/prompt"), prompt).unwrap();
}

#[test]
fn a_paused_run_goes_on_under_its_own_prompt_whatever_the_file_says_by_now() {
    let mut http = daemon(&[]);
    set_prompt(&http, "THE FIRST PROMPT");
    let id = http.playing();
    let asking = script(json!([{ "tool": { "name": "checkpoint", "input": {} } }, { "dump": true }]));
    for restarted in [false, true] {
        set_prompt(&http, "THE FIRST PROMPT");
        http.post(&id, &asking);
        http.wait_for(&id, "paused");
        set_prompt(&http, "THE SECOND PROMPT");
        if restarted {
            super::kill::restart(&mut http);
        }
        http.resume(&id, text(&http.get(&format!("/sessions/{id}")), "checkpoint"));
        http.wait_for(&id, "idle");
        let request = dumped(&http.messages(&id, false).last().unwrap().1);
        assert!(text(&request, "prompt").contains("THE FIRST PROMPT"), "{restarted}: {request}");
        let notes = http.of_type(&id, "system");
        assert!(notes.is_empty(), "nobody edited a prompt: {notes:?}");
    }
    assert!(text(&http.dump(&id), "prompt").contains("THE SECOND PROMPT"), "the next run has the file's");
}

#[test]
fn after_a_rollback_the_next_run_has_the_prompts_of_then_and_later_runs_the_files_again() {
    let http = daemon(&[]);
    set_prompt(&http, "THE FIRST PROMPT");
    let (id, checkpoint) = http.paused("before", "after");
    http.resume(&id, &checkpoint);
    http.wait_for(&id, "idle");
    set_prompt(&http, "THE SECOND PROMPT");
    http.at_checkpoint(&id, &checkpoint, "rollback").json(200);
    assert!(text(&http.dump(&id), "prompt").contains("THE FIRST PROMPT"), "as at the checkpoint");
    assert!(text(&http.dump(&id), "prompt").contains("THE SECOND PROMPT"), "pinned for one run");
}

#[test]
fn a_page_of_checkpoints_goes_on_where_it_was_when_its_last_one_is_archived_meanwhile() {
    let http = daemon(&[("CHECKPOINTS_PER_SESSION", "3")]);
    let id = http.playing();
    let pause = || {
        let checkpoint = http.pause_by_model(&id, "a", "b");
        http.resume(&id, &checkpoint);
        http.wait_for(&id, "idle");
        checkpoint
    };
    let made: Vec<String> = (0..3).map(|_| pause()).collect();
    let page = |cursor: &str| {
        let page = http.get(&path(&id, &format!("checkpoints?limit=1{cursor}")));
        (text(&page["items"][0], "id").to_owned(), page["next"].clone())
    };
    let (first, next) = page("");
    assert_eq!((&first, &next), (&made[0], &json!(made[0])));
    let newest = pause();
    assert_eq!(http.checkpoint(&id, &made[0])["archived"], true);
    assert_eq!(page(&format!("&cursor={}", made[0])).0, made[1], "neither refused nor begun anew");
    assert_eq!(page(&format!("&cursor={}", made[2])), (newest, json!(null)));
}

#[test]
fn a_page_of_compactions_goes_on_where_it_was_when_its_last_one_is_aggregated_meanwhile() {
    let http = daemon(&[("COMPACTIONS_PER_SESSION", "3"), ("COMPACTIONS_AGGREGATED", "2")]);
    let id = http.playing();
    let compact = || {
        http.done(&id, "one");
        http.done(&id, "two");
        let begun = http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"drop"}"#)).json(202);
        http.wait_for(&id, "idle");
        let list = http.get(&path(&id, "compactions"));
        let of_run = |one: &&serde_json::Value| one["run_id"] == begun["run_id"];
        text(list["items"].as_array().unwrap().iter().find(of_run).unwrap(), "id").to_owned()
    };
    let made: Vec<String> = (0..3).map(|_| compact()).collect();
    let first = http.get(&path(&id, "compactions?limit=1"));
    assert_eq!(first["items"][0]["id"], json!(made[0]));
    compact();
    let next = http.get(&path(&id, &format!("compactions?limit=10&cursor={}", text(&first, "next"))));
    let ids: Vec<_> = next["items"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids[0], json!(made[2]), "what was aggregated is not listed one by one: {next}");
    let all = http.get(&path(&id, "compactions"));
    assert_eq!(
        (&all["items"][0]["aggregate"], &all["items"][0]["count"]),
        (&json!(true), &json!(2)),
        "{all}"
    );
}

#[test]
fn a_body_with_something_in_it_is_refused_where_none_is_read() {
    let http = daemon(&[]);
    let (id, checkpoint) = http.paused("before", "after");
    let run = text(&http.get(&format!("/sessions/{id}")), "current_run").to_owned();
    let refused = |at: &str| {
        for body in [r#"{"fils":true}"#, "[]", "{"] {
            assert_eq!(http.call("POST", at, Some(body)).code(400), "EINVAL", "{at} {body}");
        }
    };
    refused(&path(&id, &format!("checkpoints/{checkpoint}/rollback")));
    refused(&path(&id, &format!("runs/{run}/cancel")));
    assert_eq!(http.state(&id), "paused", "nothing was done");
    let proposing = http.playing();
    http.done(&proposing, "one");
    http.done(&proposing, "two");
    let proposal = propose(&http, &proposing);
    refused(&path(&proposing, &format!("compactions/{}/reject", text(&proposal, "compaction_id"))));
    assert_eq!(http.state(&proposing), "paused");
    // Nothing, or an empty object, is as good as no body.
    http.call("POST", &path(&id, &format!("runs/{run}/cancel")), Some("{}")).json(200);
    http.call("POST", &path(&id, &format!("checkpoints/{checkpoint}/rollback")), Some("")).json(200);
}

#[test]
fn a_retry_waits_for_the_resume() {
    let http = daemon(&[("MODEL_RETRY_MS", "150")]);
    let limited = script(json!([{ "error": "rate_limit", "times": 1 }, { "text": "late" }]));
    // On a busy machine the retry may be over before the pause comes: that one does not count.
    let (id, made) = until("a pause before the retry", || {
        let id = http.playing();
        http.post(&id, &limited);
        let paused = http.call("POST", &path(&id, "checkpoints"), None);
        let is_before = paused.status == 201 && http.of_type(&id, "assistant_started").is_empty();
        is_before.then(|| (id, paused.json(201)))
    });
    // Another session's retry, begun later, is over: this one's would be too.
    let other = http.playing();
    http.done(&other, &limited);
    assert!(http.of_type(&id, "assistant_started").is_empty(), "a paused session calls no model");
    http.resume(&id, text(&made, "id"));
    http.wait_for(&id, "idle");
    assert_eq!(http.messages(&id, false).last().unwrap().1, "late");
    assert_eq!(http.of_type(&id, "assistant_finished").len(), 1);
}
