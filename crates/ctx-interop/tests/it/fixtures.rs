//! Every session that a real program wrote is read as its `expected.json` says.

use crate::support::{answers, cases, fixtures, own, read_all, users};
use ctx_interop::{Agent, Finish, Link, Transcript, Verdict, What};
use ctx_session::record::{Body, MessageBody};
use serde_json::Value;

fn strings<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

/// The main session of a case.
fn main_session<'f>(found: &'f [Transcript], expected: &Value) -> &'f Transcript {
    match strings(expected, "session_id") {
        Some(id) => found.iter().find(|found| found.native_id == id).expect("the session is found"),
        None => &found[0],
    }
}

fn verdicts(found: &Transcript) -> Vec<(String, String, &'static str)> {
    let results: std::collections::HashMap<&str, Verdict> = found
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::ToolResult { id, verdict, .. } => Some((id.as_str(), *verdict)),
            _ => None,
        })
        .collect();
    let word = |id: &str| match results.get(id) {
        Some(Verdict::Success) => "success",
        Some(Verdict::Failure) => "failure",
        Some(Verdict::Interrupted) | None => "none",
    };
    let call = |event: &&ctx_interop::Event| match &event.what {
        What::ToolCall { id, name, .. } => Some((id.clone(), name.clone(), word(id))),
        _ => None,
    };
    own(found).iter().filter_map(call).collect()
}

fn check_main(label: &str, found: &Transcript, expected: &Value) {
    let events = own(found);
    let (users, answers) = (users(&events), answers(&events));
    let number = |name: &str| expected[name].as_u64().unwrap() as usize;
    assert_eq!(users.len(), number("user_messages"), "{label}: {users:?}");
    assert_eq!(answers.len(), number("assistant_messages"), "{label}: {answers:?}");
    let reasoning = events.iter().filter(|event| matches!(event.what, What::Reasoning { .. })).count();
    assert_eq!(reasoning, number("reasoning_blocks"), "{label}");
    let text = |name: &str| strings(expected, name).map(|text| text.trim_end());
    assert_eq!(users.first().map(|text| text.trim_end()), text("first_user_text"), "{label}");
    assert_eq!(users.last().map(|text| text.trim_end()), text("last_user_text"), "{label}");
    assert_eq!(answers.last().map(|text| text.trim_end()), text("last_assistant_text"), "{label}");
    let calls: Vec<(String, String, &str)> = expected["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| {
            let result = strings(call, "result").unwrap();
            let result = if result.starts_with("none") { "none" } else { result };
            (strings(call, "id").unwrap().to_owned(), strings(call, "name").unwrap().to_owned(), result)
        })
        .collect();
    assert_eq!(verdicts(found), calls, "{label}");
}

#[test]
fn every_case_is_read_as_it_says() {
    let cases = cases();
    assert!(cases.len() > 60, "the fixtures are there");
    for (agent, label, case, expected) in cases {
        let found = read_all(agent, &case.join("files"));
        for session in &found {
            assert_eq!(session.damage, [], "{label}");
            assert!(session.unknown.is_empty(), "{label}: {:?}", session.unknown);
        }
        check_main(&label, main_session(&found, &expected), &expected);
        let listed = expected.get("sessions_in_store").and_then(Value::as_array);
        for session in listed.into_iter().flatten() {
            let id = strings(session, "session_id").unwrap();
            let read = found.iter().find(|found| found.native_id == id).expect(&label);
            let events = own(read);
            assert_eq!(users(&events).len() as u64, session["user_messages"].as_u64().unwrap(), "{label}");
            assert_eq!(
                answers(&events).len() as u64,
                session["assistant_messages"].as_u64().unwrap(),
                "{label}"
            );
            assert_eq!(read.tool_calls() as u64, session["tool_calls"].as_u64().unwrap(), "{label}");
        }
        if let Some(listed) = listed {
            let is_subagent = |found: &&Transcript| matches!(found.link, Some(Link::SubagentOf { .. }));
            let subagents = expected.get("subagents").and_then(Value::as_array).map_or(0, Vec::len);
            assert_eq!(found.iter().filter(is_subagent).count(), subagents, "{label}");
            assert_eq!(found.len(), listed.len() + subagents, "{label}: no session is made up");
        }
    }
}

