//! The seed's table "Run states" and its section "Cancellation".

use ctx_session::command::{Outcome, Partial};
use ctx_session::record::{FinishReason, MessageBody, RunBody, ToolBody};
use ctx_session::{Body, Command, RunState};
use expect_test::expect;

use crate::log::messages_jsonl;
use crate::script::{check, scene};
use crate::world::{OWNER, World, message};

fn run_state(script: &str) -> &'static str {
    let world = scene(script);
    world.session.runs().next_back().map_or("none", |run| run.state.as_str())
}

#[test]
fn pending_is_a_run_whose_message_is_saved_and_whose_work_has_not_begun() {
    let world = scene("post at-limit");
    let run = world.session.runs().next_back().unwrap();
    assert_eq!(run.state, RunState::Pending);
    assert_eq!((run.started_at, run.completed_at), (None, None));
}

#[test]
fn running_is_a_run_that_is_worked_on() {
    let world = scene("post at-limit; resume");
    let run = world.session.runs().next_back().unwrap();
    assert_eq!(run.state, RunState::Running);
    assert!(run.started_at > Some(run.created_at), "it waited in the queue before");
}

#[test]
fn done_is_a_run_that_completed() {
    assert_eq!(run_state("post; finish done"), "done");
}

#[test]
fn failed_is_a_run_that_met_an_error_and_says_which() {
    let world = scene("post; finish failed");
    let RunState::Failed(failure) = &world.session.runs().next_back().unwrap().state else {
        panic!("not failed")
    };
    assert_eq!((failure.code.name(), failure.reason.as_str()), ("EHOSTDOWN", "provider_unreachable"));
}

#[test]
fn cancelled_is_a_run_that_was_stopped_midway_or_never_let_go() {
    assert_eq!(run_state("post; cancel; finish cancelled"), "cancelled");
    assert_eq!(run_state("post at-limit; discard"), "cancelled");
    assert_eq!(run_state("post; end"), "cancelled");
    assert_eq!(run_state("post at-limit; end"), "cancelled");
}

#[test]
fn a_run_that_is_over_never_changes_again() {
    check(
        "post; finish done; finish failed r1; finish cancelled r1; cancel r1; progress r1 text=late",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            finish failed r1: idle | - | - | r1 done
            finish cancelled r1: idle | - | - | r1 done
            cancel r1: idle | - | - | r1 done
            progress r1 text=late: idle | - | - | ignored
        "#]],
    );
    check(
        "post; finish failed; finish done r1; cancel r1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish failed: running -> idle | failed, state_changed by run_failed | broadcast count | r1 failed
            finish done r1: idle | - | - | r1 failed
            cancel r1: idle | - | - | r1 failed
        "#]],
    );
}

#[test]
fn a_pending_run_cannot_finish_or_make_progress() {
    check(
        "post at-limit; finish done; finish failed; progress text=early",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            finish done: queued | - | - | ignored
            finish failed: queued | - | - | ignored
            progress text=early: queued | - | - | ignored
        "#]],
    );
}

#[test]
fn progress_and_ends_of_an_older_run_do_not_touch_the_newer_one() {
    check(
        "post; finish done; post; progress r1 text=late; finish done r1; finish done r2",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
            progress r1 text=late: running | - | - | ignored
            finish done r1: running | - | - | r1 done
            finish done r2: running -> idle | run_finished, state_changed by run_completed | broadcast count | r2 done
        "#]],
    );
}

#[test]
fn cancel_stops_the_work_and_its_end_brings_the_session_to_idle() {
    check(
        "post; progress tool=t1; cancel; finish cancelled partial",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            cancel: running | - | stop r1 (operator by 1000) | r1 running
            finish cancelled partial: running -> idle | assistant_finished, tool_finished, cancelled, state_changed by run_cancelled | broadcast count | r1 cancelled
        "#]],
    );
}

