//! The seed's checkpoint tests: pausing, looking, editing prompts, going on.

use serde_json::{Value, json};
use testkit::until;

use super::{daemon, dumped, path, pausing, script, sent, text};
use crate::support::Http;

#[test]
fn an_operator_pauses_a_run() {
    let http = Http::start();
    let id = http.running();
    let made = http.call("POST", &path(&id, "checkpoints"), Some(r#"{"reason":" look "}"#)).json(201);
    let run = text(&made, "run_id").to_owned();
    assert_eq!(
        (&made["session_id"], &made["created_by"], &made["reason"], &made["compaction_id"]),
        (&json!(id), &json!("operator"), &json!("look"), &Value::Null)
    );
    assert_eq!(
        (&made["resumed_at"], &made["rolled_back"], &made["superseded_by"], &made["archived"]),
        (&Value::Null, &json!(false), &Value::Null, &json!(false))
    );
    let user = &http.get(&path(&id, "messages"))["items"][0];
    assert_eq!(made["message_history_cursor"], user["id"], "the last message at the pause");
    assert_eq!((&made["active_subagents"], &made["pending_tool_calls"]), (&json!([]), &json!([])));
    let prompt = &made["prompts_in_effect"][0];
    assert_eq!((&prompt["target"], &prompt["editable"]), (&json!("primary"), &json!(true)));
    assert_eq!(text(prompt, "content_hash").len(), 64);
    assert!(prompt["content"].is_string(), "{prompt}");

    let session = http.get(&format!("/sessions/{id}"));
    assert_eq!((&session["state"], &session["checkpoint"]), (&json!("paused"), &made["id"]));
    assert_eq!(session["current_run"], run);
    assert_eq!(http.get(&path(&id, &format!("runs/{run}")))["state"], "running", "it is only paused");
    let listed = http.get(&path(&id, "checkpoints"));
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["items"][0]["id"], made["id"]);
    assert!(listed["items"][0]["prompts_in_effect"][0].get("content").is_none(), "texts are not in a list");

    assert_eq!(http.call("POST", &path(&id, "checkpoints"), None).code(409), "EBUSY", "paused already");
    assert_eq!(http.call("POST", &path(&id, "messages"), Some(r#"{"text":"x"}"#)).code(409), "EBUSY");
    let created = &http.audit(&id, "checkpoint.created", 1)[0];
    assert_eq!(
        (&created["data"]["checkpoint_id"], &created["data"]["reason"]),
        (&made["id"], &json!("look"))
    );
    assert_eq!(created["data"]["created_by"], "operator");

    let cancelled = http.call("POST", &path(&id, &format!("runs/{run}/cancel")), None).json(200);
    assert_eq!((cancelled["state"].clone(), http.state(&id)), (json!("cancelled"), "idle".to_owned()));
}

#[test]
fn a_model_pauses_its_own_session_and_is_told_when_it_goes_on() {
    let http = Http::start();
    let (id, checkpoint) = http.paused("before", "after");
    let shown = http.checkpoint(&id, &checkpoint);
    assert_eq!((&shown["created_by"], &shown["reason"]), (&json!("model"), &json!("sign-off")));
    assert_eq!(shown["pending_tool_calls"], json!([]), "its own call is settled");
    let went = http.resume(&id, &checkpoint);
    assert_eq!((&went["state"], &went["run_id"]), (&json!("running"), &shown["run_id"]));
    http.wait_for(&id, "idle");
    let run = http.get(&path(&id, &format!("runs/{}", text(&shown, "run_id"))));
    assert_eq!((&run["state"], &run["primary_response"]["content"]), (&json!("done"), &json!("after")));
    assert!(text(&run["tool_calls"][0], "output").contains("was paused"), "{run}");
    assert!(http.checkpoint(&id, &checkpoint)["resumed_at"].is_u64());
    assert_eq!(http.at_checkpoint(&id, &checkpoint, "resume").code(409), "EBUSY", "it goes on already");
    let resumed = http.audit(&id, "checkpoint.resumed", 1);
    assert_eq!(resumed[0]["data"]["prompts_edited"], json!([]));
}

#[test]
fn what_the_model_asks_for_while_paused_waits_for_the_resume() {
    let http = Http::start();
    let (id, made) = http.paused_midway(&json!([
        { "text": "begun" }, { "sleep_ms": 700 },
        { "tool": { "name": "fs.list", "input": { "path": "/work" } } }, { "text": "listed" }
    ]));
    let checkpoint = text(&made, "id");
    let calls = until("the call that waits", || {
        let calls = http.checkpoint(&id, checkpoint)["pending_tool_calls"].clone();
        (calls != json!([])).then_some(calls)
    });
    assert_eq!((&calls[0]["name"], &calls[0]["state"]), (&json!("fs.list"), &json!("pending")));
    assert_eq!(calls[0]["input"], json!({ "path": "/work" }));
    assert!(http.of_type(&id, "tool_started").is_empty(), "nothing starts in a paused session");
    http.resume(&id, checkpoint);
    http.wait_for(&id, "idle");
    let seq = |kind: &str| http.of_type(&id, kind)[0]["seq"].as_u64().unwrap();
    assert!(seq("tool_started") > seq("checkpoint_resumed"));
    assert_eq!(http.checkpoint(&id, checkpoint)["pending_tool_calls"][0]["state"], "finished");
    assert_eq!(http.messages(&id, false).last().unwrap().1, "listed");
}

#[test]
fn a_run_that_came_to_its_end_while_paused_has_nothing_left_to_do() {
    let http = Http::start();
    let (id, made) =
        http.paused_midway(&json!([{ "text": "all" }, { "sleep_ms": 400 }, { "text": " of it" }]));
    until("the answer", || http.of_type(&id, "assistant_finished").pop());
    assert_eq!(http.state(&id), "paused");
    let went = http.resume(&id, text(&made, "id"));
    assert_eq!((&went["state"], &went["run_id"]), (&json!("idle"), &made["run_id"]));
    assert_eq!(http.state(&id), "idle");
    assert_eq!(http.messages(&id, false).last().unwrap().1, "all of it");
}

#[test]
fn an_edited_prompt_holds_from_the_resume_on_and_the_model_is_told() {
    let http = Http::start();
    let id = http.playing();
    http.post(&id, &script(json!([{ "tool": { "name": "checkpoint", "input": {} } }, { "dump": true }])));
    http.wait_for(&id, "paused");
    let checkpoint = text(&http.get(&format!("/sessions/{id}")), "checkpoint").to_owned();
    let old = text(&http.checkpoint(&id, &checkpoint)["prompts_in_effect"][0], "content_hash").to_owned();

    assert_eq!(http.edit(&id, &checkpoint, " ").code(400), "EINVAL");
    let target = |name: &str| path(&id, &format!("checkpoints/{checkpoint}/prompts/{name}"));
    assert_eq!(http.call("PUT", &target("nobody"), Some(r#"{"content":"x"}"#)).code(404), "ENOENT");
    assert_eq!(http.call("PUT", &target("primary"), Some(r#"{"content":"x","y":1}"#)).code(400), "EINVAL");
    assert_eq!(http.call("PUT", &target("primary"), None).code(400), "EINVAL");
    http.edit(&id, &checkpoint, "first try").json(200);
    let edited = http.edit(&id, &checkpoint, "Speak like a sailor.").json(200);
    let edits = edited["prompt_edits"].as_array().unwrap();
    assert_eq!((edits.len(), &edits[0]["old_hash"]), (2, &json!(old)));
    assert!(edits[0].get("content").is_none(), "{edits:?}");
    assert_eq!(edits[1]["content"], "Speak like a sailor.");
    let new = text(&edits[1], "new_hash").to_owned();
    assert_eq!(edited["prompts_in_effect"][0]["content_hash"], old, "as it was at the pause");

    http.resume(&id, &checkpoint);
    http.wait_for(&id, "idle");
    let request = dumped(&http.messages(&id, false).last().unwrap().1);
    assert!(text(&request, "prompt").contains("Speak like a sailor."), "{request}");
    let notice = format!(
        "System prompts were updated at this checkpoint. Previous prompt hash: {old}, new prompt hash: {new}."
    );
    assert!(sent(&request).contains(&notice), "{request}");
    assert!(http.messages(&id, false).contains(&("system".to_owned(), notice)));
    assert!(text(&http.dump(&id), "prompt").contains("sailor"), "it holds for this session");
    let other = http.playing();
    assert!(!text(&http.dump(&other), "prompt").contains("sailor"), "and for no other");

    let told = http.audit(&id, "prompt.edited", 2);
    assert_eq!((&told[0]["data"]["new_hash"], &told[0]["data"]["target"]), (&json!(new), &json!("primary")));
    assert_eq!(http.audit(&id, "checkpoint.resumed", 1)[0]["data"]["prompts_edited"], json!(["primary"]));
    assert_eq!(http.edit(&id, &checkpoint, "late").code(409), "EBUSY", "it is not paused there any more");
}

#[test]
fn a_paused_run_goes_on_under_what_it_began_with() {
    let mut http = daemon(&[]);
    let (policy, instructions) =
        (http.daemon.root().join("agent/coder.d/policy"), http.daemon.workspace().join("AGENTS.md"));
    std::fs::write(&policy, "allow fs.read\n").unwrap();
    std::fs::write(&instructions, "RULES OF THEN").unwrap();
    let id = http.playing();
    let contexts = |http: &Http| -> Vec<Value> {
        let kept = |mut context: Value| {
            let fields = context.as_object_mut().unwrap();
            fields.retain(|field, _| !["seq", "time", "more", "turn_id"].contains(&field.as_str()));
            context
        };
        http.of_type(&id, "context").into_iter().map(kept).collect()
    };
    for restarts in [false, true] {
        let at = http.pause_by_model(&id, "before", "after");
        std::fs::write(&policy, "deny fs.read\n").unwrap();
        std::fs::write(&instructions, "RULES OF NOW").unwrap();
        let other = r#"{"model_override":"debug:echo"}"#;
        http.call("PUT", &format!("/sessions/{id}"), Some(other)).json(200);
        if restarts {
            http.daemon.kill();
            http.daemon.start_again();
        }
        http.resume(&id, &at);
        http.wait_for(&id, "idle");
        let found = contexts(&http);
        let [.., began, resumed] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(began, resumed, "with a restart: {restarts}");
        assert_eq!((&began["model"], &began["policy"]), (&json!("debug:script"), &json!(["allow fs.read"])));
        http.done(&id, "hello");
        let next = contexts(&http).pop().unwrap();
        assert_eq!(
            (&next["model"], &next["policy"]),
            (&json!("debug:echo"), &json!(["deny fs.read"])),
            "the next run"
        );
        assert_ne!(next["sources"], began["sources"]);
        std::fs::write(&policy, "allow fs.read\n").unwrap();
        std::fs::write(&instructions, "RULES OF THEN").unwrap();
        let back = r#"{"model_override":"debug:script"}"#;
        http.call("PUT", &format!("/sessions/{id}"), Some(back)).json(200);
    }
}

#[test]
fn a_paused_session_frees_its_slot_and_needs_one_to_go_on() {
    let http = daemon(&[("RUNNING_PER_PROJECT", "1")]);
    let first = http.running();
    let second = http.playing();
    assert_eq!(http.post(&second, &super::slow("b"))["state"], "queued");
    assert_eq!(http.call("POST", &path(&second, "resume"), None).code(409), "EBUSY");
    let made = http.call("POST", &path(&first, "checkpoints"), None).json(201);
    assert_eq!(http.get("/status")["running"], 0, "paused is not running");
    let resumed = http.call("POST", &path(&second, "resume"), None).json(202);
    assert_eq!(http.get("/status")["running"], 1);
    let checkpoint = text(&made, "id");
    let refused = http.at_checkpoint(&first, checkpoint, "resume");
    assert_eq!((refused.code(409).as_str(), http.state(&first).as_str()), ("EBUSY", "paused"));
    let cancel = path(&second, &format!("runs/{}/cancel", text(&resumed, "run_id")));
    http.call("POST", &cancel, None).json(200);
    assert_eq!(http.resume(&first, checkpoint)["state"], "running");
    assert_eq!(http.state(&first), "running");
}

#[test]
fn the_oldest_checkpoints_are_archived_and_can_still_be_read() {
    let http = daemon(&[("CHECKPOINTS_PER_SESSION", "2")]);
    let id = http.playing();
    let mut made = Vec::new();
    for number in 0..4 {
        let checkpoint = http.pause_by_model(&id, &format!("{number}"), "");
        http.resume(&id, &checkpoint);
        http.wait_for(&id, "idle");
        made.push(checkpoint);
    }
    let ids = |query: &str| -> Vec<String> {
        let list = http.get(&path(&id, &format!("checkpoints{query}")));
        list["items"].as_array().unwrap().iter().map(|one| text(one, "id").to_owned()).collect()
    };
    assert_eq!(ids(""), made[2..]);
    assert_eq!(ids("?archived=true"), made[..2]);
    let page = http.get(&path(&id, "checkpoints?limit=1"));
    assert_eq!(page["next"], json!(made[2]));
    assert_eq!(ids(&format!("?cursor={}", made[2])), made[3..]);
    assert_eq!(http.checkpoint(&id, &made[0])["archived"], true);
    assert_eq!(http.checkpoint(&id, &made[3])["archived"], false);
    assert_eq!(http.at_checkpoint(&id, &made[0], "rollback").json(200)["rolled_back"], true);
}

#[test]
fn what_cannot_be_is_refused_with_the_code_of_the_table() {
    let http = Http::start();
    let id = http.playing();
    let missing = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let call = |method: &str, what: &str, body: Option<&str>| http.call(method, &path(&id, what), body);
    assert_eq!(call("POST", "checkpoints", None).code(409), "EBUSY", "nothing runs");
    assert_eq!(call("POST", "checkpoints", Some(r#"{"why":"x"}"#)).code(400), "EINVAL");
    assert_eq!(call("GET", "checkpoints?state=x", None).code(400), "EINVAL");
    assert_eq!(call("GET", "checkpoints?cursor=x", None).code(400), "EINVAL");
    for cid in [missing, "x", "%20"] {
        assert_eq!(call("GET", &format!("checkpoints/{cid}"), None).code(404), "ENOENT");
        assert_eq!(call("POST", &format!("checkpoints/{cid}/resume"), None).code(404), "ENOENT");
        assert_eq!(call("POST", &format!("checkpoints/{cid}/rollback"), None).code(404), "ENOENT");
    }
    let checkpoint = http.pause_by_model(&id, "a", "b");
    let resume = format!("checkpoints/{checkpoint}/resume");
    let refused = call("POST", &resume, Some(r#"{"resolve":true}"#));
    assert_eq!(refused.code(400), "EINVAL");
    assert!(refused.text.contains("this session has no issue"), "{}", refused.text);
    assert_eq!(call("POST", &resume, Some(r#"{"force":true}"#)).code(400), "EINVAL");
    assert_eq!(http.state(&id), "paused");

    let stranger = http.daemon.ctx(&["token", "new", "--uid", "54321"]).ok().trim().to_owned();
    let theirs = |method: &str, what: &str| http.call_as(&stranger, method, &path(&id, what), None).code(404);
    for (method, what) in [
        ("GET", "checkpoints".to_owned()),
        ("POST", "checkpoints".to_owned()),
        ("GET", format!("checkpoints/{checkpoint}")),
        ("POST", resume),
        ("POST", format!("checkpoints/{checkpoint}/rollback")),
    ] {
        assert_eq!(theirs(method, &what), "ENOENT", "{method} {what}");
    }
    http.call("DELETE", &format!("/sessions/{id}?confirm=true"), None).json(204);
    assert_eq!(http.at_checkpoint(&id, &checkpoint, "resume").code(409), "ESHUTDOWN");
    assert_eq!(http.at_checkpoint(&id, &checkpoint, "rollback").code(409), "ESHUTDOWN");
    assert_eq!(call("POST", "checkpoints", None).code(409), "ESHUTDOWN");
    let shown = http.get(&path(&id, &format!("runs/{}", text(&http.checkpoint(&id, &checkpoint), "run_id"))));
    assert_eq!(shown["state"], "cancelled", "ending a paused session ends its run");
}

#[test]
fn the_same_key_pauses_once() {
    let http = Http::start();
    let id = http.running();
    let bearer = format!("Authorization: Bearer {}", http.token);
    let args = ["-X", "POST", "-H", &bearer, "-H", "Idempotency-Key: k", "-d", r#"{"reason":"r"}"#];
    let first = http.curl(&path(&id, "checkpoints"), &args).json(201);
    let again = http.curl(&path(&id, "checkpoints"), &args).json(201);
    assert_eq!(first["id"], again["id"]);
    assert_eq!(http.of_type(&id, "checkpoint_created").len(), 1);
}

#[test]
fn a_fork_begins_where_a_session_was_paused() {
    let http = Http::start();
    let (id, checkpoint) = http.paused("before", "after");
    http.resume(&id, &checkpoint);
    http.wait_for(&id, "idle");
    http.done(&id, "later");
    let from = |place: Value| {
        let body = json!({ "resume_from": place }).to_string();
        http.call("POST", "/projects/default/sessions", Some(&body))
    };
    let fork = from(json!({ "session": id, "checkpoint": checkpoint })).json(201);
    let fork = text(&fork, "id");
    until("the fork's messages", || {
        let said: Vec<String> = http.messages(fork, false).into_iter().map(|(_, said)| said).collect();
        (said.first() == Some(&pausing("before", "after"))
            && said.get(1).map(String::as_str) == Some("before"))
        .then_some(())
    });
    assert!(!http.messages(fork, false).iter().any(|(_, said)| said == "after" || said == "later"));
    assert_eq!(http.state(fork), "idle");
    assert_eq!(http.done(fork, "on its own")["state"], "done");
    assert_eq!(
        from(json!({ "session": id, "checkpoint": "01ARZ3NDEKTSV4RRFFQ69G5FAV" })).code(400),
        "EINVAL"
    );
    assert_eq!(from(json!({ "session": id, "checkpoint": checkpoint, "seq": 3 })).code(400), "EINVAL");
}
