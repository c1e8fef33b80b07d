//! Subagents: who may start one, what each end means, and what a pause, a cancel and a restart make of them.

use ctx_session::control::ApprovalClock;
use ctx_session::conversation::{Conversation, Part, Role};
use ctx_session::ledger::Ledger;
use ctx_session::record::{ExitCause, SnapshotState, SubagentState};
use ctx_session::subagent::{Consequence, Invocation};
use ctx_session::{Code, SubagentId};
use expect_test::expect;

use crate::script::{check, play, scene};
use crate::world::{World, small_id};

/// A run whose primary has asked for three subagents, two of which are there.
const TWO: &str = "post; progress tool=t1,t2,t3; spawn g1 t1; works g1; spawn g2 t2; works g2";

fn subagent<'a>(world: &'a World, name: &str) -> &'a Invocation {
    world.session.subagents.get(SubagentId(small_id(name))).unwrap()
}

fn states(world: &World) -> Vec<(SubagentState, Option<ExitCause>, Option<i32>)> {
    let all = world.session.subagents.of_run(world.run());
    let shown = all.map(|one| {
        let end = one.exited.as_ref().map(|(exited, _)| (exited.cause, exited.exit_code));
        (one.state, end.map(|(cause, _)| cause), end.and_then(|(_, code)| code))
    });
    shown.collect()
}

