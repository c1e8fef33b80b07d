//! Pinned messages, and tool output that is read back.

use serde_json::{Value, json};

use super::compaction::filler;
use super::{daemon, dumped, path, script, sent, text};
use crate::support::{Http, Response};

fn pin(http: &Http, method: &str, id: &str, message: &Value) -> Response {
    let message = message.as_str().expect("a message's id");
    http.call(method, &path(id, &format!("messages/{message}/pin")), None)
}

fn listed(http: &Http, id: &str) -> Vec<Value> {
    http.get(&path(id, "messages?limit=1000"))["items"].as_array().unwrap().clone()
}

fn pinned(http: &Http, id: &str) -> Vec<Value> {
    listed(http, id)
        .into_iter()
        .filter(|message| message["pinned"] == true)
        .map(|m| m["id"].clone())
        .collect()
}

fn messages_file(http: &Http, id: &str) -> std::path::PathBuf {
    let name = text(&http.get(&format!("/sessions/{id}")), "name").to_owned();
    let uid = rustix::process::getuid().as_raw();
    http.daemon.root().join(format!("home/{uid}/agent/coder/session/{name}/messages.jsonl"))
}

/// The lines of `messages.jsonl` that say something of messages: what, and of which.
fn marks(http: &Http, id: &str) -> Vec<Value> {
    let file = std::fs::read_to_string(messages_file(http, id)).unwrap();
    let lines = file.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["type"].is_string()).map(|line| json!([line["type"], line["ids"]])).collect()
}

fn compact(http: &Http, id: &str, strategy: &str) {
    let body = json!({ "strategy": strategy }).to_string();
    http.call("POST", &path(id, "compactions"), Some(&body)).json(202);
}

#[test]
fn a_pinned_message_stays_in_what_the_model_is_sent() {
    let mut http = daemon(&[]);
    let id = http.playing();
    for name in ["first", "second", "third"] {
        http.done(&id, &filler(name, 400));
    }
    let keep = listed(&http, &id)[1]["id"].clone();
    assert_eq!(pin(&http, "PUT", &id, &keep).json(200), json!({ "message_id": keep, "pinned": true }));
    pin(&http, "PUT", &id, &keep).json(200);
    assert_eq!(pinned(&http, &id), std::slice::from_ref(&keep));
    http.daemon.kill();
    http.daemon.start_again();
    assert_eq!(pinned(&http, &id), std::slice::from_ref(&keep), "a pin is a record");
    assert_eq!(marks(&http, &id), [json!(["pinned", [keep]])]);
    let told = &http.audit(&id, "message.pinned", 1)[0]["data"];
    assert_eq!(told["message_id"], keep);

    // A proposal leaves it out, and an edit cannot take it.
    compact(&http, &id, "checkpoint");
    http.wait_for(&id, "paused");
    let at = text(&http.get(&format!("/sessions/{id}")), "checkpoint").to_owned();
    let proposed = http.checkpoint(&id, &at)["compaction"].clone();
    let ids = proposed["superseded_message_ids"].as_array().unwrap();
    assert!(ids.len() == 3 && !ids.contains(&keep), "{proposed}");
    let approve = path(&id, &format!("compactions/{}/approve", text(&proposed, "id")));
    let edits = json!({ "superseded_message_ids": [keep] }).to_string();
    let refused = http.call("POST", &approve, Some(&edits));
    assert_eq!(refused.code(400), "EINVAL");
    assert_eq!(refused.json(400)["error"]["details"]["field"], "superseded_message_ids");
    http.call("POST", &approve, None).json(200);
    let request = sent(&http.dump(&id));
    assert!(request.contains("answer to first") && !request.contains("answer to second"), "{request}");

    let fork = http.session(&json!({ "resume_from": id }).to_string());
    assert_eq!(pinned(&http, &fork), std::slice::from_ref(&keep), "a fork keeps it");
    pin(&http, "DELETE", &id, &keep).json(204);
    assert_eq!((pinned(&http, &id).len(), pinned(&http, &fork).len()), (0, 1));
    let live = marks(&http, &id);
    assert_eq!(live.last(), Some(&json!(["unpinned", [keep]])));
    // The file is a view: made anew it says the same.
    let file = messages_file(&http, &id);
    http.daemon.stop();
    let before = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    http.daemon.start_again();
    http.done(&id, "more");
    assert!(std::fs::read(&file).unwrap().starts_with(&before));
    assert_eq!(marks(&http, &id), live);
}