#[test]
fn cancel_keeps_the_partial_output_marked_as_cancelled() {
    let world = scene("post; progress; cancel; finish cancelled partial");
    let kept = world.records.iter().find_map(|record| match &record.body {
        Body::Message(MessageBody::AssistantFinished(message)) => {
            Some(record.body.to_json()).filter(|_| message.text == "so f")
        }
        _ => None,
    });
    expect![[r#"{"type":"assistant_finished","turn_id":"01M7EWN2Q82452VV4909EC3V37","message_id":"000000000000000000C4000001","text":"so f","finish_reason":"cancelled"}"#]]
    .assert_eq(&kept.unwrap());
    assert!(messages_jsonl(&world.records).contains("so f"));
}

/// The reasons that assistant messages of this log ended with.
fn finish_reasons(world: &World) -> Vec<FinishReason> {
    let reasons = world.records.iter().filter_map(|record| match &record.body {
        Body::Message(MessageBody::AssistantFinished(message)) => Some(message.finish_reason),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn text_that_was_cut_off_says_by_what() {
    for (end, reason) in [
        ("finish cancelled partial", FinishReason::Cancelled),
        ("finish failed partial", FinishReason::Error),
        ("finish done partial", FinishReason::Stop),
        ("end partial", FinishReason::Cancelled),
        ("fail partial", FinishReason::Error),
    ] {
        assert_eq!(finish_reasons(&scene(&format!("post; {end}"))), [reason], "{end}");
    }
}

#[test]
fn a_message_of_which_nothing_was_said_yet_leaves_no_trace() {
    let mut world = scene("post");
    let partial = Some(Partial { message_id: message("a1"), text: String::new() });
    world.ask(&Command::FinishRun { run: world.run(), outcome: Outcome::Done, partial }).unwrap();
    assert_eq!(finish_reasons(&world), []);
}

#[test]
fn cancel_twice_or_after_the_end_answers_with_the_state() {
    check(
        "post; cancel; cancel; finish cancelled; cancel; end; cancel r1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            cancel: running | - | stop r1 (operator by 1000) | r1 running
            cancel: running | - | stop r1 (operator by 1000) | r1 running
            finish cancelled: running -> idle | cancelled, state_changed by run_cancelled | broadcast count | r1 cancelled
            cancel: idle | - | - | r1 cancelled
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
            cancel r1: ended | - | - | r1 cancelled
        "#]],
    );
}

#[test]
fn cancel_and_completion_at_once_give_one_end() {
    let ends = |script: &str| {
        let world = scene(script);
        world.records.iter().filter(|record| is_end(&record.body)).count()
    };
    check(
        "post; cancel; finish done; finish cancelled r1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            cancel: running | - | stop r1 (operator by 1000) | r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            finish cancelled r1: idle | - | - | r1 done
        "#]],
    );
    assert_eq!(ends("post; cancel; finish done; finish cancelled r1"), 1);
    assert_eq!(ends("post; cancel; finish cancelled; finish done r1"), 1);
    assert_eq!(ends("post; end; finish cancelled r1; finish done r1"), 1);
}

pub fn is_end(body: &Body) -> bool {
    matches!(body, Body::Run(RunBody::Finished(_) | RunBody::Cancelled(_) | RunBody::Failed(_)))
}

#[test]
fn cancel_of_a_queued_run_discards_its_message() {
    check(
        "post at-limit; cancel",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            cancel: queued -> idle | queued_discarded, cancelled, state_changed by queued_discarded | - | r1 cancelled
        "#]],
    );
    // A temp session whose last connection went: nobody asked, so it is the owner's doing.
    check(
        "post at-limit; cancel disconnected",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            cancel disconnected: queued -> idle | queued_discarded, cancelled, state_changed by queued_discarded | - | r1 cancelled
        "#]],
    );
    let log = messages_jsonl(&scene("post at-limit; cancel").records);
    assert!(log.contains("superseded"), "{log}");
    let world = scene("post at-limit; cancel disconnected");
    let by = world.records.iter().find_map(|record| match &record.body {
        Body::Run(RunBody::QueuedDiscarded(discarded)) => Some(discarded.by),
        _ => None,
    });
    assert_eq!(by, Some(OWNER));
}

#[test]
fn cancel_of_a_run_that_is_not_of_this_session_is_refused() {
    check(
        "cancel r77; end; cancel r77",
        expect![[r#"
            cancel r77: refused ENOENT no run 000000000000000000E800002D in this session
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
            cancel r77: refused ENOENT no run 000000000000000000E800002D in this session
        "#]],
    );
}

#[test]
fn tools_that_were_open_are_settled_with_the_run() {
    for end in ["finish done", "finish failed", "finish cancelled", "end", "fail", "recover"] {
        let world = scene(&format!("post; progress tool=t1; progress tool=t2; progress tool-done=t1; {end}"));
        // Nobody worked on it between its last record and the recovery.
        let lasted = if end == "recover" { 1000 } else { 2000 };
        let open = format!("t2 Interrupted after {lasted} ms");
        assert_eq!(tools(&world), ["t1 Ok after 5 ms", open.as_str()], "{end}");
        assert_eq!(world.session.open_tools().count(), 0, "{end}");
    }
}

fn tools(world: &World) -> Vec<String> {
    let ends = world.records.iter().filter_map(|record| match &record.body {
        Body::Tool(ToolBody::Finished(tool)) => {
            let name = world.name_of(tool.call_id.0);
            Some(format!("{name} {:?} after {} ms", tool.status, tool.duration_ms))
        }
        _ => None,
    });
    ends.collect()
}

#[test]
fn a_tool_starts_once_and_ends_once() {
    check(
        "post; progress tool-done=t1; progress tool=t1; progress tool=t1; progress tool-done=t1; progress tool-done=t1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool-done=t1: refused ENOENT no tool call 000000000000000000EG000001 is open in this run
            progress tool=t1: running | tool_started | - | done
            progress tool=t1: refused EEXIST tool call 000000000000000000EG000001 has started already
            progress tool-done=t1: running | tool_finished | - | done
            progress tool-done=t1: refused ENOENT no tool call 000000000000000000EG000001 is open in this run
        "#]],
    );
}

#[test]
fn time_in_the_queue_is_not_time_of_the_run() {
    let world = scene("post at-limit; set_model x:y; resume; progress; finish done");
    let ended = world.records.iter().find_map(|record| match &record.body {
        Body::Run(RunBody::Finished(end)) => Some(end.duration_ms),
        _ => None,
    });
    assert_eq!(ended, Some(2_000));
    let world = scene("post at-limit; set_model x:y; end");
    let Some(Body::Run(RunBody::Cancelled(end))) =
        world.records.iter().map(|r| &r.body).find(|body| is_end(body))
    else {
        panic!("no end")
    };
    assert_eq!(end.duration_ms, 0);
}