#[test]
fn what_a_session_is_about_is_known() {
    for (agent, label, case, expected) in cases() {
        let found = read_all(agent, &case.join("files"));
        let main = main_session(&found, &expected);
        let version = strings(&expected, "tool_version").unwrap();
        let has_version = !matches!(agent, Agent::Goose | Agent::Gemini);
        assert_eq!(main.version.as_deref(), has_version.then_some(version), "{label}");
        assert!(main.created.is_some(), "{label}");
        // The older Gemini stores a hash of the directory alone, which only named files can undo.
        let is_named = agent != Agent::Aider && (!label.starts_with("gemini-0.20") || main.cwd.is_some());
        if is_named {
            assert_eq!(main.cwd.as_deref(), strings(&expected, "cwd"), "{label}");
        }
        let answered = main.events.iter().any(|event| matches!(event.what, What::Assistant { .. }));
        assert!(!answered || main.model.is_some() || agent == Agent::Aider, "{label}");
    }
}

fn case(agent: Agent, name: &str) -> (Vec<Transcript>, Value) {
    let (_, _, path, expected) = cases().into_iter().find(|(_, label, ..)| label == name).unwrap();
    (read_all(agent, &path.join("files")), expected)
}

#[test]
fn a_fork_of_codex_has_its_parents_history() {
    let (found, expected) = case(Agent::Codex, "codex/forked");
    let fork = main_session(&found, &expected);
    let all: Vec<_> = fork.events.iter().collect();
    let inherited = &expected["with_inherited_history"];
    assert_eq!(users(&all).len() as u64, inherited["user_messages"].as_u64().unwrap());
    assert_eq!(answers(&all).len() as u64, inherited["assistant_messages"].as_u64().unwrap());
    assert_eq!(
        users(&all)[0],
        expected["happened_but_stored_differently"]["first_user_text"].as_str().unwrap()
    );
    let parent = found.iter().find(|found| found.native_id != fork.native_id).unwrap();
    assert_eq!(fork.link, Some(Link::ForkOf { native_id: parent.native_id.clone() }));
}

#[test]
fn a_subagent_is_linked_to_its_call() {
    let (found, expected) = case(Agent::Claude, "claude/subagent");
    let subagent = found.iter().find(|found| found.link.is_some()).unwrap();
    let main = main_session(&found, &expected);
    let call = verdicts(main)[0].0.clone();
    assert_eq!(subagent.link, Some(Link::SubagentOf { native_id: main.native_id.clone(), call: Some(call) }));
    let events = own(subagent);
    assert_eq!(users(&events), [expected["subagents"][0]["prompt"].as_str().unwrap()]);
    assert_eq!(answers(&events), ["There are 2 Python files."]);
}

#[test]
fn interruptions_and_compactions_are_what_they_were() {
    let count = |found: &[Transcript], wanted: fn(&What) -> bool| {
        found.iter().flat_map(|found| &found.events).filter(|event| wanted(&event.what)).count()
    };
    let is_interruption: fn(&What) -> bool = |what| matches!(what, What::Interrupted);
    let is_partial: fn(&What) -> bool =
        |what| matches!(what, What::Assistant { finish: Finish::Interrupted, .. });
    let is_compaction: fn(&What) -> bool = |what| matches!(what, What::Compaction { .. });
    let is_failure: fn(&What) -> bool = |what| matches!(what, What::Failed { .. });
    for (agent, name, wanted, times) in [
        (Agent::Codex, "codex/interactive", is_interruption, 1),
        (Agent::Codex, "codex/interrupted-sigint", is_interruption, 1),
        (Agent::Claude, "claude/interactive", is_interruption, 1),
        (Agent::Claude, "claude/interactive", is_partial, 1),
        (Agent::Aider, "aider/interrupted-sigint", is_interruption, 1),
        (Agent::Aider, "aider/interrupted-sigint", is_partial, 1),
        (Agent::Opencode, "opencode-1.1/interrupted-sigint", is_partial, 1),
        (Agent::Codex, "codex/compacted", is_compaction, 1),
        (Agent::Claude, "claude/compacted", is_compaction, 1),
        (Agent::Codex, "codex/api-error", is_failure, 1),
        (Agent::Claude, "claude/api-error", is_failure, 1),
        (Agent::Opencode, "opencode/api-error", is_failure, 1),
        (Agent::Aider, "aider/api-error", is_failure, 1),
    ] {
        let (found, _) = case(agent, name);
        assert_eq!(count(&found, wanted), times, "{name}");
    }
}

