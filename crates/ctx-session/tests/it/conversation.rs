//! The conversation that a log amounts to, and its lines in `messages.jsonl`.

use ctx_session::conversation::{Change, Message, Part, Role, changes};
use ctx_session::{Record, Ulid};
use expect_test::expect;

use crate::log::messages_jsonl;
use crate::records::samples;
use crate::script::scene;
use crate::world::{World, conversation};

fn roles(world: &World) -> Vec<(Role, String)> {
    conversation(&world.records).iter().map(|message| (message.role, message.text())).collect()
}

#[test]
fn lines_of_messages_jsonl_have_the_form_of_the_design() {
    let world = scene(
        "post text=why; progress tool=t1; progress tool-done=t1; progress thought=hm; progress text=so; finish done;
         post at-limit text=never; discard",
    );
    expect![[r#"
        {"seq":1,"id":"01M7EWN2Q8F29T5VQV69ANXJ8B","run":"01M7EWN2Q82452VV4909EC3V37","role":"user","content":[{"type":"text","text":"why"}],"time":"2026-11-15T06:00:01.000Z"}
        {"seq":5,"id":"000000000000000000EG000001","run":"01M7EWN2Q82452VV4909EC3V37","role":"assistant","content":[{"type":"tool_call","call_id":"000000000000000000EG000001","name":"read","input":{"path":"a.rs"}}],"time":"2026-11-15T06:00:02.000Z"}
        {"seq":6,"id":"000000000000000000EG000001","run":"01M7EWN2Q82452VV4909EC3V37","role":"tool","content":[{"type":"tool_result","call_id":"000000000000000000EG000001","status":"ok","text":"fn main() {}"}],"time":"2026-11-15T06:00:03.000Z"}
        {"seq":8,"id":"000000000000000000C4000001","run":"01M7EWN2Q82452VV4909EC3V37","role":"assistant","content":[{"type":"text","text":"so"}],"time":"2026-11-15T06:00:05.000Z"}
        {"seq":11,"id":"01M7EWN8JRE6XN9P6H06TVJ0M1","run":"01M7EWN8JRE6XN9P6H06TVJ0M0","role":"user","content":[{"type":"text","text":"never"}],"time":"2026-11-15T06:00:07.000Z"}
        {"seq":14,"type":"superseded","ids":["01M7EWN8JRE6XN9P6H06TVJ0M1"],"by":"01M7EWN8JRE6XN9P6H06TVJ0M0"}
    "#]]
    .assert_eq(&messages_jsonl(&world.records));
}

fn meaning(change: &Change) -> String {
    match change {
        Change::Said(message) => format!("{:?}: {:?}", message.role, message.text()),
        Change::Superseded { ids, .. } => format!("superseded: {}", ids.len()),
        Change::Restored { ids, .. } => format!("restored: {}", ids.len()),
        Change::Pinned { pinned, .. } => format!("pinned: {pinned}"),
    }
}

#[test]
fn every_kind_of_record_says_what_it_means_for_the_conversation() {
    let mut told = String::new();
    for (seq, body) in samples().into_iter().enumerate() {
        let kind = crate::log::kind(&body);
        let record = Record { seq: seq as u64, time: ctx_session::Timestamp::default(), body };
        let means: Vec<String> = changes(&record).iter().map(meaning).collect();
        let means = if means.is_empty() { "-".to_owned() } else { means.join(", ") };
        told += &format!("{kind}: {means}\n");
    }
    expect![[r#"
        session_meta: -
        session_meta: -
        context: -
        user: User: "why?"
        user: User: "why?"
        user: User: "why?"
        run_created: -
        assistant_started: -
        assistant_finished: Assistant: "line\nline 🦀"
        assistant_finished: Assistant: "line\nline 🦀"
        reasoning_finished: -
        retrying: -
        noticed: -
        tool_started: Assistant: ""
        tool_finished: Tool: "fn main"
        run_finished: -
        cancelled: -
        cancelled: -
        failed: -
        queued_discarded: superseded: 1
        state_changed: -
        state_changed: -
        session_renamed: -
        model_set: -
        model_set: -
        cwd_changed: -
        attached: -
        detached: -
        session_failed: -
        archived: -
        archived: -
        forked: -
        imported: -
        imported: superseded: 1, restored: 1
        import_undone: superseded: 1, restored: 1
        run_created: -
        run_created: -
        run_created: -
        run_finished: -
        system: System: "changed"
        tool_pending: -
        tool_pending: -
        checkpoint_created: -
        checkpoint_created: -
        prompt_edited: -
        checkpoint_resumed: -
        rolled_back: superseded: 2, restored: 1
        rolled_back: -
        compaction: -
        compaction: superseded: 2, System: "they spoke"
        compaction_approved: superseded: 1
        compaction_approved: superseded: 1, System: "they spoke"
        compaction_rejected: -
        compaction_rejected: -
        compaction_flagged: -
        compaction_flagged: -
        compactions_aggregated: -
        approval_requested: -
        approval_requested: -
        approval_settled: -
        approval_settled: -
        approval_settled: -
        subagent_spawned: -
        subagent_spawned: -
        subagent_running: -
        assistant_started: -
        reasoning_finished: -
        assistant_finished: Subagent: "2 tests failed"
        tool_started: Subagent: ""
        tool_finished: Tool: "fn main() {}"
        subagent_exited: -
        subagent_exited: -
        terminal_opened: -
        terminal_opened: -
        terminal_closed: -
        terminal_closed: -
        terminal_reattached: -
        requested: -
        requested: -
        bound: -
        unbound: -
        message_pinned: pinned: true
        message_pinned: pinned: false
    "#]]
    .assert_eq(&told);
}

#[test]
fn a_discarded_message_is_in_the_log_but_not_in_the_conversation() {
    let world = scene("post at-limit text=never; discard; post text=now");
    assert_eq!(roles(&world), [(Role::User, "now".to_owned())]);
    let lines = messages_jsonl(&world.records);
    assert!(lines.contains("never"), "the file is appended to, never rewritten");
}

#[test]
fn a_step_that_only_called_tools_says_nothing_itself() {
    let world = scene("post; progress text=; progress tool=t1; progress tool-done=t1; finish done");
    let roles: Vec<Role> = roles(&world).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
}

#[test]
fn every_tool_call_is_followed_by_its_result_however_the_run_ended() {
    for end in ["finish done", "finish failed", "cancel; finish cancelled", "end", "fail", "restart; recover"]
    {
        let world = scene(&format!("post; progress tool=t1; progress tool=t2; progress tool-done=t2; {end}"));
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        for message in conversation(&world.records).iter() {
            pair(message, &mut calls, &mut results);
        }
        results.sort();
        assert_eq!(calls, results, "{end}");
    }
}

fn pair(message: &Message, calls: &mut Vec<Ulid>, results: &mut Vec<Ulid>) {
    for part in &message.content {
        match part {
            Part::Text { .. } | Part::Image(_) => {}
            Part::ToolCall { call_id, .. } => calls.push(*call_id),
            Part::ToolResult { call_id, .. } => {
                assert!(calls.contains(call_id), "a result before its call");
                results.push(*call_id);
            }
        }
    }
}

#[test]
fn a_line_of_messages_jsonl_reads_back() {
    let world = scene("post; progress tool=t1; progress tool-done=t1; progress text=hi; finish done");
    let read: Vec<Message> =
        messages_jsonl(&world.records).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<Message> =
        conversation(&world.records).iter().map(|message| Message::clone(message)).collect();
    assert_eq!(read, said);
}
