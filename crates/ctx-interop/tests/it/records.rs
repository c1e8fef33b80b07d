//! The records that a session becomes, and the state that replaying them reaches.

use std::collections::HashSet;

use crate::support::{cases, read_all};
use ctx_interop::records::{records, session_id};
use ctx_session::conversation::{Conversation, Role};
use ctx_session::record::{Body, MessageBody, Scope, SessionMeta, ToolBody, ToolStatus};
use ctx_session::{Name, Record, Session, StateName};

fn meta(id: ctx_session::SessionId) -> SessionMeta {
    let json = serde_json::json!({
        "session_id": id, "name": "a", "scope": Scope::Private, "owner": 1000, "agent": "codex",
        "project": "default", "cwd": "/w", "model": "debug:echo", "app": "test"
    });
    serde_json::from_value(json).unwrap()
}

/// Replays the records of a transcript as the log would.
fn replay(
    agent: ctx_interop::Agent,
    found: &ctx_interop::Transcript,
) -> (Session, Conversation, Vec<Record>) {
    let mut session = Session::new(meta(session_id(agent, found)), 0, found.created.unwrap_or_default());
    let mut conversation = Conversation::default();
    let mut all = Vec::new();
    for (seq, made) in (1..).zip(records(agent, found)) {
        let record = Record { seq, time: made.time, body: made.body };
        let line = record.body.to_json();
        let read = Body::decode(record.body.name(), &line);
        assert_eq!(read, ctx_session::record::Decoded::Known(record.body.clone()), "it survives the log");
        session.apply(&record);
        conversation.apply(&record);
        all.push(record);
    }
    (session, conversation, all)
}

#[test]
fn a_replayed_import_is_idle_with_every_run_over() {
    for (agent, label, case, expected) in cases() {
        for found in read_all(agent, &case.join("files")) {
            let (session, _, records) = replay(agent, &found);
            assert_eq!(session.state.name(), StateName::Idle, "{label}");
            assert!(session.runs().all(|run| run.state.is_over()), "{label}");
            assert_eq!(session.open_tools().count(), 0, "{label}");
            let users =
                records.iter().filter(|r| matches!(r.body, Body::Message(MessageBody::User(_)))).count();
            assert_eq!(session.runs().count(), users, "{label}");
            let _ = &expected;
        }
    }
}

#[test]
fn ids_are_unique_and_calls_are_paired() {
    for (agent, label, case, _) in cases() {
        for found in read_all(agent, &case.join("files")) {
            let (_, _, records) = replay(agent, &found);
            let (mut started, mut finished, mut said) = (HashSet::new(), HashSet::new(), HashSet::new());
            for record in &records {
                match &record.body {
                    Body::Tool(ToolBody::Started(tool)) => assert!(started.insert(tool.call_id), "{label}"),
                    Body::Tool(ToolBody::Finished(tool)) => {
                        assert!(finished.insert(tool.call_id), "{label}");
                        assert!(started.contains(&tool.call_id), "{label}");
                    }
                    Body::Message(MessageBody::User(user)) => {
                        assert!(said.insert(user.message_id), "{label}")
                    }
                    Body::Message(MessageBody::AssistantFinished(done)) => {
                        assert!(said.insert(done.message_id), "{label}");
                    }
                    Body::Message(MessageBody::System(note)) => {
                        assert!(note.injected && said.insert(note.message_id), "{label}");
                    }
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn what_nobody_typed_is_not_the_users_word() {
    let (agent, _, case, _) = cases().into_iter().find(|(_, label, ..)| label == "codex/chat-short").unwrap();
    let found = read_all(agent, &case.join("files")).pop().unwrap();
    let (session, conversation, _) = replay(agent, &found);
    let messages = conversation.messages(&session.ledger);
    let of = |role: Role| messages.iter().filter(|message| message.role == role).count();
    assert_eq!((of(Role::User), of(Role::Assistant)), (1, 1));
    assert!(of(Role::System) >= 2, "the program's own context is there, marked");
}

#[test]
fn a_failed_command_is_an_error_and_a_lost_one_interrupted() {
    let (agent, _, case, _) = cases().into_iter().find(|(_, label, ..)| label == "opencode/tools").unwrap();
    let found = read_all(agent, &case.join("files")).pop().unwrap();
    let (_, _, records) = replay(agent, &found);
    let errors = records.iter().filter(|record| {
        matches!(&record.body, Body::Tool(ToolBody::Finished(tool)) if tool.status == ToolStatus::Error)
    });
    assert_eq!(errors.count(), 2);
}

#[test]
fn agents_names_are_names() {
    for agent in ctx_interop::Agent::ALL {
        assert_eq!(Name::new(agent.name()).unwrap().as_str(), agent.name());
    }
}
