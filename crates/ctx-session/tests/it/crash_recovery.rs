//! What a start finds after a crash, and the seed's failure modes as far as they are rules.

use ctx_session::record::{CheckpointBody, CompactionBody, MessageBody, RunBody, SessionBody, ToolBody};
use ctx_session::{Body, Record, RunState, StateName};
use expect_test::expect;

use crate::log::{messages_jsonl, replay};
use crate::script::{check, play, scene};
use crate::world::{World, recover};

#[test]
fn crash_during_running_fails_the_run_and_leaves_the_session_idle() {
    check(
        "post; progress tool=t1; restart; recover",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            restart: running
            recover: running -> idle | tool_finished, failed, state_changed by crash_recovered | broadcast count | done
        "#]],
    );
    let mut world = scene("post; restart; recover");
    let RunState::Failed(error) = &world.session.runs().next_back().unwrap().state else {
        panic!("not failed")
    };
    assert_eq!((error.code.name(), error.reason.as_str()), ("EINTR", "daemon_crash_during_run"));
    assert!(play(&mut world, "post").starts_with("post: idle -> running"), "the operator goes on");
}

#[test]
fn a_run_with_a_committed_response_is_done() {
    check(
        "post; progress text=whole; restart; recover",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress text=whole: running | assistant_finished | - | done
            restart: running
            recover: running -> idle | run_finished, state_changed by crash_recovered | broadcast count | done
        "#]],
    );
    for unfinished in ["progress text=look calls", "progress text=look calls; progress tool=t1"] {
        let world = scene(&format!("post; {unfinished}; restart; recover"));
        assert!(
            matches!(world.session.runs().next_back().unwrap().state, RunState::Failed(_)),
            "{unfinished}"
        );
    }
}