#[test]
fn the_table_of_ends() {
    let mut table = String::new();
    for cause in ExitCause::ALL {
        let code = cause.exit_code().map_or("-".to_owned(), |code| code.to_string());
        let run = |others| match cause.consequence(others) {
            Consequence::RunGoesOn => "goes on",
            Consequence::RunFails => "fails",
        };
        let message = cause.message("X").unwrap_or_default();
        table += &format!(
            "{cause}: {}, {code}, the run {} with others, {} alone, {message}\n",
            cause.state(),
            run(1),
            run(0)
        );
    }
    expect![[r#"
        answered: done, 0, the run goes on with others, goes on alone, 
        error: failed, 1, the run goes on with others, goes on alone, Subagent X failed.
        spawn_failed: failed, -, the run fails with others, fails alone, Subagent X could not be started.
        walltime: killed, 137, the run goes on with others, fails alone, Subagent X exceeded walltime limit.
        memory: killed, 137, the run goes on with others, fails alone, Subagent X exceeded memory limit.
        run_ended: killed, 137, the run goes on with others, goes on alone, Subagent X was killed with its run.
        daemon_stopped: killed, -, the run goes on with others, goes on alone, Subagent X was killed: the daemon stopped.
    "#]]
    .assert_eq(&table);
}

#[test]
fn the_primary_starts_them_for_open_calls_of_its_own() {
    check(
        "post; spawn g1 t1; progress tool=t1; spawn g1 t1; spawn g1 t1; works g1; progress tool=t9 by=g1; \
         spawn g2 t9; spawn g2 t1 by=g1; exit g1 answered; exit g1 error; works g1; progress text=hi by=g1",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            spawn g1 t1: running | - | - | ignored
            progress tool=t1: running | tool_started | - | done
            spawn g1 t1: running | subagent_spawned | - | done
            spawn g1 t1: running | - | - | ignored
            works g1: running | subagent_running | - | done
            progress tool=t9 by=g1: running | tool_started | - | done
            spawn g2 t9: running | - | - | ignored
            spawn g2 t1 by=g1: running | - | - | ignored
            exit g1 answered: running | tool_finished, subagent_exited | - | done
            exit g1 error: running | - | - | ignored
            works g1: running | - | - | ignored
            progress text=hi by=g1: running | - | - | ignored
        "#]],
    );
}

#[test]
fn a_ninth_is_refused_until_another_has_ended() {
    let calls: Vec<String> = (1..=9).map(|n| format!("t{n}")).collect();
    let mut world = scene(&format!("post; progress tool={}", calls.join(",")));
    for n in 1..=8 {
        play(&mut world, &format!("spawn g{n} t{n}"));
    }
    let refused = play(&mut world, "spawn g9 t9");
    expect![[r#"
        spawn g9 t9: refused EBUSY a run has at most 8 subagents at once, and 8 are at work; dispatch this one when another has ended
    "#]].assert_eq(&refused);
    let run = world.run();
    assert_eq!(world.session.may_spawn(run, &world.limits).unwrap_err().code, Code::Ebusy);
    play(&mut world, "exit g3 error; spawn g9 t9");
    assert_eq!(world.session.subagents.alive_in(run).count(), 8);
}

#[test]
fn what_ends_the_run_ends_them() {
    for (end, cause, code) in [
        ("finish done", ExitCause::RunEnded, Some(137)),
        ("finish failed", ExitCause::RunEnded, Some(137)),
        ("finish cancelled", ExitCause::RunEnded, Some(137)),
        ("end", ExitCause::RunEnded, Some(137)),
        ("pause; cancel", ExitCause::RunEnded, Some(137)),
        ("pause; rollback k1", ExitCause::RunEnded, Some(137)),
        ("restart; recover", ExitCause::DaemonStopped, None),
        ("pause; restart; recover", ExitCause::DaemonStopped, None),
    ] {
        let world = scene(&format!("{TWO}; exit g2 answered; progress tool=t9 by=g1; {end}"));
        let wanted = [
            (SubagentState::Killed, Some(cause), code),
            (SubagentState::Done, Some(ExitCause::Answered), Some(0)),
        ];
        assert_eq!(states(&world), wanted, "{end}");
        assert_eq!(world.session.open_tools().count(), 0, "{end}");
    }
}

#[test]
fn the_end_of_one_settles_what_it_left_open_and_leaves_the_others() {
    let mut world = scene(&format!("{TWO}; progress tool=t8 by=g1; progress tool=t9 by=g2; ask p1 t8 by=g1"));
    let told =
        play(&mut world, "exit g1 walltime partial; progress tool-done=t9 by=g2; progress tool-done=t1");
    expect![[r#"
        exit g1 walltime partial: running | assistant_finished, tool_finished, approval_settled, subagent_exited | tell of p1 | done
        progress tool-done=t9 by=g2: running | tool_finished | - | done
        progress tool-done=t1: running | tool_finished | - | done
    "#]].assert_eq(&told);
    let (exited, _) = subagent(&world, "g1").exited.as_ref().unwrap();
    assert_eq!(exited.message.as_deref(), Some("Subagent tester exceeded walltime limit."));
    assert_eq!(subagent(&world, "g1").said, "so f");
    assert!(subagent(&world, "g2").is_alive());
}

#[test]
fn a_pause_starts_nothing_and_keeps_them_where_they_are() {
    check(
        &format!(
            "{TWO}; pause; spawn g3 t3; progress tool=t9 by=g1; progress text=hi by=g1; \
             resume k1; progress tool=t9 by=g1; spawn g3 t3; pause; progress tool-done=t9 by=g1; exit g1 answered"
        ),
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            progress tool=t1,t2,t3: running | tool_started, tool_started, tool_started | - | done
            spawn g1 t1: running | subagent_spawned | - | done
            works g1: running | subagent_running | - | done
            spawn g2 t2: running | subagent_spawned | - | done
            works g2: running | subagent_running | - | done
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            spawn g3 t3: paused | - | - | held
            progress tool=t9 by=g1: paused | - | - | held
            progress text=hi by=g1: paused | assistant_finished | - | done
            resume k1: paused -> running | checkpoint_resumed, context, state_changed by checkpoint_resumed | continue r1, broadcast count | r1 running
            progress tool=t9 by=g1: running | tool_started | - | done
            spawn g3 t3: running | subagent_spawned | - | done
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k2
            progress tool-done=t9 by=g1: paused | tool_finished | - | done
            exit g1 answered: paused | subagent_exited | - | done
        "#]],
    );
}

/// Every command of a script takes a second.
#[test]
fn the_time_they_may_work_stands_still_with_a_pause() {
    let mut world = scene(TWO);
    let ends = subagent(&world, "g1").clock.expires_at().unwrap().as_millis();
    assert_eq!(ends, subagent(&world, "g1").spawned_at.as_millis() + 60_000);
    play(&mut world, "pause; rename other");
    assert!(matches!(subagent(&world, "g1").clock, ApprovalClock::Left(_)));
    play(&mut world, "resume k1");
    assert_eq!(subagent(&world, "g1").clock.expires_at().unwrap().as_millis(), ends + 2_000);
}

#[test]
fn a_checkpoint_keeps_what_each_was_at() {
    let mut world = scene(&format!("{TWO}; progress text=found by=g1; exit g1 answered; pause"));
    let kept = |world: &World| world.session.control.checkpoints[0].created.active_subagents.clone();
    let states = |world: &World| kept(world).iter().map(|one| one.state).collect::<Vec<_>>();
    assert_eq!(states(&world), [SnapshotState::Exited, SnapshotState::Suspended]);
    assert_eq!(kept(&world)[0].last_output, "found");
    // With the daemon the processes go.
    play(&mut world, "restart; recover");
    assert_eq!(states(&world), [SnapshotState::Exited, SnapshotState::Exited]);
    play(&mut world, "resume k1");
    assert_eq!(world.state(), ctx_session::StateName::Running);
}

#[test]
fn the_last_output_has_at_most_500_characters() {
    let long = "ä".repeat(400);
    let mut world = scene(&format!("{TWO}; progress text={long} by=g1; progress text={long} by=g1"));
    play(&mut world, "pause");
    let kept = &world.session.control.checkpoints[0].created.active_subagents[0].last_output;
    assert_eq!(kept.chars().count(), 500);
    assert!(kept.ends_with(&format!("\n{long}")));
}

#[test]
fn each_has_a_conversation_of_its_own() {
    let world = scene(&format!(
        "{TWO}; progress text=one calls by=g1; progress tool=t9 by=g1; progress text=two by=g2; progress tool-done=t9 by=g1"
    ));
    let (mut conversation, mut ledger) = (Conversation::default(), Ledger::default());
    for record in &world.records {
        conversation.apply(record);
        ledger.apply(record);
    }
    let roles = |name: &str| {
        let messages = conversation.messages_of(&ledger, subagent(&world, name));
        messages.iter().map(|message| message.role).collect::<Vec<_>>()
    };
    assert_eq!(roles("g1"), [Role::User, Role::Assistant, Role::Assistant, Role::Tool]);
    assert_eq!(roles("g2"), [Role::User, Role::Assistant]);
    let first = &conversation.messages_of(&ledger, subagent(&world, "g1"))[0].content;
    assert_eq!(first, &[Part::Text { text: "run the tests".to_owned() }]);
    // The primary reads none of it.
    let primary = conversation.messages(&ledger);
    assert!(primary.iter().all(|message| message.caller.is_none()));
    assert_eq!(primary.len(), 4, "the message and three calls");
}

#[test]
fn what_they_cost_is_the_runs_and_their_steps_are_their_own() {
    let world = scene(&format!("{TWO}; progress by=g1; progress text=one by=g1; progress by=g1"));
    let run = world.session.run(world.run()).unwrap();
    assert_eq!((run.steps, run.usage.input), (0, 11));
    assert_eq!(subagent(&world, "g1").steps, 2);
    assert!(!world.session.is_answered(world.run()), "what a subagent says does not end the run");
}
