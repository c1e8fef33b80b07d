//! The seed's section "Compaction lifecycle" line by line, and "Compaction" of the design, as far as they are rules.
//! Which messages go and who writes the summary is the agent loop's part.

use ctx_session::control::Compacted;
use ctx_session::record::{
    CheckpointBody, CheckpointBy, CompactionBody, CompactionFlag, RunFinish, RunKind, Strategy,
};
use ctx_session::{Body, Code, Command, RunState, StateName};
use expect_test::{Expect, expect};

use crate::pairs::{SCENES, ask, set};
use crate::script::{check, play, scene};
use crate::vocabulary::command;
use crate::world::World;

/// Two exchanges, the first with a tool call, and a third that goes on.
const TALK: &str = "post text=one; progress text=a1 calls; progress tool=t1; progress tool-done=t1; progress text=a2; \
     finish done; post text=two; progress text=a3; finish done; post text=three";

/// What a script comes to after the talk.
fn check_after_talk(script: &str, expect: Expect) {
    expect.assert_eq(&play(&mut scene(TALK), script));
}

fn after_talk(script: &str) -> World {
    scene(&format!("{TALK}; {script}"))
}

fn row(world: &World, at: usize) -> &Compacted {
    &world.session.control.compactions[at]
}

fn log_of(world: &World, wanted: impl Fn(&Body) -> bool) -> String {
    let found = world.records.iter().map(|record| &record.body).filter(|body| wanted(body));
    found.map(|body| body.to_json() + "\n").collect()
}

