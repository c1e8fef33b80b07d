//! Approvals: a tool call that waits for the operator.

use ctx_session::control::{Approval, ApprovalClock};
use ctx_session::record::ApprovalOutcome;
use ctx_session::{Code, StateName};
use expect_test::expect;

use crate::log::replay;
use crate::script::{check, play, scene};
use crate::world::{OWNER, World};

fn newest(world: &World) -> &Approval {
    world.session.control.approvals.last().unwrap()
}

fn outcome(world: &World) -> (ApprovalOutcome, Option<u32>) {
    let (settled, _) = newest(world).settled.as_ref().unwrap();
    (settled.outcome, settled.by)
}

#[test]
fn whoever_answers_first_decides() {
    check(
        "post; progress tool=t1; ask p1 t1; allow p1 note=fine; deny p1; allow p1; expire p1; allow p9; expire p9",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            ask p1 t1: running | approval_requested | - | done
            allow p1 note=fine: running | approval_settled | tell of p1 | done
            deny p1: refused EBUSY this approval was already answered: allow
            allow p1: refused EBUSY this approval was already answered: allow
            expire p1: running | - | - | ignored
            allow p9: refused ENOENT no approval 000000000000000000E0000009 in this session
            expire p9: running | - | - | ignored
        "#]],
    );
    assert_eq!(
        outcome(&scene("post; progress tool=t1; ask p1 t1; allow p1")),
        (ApprovalOutcome::Allow, Some(OWNER))
    );
    assert_eq!(
        outcome(&scene("post; progress tool=t1; ask p1 t1; deny p1")),
        (ApprovalOutcome::Deny, Some(OWNER))
    );
}

#[test]
fn nobody_in_time_means_no() {
    let world = scene("post; progress tool=t1; ask p1 t1; expire p1");
    assert_eq!(outcome(&world), (ApprovalOutcome::Timeout, None));
    assert_eq!(world.session.open_tools().count(), 1, "the loop tells the model");
}

/// Every command of a script takes a second.
#[test]
fn its_time_stands_still_while_the_session_is_paused() {
    let mut world = scene("post; progress tool=t1; ask p1 t1");
    let asked = newest(&world).asked.expires_at.as_millis();
    let left = asked - world.now.as_millis();
    assert_eq!(newest(&world).clock, ApprovalClock::Until(newest(&world).asked.expires_at));
    play(&mut world, "pause; rename other");
    assert_eq!(newest(&world).clock, ApprovalClock::Left(left - 1_000), "one second went before the pause");
    play(&mut world, "resume k1");
    let expires = |world: &World| newest(world).clock.expires_at().map(|time| time.as_millis());
    assert_eq!(expires(&world), Some(asked + 2_000), "two went during it");
    play(&mut world, "pause; resume k2");
    assert_eq!(expires(&world), Some(asked + 3_000));
    play(&mut world, "allow p1; pause; resume k3");
    assert_eq!(expires(&world), Some(asked + 3_000), "an answered one has no clock");
}

#[test]
fn only_an_open_call_asks_and_once_at_a_time() {
    check(
        "post; ask p1 t1; progress tool=t1; ask p1 t1; ask p2 t1; ask p1 t1; allow p1; ask p1 t1; ask p2 t1; finish done; ask p3 t1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            ask p1 t1: refused ENOENT no tool call 000000000000000000EG000001 is open in this run
            progress tool=t1: running | tool_started | - | done
            ask p1 t1: running | approval_requested | - | done
            ask p2 t1: refused EEXIST tool call 000000000000000000EG000001 waits for an approval already
            ask p1 t1: refused EEXIST tool call 000000000000000000EG000001 waits for an approval already
            allow p1: running | approval_settled | tell of p1 | done
            ask p1 t1: refused EEXIST tool call 000000000000000000EG000001 waits for an approval already
            ask p2 t1: running | approval_requested | - | done
            finish done: running -> idle | approval_settled, tool_finished, run_finished, state_changed by run_completed | broadcast count | r1 done
            ask p3 t1: idle | - | - | ignored
        "#]],
    );
}

#[test]
fn while_paused_its_clock_stands_still_and_nobody_answers() {
    check(
        "post; progress tool=t1; ask p1 t1; pause; expire p1; allow p1; resume k1; allow p1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            ask p1 t1: running | approval_requested | - | done
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            expire p1: paused | - | - | held
            allow p1: refused EBUSY the session is paused; resume it, then answer
            resume k1: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
            allow p1: running | approval_settled | tell of p1 | done
        "#]],
    );
}

#[test]
fn the_end_of_its_run_interrupts_it() {
    for end in [
        "finish done",
        "finish cancelled",
        "end",
        "fail",
        "recover",
        "pause; cancel",
        "pause; rollback k1",
        "propose x1",
    ] {
        let world = scene(&format!("post; progress tool=t1; ask p1 t1; {end}"));
        assert_eq!(outcome(&world), (ApprovalOutcome::Interrupted, None), "{end}");
        assert!(world.session.control.open_approvals().next().is_none(), "{end}");
    }
}

#[test]
fn a_restart_interrupts_it_in_a_pause_too_and_the_run_stays() {
    let mut world = scene("post; progress tool=t1; ask p1 t1; pause; restart; recover");
    assert_eq!((world.state(), outcome(&world)), (StateName::Paused, (ApprovalOutcome::Interrupted, None)));
    assert!(play(&mut world, "resume k1").contains("continue r1"));
}

#[test]
fn a_note_is_bounded() {
    let mut world = scene("post; progress tool=t1; ask p1 t1");
    let told = play(&mut world, &format!("deny p1 note={}", "x".repeat(1_025)));
    assert!(told.contains("refused EINVAL a note has at most 1024 bytes"), "{told}");
    assert!(play(&mut world, "allow p1").contains("approval_settled"));
}

#[test]
fn approvals_of_earlier_runs_are_history() {
    let mut world =
        scene("post; progress tool=t1; ask p1 t1; allow p1; finish done; post; progress tool=t2; ask p2 t2");
    assert_eq!(world.session.control.approvals.len(), 1);
    let asked = crate::vocabulary::command(&world, "allow p1");
    assert_eq!(world.ask(&asked).unwrap_err().code, Code::Enoent);
}

#[test]
fn what_is_allowed_for_the_session_holds_for_the_same_tool_and_pattern() {
    check(
        "post; progress tool=t1; progress tool=t2; progress tool=t3; ask p1 t1 pattern=a*; ask p2 t2 pattern=a*; ask p3 t3; \
         allow p1 scope=session",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            progress tool=t2: running | tool_started | - | done
            progress tool=t3: running | tool_started | - | done
            ask p1 t1 pattern=a*: running | approval_requested | - | done
            ask p2 t2 pattern=a*: running | approval_requested | - | done
            ask p3 t3: running | approval_requested | - | done
            allow p1 scope=session: running | approval_settled, approval_settled | tell of p1, tell of p2 | done
        "#]],
    );
    let world = scene(
        "post; progress tool=t1; ask p1 t1 pattern=a*; allow p1 scope=session; finish done; post; progress tool=t2; ask p2 t2; \
         deny p2",
    );
    let control = &world.session.control;
    assert!(control.is_granted("read", Some("a*")), "also in the next run");
    assert!(!control.is_granted("read", None) && !control.is_granted("write", Some("a*")));
    assert_eq!(replay(&world.records).control, *control, "also after a restart");
    let once = scene("post; progress tool=t1; ask p1 t1 pattern=a*; allow p1");
    assert!(!once.session.control.is_granted("read", Some("a*")));
}
