//! Subagents at work: side by side, killed at their time, paused, edited, rolled back, and cut off by `kill -9`.
//!
//! A subagent that is to go on until the test has looked waits for an approval: the project asks before `fs.list`.

use std::process::Command;

use serde_json::{Value, json};
use testkit::until;

use super::kill::restart;
use super::{daemon, dumped, path, script, sent, text};
use crate::support::Http;

/// A session of a project with subagents: `brief` is killed soon, `reader` is not.
fn session(http: &Http) -> String {
    let dir = http.daemon.path("project");
    std::fs::create_dir_all(dir.join(".ctx/prompts")).unwrap();
    let file = "version: 1\nproject: music\nprimary: {model: debug:script}\nsubagents:\n  reader: {model: debug:script, prompt: prompts/reader.md}\n  brief: {model: debug:script, cage: {walltime: 1500ms}}\n  other: {acp: [codex-acp]}\npolicy: [\"ask fs.list\"]\n";
    std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
    std::fs::write(dir.join(".ctx/prompts/reader.md"), "READ CLOSELY\n").unwrap();
    std::fs::write(dir.join("AGENTS.md"), "Speak plainly.\n").unwrap();
    std::fs::write(dir.join("score.txt"), "three chords\n").unwrap();
    let body = json!({ "directory": dir }).to_string();
    http.call("POST", "/projects", Some(&body)).json(201);
    // Cages and programs of a project file hold only after its owner agreed to them.
    http.call("POST", "/projects/music/trust", Some("{}")).json(200);
    text(&http.call("POST", "/projects/music/sessions", Some("{}")).json(201), "id").to_owned()
}

/// A call for a subagent that plays these steps.
fn dispatch(agent: &str, steps: Value) -> Value {
    json!({ "name": "agent.dispatch", "input": { "agent": agent, "prompt": script(steps) } })
}

/// Waits until somebody approves it, then says so.
fn held(text: &str) -> Value {
    json!([{ "tool": { "name": "fs.list", "input": { "path": "/work" } } }, { "text": text }])
}

fn stuck() -> Value {
    json!([{ "text": "half an answer" }, { "sleep_ms": 600_000 }])
}

/// The newest run, with its subagents.
fn run(http: &Http, id: &str) -> Value {
    http.get(&path(id, "runs?limit=1000"))["items"].as_array().unwrap().last().unwrap().clone()
}

fn states(http: &Http, id: &str) -> Vec<(String, String)> {
    let run = run(http, id);
    let all = run["subagent_invocations"].as_array().unwrap().iter();
    all.map(|one| (text(one, "subagent_name").to_owned(), text(one, "state").to_owned())).collect()
}

fn approvals(http: &Http, id: &str, count: usize) -> Vec<Value> {
    until("the approvals", || {
        let list = http.get(&path(id, "approvals"))["items"].as_array().unwrap().clone();
        let open: Vec<Value> = list.into_iter().filter(|one| one["state"] == "pending").collect();
        (open.len() == count).then_some(open)
    })
}

