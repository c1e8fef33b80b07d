//! The seed's table "Transitions": one test per row, and every row that is not there is refused.

use ctx_session::record::SessionBody;
use ctx_session::rules::create;
use ctx_session::{Answer, Decision, Session, State, StateName, Timestamp};
use expect_test::expect;

use crate::pairs::{ROWS, SCENES, ask, set};
use crate::script::check;
use crate::world::new_session;

#[test]
fn none_to_idle_when_a_session_is_created() {
    let Decision { records, effects, answer } = create(new_session());
    let [ctx_session::Body::Session(SessionBody::Meta(meta))] = records.as_slice() else {
        panic!("{records:?}")
    };
    assert!(effects.is_empty() && answer == Answer::Done);
    assert_eq!(Session::new((**meta).clone(), 0, Timestamp::default()).state, State::Idle);
}

#[test]
fn idle_to_running_when_a_message_is_posted_under_the_limit() {
    check(
        "post",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        "#]],
    );
}

#[test]
fn idle_to_queued_when_a_message_is_posted_at_the_limit() {
    check(
        "post at-limit",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
        "#]],
    );
}

#[test]
fn queued_to_running_when_resumed_with_a_slot() {
    check(
        "post at-limit; resume",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            resume: queued -> running | context, state_changed by queue_resumed | start r1, broadcast count | m1 r1 running
        "#]],
    );
}

#[test]
fn queued_stays_queued_when_resumed_without_a_slot() {
    check(
        "post at-limit; resume at-limit; resume at-operator-limit",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            resume at-limit: refused EBUSY 4 of 4 runs in this project are busy; wait for one to end, or cancel one
            resume at-operator-limit: refused EBUSY 16 of 16 runs of this operator are busy; wait for one to end, or cancel one
        "#]],
    );
}

#[test]
fn queued_to_idle_when_the_queued_message_is_discarded() {
    check(
        "post at-limit; discard",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            discard: queued -> idle | queued_discarded, cancelled, state_changed by queued_discarded | - | r1 cancelled
        "#]],
    );
}

#[test]
fn running_to_idle_when_the_run_completes() {
    check(
        "post; finish done",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
        "#]],
    );
}

#[test]
fn running_to_idle_when_the_run_fails() {
    check(
        "post; finish failed",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish failed: running -> idle | failed, state_changed by run_failed | broadcast count | r1 failed
        "#]],
    );
}

#[test]
fn running_to_idle_when_the_run_is_cancelled() {
    check(
        "post; cancel; finish cancelled",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            cancel: running | - | stop r1 (operator by 1000) | r1 running
            finish cancelled: running -> idle | cancelled, state_changed by run_cancelled | broadcast count | r1 cancelled
        "#]],
    );
}

