//! Large output of old tool calls: shown as a reference before anything else goes, read back by the agent, whole again after
//! a rollback. The window of `debug/script` has 8,192 tokens; an output here takes about a fifth of it.

use serde_json::{Value, json};
use testkit::until;

use super::compaction::filler;
use super::project::session;
use super::{daemon, dumped, path, script, sent, text};
use crate::support::Http;

/// About a quarter of the window.
const QUARTER: usize = 4 * 2_048;

const STOOD: &str = "bytes of output stood here";

fn whole(name: &str) -> String {
    (0..150).map(|n| format!("{name} {n:>20} of the file\n")).collect()
}

/// Has the agent read a file of its own; the call's id.
fn read(http: &Http, id: &str, dir: &std::path::Path, name: &str) -> Value {
    std::fs::write(dir.join(name), whole(name)).unwrap();
    let at = format!("/work/{name}");
    let steps = json!([{ "tool": { "name": "fs.read", "input": { "path": at } } }, { "text": format!("read {name}") }]);
    let run = http.done(id, &script(steps));
    assert_eq!(run["state"], "done", "{run}");
    run["tool_calls"][0]["id"].clone()
}

/// Two calls with large output, and the checkpoint between them and what fills the window.
fn two_calls(http: &Http, id: &str, dir: &std::path::Path) -> ([Value; 2], String) {
    let calls = [read(http, id, dir, "alpha"), read(http, id, dir, "bravo")];
    let checkpoint = http.pause_by_model(id, "here", "there");
    http.resume(id, &checkpoint);
    http.wait_for(id, "idle");
    (calls, checkpoint)
}

/// Fills the window in small steps until there is a compaction; more than 85 % of it, and not much more.
fn fill(http: &Http, id: &str) {
    for step in 0..12 {
        http.post(id, &filler(&format!("filler{step}"), 2_500));
        until("the run to be over", || ["idle", "paused"].contains(&http.state(id).as_str()).then_some(()));
        if !compactions(http, id).is_empty() {
            return;
        }
    }
    panic!("the window is not full yet");
}

fn compactions(http: &Http, id: &str) -> Vec<Value> {
    http.get(&path(id, "compactions"))["items"].as_array().unwrap().clone()
}

/// What a model is shown for these calls.
fn results(request: &Value, calls: &[Value]) -> Vec<String> {
    let parts =
        request["messages"].as_array().unwrap().iter().flat_map(|turn| turn["content"].as_array().unwrap());
    let results: Vec<&Value> = parts.filter(|part| part["type"] == "tool_result").collect();
    let of = |call: &Value| results.iter().find(|part| part["call_id"] == *call).expect("a result");
    calls.iter().map(|call| text(of(call), "text").to_owned()).collect()
}

#[test]
fn large_output_is_shown_as_a_reference_before_an_exchange_goes() {
    let mut http = daemon(&[]);
    let id = http.playing();
    let dir = http.daemon.workspace();
    let (calls, checkpoint) = two_calls(&http, &id, &dir);
    fill(&http, &id);
    let made = compactions(&http, &id);
    assert_eq!(made.len(), 1, "{made:?}");
    let made = &made[0];
    assert_eq!(made["elided_call_ids"], json!(calls), "{made}");
    assert_eq!((&made["superseded_message_ids"], &made["summary"]), (&json!([]), &Value::Null), "{made}");
    assert_eq!((&made["state"], &made["fallback_occurred"]), (&json!("applied"), &json!(false)));
    assert!(made["after_estimate"].as_f64().unwrap() <= 0.6, "{made}");
    assert!(http.messages(&id, true).is_empty(), "every message still counts");
    let told = &http.audit(&id, "compaction.applied", 1)[0]["data"];
    assert_eq!((&told["outputs_elided"], &told["messages_superseded"]), (&json!(2), &json!(0)));

    packed(&http, &id, &calls);

    // The log says it: a restart packs the same.
    super::kill::restart(&mut http);
    let back =
        json!([{ "tool": { "name": "output.read", "input": { "call_id": calls[0] } } }, { "text": "so" }]);
    let run = http.done(&id, &script(back));
    assert_eq!(text(&run["tool_calls"][0], "output"), whole("alpha"));
    packed(&http, &id, &calls);
    let request = http.dump(&id);
    for (shown, call) in results(&request, &calls).iter().zip(&calls) {
        assert!(shown.contains(STOOD) && shown.contains(call.as_str().unwrap()), "{shown}");
        assert!(shown.contains("output.read") && shown.len() < 200, "{shown}");
    }
    assert!(sent(&request).contains("read alpha"), "what was said about it stays");

    http.at_checkpoint(&id, &checkpoint, "rollback").json(200);
    let shown = results(&http.dump(&id), &calls);
    assert_eq!(shown, [whole("alpha"), whole("bravo")], "as at the checkpoint");
    assert_eq!(compactions(&http, &id)[0]["rolled_back"], true);
}

