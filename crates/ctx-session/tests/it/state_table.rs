//! The seed's table "States": what an operator can do in each, and whether work is going on.
//! Viewing the history needs no rule.

use ctx_session::{RunState, State, StateName, Timestamp};
use expect_test::expect;

use crate::script::{check, play, scene};

#[test]
fn idle_awaits_input_post_a_message_or_end_it() {
    check(
        "post; finish done; end",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
        "#]],
    );
    assert!(scene("").session.current_run().is_none(), "no work is happening");
}

#[test]
fn running_works_cancel_the_run_or_end_the_session() {
    check(
        "post; cancel; end",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            cancel: running | - | stop r1 (operator by 1000) | r1 running
            end: running -> ended | cancelled, state_changed by session_ended | kill r1, close clients, free name, broadcast count | done
        "#]],
    );
    let world = scene("post");
    assert_eq!(world.session.current_run().map(|run| &run.state), Some(&RunState::Running));
}

#[test]
fn queued_keeps_the_message_resume_discard_or_end() {
    check(
        "post at-limit; resume; finish done; post at-limit; discard; post at-limit; end",
        expect![[r#"
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m1 r1 pending
            resume: queued -> running | context, state_changed by queue_resumed | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m2 r2 pending
            discard: queued -> idle | queued_discarded, cancelled, state_changed by queued_discarded | - | r2 cancelled
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m3 r3 pending
            end: queued -> ended | cancelled, state_changed by session_ended | close clients, free name | done
        "#]],
    );
    let world = scene("post at-limit");
    assert_eq!(world.session.current_run().map(|run| &run.state), Some(&RunState::Pending));
    let State::Queued { limit: Some(limit), .. } = &world.session.state else {
        panic!("{:?}", world.session.state)
    };
    assert_eq!((limit.running, limit.limit), (4, 4), "why it waits is kept");
}

#[test]
fn paused_is_at_a_checkpoint_edit_prompts_resume_roll_back_or_end() {
    check(
        "post; pause; edit-prompt k1; resume k1; pause; rollback k2; post; pause; end",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            edit-prompt k1: paused | prompt_edited | - | done
            resume k1: paused -> running | checkpoint_resumed, context, system, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k2
            rollback k2: paused -> idle | cancelled, rolled_back, state_changed by rolled_back | kill r1 | k2
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k3
            end: paused -> ended | cancelled, state_changed by session_ended | kill r2, close clients, free name | done
        "#]],
    );
    let world = scene("post; progress tool=t1; pause");
    assert_eq!(world.session.current_run().map(|run| &run.state), Some(&RunState::Running), "it stays open");
    let checkpoint = world.session.paused_at().unwrap();
    assert_eq!(checkpoint.created.turn_id, world.run());
    assert_eq!(world.session.open_tools().count(), 1, "what was going on is held, not lost");
}

#[test]
fn ended_is_terminal() {
    check(
        "end; post; resume; discard; set_model x:y; bind i1; unbind; compact; end; fail",
        expect![[r#"
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
            post: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
            resume: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
            discard: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
            set_model x:y: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
            bind i1: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
            unbind: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
            compact: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
            end: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
            fail: ended | - | - | ignored
        "#]],
    );
    assert!(scene("end").session.ended_at.is_some());
}

#[test]
fn failed_is_terminal_and_tells_why() {
    check(
        "fail; post; resume; discard; set_model x:y; bind i1; unbind; compact; fail; end",
        expect![[r#"
            fail: idle -> failed | session_failed, state_changed by session_failed | close clients, free name | done
            post: refused ESHUTDOWN the session has failed; send a message under another name to start a new one
            resume: refused ESHUTDOWN the session has failed; send a message under another name to start a new one
            discard: refused ESHUTDOWN the session has failed; send a message under another name to start a new one
            set_model x:y: refused ESHUTDOWN the session has failed; send a message under another name to start a new one
            bind i1: refused ESHUTDOWN the session has failed; send a message under another name to start a new one
            unbind: refused ESHUTDOWN the session has failed; send a message under another name to start a new one
            compact: refused ESHUTDOWN the session has failed; send a message under another name to start a new one
            fail: failed | - | - | ignored
            end: failed -> ended | state_changed by session_ended | close clients | done
        "#]],
    );
    let State::Failed(failure) = scene("fail").session.state else { panic!("not failed") };
    assert_eq!((failure.code.name(), failure.reason.as_str()), ("EIO", "storage_failure"));
}

#[test]
fn the_state_file_has_four_words_and_the_log_has_one_per_state() {
    let words = StateName::ALL.map(|state| {
        let in_log = serde_json::to_value(state).unwrap();
        assert_eq!(in_log, state.as_str());
        assert_eq!(serde_json::from_value::<StateName>(in_log).unwrap(), state);
        format!("{state}: {}", state.file_word())
    });
    assert_eq!(
        words,
        ["idle: idle", "running: active", "queued: active", "paused: active", "ended: done", "failed: error"]
    );
}

#[test]
fn times_of_a_session_never_go_back_with_the_clock() {
    let mut world = scene("post; finish done");
    let updated = world.session.updated_at;
    world.now = Timestamp::default();
    play(&mut world, "rename late; end");
    assert_eq!((world.session.updated_at, world.session.created_at <= updated), (updated, true));
}
