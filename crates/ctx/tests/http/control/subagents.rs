//! The prompts of subagents at a checkpoint: they are seen and edited like the primary's.

use serde_json::{Value, json};

use super::{daemon, path, script, text};
use crate::support::Http;

/// A session of a project with a subagent that has a prompt of its own.
fn session(http: &Http) -> String {
    let dir = http.daemon.path("project");
    std::fs::create_dir_all(dir.join(".ctx/prompts")).unwrap();
    let file = "version: 1\nproject: music\nprimary:\n  model: debug:script\n  compaction: {strategy: delegate, delegate: tester}\n  tools: [fs.read, checkpoint]\nsubagents:\n  tester: {model: debug:script, prompt: prompts/tester.md}\n  bare: {model: debug:echo}\n  other: {acp: [codex-acp]}\n";
    std::fs::write(dir.join(".ctx/project.yaml"), file).unwrap();
    std::fs::write(dir.join(".ctx/prompts/tester.md"), "TEST EVERYTHING\n").unwrap();
    let body = json!({ "directory": dir }).to_string();
    http.call("POST", "/projects", Some(&body)).json(201);
    http.call("POST", "/projects/music/trust", None).json(200);
    text(&http.call("POST", "/projects/music/sessions", Some("{}")).json(201), "id").to_owned()
}

fn pause(http: &Http, id: &str) -> Value {
    let asking = script(json!([{ "tool": { "name": "checkpoint", "input": {} } }, { "text": "on" }]));
    http.post(id, &asking);
    http.wait_for(id, "paused");
    http.checkpoint(id, text(&http.get(&format!("/sessions/{id}")), "checkpoint"))
}

fn prompt_of<'a>(checkpoint: &'a Value, target: &str) -> &'a Value {
    let prompts = checkpoint["prompts_in_effect"].as_array().unwrap();
    prompts
        .iter()
        .find(|prompt| prompt["target"] == target)
        .unwrap_or_else(|| panic!("no {target}: {checkpoint}"))
}

#[test]
fn a_subagents_prompt_is_seen_and_edited_at_a_checkpoint() {
    let http = daemon(&[]);
    let id = session(&http);
    let checkpoint = pause(&http, &id);
    assert_eq!(prompt_of(&checkpoint, "tester")["content"], "TEST EVERYTHING\n");
    assert_eq!(prompt_of(&checkpoint, "bare")["content"], "");
    let targets: Vec<&str> =
        checkpoint["prompts_in_effect"].as_array().unwrap().iter().map(|one| text(one, "target")).collect();
    assert_eq!(
        targets,
        ["primary", "bare", "tester"],
        "an ACP agent has a prompt of its own that is not ours"
    );

    let at = path(&id, &format!("checkpoints/{}/prompts/tester", text(&checkpoint, "id")));
    http.call("PUT", &at, Some(r#"{"content":"TEST NOTHING"}"#)).json(200);
    http.resume(&id, text(&checkpoint, "id"));
    http.wait_for(&id, "idle");
    let notes = http.of_type(&id, "system");
    let note = text(&notes[0], "text");
    assert!(
        note.contains("Previous prompt hash of tester") && !note.contains("Previous prompt hash: "),
        "{note}"
    );
    let edited = &http.audit(&id, "prompt.edited", 1)[0]["data"];
    assert_eq!(edited["target"], "tester");

    // It holds from then on; going back takes it back.
    let later = pause(&http, &id);
    assert_eq!(prompt_of(&later, "tester")["content"], "TEST NOTHING");
    http.at_checkpoint(&id, text(&checkpoint, "id"), "rollback").json(200);
    assert_eq!(prompt_of(&pause(&http, &id), "tester")["content"], "TEST EVERYTHING\n");
}