#[test]
fn tokens_titles_and_diffs_are_kept() {
    for (agent, name) in [
        (Agent::Codex, "codex/tools"),
        (Agent::Claude, "claude/tools"),
        (Agent::Opencode, "opencode/tools"),
        (Agent::Goose, "goose/tools"),
        (Agent::Gemini, "gemini/tools"),
        (Agent::Aider, "aider/edits"),
    ] {
        let (found, _) = case(agent, name);
        let spent = |what: &What| match what {
            What::Assistant { tokens: Some(tokens), .. } | What::Step { tokens, .. } => tokens.input,
            _ => 0,
        };
        let input: u64 = found[0].events.iter().map(|event| spent(&event.what)).sum();
        assert!(input > 1_000, "{name}: {input}");
    }
    for (agent, name) in [
        (Agent::Codex, "codex/tools"),
        (Agent::Claude, "claude/tools"),
        (Agent::Opencode, "opencode/tools"),
        (Agent::Gemini, "gemini/tools"),
    ] {
        let (found, _) = case(agent, name);
        let has_diff = |event: &ctx_interop::Event| matches!(&event.what, What::ToolResult { diff: Some(diff), .. } if diff.contains("default=None"));
        assert!(found[0].events.iter().any(has_diff), "{name}");
    }
    let (found, _) = case(Agent::Claude, "claude/interactive");
    assert_eq!(found[0].title.as_deref(), Some("Interactive session"));
    let (found, _) = case(Agent::Codex, "codex/interactive");
    assert!(found[0].title.is_some(), "from the index beside the sessions");
}

#[test]
fn a_fork_of_claude_is_linked_to_the_session_that_it_copies() {
    let (found, _) = case(Agent::Claude, "claude/forked");
    assert_eq!(found.len(), 2);
    let fork = found.iter().find(|found| found.link.is_some()).unwrap();
    let source = found.iter().find(|found| found.link.is_none()).unwrap();
    assert_eq!(fork.link, Some(Link::ForkOf { native_id: source.native_id.clone() }));
    assert!(fork.created > source.created && fork.messages() > source.messages() / 2);
}

#[test]
fn subagents_of_the_older_claude_are_those_that_were_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(".claude/projects/-w");
    std::fs::create_dir_all(&dir).unwrap();
    let session = "11111111-2222-4333-8444-555555555555";
    let line = |agent: &str, text: &str| {
        format!(
            r#"{{"type":"user","uuid":"{agent}","sessionId":"{session}","agentId":"{agent}","isSidechain":true,"timestamp":"2026-11-15T06:00:01.000Z","message":{{"role":"user","content":"{text}"}}}}"#
        )
    };
    let asked = format!(
        concat!(
            r#"{{"type":"assistant","uuid":"a","sessionId":"{session}","timestamp":"2026-11-15T06:00:00.000Z","message":{{"id":"m","role":"assistant","content":[{{"type":"tool_use","id":"toolu_1","name":"Task","input":{{}}}}]}}}}"#,
            "\n",
            r#"{{"type":"user","uuid":"b","parentUuid":"a","sessionId":"{session}","timestamp":"2026-11-15T06:00:02.000Z","toolUseResult":{{"agentId":"one"}},"message":{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_1","content":"done"}}]}}}}"#,
            "\n"
        ),
        session = session
    );
    std::fs::write(dir.join(format!("{session}.jsonl")), asked).unwrap();
    std::fs::write(dir.join("agent-one.jsonl"), line("one", "count") + "\n").unwrap();
    std::fs::write(dir.join("agent-two.jsonl"), line("two", "Warmup") + "\n").unwrap();
    let found = read_all(Agent::Claude, home.path());
    let ids: Vec<&str> = found.iter().map(|found| found.native_id.as_str()).collect();
    assert_eq!(ids, [session, &format!("{session}/one")]);
    let link = Link::SubagentOf { native_id: session.to_owned(), call: Some("toolu_1".to_owned()) };
    assert_eq!(found[1].link, Some(link));
}

