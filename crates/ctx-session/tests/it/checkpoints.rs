//! The seed's "Checkpoint tests" and "Checkpoint lifecycle", and "Checkpoints" of the design, as far as they are rules.
//! Freezing and killing processes is the engine's part.

use ctx_session::command::{Pauser, Progress};
use ctx_session::control::Checkpoint;
use ctx_session::record::{CheckpointBody, CheckpointBy, PromptRef, RunBody};
use ctx_session::{Body, Code, Command, RunState, StateName};
use expect_test::expect;

use crate::script::{check, play, scene};
use crate::world::{OWNER, World, call};

fn checkpoint(world: &World, at: usize) -> &Checkpoint {
    &world.session.control.checkpoints[at]
}

fn prompts(world: &World) -> Vec<(String, String)> {
    let prompts = world.session.control.prompts.for_next_run();
    prompts.into_iter().map(|PromptRef { target, hash }| (target, hash)).collect()
}

fn prompt(hash: &str) -> [(String, String); 1] {
    [("primary".to_owned(), hash.to_owned())]
}

#[test]
fn create_by_the_operator_pauses_the_session_and_keeps_what_was_going_on() {
    let world = scene(
        "post; progress text=look calls; progress tool=t1,t2; progress tool-done=t1; pause reason=wait",
    );
    let made = checkpoint(&world, 0);
    assert_eq!(world.state(), StateName::Paused);
    assert_eq!((made.created.created_by, made.created.by), (CheckpointBy::Operator, Some(OWNER)));
    assert_eq!(made.created.reason.as_deref(), Some("wait"));
    assert_eq!(made.created.turn_id, world.run(), "the run that was paused");
    assert_eq!(made.created.cursor.map(|id| world.name_of(id)).as_deref(), Some("t2"), "the last message");
    assert_eq!(made.created.prompts[0].hash, "bb22");
    assert_eq!(world.session.open_tools().count(), 1, "the call in flight can be looked at");
    assert_eq!((made.resumed_at, made.rolled_back, made.superseded_by), (None, false, None));
}

#[test]
fn of_the_calls_of_an_answer_one_has_its_turn_and_none_begins_while_the_session_is_paused() {
    for (script, in_turn) in [
        ("post; progress tool=t1,t2", Some("t1")),
        ("post; progress tool=t1,t2; pause", Some("t1")),
        ("post; progress tool=t1,t2; pause; progress tool-done=t1", None),
        ("post; progress tool=t1,t2; pause; progress tool-done=t1; resume k1", Some("t2")),
        // It had begun when the pause came.
        ("post; progress tool=t1,t2; progress tool-done=t1; pause", Some("t2")),
    ] {
        let world = scene(script);
        let open = world.session.open_tools().map(|(call, _)| call);
        let has: Vec<_> = open.filter(|call| world.session.has_its_turn(*call)).collect();
        assert_eq!(has, in_turn.map(call).into_iter().collect::<Vec<_>>(), "{script}");
    }
}

#[test]
fn create_by_the_model_pauses_likewise_with_its_reason_and_settles_its_call() {
    let world = scene("post; progress tool=t1,t2; model-pause t2 reason=which-target");
    let made = checkpoint(&world, 0);
    assert_eq!(world.state(), StateName::Paused);
    assert_eq!((made.created.created_by, made.created.by), (CheckpointBy::Model, None));
    assert_eq!(made.created.reason.as_deref(), Some("which-target"));
    let open: Vec<_> = world.session.open_tools().map(|(call, _)| world.name_of(call.0)).collect();
    assert_eq!(open, ["t1"], "what else it called goes on later");
    let result = world.conversation().iter().last().unwrap().text();
    assert_eq!(result, "the session was paused at this checkpoint until its operator went on");
}

#[test]
fn a_model_pauses_only_by_a_call_of_its_own_run_that_is_open() {
    check(
        "post; model-pause t1; progress tool=t1; progress tool-done=t1; model-pause t1; finish done; model-pause t1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            model-pause t1: running | - | - | ignored
            progress tool=t1: running | tool_started | - | done
            progress tool-done=t1: running | tool_finished | - | done
            model-pause t1: running | - | - | ignored
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            model-pause t1: idle | - | - | ignored
        "#]],
    );
}

#[test]
fn a_reason_is_trimmed_and_bounded() {
    let mut world = scene("post");
    let ask = |reason: &str| Command::Checkpoint {
        by: Pauser::Operator { by: OWNER },
        reason: Some(reason.to_owned()),
    };
    let refusal = world.ask(&ask(&"x".repeat(1_025))).unwrap_err();
    assert_eq!((refusal.code, refusal.field.as_deref()), (Code::Einval, Some("reason")));
    world.ask(&ask("  ")).unwrap();
    assert_eq!(checkpoint(&world, 0).created.reason, None);
}