#[test]
fn no_call_stays_open_when_its_run_is_over() {
    for (script, want) in [
        ("post; progress text=look calls; pause; progress tool=t1,t2; cancel", ["skipped", "skipped"]),
        (
            "post; progress text=look calls; progress tool=t1,t2; finish cancelled",
            ["interrupted", "interrupted"],
        ),
        ("post; progress text=look calls; pause; progress tool=t1,t2; rollback k1", ["skipped", "skipped"]),
        ("post; progress text=look calls; pause; progress tool=t1,t2; end", ["skipped", "skipped"]),
        (
            "post; progress text=look calls; pause; progress tool=t1,t2; resume k1; finish failed",
            ["skipped", "skipped"],
        ),
        (
            "post; progress text=look calls; pause; progress tool=t1,t2; restart; recover; cancel",
            ["skipped", "skipped"],
        ),
    ] {
        let world = scene(script);
        let is_open =
            !world.session.pending_calls().is_empty() || world.session.open_tools().next().is_some();
        assert!(!is_open, "{script}");
        let settled: Vec<&str> = world
            .records
            .iter()
            .filter_map(|record| match &record.body {
                Body::Tool(ToolBody::Finished(tool)) => Some(tool.status.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(settled, want, "{script}");
    }
}

#[test]
fn a_run_whose_end_is_in_the_log_is_not_failed_again() {
    let mut world = scene("post; finish done");
    let last = world.records.pop().unwrap();
    assert!(
        matches!(last.body, Body::Session(SessionBody::StateChanged(_))),
        "damage takes the record that says idle"
    );
    world.restart();
    assert_eq!(world.state(), StateName::Running);
    expect![[r#"
        recover: running -> idle | state_changed by crash_recovered | broadcast count | done
        recover: idle | - | - | ignored
    "#]]
    .assert_eq(&play(&mut world, "recover; recover"));
    assert_eq!(world.session.runs().next_back().unwrap().state, RunState::Done);
}

#[test]
fn queued_survives_a_restart_as_queued_and_can_be_resumed() {
    check(
        "post at-limit; restart; recover; resume",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            restart: queued
            recover: queued | - | - | ignored
            resume: queued -> running | context, state_changed by queue_resumed | start r1, broadcast count | m1 r1 running
        "#]],
    );
}

#[test]
fn paused_survives_a_restart_as_paused_its_tools_are_interrupted_and_the_run_goes_on_from_the_log() {
    check(
        "post; progress tool=t1; ask p1 t1; pause; edit-prompt k1; restart; recover; recover; resume k1; finish done",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            ask p1 t1: running | approval_requested | - | done
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            edit-prompt k1: paused | prompt_edited | - | done
            restart: paused
            recover: paused | approval_settled, tool_finished | - | done
            recover: paused | - | - | ignored
            resume k1: paused -> running | checkpoint_resumed, context, system, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
        "#]],
    );
    let world = scene("post; progress tool=t1; pause; restart; recover");
    assert_eq!(world.session.current_run().map(|run| &run.state), Some(&RunState::Running));
    let result = world.conversation().iter().last().unwrap().text();
    assert_eq!(result, "the daemon stopped before this tool was done");
}

#[test]
fn an_answer_that_was_read_to_its_end_before_the_restart_needs_nothing_more() {
    check(
        "post; pause; progress text=hi; restart; recover; resume k1",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        progress text=hi: paused | assistant_finished | - | done
        restart: paused
        recover: paused | - | - | ignored
        resume k1: paused -> idle | checkpoint_resumed, run_finished, state_changed by checkpoint_resumed | kill r1 | r1 done
    "#]],
    );
}

#[test]
fn a_compaction_that_waits_survives_a_restart_and_can_be_approved_or_rejected() {
    for (last, expected) in [
        ("approve x1", "paused -> running"),
        ("reject x1", "paused -> idle"),
        ("resume k1", "paused -> running"),
    ] {
        let mut world = scene("post; finish done; post; propose x1 gone=m1; restart; recover");
        assert!(play(&mut world, last).contains(expected), "{last}");
    }
}

#[test]
fn idle_ended_and_failed_need_no_recovery() {
    check(
        "recover; post; finish done; restart; recover",
        expect![[r#"
            recover: idle | - | - | ignored
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            restart: idle
            recover: idle | - | - | ignored
        "#]],
    );
    check(
        "end; restart; recover",
        expect![[r#"
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
            restart: ended
            recover: ended | - | - | ignored
        "#]],
    );
    check(
        "fail; restart; recover",
        expect![[r#"
            fail: idle -> failed | session_failed, state_changed by session_failed | close clients, free name | done
            restart: failed
            recover: failed | - | - | ignored
        "#]],
    );
}

#[test]
fn the_connection_of_a_daemon_that_is_gone_is_detached() {
    check(
        "attach c1; restart; recover; attach c2",
        expect![[r#"
            attach c1: idle | attached | - | done
            restart: idle
            recover: idle | detached | - | done
            attach c2: idle | attached | - | done
        "#]],
    );
}

#[test]
fn a_second_crash_in_the_middle_of_recovery_is_harmless() {
    // A command is all in the log or not at all, so a crash falls before or after its records.
    check(
        "post; restart; restart; recover; restart; recover",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            restart: running
            restart: running
            recover: running -> idle | failed, state_changed by crash_recovered | broadcast count | done
            restart: idle
            recover: idle | - | - | ignored
        "#]],
    );
}

#[test]
fn a_log_that_was_taken_up_again_after_a_storage_failure_says_so() {
    check(
        "attach c1; post; recover storage",
        expect![[r#"
            attach c1: idle | attached | - | done
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            recover storage: running -> idle | detached, failed, state_changed by crash_recovered | close c1 (error), broadcast count | done
        "#]],
    );
    let world = scene("post; recover storage");
    let RunState::Failed(error) = &world.session.runs().next_back().unwrap().state else {
        panic!("not failed")
    };
    assert_eq!((error.code.name(), error.reason.as_str()), ("EIO", "storage_failure"));
}

#[test]
fn provider_unreachable_fails_the_run_and_the_operator_retries() {
    check(
        "post; finish failed; post",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish failed: running -> idle | failed, state_changed by run_failed | broadcast count | r1 failed
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
        "#]],
    );
}

#[test]
fn shutdown_keeps_the_partial_text_of_a_run_that_did_not_end_in_time() {
    let world = scene("post; finish failed partial");
    assert!(messages_jsonl(&world.records).contains("so f"));
}

/// Takes away the records of this type, as damage in the middle of a log does.
fn without(world: &World, damaged: impl Fn(&Body) -> bool) -> Vec<Record> {
    world.records.iter().filter(|record| !damaged(&record.body)).cloned().collect()
}

fn opened(records: Vec<Record>) -> World {
    let mut world = World::new();
    world.records = records;
    world.restart();
    world
}

#[test]
fn a_session_whose_running_message_is_damaged_opens_idle_and_its_log_says_so_again() {
    let mut world = opened(without(&scene("post; finish done; post"), |body| {
        matches!(body, Body::Message(MessageBody::User(_)))
    }));
    assert_eq!(world.state(), StateName::Idle);
    expect![[r#"
        recover: idle | state_changed by crash_recovered | broadcast count | done
        recover: idle | - | - | ignored
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
    "#]]
    .assert_eq(&play(&mut world, "recover; recover; post"));
}

#[test]
fn an_earlier_run_never_stands_in_for_a_message_that_is_damaged() {
    for posted in ["post", "post at-limit"] {
        let whole = scene(&format!("post text=first; finish done; {posted} text=second"));
        let mut world = opened(without(
            &whole,
            |body| matches!(body, Body::Message(MessageBody::User(user)) if user.text == "second"),
        ));
        assert_eq!(world.state(), StateName::Idle, "{posted}");
        let told = play(&mut world, "resume; cancel");
        assert!(
            told.contains("no message is queued") && told.contains("cancel: idle | - | - | r1 done"),
            "{told}"
        );
    }
}

#[test]
fn a_run_that_called_a_tool_has_begun_whatever_else_is_damaged() {
    let resumed = scene("post at-limit; resume; progress tool=t1");
    let mut world = opened(without(&resumed, |body| match body {
        Body::Run(RunBody::Context(_)) => true,
        Body::Session(SessionBody::StateChanged(change)) => change.to == StateName::Running,
        _ => false,
    }));
    assert_eq!(world.state(), StateName::Queued);
    expect![[r#"
        recover: queued -> idle | tool_finished, failed, state_changed by crash_recovered | - | done
        resume: refused ENOENT no message is queued in this session
    "#]]
    .assert_eq(&play(&mut world, "recover; resume"));
}

#[test]
fn a_seq_that_is_out_of_all_bounds_opens_too() {
    let mut world = scene("post");
    let absurd = Record { seq: u64::MAX, ..world.records[1].clone() };
    world.session.apply(&absurd);
    assert_eq!(world.session.next_seq, u64::MAX);
}

#[test]
fn a_queued_run_whose_discard_is_damaged_is_not_started_again() {
    let mut world = scene("post at-limit; discard");
    world.records.pop();
    world.restart();
    assert_eq!(world.state(), StateName::Queued);
    expect![[r#"
        recover: queued -> idle | state_changed by crash_recovered | - | done
        resume: refused ENOENT no message is queued in this session
    "#]]
    .assert_eq(&play(&mut world, "recover; resume"));
}

#[test]
fn a_run_that_damage_left_open_in_an_idle_session_is_settled() {
    let mut world = opened(without(&scene("post; progress tool=t1"), |body| {
        matches!(body, Body::Session(SessionBody::StateChanged(_)))
    }));
    assert_eq!(world.state(), StateName::Idle);
    expect![[r#"
        recover: idle | tool_finished, failed | - | done
        recover: idle | - | - | ignored
        cancel r1: idle | - | - | r1 failed
    "#]]
    .assert_eq(&play(&mut world, "recover; recover; cancel r1"));
    assert_eq!(world.session.open_tools().count(), 0);
}

/// Found by `properties::a_damaged_log_opens_recovers_once_and_goes_on`.
#[test]
fn a_run_that_damage_put_an_earlier_one_behind_is_settled_and_not_waited_for() {
    for (waits, goes_on) in [("post; pause", "resume k1"), ("post at-limit", "resume")] {
        let whole = scene(&format!("post text=first; finish done; {waits}"));
        let is_first =
            |body: &Body| matches!(body, Body::Message(MessageBody::User(user)) if user.text == "first");
        let mut records = without(&whole, is_first);
        records.extend(whole.records.iter().filter(|record| is_first(&record.body)).cloned());
        let mut world = opened(records);
        let told = play(&mut world, &format!("recover; {goes_on}; post"));
        assert!(told.contains("-> idle | failed, failed, state_changed by crash_recovered"), "{told}");
        assert!(told.contains(&format!("{goes_on}: refused")), "{told}");
        assert!(told.contains("post: idle -> running"), "{told}");
    }
}

#[test]
fn a_failed_session_whose_reason_is_damaged_is_still_failed() {
    let world =
        opened(without(&scene("post; fail"), |body| matches!(body, Body::Session(SessionBody::Failed(_)))));
    assert_eq!(world.state(), StateName::Failed);
    let mut world =
        opened(without(&scene("fail"), |body| matches!(body, Body::Session(SessionBody::StateChanged(_)))));
    assert_eq!(world.state(), StateName::Failed);
    world.ask(&recover()).unwrap();
    let Some(Body::Session(SessionBody::StateChanged(told))) =
        world.records.last().map(|record| &record.body)
    else {
        panic!("no state_changed")
    };
    assert_eq!(told.to, StateName::Failed, "the newest state_changed tells the state");
}

#[test]
fn a_repeated_line_brings_nothing_back() {
    let world = scene("post id=a; progress tool=t1; finish done; post at-limit; discard");
    for repeated in &world.records[1..] {
        let mut session = replay(&world.records);
        session.apply(repeated);
        let over = session.runs().all(|run| run.state.is_over());
        assert!(over && session.open_tools().count() == 0, "{repeated:?}");
        assert_eq!(session.next_seq, world.session.next_seq, "{repeated:?}");
    }
}

/// What is left of this script when the last `state_changed` is damaged.
fn without_the_last_move(script: &str) -> World {
    let whole = scene(script);
    let last = whole
        .records
        .iter()
        .rposition(|record| matches!(record.body, Body::Session(SessionBody::StateChanged(_))))
        .unwrap();
    let mut records = whole.records.clone();
    records.remove(last);
    opened(records)
}

#[test]
fn a_pause_whose_end_is_damaged_is_over() {
    for (end, run) in [
        ("resume k1", "failed"),
        ("rollback k1", "cancelled"),
        ("cancel", "cancelled"),
        ("progress text=hi; resume k1", "done"),
    ] {
        let mut world = without_the_last_move(&format!("post; pause; {end}"));
        assert_eq!(world.state(), StateName::Paused, "{end}");
        let told = play(&mut world, "recover; recover; post");
        assert!(
            told.contains("recover: paused -> idle") && told.contains("recover: idle | - |"),
            "{end}: {told}"
        );
        assert!(told.contains("post: idle -> running"), "{end}: {told}");
        assert_eq!(world.session.runs().next().unwrap().state.as_str(), run, "{end}");
    }
}

#[test]
fn a_decision_on_a_compaction_whose_move_is_damaged_still_holds() {
    for (end, state) in [("approve x1", "applied"), ("reject x1", "rejected")] {
        let mut world = without_the_last_move(&format!("post; finish done; post; propose x1 gone=m1; {end}"));
        assert!(play(&mut world, "recover").contains("paused -> idle"), "{end}");
        assert_eq!(world.session.control.compactions[0].state.as_str(), state);
        assert!(world.session.runs().all(|run| run.state.is_over()), "{end}");
    }
}

#[test]
fn a_session_whose_checkpoint_is_damaged_is_not_paused() {
    let damaged = |script: &str| {
        opened(without(&scene(script), |body| {
            matches!(
                body,
                Body::Checkpoint(CheckpointBody::Created(_)) | Body::Compaction(CompactionBody::Recorded(_))
            )
        }))
    };
    for script in ["post; pause", "post; propose x1", "post; pause; rollback k1; post; pause"] {
        let mut world = damaged(script);
        assert_eq!(world.state(), StateName::Idle, "{script}");
        play(&mut world, "recover");
        assert!(world.session.runs().all(|run| run.state.is_over()), "{script}");
    }
}