fn approve(http: &Http, id: &str, approval: &Value) {
    let at = path(id, &format!("approvals/{}", text(approval, "id")));
    http.call("POST", &at, Some(r#"{"decision":"allow"}"#)).json(200);
}

/// What the tool calls of the primary gave, in the order of the log.
fn results(http: &Http, id: &str) -> Vec<(String, String)> {
    let run = run(http, id);
    let calls = run["tool_calls"].as_array().unwrap().iter().filter(|call| call["caller"] == "primary");
    calls
        .map(|call| {
            (
                call["status"].as_str().unwrap_or("open").to_owned(),
                call["output"].as_str().unwrap_or("").to_owned(),
            )
        })
        .collect()
}

#[test]
fn three_work_side_by_side_and_the_run_goes_on_when_one_is_killed() {
    let http = daemon(&[]);
    let id = session(&http);
    let steps = json!([
        { "tool": [
            dispatch("reader", json!([
                { "tool": { "name": "fs.read", "input": { "path": "/work/score.txt" } } }, { "dump": true }
            ])),
            dispatch("brief", stuck()),
            dispatch("reader", held("and that is all"))
        ] },
        { "text": "the primary goes on" }
    ]);
    http.post(&id, &script(steps));
    let waiting = approvals(&http, &id, 1);
    let killed = until("the walltime", || {
        http.of_type(&id, "subagent_exited").into_iter().find(|one| one["state"] == "killed")
    });
    assert_eq!((&killed["cause"], &killed["exit_code"]), (&json!("walltime"), &json!(137)));
    assert_eq!(http.state(&id), "running", "another one is alive");
    approve(&http, &id, &waiting[0]);
    http.wait_for(&id, "idle");

    let shown = run(&http, &id);
    assert_eq!(shown["state"], "done", "{shown}");
    // They start at the same moment, in no order.
    let mut found = states(&http, &id);
    found.sort();
    let wanted = [("brief", "killed"), ("reader", "done"), ("reader", "done")];
    assert_eq!(found, wanted.map(|(name, state)| (name.to_owned(), state.to_owned())));
    let invocations = shown["subagent_invocations"].as_array().unwrap();
    let last = invocations.iter().find(|one| one["subagent_name"] == "brief").unwrap();
    assert_eq!(last["message"], "Subagent brief exceeded walltime limit.");
    assert_eq!((&last["cage_id"], &last["model"]), (&Value::Null, &json!("debug:script")));

    let results = results(&http, &id);
    assert_eq!(results[1].0, "error");
    assert!(results[1].1.contains("Subagent brief exceeded walltime limit."), "{results:?}");
    assert!(results[1].1.contains("half an answer"), "its partial output is kept: {results:?}");
    assert_eq!(results[2], ("ok".to_owned(), "and that is all".to_owned()));
    // Its own context: its prompt, the project's instructions, and nothing of the primary's conversation.
    let request = dumped(&results[0].1);
    assert_eq!(request["model"], "debug/script");
    let prompt = text(&request, "prompt");
    assert!(prompt.starts_with("READ CLOSELY") && prompt.contains("Speak plainly."), "{prompt}");
    let read = sent(&request);
    assert!(read.contains("three chords") && !read.contains("agent.dispatch"), "{read}");
    let tools = request["tools"].to_string();
    assert!(tools.contains("fs.read") && tools.contains("checkpoint"), "{tools}");
    assert!(!tools.contains("agent.dispatch") && !tools.contains("todo"), "{tools}");

    shown_everywhere(&http, &id);
}

/// Messages, tool calls and the audit tell whose they are; so do the commands.
fn shown_everywhere(http: &Http, id: &str) {
    let messages = http.get(&path(id, "messages?limit=1000"))["items"].as_array().unwrap().clone();
    let of_subagents: Vec<&Value> = messages.iter().filter(|one| one["role"] == "subagent").collect();
    assert!(of_subagents.iter().any(|one| one["content"] == "and that is all"), "{messages:?}");
    assert!(of_subagents.iter().all(|one| one["metadata"]["caller"]["name"].is_string()), "{messages:?}");
    let shown = run(http, id);
    let callers: Vec<&str> =
        shown["tool_calls"].as_array().unwrap().iter().map(|call| text(call, "caller")).collect();
    assert_eq!(callers.iter().filter(|caller| **caller == "reader").count(), 2, "{callers:?}");
    assert_eq!(shown["primary_response"]["content"], "the primary goes on");

    let spawned = http.audit(id, "subagent.spawned", 3);
    let names = spawned.iter().filter(|event| event["data"]["subagent_name"] == "reader").count();
    assert_eq!(names, 2, "{spawned:?}");
    let exited = http.audit(id, "subagent.exited", 3);
    assert!(exited.iter().any(|event| event["data"]["cause"] == "walltime"), "{exited:?}");

    let log = http.daemon.ctx(&["log", id]).ok();
    assert!(log.contains("subagent brief killed after"), "{log}");
    assert!(log.contains("reader → fs.read"), "{log}");
    let show = http.daemon.ctx(&["show", id]).ok();
    assert!(show.contains("subagent reader") && show.contains("and that is all"), "{show}");
    let index = http.daemon.root().join(".state/index.db");
    let sql = "SELECT subagent_name, state, exit_code FROM subagent_invocations ORDER BY 1";
    let ask = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall())";
    let wanted = "[('brief', 'killed', 137), ('reader', 'done', 0), ('reader', 'done', 0)]";
    until("the index", || {
        let asked = Command::new("python3").args(["-c", ask]).arg(&index).arg(sql).output().unwrap();
        (String::from_utf8_lossy(&asked.stdout).trim() == wanted).then_some(())
    });
}

#[test]
fn a_run_whose_last_subagent_is_killed_fails() {
    let http = daemon(&[]);
    let id = session(&http);
    let shown = http.done(&id, &script(json!([{ "tool": dispatch("brief", stuck()) }, { "text": "never" }])));
    assert_eq!(shown["state"], "failed", "{shown}");
    let error = &shown["error"];
    assert_eq!((&error["code"], &error["reason"]), (&json!("ETIMEDOUT"), &json!("subagent_walltime")));
    assert_eq!(error["message"], "Subagent brief exceeded walltime limit.");
    // The session goes on.
    assert_eq!(http.done(&id, &script(json!([{ "text": "again" }])))["state"], "done");
}

#[test]
fn a_ninth_is_refused_and_a_cancel_kills_the_eight() {
    let http = daemon(&[]);
    let id = session(&http);
    let calls: Vec<Value> = (1..=9).map(|n| dispatch("reader", held(&format!("done {n}")))).collect();
    let posted = http.post(&id, &script(json!([{ "tool": calls }, { "text": "on" }])));
    approvals(&http, &id, 8);
    let refused = until("the refusal", || {
        http.of_type(&id, "tool_finished").into_iter().find(|one| one["status"] == "error")
    });
    assert!(text(&refused, "output").contains("at most 8 subagents at once"), "{refused}");
    let cancel = path(&id, &format!("runs/{}/cancel", text(&posted, "run_id")));
    assert_eq!(http.call("POST", &cancel, None).json(200)["state"], "cancelled");
    let states = states(&http, &id);
    assert_eq!(states.len(), 8);
    assert!(states.iter().all(|(_, state)| state == "killed"), "{states:?}");
    let calls = run(&http, &id)["tool_calls"].as_array().unwrap().clone();
    assert!(calls.iter().all(|call| call["state"] == "finished"), "{calls:?}");
    assert_eq!(http.audit(&id, "subagent.exited", 8).len(), 8);
}

#[test]
fn what_a_subagent_may_not_do_it_is_told() {
    let http = daemon(&[]);
    let id = session(&http);
    let tries = json!([
        { "tool": [
            { "name": "todo", "input": { "op": "init", "items": ["mine"] } },
            dispatch("reader", json!([{ "text": "deeper" }]))
        ] },
        { "dump": true }
    ]);
    let steps = json!([
        { "tool": [
            dispatch("reader", tries),
            dispatch("other", json!([{ "text": "acp" }])),
            dispatch("nobody", json!([{ "text": "?" }]))
        ] },
        { "text": "on" }
    ]);
    assert_eq!(http.done(&id, &script(steps))["state"], "done");
    let results = results(&http, &id);
    let told = sent(&dumped(&results[0].1));
    assert!(told.contains("todo is for the primary alone"), "{told}");
    assert!(told.contains("agent.dispatch is for the primary alone"), "{told}");
    assert!(results[1].1.contains("speaks ACP"), "{results:?}");
    assert!(
        results[2].1.contains("no subagent `nobody`; the subagents are brief, other, reader"),
        "{results:?}"
    );
    assert_eq!(states(&http, &id).len(), 1, "the others never began");
}

/// A session that a subagent has paused while another waits, and its checkpoint.
fn paused(http: &Http, after: Value) -> (String, Value) {
    let id = session(http);
    let asking = json!({ "tool": { "name": "checkpoint", "input": { "reason": "which key?" } } });
    let looking = json!({ "tool": { "name": "fs.list", "input": { "path": "/" } } });
    let first = json!([{ "text": "I looked" }, looking, asking, after]);
    let steps = json!([
        { "tool": [dispatch("reader", first), dispatch("reader", held("slow"))] },
        { "dump": true }
    ]);
    http.post(&id, &script(steps));
    // Both are there before the first goes on.
    let waiting = approvals(http, &id, 2);
    approve(http, &id, waiting.iter().find(|one| one["subject"] == "/").unwrap());
    http.wait_for(&id, "paused");
    let checkpoint = text(&http.get(&format!("/sessions/{id}")), "checkpoint").to_owned();
    (id.clone(), http.checkpoint(&id, &checkpoint))
}

#[test]
fn a_pause_keeps_them_and_an_edited_prompt_holds_when_they_go_on() {
    let http = daemon(&[]);
    let (id, checkpoint) = paused(&http, json!({ "dump": true }));
    assert_eq!((&checkpoint["created_by"], &checkpoint["reason"]), (&json!("model"), &json!("which key?")));
    let kept = checkpoint["active_subagents"].as_array().unwrap();
    assert_eq!(kept.len(), 2, "{checkpoint}");
    assert!(kept.iter().all(|one| one["state"] == "suspended" && one["pty_id"].is_null()), "{checkpoint}");
    assert!(kept.iter().any(|one| text(one, "last_output").starts_with("I looked")), "{checkpoint}");
    let cid = text(&checkpoint, "id");
    for command in [vec!["checkpoints", &id, cid], vec!["show", &id]] {
        let shown = http.daemon.ctx(&command).ok();
        assert!(shown.contains("reader suspended: I looked"), "{shown}");
    }

    let at = path(&id, &format!("checkpoints/{cid}/prompts/reader"));
    http.call("PUT", &at, Some(r#"{"content":"READ ALOUD"}"#)).json(200);
    http.resume(&id, cid);
    approve(&http, &id, &approvals(&http, &id, 1)[0]);
    http.wait_for(&id, "idle");
    let results = results(&http, &id);
    let request = dumped(&results[0].1);
    assert!(text(&request, "prompt").starts_with("READ ALOUD"), "{request}");
    assert_eq!(results[1], ("ok".to_owned(), "slow".to_owned()));
    assert_eq!(run(&http, &id)["state"], "done");
}

#[test]
fn a_rollback_kills_them_and_takes_back_what_they_said() {
    let http = daemon(&[]);
    let (id, checkpoint) = paused(&http, json!({ "text": "never" }));
    http.at_checkpoint(&id, text(&checkpoint, "id"), "rollback").json(200);
    assert_eq!(http.state(&id), "idle");
    assert!(states(&http, &id).iter().all(|(_, state)| state == "killed"));
    assert_eq!(run(&http, &id)["state"], "cancelled");
    assert_eq!(http.done(&id, &script(json!([{ "text": "again" }])))["state"], "done");
}

#[test]
fn a_killed_daemon_takes_them_with_it_and_the_next_one_says_so() {
    let mut http = daemon(&[]);
    let id = session(&http);
    let calls = [dispatch("reader", held("one")), dispatch("reader", held("two"))];
    http.post(&id, &script(json!([{ "tool": calls }, { "text": "on" }])));
    approvals(&http, &id, 2);
    restart(&mut http);
    assert_eq!(http.state(&id), "idle");
    let shown = run(&http, &id);
    assert_eq!(
        (&shown["state"], &shown["error"]["reason"]),
        (&json!("failed"), &json!("daemon_crash_during_run"))
    );
    for one in shown["subagent_invocations"].as_array().unwrap() {
        assert_eq!((&one["state"], &one["cause"]), (&json!("killed"), &json!("daemon_stopped")), "{one}");
        assert_eq!(one["exit_code"], Value::Null);
    }
    assert_eq!(http.audit(&id, "subagent.exited", 2).len(), 2);
    assert_eq!(http.done(&id, &script(json!([{ "text": "again" }])))["state"], "done");
}

#[test]
fn a_daemon_killed_in_a_pause_leaves_the_primary_to_go_on_without_them() {
    let mut http = daemon(&[]);
    let (id, checkpoint) = paused(&http, json!({ "text": "never" }));
    restart(&mut http);
    assert_eq!(http.state(&id), "paused");
    let cid = text(&checkpoint, "id");
    let kept = http.checkpoint(&id, cid)["active_subagents"].as_array().unwrap().clone();
    assert!(kept.iter().all(|one| one["state"] == "exited"), "{kept:?}");
    http.resume(&id, cid);
    http.wait_for(&id, "idle");
    let shown = run(&http, &id);
    assert_eq!(shown["state"], "done", "{shown}");
    let told = sent(&dumped(text(&shown["primary_response"], "content")));
    assert_eq!(told.matches("the daemon stopped before this tool was done").count(), 2, "{told}");
}