#[test]
fn while_paused_what_was_in_flight_is_read_to_its_end_and_nothing_new_begins() {
    check(
        "post; progress tool=t1; progress; pause; progress text=one calls; progress thought=hm; progress tool-done=t1; \
         progress tool=t2,t3; progress tool=t2,t3; ask p1 t2; compacted x1; propose x1; finish failed; finish done",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            progress: running | assistant_started | - | done
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            progress text=one calls: paused | assistant_finished | - | done
            progress thought=hm: paused | reasoning_finished | - | done
            progress tool-done=t1: paused | tool_finished | - | done
            progress tool=t2,t3: paused | tool_pending, tool_pending | - | held
            progress tool=t2,t3: paused | - | - | held
            ask p1 t2: refused ENOENT no tool call 000000000000000000EG000002 is open in this run
            compacted x1: paused | - | - | held
            propose x1: paused | - | - | held
            finish failed: paused | - | - | held
            finish done: paused | - | - | held
        "#]],
    );
}

#[test]
fn calls_that_the_model_made_while_paused_start_when_it_is_resumed() {
    let mut world = scene("post; pause; progress text=one calls; progress tool=t1,t2");
    let pending = |world: &World| -> Vec<String> {
        world.session.pending_calls().iter().map(|call| world.name_of(call.call_id.0)).collect()
    };
    assert_eq!(pending(&world), ["t1", "t2"]);
    assert_eq!(world.counting(), ["m1", "a1"], "what has not started is not said");
    world.restart();
    assert_eq!(pending(&world), ["t1", "t2"], "they outlive a restart");
    expect![[r#"
        recover: paused | - | - | ignored
        resume k1: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
        progress tool=t1,t2: running | tool_started, tool_started | - | done
        progress tool-done=t2: running | tool_finished | - | done
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k2
    "#]].assert_eq(&play(
        &mut world,
        "recover; resume k1; progress tool=t1,t2; progress tool-done=t2; pause",
    ));
    assert!(pending(&world).is_empty());
    assert_eq!(world.counting(), ["m1", "a1", "t1", "t2"]);
}

#[test]
fn resume_goes_on_with_the_run_under_a_context_of_its_own() {
    check(
        "post; progress tool=t1; pause; resume k1; progress tool-done=t1; finish done",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        progress tool=t1: running | tool_started | - | done
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        resume k1: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
        progress tool-done=t1: running | tool_finished | - | done
        finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
    "#]],
    );
    let world = scene("post; pause; resume k1");
    assert!(checkpoint(&world, 0).resumed_at.is_some());
    let contexts =
        world.records.iter().filter(|record| matches!(record.body, Body::Run(RunBody::Context(_)))).count();
    assert_eq!(contexts, 2, "one can tell under what each part worked");
    assert_eq!(world.session.runs().count(), 1, "it is the same run");
}

#[test]
fn only_the_current_pause_point_can_be_resumed_or_edited() {
    check(
        "post; pause; resume k1; resume k1; edit-prompt k1; pause; resume k1; edit-prompt k1; resume k9; edit-prompt k9",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            resume k1: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
            resume k1: refused EBUSY the session is no longer paused at this checkpoint
            edit-prompt k1: refused EBUSY the session is no longer paused at this checkpoint
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k2
            resume k1: refused EBUSY the session is paused at checkpoint 01M7EWN7KGC2CYRV6Q6RYAB1BN, not at this one
            edit-prompt k1: refused EBUSY the session is paused at checkpoint 01M7EWN7KGC2CYRV6Q6RYAB1BN, not at this one
            resume k9: refused ENOENT no checkpoint 000000000000000000DC000009 in this session
            edit-prompt k9: refused ENOENT no checkpoint 000000000000000000DC000009 in this session
        "#]],
    );
}

#[test]
fn resume_with_a_prompt_edit_tells_the_agent_both_hashes() {
    let world = scene("post; pause; edit-prompt k1 hash=cc33; edit-prompt k1 hash=dd44; resume k1");
    assert_eq!(world.counting(), ["m1", "n1"]);
    let note = world.conversation().iter().last().unwrap().text();
    expect![
        "System prompts were updated at this checkpoint. Previous prompt hash: bb22, new prompt hash: dd44."
    ]
    .assert_eq(&note);
    let edits: Vec<_> = checkpoint(&world, 0)
        .edits
        .iter()
        .map(|edit| (&edit.edited.old_hash, &edit.edited.new_hash))
        .collect();
    assert_eq!(edits, [(&"bb22".to_owned(), &"cc33".to_owned()), (&"cc33".to_owned(), &"dd44".to_owned())]);
    assert_eq!(prompts(&world), prompt("dd44"), "it holds for the session from here on");
}

