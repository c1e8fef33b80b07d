//! Compaction as a project file sets it: proposals in the middle of a run, and summaries by someone else.

use serde_json::{Value, json};

use super::compaction::filler;
use super::{daemon, dumped, path, script, sent, text};
use crate::support::Http;
use testkit::until;

/// About a quarter of the window.
const QUARTER: usize = 4 * 2_048;

/// A session of a project with this `compaction`.
pub fn session(http: &Http, compaction: &str) -> String {
    let dir = http.daemon.path("project");
    std::fs::create_dir_all(dir.join(".ctx")).unwrap();
    // Tests that fill the window count on the room that these leave.
    let tools = "\n  tools: [fs.read, fs.list, output.read, checkpoint, todo, issue]";
    let tools = if compaction.contains("tools:") { "" } else { tools };
    let primary = format!("model: debug:script\n  compaction: {compaction}{tools}");
    let file = format!("version: 1\nproject: music\nprimary:\n  {primary}\n");
    std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
    let body = json!({ "directory": dir }).to_string();
    http.call("POST", "/projects", Some(&body)).json(201);
    http.call("POST", "/projects/music/trust", None).json(200);
    text(&http.call("POST", "/projects/music/sessions", Some("{}")).json(201), "id").to_owned()
}

/// Fills the window until a compaction is proposed; the run that proposed it and the checkpoint.
pub fn proposed(http: &Http, id: &str) -> (String, Value) {
    for name in ["first", "second", "third"] {
        http.done(id, &filler(name, QUARTER));
    }
    let run = text(&http.post(id, &filler("fourth", QUARTER)), "run_id").to_owned();
    http.wait_for(id, "paused");
    let session = http.get(&format!("/sessions/{id}"));
    (run, http.checkpoint(id, text(&session, "checkpoint")))
}

