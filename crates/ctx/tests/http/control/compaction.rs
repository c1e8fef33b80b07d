//! The seed's compaction section: what is recorded, by hand and by itself, what falls back, flags, and the undoing
//! by a rollback. The window of `debug/script` has 8,192 tokens.

use serde_json::{Value, json};
use testkit::until;

use super::{daemon, dumped, dumping, path, script, sent, text};
use crate::support::Http;

/// About a quarter of the window.
const QUARTER: usize = 4 * 2_048;

/// A message that is this long and has a short answer.
pub fn filler(name: &str, chars: usize) -> String {
    let mut message = script(json!([{ "text": format!("answer to {name}") }]));
    message.insert_str(message.len() - 1, &format!(r#","{name}":"{}""#, "x".repeat(chars)));
    message
}

/// Has the model answer with this to anything that is no script, such as a request for a summary.
pub fn summing_up(http: &Http, steps: Value) {
    let dir = http.daemon.root().join("model/debug/script.d");
    std::fs::write(dir.join("sum.json"), script(steps)).unwrap();
    std::fs::write(dir.join("default"), "script=sum.json\n").unwrap();
}

/// The only compaction of a session.
fn only(http: &Http, id: &str) -> Value {
    let list = http.get(&path(id, "compactions"));
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
    list["items"][0].clone()
}

/// Compacts by hand and waits for the end; the run.
fn compact(http: &Http, id: &str, body: Value) -> Value {
    let begun = http.call("POST", &path(id, "compactions"), Some(&body.to_string())).json(202);
    assert_eq!(begun["state"], "running");
    http.wait_for(id, "idle");
    http.get(&path(id, &format!("runs/{}", text(&begun, "run_id"))))
}

fn ids(http: &Http, id: &str, superseded: bool) -> Vec<Value> {
    let list = http.get(&path(id, "messages?limit=1000"));
    let items = list["items"].as_array().unwrap().iter();
    items.filter(|message| message["superseded"] == superseded).map(|message| message["id"].clone()).collect()
}

#[test]
fn a_window_that_fills_is_summed_up_before_the_next_call_and_the_run_goes_on() {
    let http = daemon(&[]);
    summing_up(&http, json!([{ "text": "IN SHORT" }, { "usage": { "input": 700, "output": 9 } }]));
    let id = http.playing();
    // The agent's own prompt takes a part of the window too.
    let chars = QUARTER - 1_600;
    for name in ["first", "second", "third"] {
        http.done(&id, &filler(name, chars));
    }
    let run = http.done(&id, &filler("fourth", chars));
    assert_eq!(
        (&run["tokens_in"], &run["tokens_out"]),
        (&json!(700), &json!(9)),
        "the summary's are the run's"
    );
    assert_eq!(
        (&run["state"], &run["primary_response"]["content"]),
        (&json!("done"), &json!("answer to fourth"))
    );
    let made = only(&http, &id);
    assert_eq!((&made["trigger"], &made["strategy"]), (&json!("threshold_crossed"), &json!("summarize")));
    assert_eq!((&made["state"], &made["run_id"]), (&json!("applied"), &run["id"]));
    assert_eq!((&made["agent_path"], &made["session_id"]), (&json!("primary"), &json!(id)));
    assert_eq!((&made["window_upper"], &made["window_lower"]), (&json!(0.85), &json!(0.6)));
    let (before, after) =
        (made["threshold_estimate"].as_f64().unwrap(), made["after_estimate"].as_f64().unwrap());
    assert!(before >= 0.85 && after <= 0.6, "{made}");
    assert_eq!((&made["summary"], &made["fallback_occurred"]), (&json!("IN SHORT"), &json!(false)));
    assert_eq!((&made["rolled_back"], &made["operator_flag"]), (&json!(false), &Value::Null));
    assert_eq!(made["plugin_cost"]["model"], "script");
    assert_eq!(made["superseded_message_ids"], json!(ids(&http, &id, true)));
    assert!(made["summary_message_id"].is_string());
    // Before the next call, and without a change of state.
    let kinds: Vec<String> = http.records(&id).iter().map(|record| text(record, "type").to_owned()).collect();
    let at = kinds.iter().position(|kind| kind == "compaction").unwrap();
    assert_eq!(kinds[at + 1], "assistant_started", "{kinds:?}");

    let request = sent(&http.dump(&id));
    assert!(request.contains("IN SHORT") && !request.contains("answer to first"), "{request}");
    assert!(request.contains("answer to third") && request.contains("answer to fourth"), "{request}");
    let told = &http.audit(&id, "compaction.applied", 1)[0]["data"];
    assert_eq!((&told["compaction_id"], &told["trigger"]), (&made["id"], &json!("threshold_crossed")));
}

#[test]
fn a_summary_that_is_no_shorter_or_takes_too_long_falls_back_to_dropping() {
    let http = daemon(&[]);
    let id = http.playing();
    for name in ["first", "second", "third", "fourth"] {
        http.done(&id, &filler(name, QUARTER));
    }
    let made = only(&http, &id);
    assert_eq!((&made["fallback_occurred"], &made["summary"]), (&json!(true), &Value::Null));
    assert!(text(&made, "fallback_reason").contains("not shorter"), "{made}");
    assert!(!sent(&http.dump(&id)).contains("answer to first"));

    let http = daemon(&[("COMPACTION_MS", "300")]);
    summing_up(&http, json!([{ "sleep_ms": 60_000 }, { "text": "never" }]));
    let late = http.playing();
    http.done(&late, &filler("first", 400));
    http.done(&late, &filler("second", 400));
    let run = compact(&http, &late, json!({ "strategy": "summarize" }));
    assert_eq!((&run["state"], &run["kind"]), (&json!("done"), &json!("compaction")));
    let made = only(&http, &late);
    assert!(text(&made, "fallback_reason").contains("longer than 0.3 s"), "{made}");
    // As `drop` would have it: nothing has to go from a window that is nearly empty.
    assert_eq!((&made["superseded_message_ids"], ids(&http, &late, true).len()), (&json!([]), 0), "{made}");
    assert_eq!(made["after_estimate"], made["threshold_estimate"], "{made}");
}

#[test]
fn nobody_to_delegate_to_is_said_before_anything_is_done() {
    let http = daemon(&[]);
    let id = http.playing();
    for name in ["first", "second"] {
        http.done(&id, &filler(name, 400));
    }
    let refused = http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"delegate"}"#));
    assert_eq!(refused.field(), "strategy", "{}", refused.text);
    assert_eq!((http.state(&id).as_str(), http.messages(&id, true).len()), ("idle", 0));
}

#[test]
fn a_summary_waits_out_a_rate_limit() {
    let http = daemon(&[("MODEL_RETRY_MS", "20")]);
    summing_up(&http, json!([{ "error": "rate_limit", "times": 2 }, { "text": "IN SHORT" }]));
    let id = http.playing();
    for name in ["first", "second"] {
        http.done(&id, &filler(name, 400));
    }
    assert_eq!(compact(&http, &id, json!({ "strategy": "summarize" }))["state"], "done");
    let made = only(&http, &id);
    assert_eq!((&made["summary"], &made["fallback_occurred"]), (&json!("IN SHORT"), &json!(false)), "{made}");
}

#[test]
fn a_summary_is_not_asked_for_again_while_the_session_is_paused() {
    let http = daemon(&[("MODEL_RETRY_MS", "300"), ("MODEL_ATTEMPTS", "3")]);
    summing_up(&http, json!([{ "error": "rate_limit" }]));
    let two = || {
        let id = http.playing();
        for name in ["first", "second"] {
            http.done(&id, &filler(name, 400));
        }
        id
    };
    let retries = || http.daemon.log().matches("retrying a model call").count();
    // On a busy machine all is over before the pause comes: that one does not count.
    let (id, paused) = until("a pause before the last attempt", || {
        let (id, before) = (two(), retries());
        http.call("POST", &path(&id, "compactions"), Some(r#"{"strategy":"summarize"}"#)).json(202);
        until("the first attempt to fail", || (retries() > before).then_some(()));
        let paused = http.call("POST", &path(&id, "checkpoints"), None);
        (paused.status == 201).then(|| (id, paused.json(201)))
    });
    let before = retries();
    // Another session's attempts, begun later, are over: this one's would be too.
    compact(&http, &two(), json!({ "strategy": "summarize" }));
    assert_eq!(retries(), before + 2, "a paused session calls no model");
    summing_up(&http, json!([{ "text": "IN SHORT" }]));
    http.resume(&id, text(&paused, "id"));
    http.wait_for(&id, "idle");
    let made = only(&http, &id);
    assert_eq!((&made["summary"], &made["fallback_occurred"]), (&json!("IN SHORT"), &json!(false)), "{made}");
}

#[test]
fn an_operator_drops_the_oldest_exchanges_by_hand() {
    let http = Http::start();
    let id = http.playing();
    let with_tool = script(json!([
        { "tool": { "name": "fs.list", "input": { "path": "/work" } } }, { "text": "listed" }
    ]));
    http.done(&id, &with_tool);
    for name in ["second", "third"] {
        http.done(&id, &filler(name, QUARTER + 500));
    }
    assert_eq!(ids(&http, &id, true).len(), 0);
    let run = compact(&http, &id, json!({ "strategy": "drop" }));
    assert_eq!((&run["kind"], &run["state"]), (&json!("compaction"), &json!("done")));
    assert_eq!((&run["operator_message"], &run["finish_reason"]), (&Value::Null, &Value::Null));
    let made = only(&http, &id);
    assert_eq!((&made["trigger"], &made["strategy"]), (&json!("operator_manual"), &json!("drop")));
    assert_eq!((&made["plugin_cost"], &made["summary_message_id"]), (&Value::Null, &Value::Null));
    assert_eq!(made["run_id"], run["id"]);
    // A call and its result are one message here, and go together.
    let gone: Vec<(String, String)> = http.messages(&id, true);
    assert!(gone.iter().any(|(role, _)| role == "tool"), "{gone:?}");
    let request = http.dump(&id);
    let parts = sent(&request);
    assert_eq!(parts.contains("tool_call"), parts.contains("tool_result"), "{parts}");
    assert!(!parts.contains("listed") && parts.contains("answer to third"), "{parts}");
    assert_eq!(compact(&http, &id, json!({}))["state"], "done", "the agent's own strategy");
}

#[test]
fn a_provider_that_overflows_is_asked_again_with_less() {
    let http = Http::start();
    summing_up(&http, json!([{ "text": "IN SHORT" }]));
    let id = http.playing();
    http.done(&id, &filler("first", 2_000));
    http.done(&id, &filler("second", 2_000));
    let run = http.done(&id, &script(json!([{ "error": "overflow", "times": 1 }, { "text": "fits" }])));
    assert_eq!(
        (&run["state"], &run["primary_response"]["content"]),
        (&json!("done"), &json!("fits")),
        "{run}"
    );
    let made = only(&http, &id);
    assert_eq!((&made["trigger"], &made["summary"]), (&json!("provider_overflow_retry"), &json!("IN SHORT")));
    let failed = http.done(&id, &script(json!([{ "error": "overflow" }])));
    assert_eq!(failed["error"]["code"], "EOVERFLOW", "no more than once");
}

#[test]
fn an_overflow_in_the_middle_of_an_answer_makes_room_once_and_keeps_what_was_said() {
    let http = Http::start();
    summing_up(&http, json!([{ "text": "IN SHORT" }]));
    for (times, state, said) in [(json!(1), "done", "partial fits"), (Value::Null, "failed", "partial ")] {
        let id = http.playing();
        for number in 0..6 {
            http.done(&id, &filler(&format!("number {number}"), 800));
        }
        let mut error = json!({ "error": "overflow" });
        if !times.is_null() {
            error["times"] = times;
        }
        let run = http.done(&id, &script(json!([{ "text": "partial " }, error, { "text": "fits" }])));
        assert_eq!(
            (&run["state"], &run["primary_response"]["content"]),
            (&json!(state), &json!(said)),
            "{run}"
        );
        assert_eq!(only(&http, &id)["trigger"], "provider_overflow_retry", "once");
        let begun = http.of_type(&id, "assistant_started").len();
        let ended = http.of_type(&id, "assistant_finished");
        assert_eq!(begun, ended.len(), "what was shown is in the log");
        let cut: Vec<&Value> = ended.iter().filter(|message| message["finish_reason"] == "error").collect();
        assert_eq!(text(cut[0], "text"), "partial ");
    }
}

#[test]
fn after_an_overflow_the_model_is_sent_nothing_of_the_answer_that_was_cut_off() {
    let http = Http::start();
    summing_up(&http, json!([{ "text": "IN SHORT" }]));
    let id = http.playing();
    for number in 0..6 {
        http.done(&id, &filler(&format!("number {number}"), 800));
    }
    let cut = json!([{ "text": "CUT OFF " }, { "error": "overflow", "times": 1 }, { "dump": true }]);
    let run = http.done(&id, &script(cut));
    let retried = text(&run["primary_response"], "content").strip_prefix("CUT OFF ").unwrap();
    let turns = dumped(retried)["messages"].clone();
    assert_eq!(turns.as_array().unwrap().last().unwrap()["role"], "user", "{turns}");
    let cut = http.messages(&id, false).iter().filter(|(_, text)| text == "CUT OFF ").count();
    assert_eq!(cut, 1, "whoever reads along has seen it");
    // Nor in later runs: what counts is the answer that was given in its place.
    let turns = http.dump(&id)["messages"].clone();
    let turns = turns.as_array().unwrap();
    let answer = turns.iter().rev().find(|turn| turn["role"] == "assistant").unwrap();
    let parts = answer["content"].as_array().unwrap();
    assert_eq!((parts.len(), text(&parts[0], "text")), (1, text(&run["primary_response"], "content")));
}

#[test]
fn what_was_sent_is_what_the_pack_says() {
    let http = Http::start();
    summing_up(&http, json!([{ "text": "IN SHORT" }]));
    let id = http.session(r#"{"name":"packed"}"#);
    http.call("PUT", &format!("/sessions/{id}"), Some(r#"{"model_override":"debug:script"}"#)).json(200);
    for name in ["first", "second", "third", "fourth"] {
        http.done(&id, &filler(name, QUARTER));
    }
    let list = json!({ "name": "fs.list", "input": { "path": "/work" } });
    let calling = json!([{ "tool": list.clone() }, { "tool": list }, { "dump": true }]);
    let run = http.done(&id, &script(calling));
    let request = dumped(text(&run["primary_response"], "content"));
    assert_eq!(sent(&request).matches("\"tool_result\"").count(), 2, "{request}");
    let uid = rustix::process::getuid().as_raw();
    let dir = http.daemon.root().join(format!("home/{uid}/agent/coder/session/packed"));
    let pack: Value = serde_json::from_slice(&std::fs::read(dir.join("context/pack.json")).unwrap()).unwrap();
    let roles = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|turn| text(turn, "role").to_owned()).collect()
    };
    assert_eq!(pack["turns"], json!(request["messages"].as_array().unwrap().len()));
    assert_eq!(roles(&pack["messages"]), roles(&request["messages"]));
    assert_eq!(text(&pack, "turns_sha256"), sha256(request["messages"].to_string().as_bytes()));
    assert_eq!(text(&pack, "prompt_sha256"), sha256(text(&request, "prompt").as_bytes()));
    assert_eq!(pack["tools"], json!(roles_of_tools(&request)));
    let counts = ids(&http, &id, false);
    let known: Vec<Value> =
        pack["messages"].as_array().unwrap().iter().map(|message| message["id"].clone()).collect();
    // The answer to this very call came after it. A summary stands where the first that it stands for stood.
    // A call and its result are two messages with one id.
    let mut said: Vec<Value> = counts[..counts.len() - 1].to_vec();
    let mut sent = known.clone();
    said.sort_by_key(ToString::to_string);
    sent.sort_by_key(ToString::to_string);
    assert_eq!(sent, said, "the messages that count, and no other");
}

fn roles_of_tools(request: &Value) -> Vec<String> {
    request["tools"].as_array().unwrap().iter().map(|tool| text(tool, "name").to_owned()).collect()
}

/// As `sha256sum` has it.
fn sha256(bytes: &[u8]) -> String {
    use std::io::Write;
    let mut command = std::process::Command::new("sha256sum");
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let out = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&out.stdout).split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_rollback_past_a_compaction_undoes_it() {
    let http = Http::start();
    summing_up(&http, json!([{ "text": "IN SHORT" }]));
    let id = http.playing();
    http.done(&id, &filler("first", 800));
    let checkpoint = http.pause_by_model(&id, "here", "there");
    http.resume(&id, &checkpoint);
    http.wait_for(&id, "idle");
    http.done(&id, &filler("last", 100));
    let before = ids(&http, &id, false);
    compact(&http, &id, json!({ "strategy": "summarize" }));
    let made = only(&http, &id);
    assert_eq!(made["summary"], "IN SHORT");
    assert!(!ids(&http, &id, true).is_empty());
    let back = http.at_checkpoint(&id, &checkpoint, "rollback");
    back.json(200);
    let undone = only(&http, &id);
    assert_eq!((&undone["rolled_back"], &undone["state"]), (&json!(true), &json!("applied")));
    let counts = ids(&http, &id, false);
    assert_eq!(counts, before[..counts.len()], "exactly what counted at the checkpoint");
    assert!(ids(&http, &id, true).contains(&made["summary_message_id"]), "the summary is superseded");
    let request = sent(&http.dump(&id));
    assert!(request.contains("answer to first") && !request.contains("IN SHORT"), "{request}");
    let told = &http.audit(&id, "checkpoint.rolled_back", 1)[0]["data"];
    assert!(told["messages_restored"].as_u64().unwrap() >= 2, "{told}");
}

#[test]
fn an_operator_says_what_they_think_of_it() {
    let http = Http::start();
    let id = http.playing();
    http.done(&id, &filler("first", 400));
    http.done(&id, &filler("second", 400));
    compact(&http, &id, json!({ "strategy": "drop" }));
    let made = only(&http, &id);
    let at = path(&id, &format!("compactions/{}", text(&made, "id")));
    let flag = |body: Value| http.call("PATCH", &at, Some(&body.to_string()));
    let flagged = flag(json!({ "operator_flag": "bad", "operator_notes": "forgot the schema" })).json(200);
    assert_eq!(
        (&flagged["operator_flag"], &flagged["operator_notes"]),
        (&json!("bad"), &json!("forgot the schema"))
    );
    assert_eq!(flag(json!({ "operator_flag": "good" })).json(200)["operator_notes"], "forgot the schema");
    let cleared = flag(json!({ "operator_flag": null, "operator_notes": null })).json(200);
    assert_eq!((&cleared["operator_flag"], &cleared["operator_notes"]), (&Value::Null, &Value::Null));
    assert_eq!(http.get(&at)["operator_flag"], Value::Null);
    assert_eq!(flag(json!({ "operator_flag": "fine" })).code(400), "EINVAL");
    assert_eq!(flag(json!({ "flag": "good" })).code(400), "EINVAL");
    assert_eq!(http.audit(&id, "compaction.flagged", 3).len(), 3);
}

#[test]
fn of_very_many_the_oldest_are_listed_as_one() {
    let http = daemon(&[("COMPACTIONS_PER_SESSION", "4"), ("COMPACTIONS_AGGREGATED", "3")]);
    let id = http.playing();
    http.done(&id, "hello");
    for _ in 0..5 {
        compact(&http, &id, json!({ "strategy": "drop" }));
    }
    let list = http.get(&path(&id, "compactions"));
    let items = list["items"].as_array().unwrap();
    assert_eq!((&items[0]["aggregate"], &items[0]["count"]), (&json!(true), &json!(3)));
    assert!(items[0]["before"].as_u64().unwrap() <= items[1]["created_at"].as_u64().unwrap());
    assert_eq!(items.len(), 3);
    let (mut paged, mut at) = (Vec::new(), path(&id, "compactions?limit=1"));
    loop {
        let page = http.get(&at);
        let rows = page["items"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "a page holds what was asked for, the row for the oldest included");
        paged.extend(rows.clone());
        let Some(next) = page["next"].as_str() else { break };
        at = path(&id, &format!("compactions?limit=1&cursor={next}"));
    }
    assert_eq!(&paged, items);
    let bad = path(&id, "compactions?cursor=x");
    assert_eq!(http.call("GET", &bad, None).code(400), "EINVAL");
}

#[test]
fn what_cannot_be_compacted_is_refused() {
    let http = daemon(&[("RUNNING_PER_PROJECT", "1")]);
    let id = http.playing();
    let compactions = path(&id, "compactions");
    let begin = |body: &str| http.call("POST", &compactions, Some(body));
    assert_eq!(begin(r#"{"strategy":"forget"}"#).code(400), "EINVAL");
    assert_eq!(begin(r#"{"how":"drop"}"#).code(400), "EINVAL");
    assert_eq!(http.call("GET", &path(&id, "compactions/x"), None).code(404), "ENOENT");
    let missing = path(&id, "compactions/01ARZ3NDEKTSV4RRFFQ69G5FAV");
    assert_eq!(http.call("GET", &missing, None).code(404), "ENOENT");
    assert_eq!(http.call("PATCH", &missing, Some("{}")).code(404), "ENOENT");
    assert_eq!(http.call("POST", &format!("{missing}/approve"), None).code(404), "ENOENT");
    assert_eq!(http.call("POST", &format!("{missing}/reject"), None).code(404), "ENOENT");
    let stranger = http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    assert_eq!(http.call_as(&stranger, "POST", &compactions, None).code(404), "ENOENT");
    let other = http.running();
    assert_eq!(begin("{}").code(409), "EBUSY", "no slot");
    assert_eq!(http.call("POST", &path(&other, "compactions"), None).code(409), "EBUSY", "it is running");
    http.call("POST", &path(&other, "checkpoints"), None).json(201);
    assert_eq!(http.call("POST", &path(&other, "compactions"), None).code(409), "EBUSY", "it is paused");
    http.call("DELETE", &format!("/sessions/{other}?confirm=true"), None).json(204);
    assert_eq!(http.call("POST", &path(&other, "compactions"), None).code(409), "ESHUTDOWN");
    let done = http.done(&id, &dumping());
    assert!(dumped(text(&done["primary_response"], "content"))["messages"].is_array());
    until("nothing to be left running", || (http.get("/status")["running"] == 0).then_some(()));
}