#[test]
fn drop_summarize_and_delegate_leave_a_record_and_the_run_goes_on() {
    check_after_talk(
        "compacted x1 gone=m1,a1,t1,a2; progress text=so; finish done",
        expect![[r#"
            compacted x1 gone=m1,a1,t1,a2: running | compaction | - | done
            progress text=so: running | assistant_finished | - | done
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r3 done
        "#]],
    );
    let world = after_talk("compacted x1 gone=m1,a1,t1,a2 summary=short");
    assert_eq!(world.state(), StateName::Running, "the session's state does not change");
    assert_eq!(world.counting(), ["s1", "m2", "a3", "m3"], "the summary stands where they stood");
    expect![[r#"
        {"type":"compaction","compaction_id":"000000000000000000F0000001","turn_id":"01M7EWNBGG94BHHQHNFRYTGSWP","agent_path":"coder","trigger":"threshold_crossed","strategy":"summarize","window":1000,"used":910,"threshold_estimate":0.91,"after_estimate":0.55,"window_upper":0.85,"window_lower":0.6,"superseded_message_ids":["01M7EWN2Q8F29T5VQV69ANXJ8B","000000000000000000C4000001","000000000000000000EG000001","000000000000000000C4000002"],"summary_message_id":"000000000000000000EC000001","summary":"short","plugins_fired":[],"fallback_occurred":false}
    "#]].assert_eq(&log_of(&world, |body| matches!(body, Body::Compaction(CompactionBody::Recorded(_)))));
    let found = row(&world, 0);
    assert_eq!(
        (found.state.as_str(), found.rolled_back, found.fallback_occurred()),
        ("applied", false, false)
    );
    assert_eq!((found.summary(), found.superseded().len()), (Some("short"), 4));
    assert_eq!(found.summary_message().map(|id| world.name_of(id.0)).as_deref(), Some("s1"));
}

#[test]
fn a_second_compaction_takes_the_first_one_s_summary_with_it() {
    let world =
        after_talk("compacted x1 gone=m1,a1,t1,a2 summary=short; compacted x2 gone=s1,m2,a3 summary=shorter");
    assert_eq!(world.counting(), ["s2", "m3"]);
}

#[test]
fn a_compaction_that_takes_nothing_is_recorded_too() {
    let world = scene("compact; compacted x1; finish done");
    assert_eq!(world.session.control.compactions.len(), 1);
    assert!(world.counting().is_empty());
}

#[test]
fn only_messages_that_count_and_are_not_of_the_last_exchange_can_go() {
    check_after_talk(
        "progress text=b calls; compacted x1 gone=m3; compacted x1 gone=a4; compacted x1 gone=m9; \
             compacted x1 gone=m1; compacted x2 gone=m1; compacted x1 gone=a1",
        expect![[r#"
            progress text=b calls: running | assistant_finished | - | done
            compacted x1 gone=m3: refused EINVAL 01M7EWNBGGCXTXRXR1AS7P32ZY belongs to the last exchange, which always stays
            compacted x1 gone=a4: refused EINVAL 000000000000000000C4000004 belongs to the last exchange, which always stays
            compacted x1 gone=m9: refused EINVAL 000000000000000000DM000009 is not a message in this session's context
            compacted x1 gone=m1: running | compaction | - | done
            compacted x2 gone=m1: refused EINVAL 01M7EWN2Q8F29T5VQV69ANXJ8B is not a message in this session's context
            compacted x1 gone=a1: refused EEXIST compaction 000000000000000000F0000001 is recorded already
        "#]],
    );
}

#[test]
fn a_pinned_message_stays_whoever_compacts() {
    let mut world = after_talk("pin t1; pin m1; compacted x1 gone=m1,a1,t1,a2 summary=short");
    assert_eq!(world.counting(), ["m1", "s1", "t1", "m2", "a3", "m3"], "the loop did not know of the pins");
    assert_eq!(row(&world, 0).superseded().len(), 2);
    play(&mut world, "unpin m1; compacted x2 gone=m1");
    assert_eq!(world.counting(), ["s1", "t1", "m2", "a3", "m3"]);
    play(&mut world, "compacted x3 gone=t1 summary=nothing");
    assert_eq!(world.counting(), ["s1", "t1", "m2", "a3", "m3"], "nothing is left to sum up");
    check_after_talk(
        "propose x1 gone=m1,a1; pin m1; approve x1 gone=m1,a1; approve x1",
        expect![[r#"
        propose x1 gone=m1,a1: running -> paused | compaction, checkpoint_created, run_finished, state_changed by checkpoint | kill r3, broadcast count | k1
        pin m1: paused | message_pinned | - | done
        approve x1 gone=m1,a1: refused EINVAL 01M7EWN2Q8F29T5VQV69ANXJ8B is pinned and stays; unpin it first, or leave it out
        approve x1: paused -> running | compaction_approved, checkpoint_resumed, run_created, context, state_changed by compaction_approved | start r4, broadcast count | r4 running
    "#]],
    );
    let world = after_talk("propose x1 gone=m1,a1 summary=short; pin m1; approve x1");
    assert_eq!(world.counting(), ["m1", "s1", "t1", "a2", "m2", "a3", "m3"], "pinned since it was proposed");
}

#[test]
fn pins_are_set_and_taken_back_on_what_counts() {
    check_after_talk(
        "pin m1; pin m1; unpin m1; unpin m1; pin m99; compacted x1 gone=a1; pin a1; end; pin m1",
        expect![[r#"
            pin m1: running | message_pinned | - | done
            pin m1: running | - | - | done
            unpin m1: running | message_pinned | - | done
            unpin m1: running | - | - | done
            pin m99: refused ENOENT no message 000000000000000000DM000033 in this session's context
            compacted x1 gone=a1: running | compaction | - | done
            pin a1: refused ENOENT no message 000000000000000000C4000001 in this session's context
            end: running -> ended | cancelled, state_changed by session_ended | kill r3, close clients, free name, broadcast count | done
            pin m1: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
        "#]],
    );
    let mut world = after_talk("pin m1; pause; unpin m1; rollback k1");
    assert_eq!(world.session.ledger.pinned().count(), 0, "going back changes no pin");
    play(&mut world, "pin m2; restart");
    let pinned: Vec<String> = world.session.ledger.pinned().map(|id| world.name_of(id)).collect();
    assert_eq!(pinned, ["m2"]);
}

/// Whoever asks: the loop of a run, or the operator by hand or by an edit.
#[test]
fn the_last_exchange_stays_also_where_the_operator_asks_for_a_compaction() {
    check_after_talk(
        "progress text=a4; finish done; compact; compacted x1 gone=m3; compacted x1 gone=a4; propose x1 gone=m3; \
             propose x1 gone=m1,a1; approve x1 gone=a4; approve x1 gone=m3; approve x1 gone=m1,m2,a3",
        expect![[r#"
            progress text=a4: running | assistant_finished | - | done
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r3 done
            compact: idle -> running | run_created, context, state_changed by compaction_requested | start r4, broadcast count | r4 running
            compacted x1 gone=m3: refused EINVAL 01M7EWNBGGCXTXRXR1AS7P32ZY belongs to the last exchange, which always stays
            compacted x1 gone=a4: refused EINVAL 000000000000000000C4000004 belongs to the last exchange, which always stays
            propose x1 gone=m3: refused EINVAL 01M7EWNBGGCXTXRXR1AS7P32ZY belongs to the last exchange, which always stays
            propose x1 gone=m1,a1: running -> paused | compaction, checkpoint_created, run_finished, state_changed by checkpoint | kill r4, broadcast count | k1
            approve x1 gone=a4: refused EINVAL 000000000000000000C4000004 belongs to the last exchange, which always stays
            approve x1 gone=m3: refused EINVAL 01M7EWNBGGCXTXRXR1AS7P32ZY belongs to the last exchange, which always stays
            approve x1 gone=m1,m2,a3: paused -> idle | compaction_approved, checkpoint_resumed, state_changed by compaction_approved | - | done
        "#]],
    );
}

/// It is the newest message that counts, not the newest that was posted.
#[test]
fn the_last_exchange_begins_with_the_newest_message_that_counts() {
    let told = play(
        &mut after_talk("progress text=a4; pause; resume k1; finish done; post; finish done; rollback k1"),
        "compact; compacted x1 gone=m3; compacted x1 gone=a4; compacted x1 gone=m2,a3",
    );
    expect![[r#"
        compact: idle -> running | run_created, context, state_changed by compaction_requested | start r5, broadcast count | r5 running
        compacted x1 gone=m3: refused EINVAL 01M7EWNBGGCXTXRXR1AS7P32ZY belongs to the last exchange, which always stays
        compacted x1 gone=a4: refused EINVAL 000000000000000000C4000004 belongs to the last exchange, which always stays
        compacted x1 gone=m2,a3: running | compaction | - | done
    "#]].assert_eq(&told);
    let told = play(
        &mut after_talk("progress text=a4; finish done; post at-limit; discard"),
        "compact; compacted x1 gone=a4; compacted x1 gone=m2",
    );
    expect![[r#"
        compact: idle -> running | run_created, context, state_changed by compaction_requested | start r5, broadcast count | r5 running
        compacted x1 gone=a4: refused EINVAL 000000000000000000C4000004 belongs to the last exchange, which always stays
        compacted x1 gone=m2: running | compaction | - | done
    "#]].assert_eq(&told);
}

#[test]
fn a_summary_that_would_stand_for_nothing_is_refused() {
    check_after_talk(
        "compacted x1 summary=short; propose x1 gone=m1; approve x1 gone= summary=mine; approve x1 gone= summary=",
        expect![[r#"
            compacted x1 summary=short: refused EINVAL a summary replaces messages; name them, or leave the summary out
            propose x1 gone=m1: running -> paused | compaction, checkpoint_created, run_finished, state_changed by checkpoint | kill r3, broadcast count | k1
            approve x1 gone= summary=mine: refused EINVAL a summary replaces messages; name them, or leave the summary out
            approve x1 gone= summary=: paused -> running | compaction_approved, checkpoint_resumed, run_created, context, state_changed by compaction_approved | start r4, broadcast count | r4 running
        "#]],
    );
}

#[test]
fn an_approved_row_says_how_full_the_window_is_after_what_really_went() {
    let after = |script: &str| {
        let world = after_talk(script);
        (row(&world, 0).made.after_estimate, row(&world, 0).after_estimate())
    };
    // Of a window of 1000 tokens 910 are taken; each of these messages takes 5, a call with its result more.
    let as_proposed = after("propose x1 gone=m1,a1,t1,a2 summary=short; approve x1");
    let edited = after("propose x1 gone=m1,a1,t1,a2 summary=short; approve x1 gone=m1,a1");
    let longer = after("propose x1 gone=m1,a1,t1,a2; approve x1 gone=m1,a1 summary=eleven-chars");
    let nothing = after("propose x1 gone=m1,a1,t1,a2 summary=short; approve x1 gone=");
    let real = [as_proposed, edited, longer, nothing];
    assert_eq!(real, [(0.55, 0.881), (0.55, 0.902), (0.55, 0.903), (0.55, 0.91)]);
    let rejected = after("propose x1 gone=m1; reject x1");
    assert_eq!(rejected, (0.55, 0.55), "what was proposed can still be read");
}

#[test]
fn a_proposal_comes_to_nothing_with_its_session_and_says_why() {
    check_after_talk(
        "propose x1 gone=m1; end",
        expect![[r#"
            propose x1 gone=m1: running -> paused | compaction, checkpoint_created, run_finished, state_changed by checkpoint | kill r3, broadcast count | k1
            end: paused -> ended | compaction_rejected, state_changed by session_ended | close clients, free name | done
        "#]],
    );
    let ends = [("end", "session_ended"), ("fail", "session_failed"), ("fail; end", "session_failed")];
    for (end, why) in ends {
        let world = after_talk(&format!("propose x1 gone=m1; {end}"));
        let found = row(&world, 0);
        assert_eq!((found.state.as_str(), found.fallback_reason()), ("rejected", Some(why)), "{end}");
        assert!(found.fallback_occurred() && !found.rolled_back);
    }
}

#[test]
fn a_proposal_whose_checkpoint_is_damaged_is_settled_by_recovery() {
    let mut world = after_talk("propose x1 gone=m1");
    world.records.retain(|record| !matches!(record.body, Body::Checkpoint(CheckpointBody::Created(_))));
    world.restart();
    assert_eq!((world.state(), row(&world, 0).state.as_str()), (StateName::Idle, "proposed"));
    play(&mut world, "recover");
    assert_eq!(
        (row(&world, 0).state.as_str(), row(&world, 0).fallback_reason()),
        ("rejected", Some("interrupted"))
    );
}

#[test]
fn a_call_and_its_result_go_and_come_back_together() {
    let mut world = after_talk("pause; resume k1; compacted x1 gone=t1");
    let said = |world: &World| world.conversation().iter().filter(|m| world.name_of(m.id) == "t1").count();
    assert_eq!(said(&world), 0);
    play(&mut world, "finish done; rollback k1");
    assert_eq!(said(&world), 2);
}

/// The tool calls whose output the model is shown as a reference.
fn elided(world: &World) -> Vec<String> {
    world.session.ledger.elided().map(|id| world.name_of(id)).collect()
}

#[test]
fn output_that_is_elided_still_counts_and_a_rollback_shows_it_again() {
    let mut world = after_talk("pause; resume k1; compacted x1 elided=t1");
    assert_eq!((elided(&world), row(&world, 0).elided().len()), (vec!["t1".to_owned()], 1));
    assert_eq!(world.counting(), ["m1", "a1", "t1", "a2", "m2", "a3", "m3"], "nothing is superseded");
    play(&mut world, "restart; compacted x2 elided=t1; finish done; rollback k1");
    assert_eq!(elided(&world), [""; 0]);
    assert!(
        log_of(&world, |body| matches!(body, Body::Checkpoint(CheckpointBody::RolledBack(_))))
            .contains("restored_call_ids")
    );
}

#[test]
fn output_is_elided_by_a_proposal_once_it_is_approved() {
    let mut world = after_talk("propose x1 elided=t1");
    assert_eq!((elided(&world), row(&world, 0).elided().len()), (Vec::new(), 1), "only proposed");
    play(&mut world, "approve x1");
    assert_eq!(elided(&world), ["t1"]);
    let world = after_talk("propose x1 gone=m2 elided=t1; approve x1 gone=t1");
    assert!(elided(&world).is_empty() && row(&world, 0).elided().is_empty(), "what went has none to show");
    let world = after_talk("propose x1 elided=t1; pin t1; approve x1");
    assert!(elided(&world).is_empty() && row(&world, 0).elided().is_empty(), "what is pinned is shown whole");
}

#[test]
fn only_output_that_counts_and_is_not_of_the_last_exchange_is_elided() {
    let refused = |script: &str, line: &str| {
        let mut world = after_talk(script);
        let told = world.ask(&command(&world, line)).unwrap_err();
        assert_eq!((told.code, told.field.as_deref()), (Code::Einval, Some("elided_call_ids")), "{line}");
    };
    refused("rename x", "compacted x1 elided=m1");
    refused("compacted x1 gone=t1", "compacted x2 elided=t1");
    refused("progress tool=t2; progress tool-done=t2", "compacted x1 elided=t2");
    let world = after_talk("pin t1; compacted x1 elided=t1");
    assert!(elided(&world).is_empty(), "a pin was first");
}

#[test]
fn a_result_that_comes_after_its_call_has_gone_does_not_count() {
    // The loop compacts between its steps, and keeps the last exchange; but without any there is none to keep.
    let mut world = scene("compact; progress tool=t1");
    play(&mut world, "compacted x1 gone=t1 summary=short; progress tool-done=t1");
    assert_eq!(world.counting(), ["s1"]);
}

#[test]
fn a_proposal_pauses_the_session_with_a_checkpoint_and_ends_its_run() {
    check_after_talk(
        "progress tool=t2; ask p1 t2; propose x1 gone=m1 summary=short; progress text=late",
        expect![[r#"
            progress tool=t2: running | tool_started | - | done
            ask p1 t2: running | approval_requested | - | done
            propose x1 gone=m1 summary=short: running -> paused | compaction, checkpoint_created, approval_settled, tool_finished, run_finished, state_changed by checkpoint | kill r3, broadcast count | k1
            progress text=late: paused | - | - | ignored
        "#]],
    );
    let world = after_talk("propose x1 gone=m1,a1 summary=short");
    assert_eq!(world.counting(), ["m1", "a1", "t1", "a2", "m2", "a3", "m3"], "nothing is superseded yet");
    let at = world.session.paused_at().unwrap();
    assert_eq!(at.created.created_by, CheckpointBy::Compaction);
    assert_eq!(at.created.reason.as_deref(), Some("compaction_pending"));
    assert_eq!(
        (at.created.compaction_id, row(&world, 0).made.checkpoint_id),
        (Some(row(&world, 0).id()), Some(at.id()))
    );
    let run = world.session.runs().next_back().unwrap();
    assert_eq!((&run.state, run.finish_reason), (&RunState::Done, Some(RunFinish::AwaitingCompaction)));
    assert!(world.session.current_run().is_none());
    assert_eq!((row(&world, 0).state.as_str(), row(&world, 0).summary_message()), ("proposed", None));
}

#[test]
fn approve_applies_it_and_a_new_run_goes_on_with_the_same_message() {
    check_after_talk(
        "propose x1 gone=m1,a1,t1,a2 summary=short; approve x1; progress text=so; finish done",
        expect![[r#"
            propose x1 gone=m1,a1,t1,a2 summary=short: running -> paused | compaction, checkpoint_created, run_finished, state_changed by checkpoint | kill r3, broadcast count | k1
            approve x1: paused -> running | compaction_approved, checkpoint_resumed, run_created, context, state_changed by compaction_approved | start r4, broadcast count | r4 running
            progress text=so: running | assistant_finished | - | done
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r4 done
        "#]],
    );
    let world = after_talk("propose x1 gone=m1,a1,t1,a2 summary=short; approve x1");
    assert_eq!(world.counting(), ["s1", "m2", "a3", "m3"]);
    expect![[r#"
        {"type":"compaction_approved","compaction_id":"000000000000000000F0000001","turn_id":"01M7EWNBGG94BHHQHNFRYTGSWP","by":1000,"superseded_message_ids":["01M7EWN2Q8F29T5VQV69ANXJ8B","000000000000000000C4000001","000000000000000000EG000001","000000000000000000C4000002"],"summary_message_id":"01M7EWNDF0DYDPVBKF9HBTGJHV","summary":"short","after_estimate":0.881}
    "#]].assert_eq(&log_of(&world, |body| matches!(body, Body::Compaction(CompactionBody::Approved(_)))));
    assert_eq!(row(&world, 0).state.as_str(), "applied");
    assert!(world.session.control.checkpoints[0].resumed_at.is_some());
    let runs: Vec<_> = world.session.runs().rev().take(2).collect();
    assert_eq!((runs[0].kind, runs[0].message_id), (RunKind::Continuation, runs[1].message_id));
}

#[test]
fn approve_may_carry_what_the_operator_wants_instead() {
    let world = after_talk("propose x1 gone=m1,a1,t1,a2 summary=short; approve x1 gone=a1,t1 summary=mine");
    assert_eq!(world.counting(), ["m1", "s1", "a2", "m2", "a3", "m3"]);
    assert_eq!((row(&world, 0).summary(), row(&world, 0).superseded().len()), (Some("mine"), 2));
    assert_eq!(row(&world, 0).made.summary.as_deref(), Some("short"), "what was proposed can still be read");
    let world = after_talk("propose x1 gone=m1; approve x1 gone=a1,a1,t1,a1");
    assert_eq!(row(&world, 0).superseded().len(), 2, "each message once");
    let world = after_talk("propose x1 gone=m1,a1 summary=short; approve x1 summary=");
    assert_eq!(world.counting(), ["t1", "a2", "m2", "a3", "m3"], "no summary is wanted");
    let world = after_talk("propose x1 gone=m1,a1 summary=short; approve x1 gone=");
    assert_eq!(world.counting().len(), 7, "nothing goes, so nothing stands for it");
}

#[test]
fn approve_refuses_what_cannot_go_and_stays_paused() {
    check_after_talk(
        "propose x1 gone=m1; approve x1 gone=m9; approve x1 gone=m3; approve x1 at-limit; approve x1",
        expect![[r#"
            propose x1 gone=m1: running -> paused | compaction, checkpoint_created, run_finished, state_changed by checkpoint | kill r3, broadcast count | k1
            approve x1 gone=m9: refused EINVAL 000000000000000000DM000009 is not a message in this session's context
            approve x1 gone=m3: refused EINVAL 01M7EWNBGGCXTXRXR1AS7P32ZY belongs to the last exchange, which always stays
            approve x1 at-limit: refused EBUSY 4 of 4 runs in this project are busy; wait for one to end, or cancel one
            approve x1: paused -> running | compaction_approved, checkpoint_resumed, run_created, context, state_changed by compaction_approved | start r4, broadcast count | r4 running
        "#]],
    );
    let mut world = after_talk("propose x1 gone=m1");
    world.limits.message_bytes = 4;
    let asked = command(&world, "approve x1 summary=12345");
    assert_eq!(world.ask(&asked).unwrap_err().code, Code::Emsgsize);
}

#[test]
fn resuming_that_checkpoint_is_approving_and_rolling_it_back_is_rejecting() {
    let proposed = format!("{TALK}; propose x1 gone=m1,a1 summary=short");
    for (by_checkpoint, by_compaction) in [("resume k1", "approve x1"), ("rollback k1", "reject x1")] {
        let (a, b) =
            (scene(&format!("{proposed}; {by_checkpoint}")), scene(&format!("{proposed}; {by_compaction}")));
        assert_eq!(a.records, b.records, "{by_checkpoint}");
    }
}

#[test]
fn prompts_edited_at_that_checkpoint_hold_and_are_told_of() {
    let world = after_talk("propose x1 gone=m1,a1,t1,a2; edit-prompt k1; approve x1");
    assert_eq!(world.counting(), ["m2", "a3", "m3", "n1"]);
    let world = after_talk("finish done; compact; propose x1 gone=m1; edit-prompt k1; approve x1");
    assert_eq!((world.state(), world.counting().last().cloned()), (StateName::Idle, Some("n1".to_owned())));
}

#[test]
fn reject_supersedes_nothing_and_says_so_in_the_row() {
    check_after_talk(
        "propose x1 gone=m1 summary=short; reject x1; reject x1; approve x1; post",
        expect![[r#"
            propose x1 gone=m1 summary=short: running -> paused | compaction, checkpoint_created, run_finished, state_changed by checkpoint | kill r3, broadcast count | k1
            reject x1: paused -> idle | compaction_rejected, rolled_back, state_changed by compaction_rejected | - | k1
            reject x1: refused EBUSY this compaction does not wait for review
            approve x1: refused EBUSY this compaction does not wait for review
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r4, broadcast count | m4 r4 running
        "#]],
    );
    let world = after_talk("propose x1 gone=m1 summary=short; reject x1");
    assert_eq!(world.counting(), ["m1", "a1", "t1", "a2", "m2", "a3", "m3"]);
    let found = row(&world, 0);
    assert_eq!((found.state.as_str(), found.fallback_occurred()), ("rejected", true));
    assert_eq!(found.fallback_reason(), Some("operator_rejected"));
    assert!(!found.rolled_back, "there was nothing to undo");
    assert!(world.session.control.checkpoints[0].rolled_back);
}

#[test]
fn going_back_further_than_the_proposal_rejects_it_too() {
    let world = after_talk("pause; resume k1; propose x1 gone=m1; rollback k1");
    assert_eq!((row(&world, 0).state.as_str(), row(&world, 0).rolled_back), ("rejected", true));
    assert_eq!(world.state(), StateName::Idle);
}

#[test]
fn a_compaction_that_is_asked_for_is_a_run_of_its_own() {
    check(
        "post; finish done; post; finish done; compact summarize; compacted x1 gone=m1 summary=short; finish done",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r2 done
            compact summarize: idle -> running | run_created, context, state_changed by compaction_requested | start r3, broadcast count | r3 running
            compacted x1 gone=m1 summary=short: running | compaction | - | done
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r3 done
        "#]],
    );
    check(
        "post; finish done; post; finish done; compact; propose x1 gone=m1 summary=short; approve x1 at-limit",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r2 done
            compact: idle -> running | run_created, context, state_changed by compaction_requested | start r3, broadcast count | r3 running
            propose x1 gone=m1 summary=short: running -> paused | compaction, checkpoint_created, run_finished, state_changed by checkpoint | kill r3, broadcast count | k1
            approve x1 at-limit: paused -> idle | compaction_approved, checkpoint_resumed, state_changed by compaction_approved | - | done
        "#]],
    );
    check(
        "compact; cancel; finish cancelled; compact; restart; recover; compact at-limit",
        expect![[r#"
        compact: idle -> running | run_created, context, state_changed by compaction_requested | start r1, broadcast count | r1 running
        cancel: running | - | stop r1 (operator by 1000) | r1 running
        finish cancelled: running -> idle | cancelled, state_changed by run_cancelled | broadcast count | r1 cancelled
        compact: idle -> running | run_created, context, state_changed by compaction_requested | start r2, broadcast count | r2 running
        restart: running
        recover: running -> idle | failed, state_changed by crash_recovered | broadcast count | done
        compact at-limit: refused EBUSY 4 of 4 runs in this project are busy; wait for one to end, or cancel one
    "#]],
    );
    let world = scene("post; finish done; compact delegate");
    let run = world.session.runs().next_back().unwrap();
    assert_eq!(
        (run.kind, run.message_id, run.strategy),
        (RunKind::Compaction, None, Some(Strategy::Delegate))
    );
    assert_eq!(run.state, RunState::Running);
}

#[test]
fn flags_and_notes_can_be_set_changed_and_taken_back_in_every_state() {
    for at in SCENES {
        let mut world = set(at);
        let mut told = |line: &str| ask(&mut world, line).unwrap().records.len();
        assert_eq!(told("flag x1 bad notes=lost-the-plan"), 1, "{}", at.name);
        assert_eq!(told("flag x1 bad"), 0, "{}", at.name);
        assert_eq!(told("flag x1 notes=none"), 1, "{}", at.name);
        assert_eq!((row(&world, 0).flag, row(&world, 0).notes.as_deref()), (Some(CompactionFlag::Bad), None));
        ask(&mut world, "flag x1 none notes=again").unwrap();
        assert_eq!((row(&world, 0).flag, row(&world, 0).notes.as_deref()), (None, Some("again")));
        assert_eq!(world.state(), at.state);
    }
}

#[test]
fn notes_are_bounded() {
    let mut world = set(SCENES[0]);
    world.limits.message_bytes = 4;
    assert_eq!(ask(&mut world, "flag x1 notes=12345").unwrap_err().code, Code::Emsgsize);
    assert!(ask(&mut world, "flag x1 notes=1234").is_ok());
}

#[test]
fn rollback_past_a_compaction_restores_exactly_what_it_superseded_and_its_summary_goes() {
    let mut world = after_talk(
        "compacted x1 gone=m1,a1 summary=first; pause; resume k1; compacted x2 gone=s1,t1,a2 summary=second; \
         progress text=late; finish done",
    );
    assert_eq!(world.counting(), ["s2", "m2", "a3", "m3", "a4"]);
    play(&mut world, "rollback k1");
    assert_eq!(
        world.counting(),
        ["s1", "t1", "a2", "m2", "a3", "m3"],
        "x1 was before the checkpoint, and stays"
    );
    let Some(Body::Checkpoint(CheckpointBody::RolledBack(back))) =
        world.records.last().map(|record| &record.body)
    else {
        panic!("no rollback")
    };
    let names =
        |ids: &[ctx_session::Ulid]| ids.iter().map(|id| world.name_of(*id)).collect::<Vec<_>>().join(" ");
    assert_eq!((names(&back.superseded), names(&back.restored)), ("s2 a4".to_owned(), "t1 a2 s1".to_owned()));
    assert_eq!((row(&world, 0).rolled_back, row(&world, 1).rolled_back), (false, true), "no row is deleted");
    assert_eq!(row(&world, 1).state.as_str(), "applied");
}

#[test]
fn going_back_to_the_checkpoint_of_an_approved_compaction_undoes_it() {
    let mut world = after_talk("propose x1 gone=m1,a1,t1,a2 summary=short; approve x1; finish done");
    assert_eq!(world.counting(), ["s1", "m2", "a3", "m3"]);
    play(&mut world, "rollback k1");
    assert_eq!(world.counting(), ["m1", "a1", "t1", "a2", "m2", "a3", "m3"]);
    assert!(row(&world, 0).rolled_back);
    let told = play(&mut world, "approve x1; reject x1; resume k1");
    assert_eq!(told.matches("refused EBUSY").count(), 3, "{told}");
}

#[test]
fn what_was_restored_can_be_compacted_and_restored_again() {
    let mut world = after_talk("pause; resume k1; compacted x1 gone=m1,a1 summary=one; finish done");
    for n in 2..4 {
        play(&mut world, "rollback k1");
        assert_eq!(world.counting(), ["m1", "a1", "t1", "a2", "m2", "a3", "m3"]);
        play(&mut world, &format!("post; compacted x{n} gone=a1,t1 summary=again; finish done"));
        assert_eq!(world.counting()[..3], ["m1".to_owned(), format!("s{n}"), "a2".to_owned()]);
    }
}

#[test]
fn the_oldest_rows_become_one_when_there_are_too_many() {
    let mut world = scene(TALK);
    world.limits.compactions_per_session = 5;
    world.limits.compactions_aggregated = 2;
    for n in 1..=5 {
        play(&mut world, &format!("compacted x{n}"));
    }
    let (before, listed) = (row(&world, 1).created_at, world.session.control.compactions.len());
    assert_eq!((listed, world.session.control.aggregates.len()), (5, 0));
    let told = play(&mut world, "compacted x6");
    assert!(told.contains("compactions_aggregated, compaction"), "{told}");
    let names = |world: &World| -> Vec<String> {
        world.session.control.compactions.iter().map(|c| world.name_of(c.id().0)).collect()
    };
    assert_eq!(names(&world), ["x3", "x4", "x5", "x6"]);
    let aggregates = &world.session.control.aggregates;
    assert_eq!((aggregates[0].count, aggregates[0].before), (2, before), "compactions before then");
    let told = play(&mut world, "flag x1 good; flag x3 good; compacted x7; propose x8");
    assert!(told.starts_with("flag x1 good: refused ENOENT"), "{told}");
    assert_eq!(names(&world), ["x5", "x6", "x7", "x8"], "a proposal is a row too");
    assert!(play(&mut world, "approve x8").contains("paused -> running"));
}

#[test]
fn what_an_aggregated_compaction_superseded_is_restored_all_the_same() {
    let mut world = after_talk("pause; resume k1");
    world.limits.compactions_per_session = 1;
    world.limits.compactions_aggregated = 1;
    play(&mut world, "compacted x1 gone=m1,a1 summary=one; compacted x2 gone=t1; finish done");
    assert_eq!(
        (world.counting().join(" ").as_str(), world.session.control.compactions.len()),
        ("s1 a2 m2 a3 m3", 1)
    );
    play(&mut world, "rollback k1");
    assert_eq!(world.counting(), ["m1", "a1", "t1", "a2", "m2", "a3", "m3"]);
}

#[test]
fn the_limits_of_the_seed_are_the_defaults() {
    let limits = ctx_session::Limits::default();
    assert_eq!((limits.compactions_per_session, limits.compactions_aggregated), (1_000, 100));
    assert_eq!((limits.compaction_ms, limits.checkpoints_per_session), (60_000, 50));
}

#[test]
fn the_run_that_a_compaction_tells_of_is_the_one_that_made_it() {
    let mut world = scene(TALK);
    let Command::Progress { run, progress, .. } = command(&world, "compacted x1") else {
        panic!("no progress")
    };
    let ctx_session::command::Progress::Compacted(mut made) = progress else { panic!("no compaction") };
    made.turn_id = ctx_session::RunId(ctx_session::Ulid(7));
    let progress = ctx_session::command::Progress::Compacted(made);
    world.ask(&Command::Progress { run, caller: None, progress }).unwrap();
    assert_eq!(row(&world, 0).made.turn_id, run);
}