#[test]
fn a_prompt_that_is_as_before_needs_no_notice() {
    let script = "post; pause; edit-prompt k1 hash=bb22; edit-prompt k1 hash=cc33; edit-prompt k1 hash=bb22; resume k1";
    check(
        script,
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        edit-prompt k1 hash=bb22: paused | - | - | done
        edit-prompt k1 hash=cc33: paused | prompt_edited | - | done
        edit-prompt k1 hash=bb22: paused | prompt_edited | - | done
        resume k1: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
    "#]],
    );
    assert_eq!(scene(script).counting(), ["m1"]);
}

#[test]
fn the_notice_is_said_also_where_nothing_is_left_to_do() {
    let world = scene("post; pause; progress text=hi; edit-prompt k1; resume k1");
    assert_eq!((world.state(), world.counting().join(" ")), (StateName::Idle, "m1 a1 n1".to_owned()));
}

#[test]
fn a_prompt_that_is_not_there_cannot_be_edited() {
    check(
        "post; pause; edit-prompt k1 target=scout",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        edit-prompt k1 target=scout: refused ENOENT no prompt `scout` here; available: primary
    "#]],
    );
}

#[test]
fn edits_of_a_pause_that_is_not_resumed_are_forgotten() {
    for end in ["cancel", "rollback k1"] {
        let world = scene(&format!("post; pause; edit-prompt k1; {end}"));
        assert!(!prompts(&world).contains(&prompt("cc33")[0]), "{end}");
    }
}

