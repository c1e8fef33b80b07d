//! The seed's table "Transition side effects", one test per row.
//! Emitting `session.state`, flushing buffers and freezing what runs is the engine's part: it follows every
//! `state_changed`.

use ctx_session::Body;
use ctx_session::record::CheckpointBody;
use expect_test::expect;

use crate::log::messages_jsonl;
use crate::script::{check, play, scene};

#[test]
fn idle_from_running_persists_the_result_and_broadcasts_the_count() {
    check(
        "post; progress text=hi; finish done",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress text=hi: running | assistant_finished | - | done
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
        "#]],
    );
}

#[test]
fn idle_from_queued_cancels_the_pending_run_and_supersedes_the_message() {
    check(
        "post at-limit; discard; cancel r1",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            discard: queued -> idle | queued_discarded, cancelled, state_changed by queued_discarded | - | r1 cancelled
            cancel r1: idle | - | - | r1 cancelled
        "#]],
    );
    let world = scene("post at-limit; discard");
    let last = messages_jsonl(&world.records).lines().last().map(str::to_owned).unwrap();
    assert!(last.contains(r#""type":"superseded""#), "{last}");
}

#[test]
fn running_from_idle_creates_a_run_starts_it_and_broadcasts_the_count() {
    check(
        "post",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        "#]],
    );
}

#[test]
fn running_from_queued_starts_the_pending_run_and_broadcasts_the_count() {
    check(
        "post at-limit; resume",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            resume: queued -> running | context, state_changed by queue_resumed | start r1, broadcast count | m1 r1 running
        "#]],
    );
}

#[test]
fn queued_persists_the_message_and_a_pending_run_and_says_why() {
    let mut world = scene("");
    play(&mut world, "post at-limit");
    let log: String = world.records.iter().map(|r| r.body.to_json() + "\n").collect();
    expect![[r#"
        {"type":"session_meta","session_id":"01KA32G4R0000000000000000S","name":"default","scope":"private","owner":1000,"agent":"coder","project":"demo","cwd":"/work","provider":"debug","model":"debug:echo","client":"cli","app":"ctx 0.1.0"}
        {"type":"user","turn_id":"01M7EWN2Q82452VV4909EC3V37","message_id":"01M7EWN2Q8F29T5VQV69ANXJ8B","text":"hello"}
        {"type":"run_created","turn_id":"01M7EWN2Q82452VV4909EC3V37"}
        {"type":"state_changed","from":"idle","to":"queued","trigger":"concurrency_limit","by":1000,"limit":{"scope":"per_project","running":4,"limit":4}}
    "#]]
    .assert_eq(&log);
}

#[test]
fn paused_captures_the_checkpoint_and_frees_the_slot() {
    check(
        "post; progress tool=t1; pause reason=look",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        progress tool=t1: running | tool_started | - | done
        pause reason=look: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
    "#]],
    );
    let world = scene("post; progress tool=t1; pause reason=look");
    let made = world
        .records
        .iter()
        .rev()
        .find(|r| matches!(r.body, Body::Checkpoint(CheckpointBody::Created(_))))
        .unwrap();
    expect![[r#"{"type":"checkpoint_created","checkpoint_id":"01M7EWN4NRE6XN9P6H06TVJ0M0","turn_id":"01M7EWN2Q82452VV4909EC3V37","created_by":"operator","by":1000,"reason":"look","cursor":"000000000000000000EG000001","prompts":[{"target":"primary","hash":"bb22"}]}"#]].assert_eq(&made.body.to_json());
}

#[test]
fn ended_kills_the_work_closes_the_clients_and_broadcasts_the_count_if_it_was_running() {
    check(
        "attach c1; post; progress tool=t1; end partial",
        expect![[r#"
            attach c1: idle | attached | - | done
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            end partial: running -> ended | assistant_finished, tool_finished, cancelled, detached, state_changed by session_ended | kill r1, close c1 (session_ended), close clients, free name, broadcast count | done
        "#]],
    );
    check(
        "attach c1; post; progress tool=t1; pause; end partial",
        expect![[r#"
        attach c1: idle | attached | - | done
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        progress tool=t1: running | tool_started | - | done
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        end partial: paused -> ended | assistant_finished, tool_finished, cancelled, detached, state_changed by session_ended | kill r1, close c1 (session_ended), close clients, free name | done
    "#]],
    );
    check(
        "attach c1; end",
        expect![[r#"
            attach c1: idle | attached | - | done
            end: idle -> ended | detached, state_changed by session_ended | close c1 (session_ended), close clients, free name | done
        "#]],
    );
    // The clients that came to look at what failed are let go too.
    check(
        "fail; attach c1; end",
        expect![[r#"
            fail: idle -> failed | session_failed, state_changed by session_failed | close clients, free name | done
            attach c1: failed | attached | - | done
            end: failed -> ended | detached, state_changed by session_ended | close c1 (session_ended), close clients | done
        "#]],
    );
}

#[test]
fn failed_kills_the_work_keeps_the_details_closes_the_clients_and_broadcasts_the_count() {
    check(
        "attach c1; post; progress tool=t1; fail partial",
        expect![[r#"
            attach c1: idle | attached | - | done
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            fail partial: running -> failed | assistant_finished, tool_finished, failed, detached, session_failed, state_changed by session_failed | kill r1, close c1 (session_ended), close clients, free name, broadcast count | done
        "#]],
    );
    check(
        "attach c1; post; progress tool=t1; pause; fail partial",
        expect![[r#"
        attach c1: idle | attached | - | done
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        progress tool=t1: running | tool_started | - | done
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        fail partial: paused -> failed | assistant_finished, tool_finished, failed, detached, session_failed, state_changed by session_failed | kill r1, close c1 (session_ended), close clients, free name | done
    "#]],
    );
    check(
        "attach c1; post at-limit; fail",
        expect![[r#"
            attach c1: idle | attached | - | done
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            fail: queued -> failed | failed, detached, session_failed, state_changed by session_failed | close c1 (session_ended), close clients, free name | done
        "#]],
    );
}