/// `context/pack.json` says which results were references, and counts them as such.
fn packed(http: &Http, id: &str, calls: &[Value]) {
    let session = http.get(&format!("/sessions/{id}"));
    let uid = rustix::process::getuid().as_raw();
    let dir = format!("home/{uid}/agent/coder/session/{}/context/pack.json", text(&session, "name"));
    let pack = std::fs::read(http.daemon.root().join(dir)).unwrap();
    let pack: Value = serde_json::from_slice(&pack).unwrap();
    let messages = pack["messages"].as_array().unwrap();
    let elided: Vec<&Value> = messages.iter().filter(|message| message["elided"] == true).collect();
    let ids: Vec<Value> = elided.iter().map(|message| message["id"].clone()).collect();
    assert_eq!(ids, calls, "{pack}");
    assert!(elided.iter().all(|message| message["role"] == "tool" && message["tokens"].as_u64() < Some(50)));
}

#[test]
fn where_references_are_not_enough_the_oldest_exchanges_go_too() {
    let http = daemon(&[]);
    super::compaction::summing_up(&http, json!([{ "text": "IN SHORT" }]));
    let id = http.playing();
    let dir = http.daemon.workspace();
    for name in ["first", "second"] {
        http.done(&id, &filler(name, QUARTER));
    }
    let call = read(&http, &id, &dir, "alpha");
    http.done(&id, &filler("last", 3 * QUARTER / 2));
    let made = &compactions(&http, &id)[0];
    assert_eq!((&made["elided_call_ids"], &made["summary"]), (&json!([call]), &json!("IN SHORT")), "{made}");
    assert!(made["after_estimate"].as_f64().unwrap() <= 0.6, "{made}");
    let gone: Vec<String> = http.messages(&id, true).into_iter().map(|(_, text)| text).collect();
    assert!(gone.contains(&"answer to first".to_owned()), "{gone:?}");
    let request = http.dump(&id);
    assert!(results(&request, &[call])[0].contains(STOOD) && sent(&request).contains("IN SHORT"));
}

#[test]
fn a_pinned_output_stays_whole() {
    let http = daemon(&[]);
    let id = http.playing();
    let dir = http.daemon.workspace();
    let (calls, _) = two_calls(&http, &id, &dir);
    let pin = path(&id, &format!("messages/{}/pin", calls[0].as_str().unwrap()));
    http.call("PUT", &pin, None).json(200);
    fill(&http, &id);
    assert_eq!(compactions(&http, &id).len(), 1);
    assert_eq!(results(&http.dump(&id), &calls[..1]), [whole("alpha")], "others go instead");
}

#[test]
fn a_proposal_names_the_outputs_and_nothing_is_elided_before_it_is_approved() {
    let http = daemon(&[]);
    let id = session(&http, "{strategy: checkpoint}");
    let dir = http.daemon.path("project");
    let (calls, _) = two_calls(&http, &id, &dir);
    fill(&http, &id);
    assert_eq!(http.state(&id), "paused");
    let at = text(&http.get(&format!("/sessions/{id}")), "checkpoint").to_owned();
    let made = http.checkpoint(&id, &at)["compaction"].clone();
    assert_eq!((&made["state"], &made["elided_call_ids"]), (&json!("proposed"), &json!(calls)), "{made}");
    assert_eq!((&made["superseded_message_ids"], &made["summary"]), (&json!([]), &Value::Null));
    let shown = http.daemon.ctx(&["compact", "show", &id]).ok();
    assert!(shown.contains("output of") && shown.contains("calls fs.read"), "{shown}");
    let listed = http.daemon.ctx(&["compact", "list", &id]).ok();
    assert!(listed.contains("2 outputs as references"), "{listed}");

    // What is pinned meanwhile is shown whole.
    let pin = path(&id, &format!("messages/{}/pin", calls[0].as_str().unwrap()));
    http.call("PUT", &pin, None).json(200);
    http.call("POST", &path(&id, &format!("compactions/{}/approve", text(&made, "id"))), None).json(200);
    http.wait_for(&id, "idle");
    assert_eq!(compactions(&http, &id)[0]["elided_call_ids"], json!([calls[1]]));
    let shown = results(&http.dump(&id), &calls);
    assert!(shown[0] == whole("alpha") && shown[1].contains(STOOD), "{shown:?}");
}

#[test]
fn an_agent_that_cannot_read_output_back_is_shown_no_reference() {
    let http = daemon(&[]);
    let id = session(&http, "{strategy: drop}\n  tools: [fs.read, checkpoint]");
    let dir = http.daemon.path("project");
    two_calls(&http, &id, &dir);
    fill(&http, &id);
    let made = &compactions(&http, &id)[0];
    assert_eq!(made["elided_call_ids"], json!([]), "{made}");
    assert!(!http.messages(&id, true).is_empty(), "exchanges went");
    let run = http.done(&id, &script(json!([{ "dump": true }])));
    assert!(!sent(&dumped(text(&run["primary_response"], "content"))).contains(STOOD));
}