#[test]
fn shapes_that_no_fixture_has_are_read_too() {
    let line = |payload: &str| {
        format!(r#"{{"timestamp":"2026-11-15T06:14:44.511Z","type":"response_item","payload":{payload}}}"#)
            + "\n"
    };
    let text = [
        line(r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"look"},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}"#),
        line(r#"{"type":"message","role":"user","content":[{"type":"text","text":{"value":"nested"}},{"type":"image","image_url":{"url":"https://example.org/a.png"}}]}"#),
        line(r#"{"type":"tool_search_call","call_id":"c1","arguments":{"query":"files"}}"#),
        line(r#"{"type":"function_call","name":"view_image","call_id":"c2","arguments":"{\"path\":\"a.png\"}"}"#),
        line(r#"{"type":"function_call_output","call_id":"c2","output":[{"type":"input_image","image_url":"data:image/png;base64,BBBB"}]}"#),
    ]
    .concat();
    let (found, _) = ctx_interop::codex::read(text.as_bytes(), "r.jsonl");
    assert_eq!(found.damage, []);
    let events: Vec<_> = found.events.iter().collect();
    assert_eq!(
        users(&events),
        [
            "look\n[image: image/png, 4 bytes as base64 in r.jsonl:1]",
            "nested\n[image: https://example.org/a.png]"
        ]
    );
    let inputs = events.iter().filter_map(|event| match &event.what {
        What::ToolCall { input, .. } => Some(input.to_string()),
        _ => None,
    });
    assert_eq!(inputs.collect::<Vec<_>>(), [r#"{"query":"files"}"#, r#"{"path":"a.png"}"#]);
    let output = events.iter().find_map(|event| match &event.what {
        What::ToolResult { output, .. } => Some(output.as_str()),
        _ => None,
    });
    assert_eq!(output, Some("[image: image/png, 4 bytes as base64 in r.jsonl:5]"));
    // A count of tokens of another shape costs the tokens, not the answer.
    let line = r#"{"type":"assistant","uuid":"a","message":{"id":"m","role":"assistant","model":"claude","usage":{"input_tokens":"many"},"content":[{"type":"text","text":"yes"}]}}"#;
    let found = ctx_interop::claude::read(line.as_bytes(), "a.jsonl");
    assert_eq!((found.damage.len(), found.messages()), (0, 1));
}

/// What all model calls of a session cost.
fn spent(found: &Transcript) -> ctx_session::record::Usage {
    let records = ctx_interop::records::records(Agent::Codex, found);
    let usage = records.into_iter().filter_map(|made| match made.body {
        Body::Message(MessageBody::AssistantFinished(done)) => done.usage,
        _ => None,
    });
    usage.fold(ctx_session::record::Usage::default(), |sum, usage| sum.plus(usage))
}

#[test]
fn tokens_are_those_that_the_source_counted() {
    // What Codex says itself, with the last count of each file.
    for name in ["codex/tools", "codex-0.50/tools", "codex-0.50/unicode", "codex-0.50/interrupted-sigint"] {
        let (found, _) = case(Agent::Codex, name);
        let path = &crate::support::list(Agent::Codex, &fixtures().join(name).join("files")).entries[0].path;
        let text = std::fs::read_to_string(path).unwrap();
        let mut totals = text.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line.pointer("/payload/info/total_token_usage").filter(|total| total.is_object()).cloned()
        });
        let total = totals.next_back().unwrap();
        let of = |name: &str| total[name].as_u64().unwrap();
        let usage = spent(&found[0]);
        assert_eq!(
            (usage.input, usage.output, usage.cached),
            (of("input_tokens"), of("output_tokens"), of("cached_input_tokens")),
            "{name}"
        );
    }
    let (found, _) = case(Agent::Aider, "aider/large");
    let cost = spent(&found[0]).cost_nano_usd;
    assert!((1_820_000_000..1_840_000_000).contains(&cost), "{cost}: the session says $1.83");
    let line = concat!(
        r#"{"type":"assistant","uuid":"a","message":{"id":"m","role":"assistant","model":"claude","usage":{"input_tokens":100,"output_tokens":7,"#,
        r#""cache_read_input_tokens":5000,"cache_creation_input_tokens":300},"content":[{"type":"text","text":"yes"}]}}"#
    );
    let usage = spent(&ctx_interop::claude::read(line.as_bytes(), "a.jsonl"));
    assert_eq!((usage.input, usage.cached, usage.output), (5400, 5000, 7), "as for our own calls");
}

#[test]
fn tools_of_the_provider_have_their_results() {
    let line = concat!(
        r#"{"type":"assistant","uuid":"a","message":{"id":"m","role":"assistant","model":"claude","content":["#,
        r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"tides"}},"#,
        r#"{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","title":"Tides","url":"https://example.org/"}]},"#,
        r#"{"type":"server_tool_use","id":"s2","name":"web_search","input":{}},"#,
        r#"{"type":"web_search_tool_result","tool_use_id":"s2","content":{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}},"#,
        r#"{"type":"text","text":"found"}]}}"#
    );
    let found = ctx_interop::claude::read(line.as_bytes(), "a.jsonl");
    assert!(found.unknown.is_empty(), "{:?}", found.unknown);
    let results = found.events.iter().filter_map(|event| match &event.what {
        What::ToolResult { id, verdict, output, .. } => Some((id.as_str(), *verdict, output.as_str())),
        _ => None,
    });
    assert_eq!(
        results.collect::<Vec<_>>(),
        [
            ("s1", Verdict::Success, "Tides\nhttps://example.org/"),
            ("s2", Verdict::Failure, "max_uses_exceeded")
        ]
    );
}
