//! What a start finds after a crash, and the seed's failure modes as far as they are rules.

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
fn a_run_whose_end_is_in_the_log_is_not_failed_again() {
    let mut world = scene("post; finish done");
    let last = world.records.pop().unwrap();
    assert!(matches!(last.body, Body::StateChanged(_)), "damage takes the record that says idle");
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
    let mut world = opened(without(&scene("post; finish done; post"), |body| matches!(body, Body::User(_))));
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
        let mut world =
            opened(without(&whole, |body| matches!(body, Body::User(user) if user.text == "second")));
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
        Body::Context(_) => true,
        Body::StateChanged(change) => change.to == StateName::Running,
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
    let mut world =
        opened(without(&scene("post; progress tool=t1"), |body| matches!(body, Body::StateChanged(_))));
    assert_eq!(world.state(), StateName::Idle);
    expect![[r#"
        recover: idle | tool_finished, failed | - | done
        recover: idle | - | - | ignored
        cancel r1: idle | - | - | r1 failed
    "#]]
    .assert_eq(&play(&mut world, "recover; recover; cancel r1"));
    assert_eq!(world.session.open_tools().count(), 0);
}

#[test]
fn a_failed_session_whose_reason_is_damaged_is_still_failed() {
    let world = opened(without(&scene("post; fail"), |body| matches!(body, Body::SessionFailed(_))));
    assert_eq!(world.state(), StateName::Failed);
    let mut world = opened(without(&scene("fail"), |body| matches!(body, Body::StateChanged(_))));
    assert_eq!(world.state(), StateName::Failed);
    world.ask(&recover()).unwrap();
    let Some(Body::StateChanged(told)) = world.records.last().map(|record| &record.body) else {
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