#[test]
fn a_full_window_is_proposed_to_be_compacted_and_the_work_goes_on_when_it_is_approved() {
    let http = daemon(&[("RUNNING_PER_PROJECT", "1")]);
    let id = session(&http, "{strategy: checkpoint}");
    let (run, checkpoint) = proposed(&http, &id);
    let ended = http.get(&path(&id, &format!("runs/{run}")));
    assert_eq!((&ended["state"], &ended["finish_reason"]), (&json!("done"), &json!("awaiting_compaction")));
    assert_eq!(ended["primary_response"], Value::Null, "it waits before the next call");
    let made = &checkpoint["compaction"];
    assert_eq!((&made["trigger"], &made["state"]), (&json!("threshold_crossed"), &json!("proposed")));
    assert_eq!((&made["run_id"], &checkpoint["created_by"]), (&json!(run), &json!("compaction")));
    let approve = path(&id, &format!("compactions/{}/approve", text(made, "id")));

    let last = &http.get(&path(&id, "messages"))["items"].as_array().unwrap().last().unwrap()["id"].clone();
    let too_much = json!({ "superseded_message_ids": [last] }).to_string();
    assert_eq!(http.call("POST", &approve, Some(&too_much)).code(400), "EINVAL", "the last exchange stays");

    // Going on needs a slot.
    let other = text(&http.call("POST", "/projects/music/sessions", Some("{}")).json(201), "id").to_owned();
    let busy = text(&http.post(&other, &super::slow("busy")), "run_id").to_owned();
    assert_eq!(http.call("POST", &approve, None).code(409), "EBUSY");
    assert_eq!((http.state(&id).as_str(), http.messages(&id, true).len()), ("paused", 0));
    http.call("POST", &path(&other, &format!("runs/{busy}/cancel")), None).json(200);

    let went = http.call("POST", &approve, Some(r#"{"summary":"MY OWN WORDS"}"#)).json(200);
    assert_eq!(went["state"], "running");
    http.wait_for(&id, "idle");
    let next = http.get(&path(&id, &format!("runs/{}", text(&went, "run_id"))));
    assert_eq!((&next["kind"], &next["continues"]), (&json!("continuation"), &json!(run)));
    assert_eq!(next["operator_message"], ended["operator_message"], "the message that triggered it");
    assert!(next["operator_message"]["id"].is_string(), "{next}");
    assert_eq!(
        (&next["state"], &next["primary_response"]["content"]),
        (&json!("done"), &json!("answer to fourth"))
    );
    let request = sent(&http.dump(&id));
    assert!(request.contains("MY OWN WORDS") && !request.contains("answer to first"), "{request}");
    let kinds: Vec<Value> = http.of_type(&id, "run_created").iter().map(|run| run["kind"].clone()).collect();
    assert!(kinds.contains(&json!("continuation")), "{kinds:?}");
}

#[test]
fn a_proposal_that_is_rejected_leaves_the_operator_to_find_another_way() {
    let http = daemon(&[]);
    let id = session(&http, "{strategy: checkpoint}");
    let (_, checkpoint) = proposed(&http, &id);
    let before = http.messages(&id, false);
    let reject = path(&id, &format!("compactions/{}/reject", text(&checkpoint, "compaction_id")));
    assert_eq!(http.call("POST", &reject, None).json(200)["fallback_reason"], "operator_rejected");
    assert_eq!((http.state(&id).as_str(), http.messages(&id, false)), ("idle", before));
    // "The session continues without compaction": it is not proposed again at every message.
    for message in ["hello", "once more"] {
        http.post(&id, message);
        let run = until("an answer or a pause", || Some(http.state(&id)).filter(|state| state != "running"));
        assert_eq!(run, "idle", "the same proposal does not come back at `{message}`");
    }
    http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"drop"}"#)).json(202);
    http.wait_for(&id, "idle");
    assert!(!http.messages(&id, true).is_empty());
    assert_eq!(http.done(&id, &filler("fifth", 400))["state"], "done");
}

#[test]
fn a_proposal_that_is_approved_with_nothing_taken_out_does_not_come_back_at_once() {
    let http = daemon(&[]);
    let id = session(&http, "{strategy: checkpoint}");
    let (_, checkpoint) = proposed(&http, &id);
    let approve = path(&id, &format!("compactions/{}/approve", text(&checkpoint, "compaction_id")));
    let went = http.call("POST", &approve, Some(r#"{"superseded_message_ids":[]}"#)).json(200);
    let state = until("an answer or a pause", || Some(http.state(&id)).filter(|state| state != "running"));
    assert_eq!(state, "idle", "the operator has seen it");
    let run = http.get(&path(&id, &format!("runs/{}", text(&went, "run_id"))));
    assert_eq!(run["primary_response"]["content"], "answer to fourth");
    // Once room was made, the next full window is proposed again.
    http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"drop"}"#)).json(202);
    http.wait_for(&id, "idle");
    for name in ["fifth", "sixth"] {
        http.post(&id, &filler(name, QUARTER));
        until("an end or a pause", || Some(http.state(&id)).filter(|state| state != "running"));
    }
    assert_eq!(http.state(&id), "paused");
}

#[test]
fn a_command_of_the_project_sums_up() {
    let http = daemon(&[]);
    let id = session(
        &http,
        "{strategy: delegate, delegate: [sh, -c, 'echo \"$(grep -c ^user) messages of a user\"']}",
    );
    for name in ["first", "second", "third", "fourth"] {
        http.done(&id, &filler(name, QUARTER));
    }
    let made = &http.get(&path(&id, "compactions"))["items"][0];
    assert_eq!(
        (&made["strategy"], &made["fallback_occurred"]),
        (&json!("delegate"), &json!(false)),
        "{made}"
    );
    assert_eq!(made["summary"], "2 messages of a user");
    let fired = &made["plugins_fired"][0];
    assert_eq!(
        (&fired["name"], &fired["role"], &fired["result_kind"]),
        (&json!("sh"), &json!("compactor"), &json!("compactor_result"))
    );
    assert_eq!(made["plugin_cost"], Value::Null, "no model took part");
    assert!(sent(&http.dump(&id)).contains("2 messages of a user"));
}

#[test]
fn a_command_that_fails_is_done_without() {
    let http = daemon(&[]);
    let id = session(&http, "{upper: 0.5, lower: 0.3, strategy: delegate, delegate: [sh, -c, 'exit 3']}");
    for name in ["first", "second", "third"] {
        http.done(&id, &filler(name, QUARTER));
    }
    let made = &http.get(&path(&id, "compactions"))["items"][0];
    assert_eq!((&made["window_upper"], &made["window_lower"]), (&json!(0.5), &json!(0.3)));
    assert_eq!((&made["fallback_occurred"], &made["summary"]), (&json!(true), &Value::Null));
    assert!(text(made, "fallback_reason").contains("exit status: 3"), "{made}");
    let fired = &made["plugins_fired"][0];
    assert_eq!(
        (&fired["name"], &fired["result_kind"]),
        (&json!("sh"), &json!("error")),
        "who took part is named"
    );
    assert!(fired["duration_ms"].is_u64(), "{made}");
    assert!(!http.messages(&id, true).is_empty(), "the oldest were dropped");
}

/// What an edit of the project file must not change for a run that is paused.
#[test]
fn a_paused_run_of_a_project_goes_on_with_the_tools_steps_and_bounds_it_began_with() {
    let mut http = daemon(&[]);
    let id = session(
        &http,
        "{upper: 0.5, lower: 0.3, strategy: drop}\n  tools: [checkpoint, fs.list]\n  max_steps: 3",
    );
    let asking = script(
        json!([{ "tool": { "name": "checkpoint", "input": {} } }, { "dump": true }, { "text": "so" }]),
    );
    for restarted in [false, true] {
        http.post(&id, &asking);
        http.wait_for(&id, "paused");
        let file = "version: 1\nproject: music\nprimary: {model: debug:echo, tools: [fs.read], max_steps: 1}\n\
                    policy: ['deny checkpoint']\n";
        std::fs::write(http.daemon.path("project").join(".ctx/project.yaml"), file).unwrap();
        if restarted {
            super::kill::restart(&mut http);
        }
        http.resume(&id, text(&http.get(&format!("/sessions/{id}")), "checkpoint"));
        http.wait_for(&id, "idle");
        let said = &http.messages(&id, false).pop().unwrap().1;
        let request = dumped(said.strip_suffix("so").unwrap_or(said));
        let tools: Vec<&str> =
            request["tools"].as_array().unwrap().iter().map(|tool| text(tool, "name")).collect();
        assert_eq!((&request["model"], tools), (&json!("debug/script"), vec!["fs.list", "checkpoint"]));
    }
    http.done(&id, &filler("first", 2 * QUARTER));
    http.done(&id, &filler("second", 400));
    let made = &http.get(&path(&id, "compactions"))["items"][0];
    assert_eq!((&made["window_upper"], &made["strategy"]), (&json!(0.5), &json!("drop")), "{made}");
}