#[test]
fn what_cannot_be_pinned_is_refused() {
    let http = daemon(&[]);
    let id = http.playing();
    http.done(&id, "hello");
    let message = listed(&http, &id)[0]["id"].clone();
    assert_eq!(pin(&http, "PUT", &id, &json!("01ARZ3NDEKTSV4RRFFQ69G5FAV")).code(404), "ENOENT");
    assert_eq!(pin(&http, "PUT", &id, &json!("x")).code(404), "ENOENT");
    let at = path(&id, &format!("messages/{}/pin", message.as_str().unwrap()));
    assert_eq!(http.call("PUT", &at, Some(r#"{"pinned":true}"#)).code(400), "EINVAL");
    let stranger = http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    assert_eq!(http.call_as(&stranger, "PUT", &at, None).code(404), "ENOENT");
    let checkpoint = http.pause_by_model(&id, "before", "after");
    http.resume(&id, &checkpoint);
    http.wait_for(&id, "idle");
    http.done(&id, "later");
    let later = listed(&http, &id).pop().unwrap();
    http.at_checkpoint(&id, &checkpoint, "rollback").json(200);
    assert_eq!(pin(&http, "PUT", &id, &later["id"]).code(404), "ENOENT", "it does not count any more");
    http.call("DELETE", &format!("/sessions/{id}?confirm=true"), None).json(204);
    assert_eq!(pin(&http, "PUT", &id, &message).code(409), "ESHUTDOWN");
}

#[test]
fn the_command_pins_by_a_part_of_an_id() {
    let http = daemon(&[]);
    let id = http.playing();
    http.done(&id, "hello");
    let message = listed(&http, &id)[0]["id"].as_str().unwrap().to_owned();
    // Ids of one moment differ at their ends alone.
    http.daemon.ctx(&["pin", &id, &message[16..]]).ok();
    assert_eq!(pinned(&http, &id), [json!(message)]);
    http.daemon.ctx(&["pin", &id, &message, "--off"]).ok();
    assert!(pinned(&http, &id).is_empty());
}

/// A file of which the model is only shown the beginning.
const LINES: usize = 400;

fn large_file(http: &Http) {
    let text: String = (0..LINES).map(|n| format!("line {n} of the file\n")).collect();
    std::fs::write(http.daemon.workspace().join("large.txt"), text).unwrap();
}

#[test]
fn output_that_was_cut_is_read_back_also_after_a_compaction_and_a_restart() {
    let mut http = daemon(&[("TOOL_OUTPUT_BYTES", "1000")]);
    large_file(&http);
    let id = http.playing();
    let reading = json!([{ "tool": { "name": "fs.read", "input": { "path": "/work/large.txt" } } }, { "text": "read" }]);
    let run = http.done(&id, &script(reading));
    let call = &run["tool_calls"][0];
    let output = text(call, "output");
    let how = output.rsplit_once("[output cut at ").expect("a note").1;
    let shown: usize = how.split(' ').next().unwrap().parse().unwrap();
    let call_id = text(call, "id");
    assert!(how.contains("output.read") && how.contains(call_id), "the model is told how: {how}");
    assert!(output.len() <= 1_000, "{}", output.len());

    http.done(&id, "and now");
    compact(&http, &id, "drop");
    compact_all(&http, &id);
    http.daemon.kill();
    http.daemon.start_again();
    let back = json!([
        { "tool": { "name": "output.read", "input": { "call_id": call_id, "offset": shown, "limit": 200 } } },
        { "tool": { "name": "output.read", "input": { "call_id": call_id, "offset": 8_000 } } },
        { "tool": { "name": "output.read", "input": { "call_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV" } } },
        { "dump": true }
    ]);
    let run = http.done(&id, &script(back));
    let calls = run["tool_calls"].as_array().unwrap();
    let whole: String = (0..LINES).map(|n| format!("line {n} of the file\n")).collect();
    assert!(text(&calls[0], "output").starts_with(&whole[shown..shown + 200]), "{calls:?}");
    assert!(text(&calls[0], "output").contains(&format!("go on with offset {}]", shown + 200)), "{calls:?}");
    assert!(text(&calls[1], "output").starts_with(&whole[8_000..8_100]), "{calls:?}");
    assert_eq!((&calls[2]["status"], &calls[2]["state"]), (&json!("error"), &json!("finished")), "{calls:?}");
    let sent = sent(&dumped(text(&run["primary_response"], "content")));
    assert!(!sent.contains("line 0 of the file"), "the call itself is gone: {sent}");
    let tools = http.get("/tools");
    assert!(tools["items"].as_array().unwrap().iter().any(|tool| tool["name"] == "output.read"), "{tools}");
}

/// Takes all but the last exchange, by a proposal that is approved.
fn compact_all(http: &Http, id: &str) {
    http.wait_for(id, "idle");
    compact(http, id, "checkpoint");
    http.wait_for(id, "paused");
    let at = text(&http.get(&format!("/sessions/{id}")), "checkpoint").to_owned();
    http.resume(id, &at);
    http.wait_for(id, "idle");
}