#[test]
fn rollback_supersedes_later_messages_and_deletes_nothing() {
    let mut world = scene(
        "post text=one; progress text=a calls; pause; resume k1; progress tool=t1; progress tool-done=t1; progress text=b;
         finish done; post text=two; progress text=c; finish done",
    );
    assert_eq!(world.counting(), ["m1", "a1", "t1", "a2", "m2", "a3"]);
    let before = world.records.len();
    expect![[r#"
        rollback k1: idle | rolled_back | - | k1
        post text=three: idle -> running | user, run_created, context, state_changed by message_posted | start r3, broadcast count | m3 r3 running
    "#]].assert_eq(&play(&mut world, "rollback k1; post text=three"));
    assert_eq!(world.counting(), ["m1", "a1", "m3"], "the next run starts from the checkpoint");
    let Body::Checkpoint(CheckpointBody::RolledBack(back)) = &world.records[before].body else {
        panic!("{:?}", world.records[before])
    };
    let names: Vec<_> = back.superseded.iter().map(|id| world.name_of(*id)).collect();
    assert_eq!((names, back.restored.len()), (vec!["t1".into(), "a2".into(), "m2".into(), "a3".into()], 0));
    assert_eq!(world.session.ledger.entries().len(), 7, "all of it can still be read");
    assert!(checkpoint(&world, 0).rolled_back);
}

#[test]
fn rollback_from_a_pause_cancels_the_run_and_what_it_had_said_does_not_count() {
    check(
        "post; progress tool=t1; ask p1 t1; pause; progress text=half calls; rollback k1 partial",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1: running | tool_started | - | done
            ask p1 t1: running | approval_requested | - | done
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            progress text=half calls: paused | assistant_finished | - | done
            rollback k1 partial: paused -> idle | assistant_finished, approval_settled, tool_finished, cancelled, rolled_back, state_changed by rolled_back | kill r1 | k1
        "#]],
    );
    let world = scene("post; progress tool=t1; pause; progress text=half calls; rollback k1 partial");
    assert_eq!(world.session.runs().next_back().unwrap().state, RunState::Cancelled);
    assert_eq!(world.counting(), ["m1", "t1"]);
    let said: Vec<_> = world.conversation().iter().map(|message| message.role).collect();
    assert_eq!(said.len(), 3, "the call that was in flight has a result: {said:?}");
}

#[test]
fn rollback_to_an_old_checkpoint_supersedes_those_in_between() {
    let mut world = scene(
        "post; pause; resume k1; progress text=a calls; pause; resume k2; progress text=b calls; pause; rollback k1",
    );
    let superseded: Vec<_> = world
        .session
        .control
        .checkpoints
        .iter()
        .map(|c| c.superseded_by.map(|id| world.name_of(id.0)))
        .collect();
    assert_eq!(superseded, [None, Some("k1".to_owned()), Some("k1".to_owned())]);
    assert_eq!(world.counting(), ["m1"]);
    expect![[r#"
        resume k2: refused EBUSY the session is no longer paused at this checkpoint
        rollback k1: idle | rolled_back | - | k1
    "#]]
    .assert_eq(&play(&mut world, "resume k2; rollback k1"));
}

#[test]
fn a_superseded_checkpoint_can_be_gone_back_to_and_brings_back_what_counted_then() {
    let mut world = scene(
        "post; pause; resume k1; progress text=a calls; pause; resume k2; progress text=b calls; pause; rollback k1",
    );
    let superseded = |world: &World| -> Vec<bool> {
        world.session.control.checkpoints.iter().map(|c| c.superseded_by.is_some()).collect()
    };
    assert_eq!((world.counting(), superseded(&world)), (vec!["m1".to_owned()], vec![false, true, true]));
    play(&mut world, "post; progress text=other; finish done");
    for (to, counting, left) in [
        ("k3", &["m1", "a1", "a2"][..], [false, false, false]),
        ("k2", &["m1", "a1"], [false, false, true]),
        ("k1", &["m1"], [false, true, true]),
        ("k3", &["m1", "a1", "a2"], [false, false, false]),
    ] {
        play(&mut world, &format!("rollback {to}"));
        assert_eq!(
            (world.counting(), superseded(&world)),
            (counting.iter().map(|s| (*s).to_owned()).collect(), left.to_vec()),
            "{to}"
        );
    }
}

#[test]
fn a_run_that_fails_right_after_a_prompt_was_edited_says_so() {
    let message = |script: &str| -> String {
        let world = scene(script);
        let failed = world.records.iter().rev().find_map(|record| match &record.body {
            Body::Run(RunBody::Failed(failed)) => Some(failed.message.clone()),
            _ => None,
        });
        failed.unwrap()
    };
    let edited = message("post; pause; edit-prompt k1; resume k1; finish failed");
    assert!(edited.contains("(the prompt was edited at checkpoint "), "{edited}");
    for script in [
        "post; pause; resume k1; finish failed",
        "post; pause; edit-prompt k1; resume k1; progress text=fine calls; finish failed",
        "post; pause; edit-prompt k1; resume k1; progress text=fine; finish done; post; finish failed",
    ] {
        assert!(!message(script).contains("edited"), "{script}");
    }
}

#[test]
fn a_checkpoint_can_be_gone_back_to_as_often_as_one_likes() {
    let mut world = scene("post; progress text=a calls; pause; rollback k1");
    for n in 2..5 {
        play(&mut world, "post; progress text=again; finish done");
        assert_eq!(world.counting().len(), 4, "{n}");
        play(&mut world, "rollback k1");
        assert_eq!(world.counting(), ["m1", "a1"]);
    }
}

#[test]
fn rollback_is_refused_while_something_runs_or_waits() {
    check(
        "post; pause; resume k1; rollback k1; finish done; post at-limit; rollback k1; rollback k9; end; rollback k1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            resume k1: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
            rollback k1: refused EBUSY the session is running; pause it or cancel the run, then roll back
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m2 r2 pending
            rollback k1: refused EBUSY a message is queued; resume or discard it, then roll back
            rollback k9: refused ENOENT no checkpoint 000000000000000000DC000009 in this session
            end: queued -> ended | cancelled, state_changed by session_ended | close clients, free name | done
            rollback k1: refused ESHUTDOWN the session has ended; send a message under another name to start a new one
        "#]],
    );
}

#[test]
fn the_run_after_a_rollback_starts_with_the_prompts_of_the_checkpoint_and_later_ones_with_the_session_s() {
    let mut world = scene("post; pause; resume k1; pause; edit-prompt k2; resume k2; finish done");
    assert_eq!(prompts(&world), prompt("cc33"));
    play(&mut world, "rollback k1");
    assert_eq!(prompts(&world), prompt("bb22"), "as it was at the checkpoint");
    play(&mut world, "post; finish done");
    assert_eq!(prompts(&world), [], "from then on its agent's own");
}

#[test]
fn cancel_while_paused_ends_the_run_and_keeps_what_was_said() {
    check(
        "post; progress tool=t1; pause; cancel partial; cancel r1; resume k1",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        progress tool=t1: running | tool_started | - | done
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        cancel partial: paused -> idle | assistant_finished, tool_finished, cancelled, state_changed by run_cancelled | kill r1 | r1 cancelled
        cancel r1: idle | - | - | r1 cancelled
        resume k1: refused EBUSY the session is no longer paused at this checkpoint
    "#]],
    );
    let world = scene("post; pause; progress text=a calls; cancel partial");
    assert_eq!(world.counting(), ["m1", "a1", "a2"]);
}

#[test]
fn a_run_that_was_being_cancelled_when_it_was_paused_is_cancelled() {
    check(
        "post; cancel; pause; finish cancelled partial; finish cancelled",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        cancel: running | - | stop r1 (operator by 1000) | r1 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        finish cancelled partial: paused -> idle | assistant_finished, cancelled, state_changed by run_cancelled | kill r1 | r1 cancelled
        finish cancelled: idle | - | - | r1 cancelled
    "#]],
    );
}

#[test]
fn whichever_of_pause_and_end_comes_first_wins() {
    check(
        "post; finish done; pause; post; pause; finish done; resume k1",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
        pause: refused EBUSY nothing is running in this session; only a run can be paused
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        finish done: paused | - | - | held
        resume k1: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r2, broadcast count | r2 running
    "#]],
    );
    check(
        "post; progress text=hi; pause; finish done; resume k1",
        expect![[r#"
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        progress text=hi: running | assistant_finished | - | done
        pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
        finish done: paused | - | - | held
        resume k1: paused -> idle | checkpoint_resumed, run_finished, state_changed by checkpoint_resumed | kill r1 | r1 done
    "#]],
    );
}

#[test]
fn more_checkpoints_than_are_listed_can_all_be_gone_back_to() {
    let mut world = scene("post");
    world.limits.checkpoints_per_session = 3;
    for n in 1..=5 {
        let told = play(&mut world, &format!("pause; resume k{n}"));
        assert!(!told.contains("refused"), "{told}");
    }
    let (archived, active) = world.session.control.archived_and_active(world.limits.checkpoints_per_session);
    let names = |some: &[Checkpoint]| some.iter().map(|c| world.name_of(c.id().0)).collect::<Vec<_>>();
    assert_eq!(
        (names(archived), names(active)),
        (vec!["k1".into(), "k2".into()], vec!["k3".into(), "k4".into(), "k5".into()])
    );
    let told = play(&mut world, "finish done; rollback k1");
    assert!(!told.contains("refused"), "an archived one is still there: {told}");
}

#[test]
fn a_tool_call_cannot_start_twice_in_one_answer() {
    let mut world = scene("post");
    let once = crate::vocabulary::command(&world, "progress tool=t1,t1");
    let Command::Progress { progress: Progress::ToolsStarted(calls), .. } = &once else { panic!("{once:?}") };
    assert_eq!((calls.len(), calls[0].call_id), (2, call("t1")));
    assert_eq!(world.ask(&once).unwrap_err().code, Code::Eexist);
}

#[test]
fn calls_behind_the_one_that_pauses_wait_and_a_restart_leaves_them() {
    let mut world = scene("post; progress tool=t1 behind=t2,t3");
    let pending =
        |world: &World| world.session.pending_calls().iter().map(|call| call.call_id).collect::<Vec<_>>();
    assert_eq!(pending(&world), [call("t2"), call("t3")]);
    assert_eq!(world.session.open_tools().map(|(id, _)| id).collect::<Vec<_>>(), [call("t1")]);
    let twice = crate::vocabulary::command(&world, "progress tool=t4 behind=t4");
    assert_eq!(world.ask(&twice).unwrap_err().code, Code::Eexist);
    play(&mut world, "progress tool-done=t1; pause; recover");
    assert_eq!(pending(&world), [call("t2"), call("t3")]);
    play(&mut world, "resume k1; progress tool=t2,t3");
    assert_eq!(pending(&world), []);
    // Where the operator was first, all of them wait, in the order of the answer.
    let mut world = scene("post; pause");
    play(&mut world, "progress tool=t1 behind=t2");
    assert_eq!(pending(&world), [call("t1"), call("t2")]);
}

#[test]
fn a_model_that_calls_tools_after_all_has_not_come_to_its_end() {
    let mut world = scene("post; progress text=hi; progress tool=t1; progress tool-done=t1; pause");
    assert!(play(&mut world, "resume k1").contains("continue r1"));
}

#[test]
fn a_late_result_belongs_to_its_call_however_many_calls_there_were() {
    let names: Vec<String> = (1..=300).map(|n| format!("t{n}")).collect();
    let done: String = names.iter().map(|name| format!("progress tool-done={name};")).collect();
    let world = scene(&format!("post; progress tool={}; pause; {done} rollback k1", names.join(",")));
    assert_eq!(world.session.ledger.entries().len(), 301);
    assert_eq!(world.counting().len(), 301, "the calls were made before the checkpoint");
    assert_eq!(world.conversation().len(), 601);
}
