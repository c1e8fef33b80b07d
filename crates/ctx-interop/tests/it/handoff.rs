//! Handing on: what one agent wrote comes back out of our records as another agent would have written it.

use crate::support::{cases, fixtures, read_all, users};
use ctx_interop::hand_over::hand_over;
use ctx_interop::records::records;
use ctx_interop::write::{Handoff, said};
use ctx_interop::{Agent, Event, Transcript, Verdict, What};
use ctx_session::Record;

fn handoff(agent: Agent, found: &Transcript) -> Handoff {
    let numbered = (1..).zip(records(agent, found));
    let records: Vec<Record> =
        numbered.map(|(seq, made)| Record { seq, time: made.time, body: made.body }).collect();
    Handoff {
        cwd: found.cwd.clone().unwrap_or_else(|| "/home/dev/project".to_owned()),
        title: found.title.clone(),
        branch: found.branch.clone(),
        model: found.model.clone(),
        at: found.created.unwrap(),
        random: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
        events: said(&records),
    }
}

/// Messages, and calls with their inputs, outputs and ends.
fn essence(events: &[Event]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let all: Vec<&Event> = events.iter().collect();
    let line = |event: &&Event| match &event.what {
        What::ToolCall { id, name, input } => Some(format!("{id} {name} {input}")),
        What::ToolResult { id, verdict, .. } => {
            Some(format!("{id} {}", if *verdict == Verdict::Success { "success" } else { "no" }))
        }
        _ => None,
    };
    // Also what was interrupted: not every agent tells it from a whole answer.
    let text = |event: &&Event| match &event.what {
        What::Assistant { text, .. } => Some(text.clone()),
        _ => None,
    };
    let users = users(&all).into_iter().map(str::to_owned).collect();
    (users, all.iter().filter_map(text).collect(), all.iter().filter_map(line).collect())
}

#[test]
fn round_trips_keep_every_message_and_tool_call() {
    for (agent, label, case, _) in cases() {
        if !matches!(agent, Agent::Codex | Agent::Claude) {
            continue;
        }
        for found in read_all(agent, &case.join("files")) {
            let home = tempfile::tempdir().unwrap();
            let handed = hand_over(agent, home.path(), &handoff(agent, &found)).unwrap();
            let back = read_all(agent, home.path()).pop().unwrap();
            assert_eq!(back.native_id, handed.id, "{label}");
            assert_eq!(back.damage, [], "{label}");
            assert!(back.unknown.is_empty(), "{label}: {:?}", back.unknown);
            let (mut before, after) = (essence(&found.events), essence(&back.events));
            // A call that was never answered is answered now, so that a provider takes it.
            before.2.extend(unanswered(&found.events));
            before.2.sort();
            let mut calls = after.2.clone();
            calls.sort();
            assert_eq!((before.0, before.1, before.2), (after.0, after.1, calls), "{label}");
        }
    }
}

fn unanswered(events: &[Event]) -> Vec<String> {
    let results: Vec<&str> = events
        .iter()
        .filter_map(|event| match &event.what {
            What::ToolResult { id, .. } => Some(id.as_str()),
            _ => None,
        })
        .collect();
    let open = |event: &Event| match &event.what {
        What::ToolCall { id, .. } if !results.contains(&id.as_str()) => Some(format!("{id} no")),
        _ => None,
    };
    events.iter().filter_map(open).collect()
}

#[test]
fn every_agents_sessions_can_be_handed_on_to_every_other() {
    for (agent, label, case, _) in cases() {
        if label.contains("large") {
            continue;
        }
        for found in read_all(agent, &case.join("files")) {
            for target in [Agent::Codex, Agent::Claude, Agent::Opencode] {
                let home = tempfile::tempdir().unwrap();
                let store = home.path().join(".local/share/opencode");
                std::fs::create_dir_all(&store).unwrap();
                let database = "opencode/chat-short/files/.local/share/opencode/opencode.db";
                std::fs::copy(fixtures().join(database), store.join("opencode.db")).unwrap();
                let handed = hand_over(target, home.path(), &handoff(agent, &found)).unwrap();
                let back = read_all(target, home.path());
                let back = back.iter().find(|back| back.native_id == handed.id).expect(&label);
                let (before, after) = (essence(&found.events), essence(&back.events));
                assert_eq!(before.1, after.1, "{label} to {target}");
                let calls = |lines: &[String]| lines.iter().filter(|line| line.ends_with("success")).count();
                assert_eq!(calls(&before.2), calls(&after.2), "{label} to {target}");
                let is_compacted =
                    found.events.iter().any(|event| matches!(event.what, What::Compaction { .. }));
                assert!(before.0 == after.0 || is_compacted, "{label} to {target}");
            }
        }
    }
}

#[test]
fn a_store_that_is_not_there_is_not_made_up() {
    let (agent, _, case, _) = cases().into_iter().find(|(_, label, ..)| label == "codex/tools").unwrap();
    let found = read_all(agent, &case.join("files")).pop().unwrap();
    let home = tempfile::tempdir().unwrap();
    let error = hand_over(Agent::Opencode, home.path(), &handoff(agent, &found)).unwrap_err();
    assert!(error.to_string().contains("start opencode once"), "{error}");
    assert!(hand_over(Agent::Goose, home.path(), &handoff(agent, &found)).is_err());
}