#[test]
fn running_to_paused_when_a_checkpoint_is_asked_for() {
    check(
        "post; pause; post; progress tool=t1; model-pause t1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            post: refused EBUSY the session is paused; resume it or roll it back first
            progress tool=t1: paused | tool_pending | - | held
            model-pause t1: paused | - | - | ignored
        "#]],
    );
    check(
        "post; progress tool=t1; model-pause t1 reason=why",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            model-pause t1 reason=why: running -> paused | tool_finished, checkpoint_created, state_changed by checkpoint | broadcast count | k1
        "#]],
    );
    check(
        "pause; post at-limit; pause",
        expect![[r#"
        pause: refused EBUSY nothing is running in this session; only a run can be paused
        post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
        pause: refused EBUSY nothing is running in this session; only a run can be paused
    "#]],
    );
}

#[test]
fn paused_to_running_when_the_current_pause_point_is_resumed() {
    check(
        "post; pause; resume k1; pause; resume k1; resume k2",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        resume k1: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k2
        resume k1: refused EBUSY the session is paused at checkpoint 01M7EWN5N0C2CYRV6Q6RYAB1BN, not at this one
        resume k2: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
    "#]],
    );
}

#[test]
fn paused_to_running_by_a_rollback_and_a_new_message() {
    check(
        "post; pause; rollback k1; post",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        rollback k1: paused -> idle | cancelled, rolled_back, state_changed by rolled_back | kill r1 | k1
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
    "#]],
    );
}

#[test]
fn paused_to_idle_when_it_is_resumed_with_no_pending_work() {
    check(
        "post; pause; progress text=hi; resume k1",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        progress text=hi: paused | assistant_finished | - | done
        resume k1: paused -> idle | checkpoint_resumed, run_finished, state_changed by checkpoint_resumed | kill r1 | r1 done
    "#]],
    );
    // Nothing starts, so it takes no slot.
    check(
        "post; pause; progress text=hi; finish done; resume k1 at-limit",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        progress text=hi: paused | assistant_finished | - | done
        finish done: paused | - | - | held
        resume k1 at-limit: paused -> idle | checkpoint_resumed, run_finished, state_changed by checkpoint_resumed | kill r1 | r1 done
    "#]],
    );
}

#[test]
fn any_except_ended_to_ended_when_the_operator_ends_it() {
    check(
        "end",
        expect![[r#"
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
        "#]],
    );
    check(
        "post; end",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            end: running -> ended | cancelled, state_changed by session_ended | kill r1, close clients, free name, broadcast count | done
        "#]],
    );
    check(
        "post at-limit; end",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            end: queued -> ended | cancelled, state_changed by session_ended | close clients, free name | done
        "#]],
    );
    check(
        "post; pause; end",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        end: paused -> ended | cancelled, state_changed by session_ended | kill r1, close clients, free name | done
    "#]],
    );
    check(
        "post; propose x1; end",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            propose x1: running -> paused | compaction, checkpoint_created, run_finished, state_changed by checkpoint | kill r1, broadcast count | k1
            end: paused -> ended | compaction_rejected, state_changed by session_ended | close clients, free name | done
        "#]],
    );
    check(
        "fail; end; end",
        expect![[r#"
            fail: idle -> failed | session_failed, state_changed by session_failed | close clients, free name | done
            end: failed -> ended | state_changed by session_ended | close clients | done
            end: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
        "#]],
    );
}

#[test]
fn any_except_ended_to_failed_on_an_unrecoverable_error() {
    check(
        "fail",
        expect![[r#"
            fail: idle -> failed | session_failed, state_changed by session_failed | close clients, free name | done
        "#]],
    );
    check(
        "post; fail",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            fail: running -> failed | failed, session_failed, state_changed by session_failed | kill r1, close clients, free name, broadcast count | done
        "#]],
    );
    check(
        "post at-limit; fail",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            fail: queued -> failed | failed, session_failed, state_changed by session_failed | close clients, free name | done
        "#]],
    );
    check(
        "post; pause; fail",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        fail: paused -> failed | failed, session_failed, state_changed by session_failed | kill r1, close clients, free name | done
    "#]],
    );
    check(
        "end; fail",
        expect![[r#"
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
            fail: ended | - | - | ignored
        "#]],
    );
}

#[test]
fn every_row_that_is_not_there_is_refused() {
    let mut found = Vec::new();
    for at in SCENES {
        for row in ROWS {
            let mut world = set(at);
            let _ = ask(&mut world, row);
            if world.state() != at.state {
                found.push((at.state, world.state()));
            }
        }
    }
    use StateName::{Ended, Failed, Idle, Paused, Queued, Running};
    let rows = [
        (Idle, Running),
        (Idle, Queued),
        (Queued, Running),
        (Queued, Idle),
        (Running, Idle),
        (Running, Paused),
        (Paused, Running),
        (Paused, Idle),
        (Idle, Ended),
        (Running, Ended),
        (Queued, Ended),
        (Paused, Ended),
        (Failed, Ended),
        (Idle, Failed),
        (Running, Failed),
        (Queued, Failed),
        (Paused, Failed),
    ];
    for transition in &found {
        assert!(rows.contains(transition), "{transition:?} is in no row of the seed's table");
    }
    for row in &rows {
        assert!(found.contains(row), "{row:?} cannot be reached by any command");
    }
}

#[test]
fn two_messages_at_once_one_wins_and_one_gets_a_conflict() {
    check(
        "post id=a; post id=b",
        expect![[r#"
            post id=a: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            post id=b: refused EBUSY the session is running; cancel the run or wait
        "#]],
    );
}
