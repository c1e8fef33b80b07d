//! The seed's "Concurrency throttle tests", over the rules and the admission table: several sessions, one daemon.
//! What needs a system socket is tested with the engine.

use ctx_session::admission::Admissions;
use ctx_session::command::Admission;
use ctx_session::record::{LimitHit, LimitScope, SessionBody, StateChanged, Trigger};
use ctx_session::rules::Create;
use ctx_session::{
    Answer, Body, Code, Command, Effect, Limits, Name, Refusal, RunState, SessionId, StateName, Ulid,
};

use crate::log::messages_jsonl;
use crate::script::play;
use crate::vocabulary::command;
use crate::world::{OWNER, Told, World, granted, new_session, post};

/// What an engine does around the rules: reserve, decide, then keep the slot or give it back.
#[derive(Default)]
struct Daemon {
    admissions: Admissions,
    limits: Limits,
    created: u32,
}

impl Daemon {
    fn create(&mut self, project: &str) -> World {
        self.created += 1;
        let id = SessionId(Ulid(u128::from(self.created)));
        World::created_by(Create { id, name: None, project: Name::new(project).unwrap(), ..new_session() })
    }

    fn admit(&mut self, world: &World) -> Admission {
        let meta = &world.session.meta;
        match self.admissions.reserve(&meta.project, meta.owner, &self.limits) {
            Ok(running) => match granted() {
                Admission::Granted { context, .. } => Admission::Granted { context, running },
                full @ Admission::Full(_) => full,
            },
            Err(hit) => Admission::Full(hit),
        }
    }

    fn post(&mut self, world: &mut World) -> Result<Told, Refusal> {
        let admission = self.admit(world);
        self.ask(world, &Command::PostMessage(post("hello", admission)))
    }

    fn resume(&mut self, world: &mut World) -> Result<Told, Refusal> {
        let admission = self.admit(world);
        self.ask(world, &Command::ResumeQueued { admission, by: OWNER })
    }

    /// A script's line, with the slot that there is.
    fn line(&mut self, world: &mut World, line: &str) -> Result<Told, Refusal> {
        let mut asked = command(world, line);
        match &mut asked {
            Command::Resume { admission, .. }
            | Command::Compact { admission, .. }
            | Command::Retry { admission, .. }
            | Command::ApproveCompaction { admission, .. } => *admission = self.admit(world),
            _ => {}
        }
        self.ask(world, &asked)
    }

    fn finish(&mut self, world: &mut World) {
        let finish = command(world, "finish done");
        self.ask(world, &finish).unwrap();
    }

    /// A slot is held by exactly the sessions that run.
    fn ask(&mut self, world: &mut World, asked: &Command) -> Result<Told, Refusal> {
        let was_running = world.state() == StateName::Running;
        let reserved = matches!(
            asked,
            Command::PostMessage(ctx_session::command::PostMessage {
                admission: Admission::Granted { .. },
                ..
            }) | Command::ResumeQueued { admission: Admission::Granted { .. }, .. }
                | Command::Resume { admission: Admission::Granted { .. }, .. }
                | Command::Compact { admission: Admission::Granted { .. }, .. }
                | Command::Retry { admission: Admission::Granted { .. }, .. }
                | Command::ApproveCompaction { admission: Admission::Granted { .. }, .. }
        );
        let decided = world.ask(asked);
        let holds = u32::from(was_running) + u32::from(reserved);
        for _ in u32::from(world.state() == StateName::Running)..holds {
            self.admissions.release(&world.session.meta.project, world.session.meta.owner);
        }
        decided
    }

    fn running(&mut self, project: &str, count: usize) -> Vec<World> {
        let mut started = Vec::new();
        for _ in 0..count {
            let mut world = self.create(project);
            self.post(&mut world).unwrap();
            assert_eq!(world.state(), StateName::Running);
            started.push(world);
        }
        started
    }
}

fn limit_in_log(world: &World) -> Option<LimitHit> {
    world.records.iter().rev().find_map(|record| match &record.body {
        Body::Session(SessionBody::StateChanged(StateChanged { limit, .. })) => Some(*limit),
        _ => None,
    })?
}

#[test]
fn under_limit_the_session_runs_and_the_run_starts() {
    let mut daemon = Daemon::default();
    let _others = daemon.running("demo", 3);
    let mut world = daemon.create("demo");
    let decision = daemon.post(&mut world).unwrap();
    assert_eq!(world.state(), StateName::Running);
    let run = world.run();
    assert!(decision.effects.contains(&Effect::StartRun { run }));
    let meta = &world.session.meta;
    assert_eq!(daemon.admissions.in_project(&meta.project, meta.owner), 4);
}

#[test]
fn at_per_project_limit_the_fifth_session_is_queued_with_its_message() {
    let mut daemon = Daemon::default();
    let _others = daemon.running("demo", 4);
    let mut fifth = daemon.create("demo");
    let decision = daemon.post(&mut fifth).unwrap();
    assert_eq!(fifth.state(), StateName::Queued);
    assert!(matches!(decision.answer, Answer::Posted { state: RunState::Pending, repeated: false, .. }));
    assert!(decision.effects.is_empty(), "nothing starts");
    assert!(messages_jsonl(&fifth.records).contains("hello"), "the message is persisted");
    let hit = LimitHit { scope: LimitScope::PerProject, running: 4, limit: 4 };
    assert_eq!(limit_in_log(&fifth), Some(hit));
    // Another project has slots of its own.
    assert_eq!(daemon.running("other", 1).len(), 1);
}

#[test]
fn at_per_operator_limit_the_seventeenth_session_is_queued() {
    let mut daemon = Daemon::default();
    let mut others = Vec::new();
    for project in ["a", "b", "c", "d"] {
        others.extend(daemon.running(project, 4));
    }
    let mut seventeenth = daemon.create("e");
    daemon.post(&mut seventeenth).unwrap();
    assert_eq!(seventeenth.state(), StateName::Queued);
    let hit = LimitHit { scope: LimitScope::PerOperator, running: 16, limit: 16 };
    assert_eq!(limit_in_log(&seventeenth), Some(hit));
    assert_eq!(daemon.admissions.counts().total, 16);
}

#[test]
fn resume_from_queued_when_a_slot_frees_starts_the_pending_run() {
    let mut daemon = Daemon::default();
    let mut others = daemon.running("demo", 4);
    let mut fifth = daemon.create("demo");
    daemon.post(&mut fifth).unwrap();
    let run = fifth.run();
    daemon.finish(&mut others[0]);
    assert_eq!(fifth.state(), StateName::Queued, "nothing is dequeued by itself");
    let decision = daemon.resume(&mut fifth).unwrap();
    assert_eq!((fifth.state(), fifth.run()), (StateName::Running, run));
    assert_eq!(decision.effects, [Effect::StartRun { run }, Effect::BroadcastRunning]);
    assert_eq!(fifth.session.run(run).unwrap().state, RunState::Running);
}

#[test]
fn resume_when_still_at_limit_is_refused_and_the_session_stays_queued() {
    let mut daemon = Daemon::default();
    let _others = daemon.running("demo", 4);
    let mut fifth = daemon.create("demo");
    daemon.post(&mut fifth).unwrap();
    let written = fifth.records.len();
    let refusal = daemon.resume(&mut fifth).unwrap_err();
    assert_eq!((refusal.code, refusal.code.http()), (Code::Ebusy, 409));
    assert_eq!(refusal.message, "4 of 4 runs in this project are busy; wait for one to end, or cancel one");
    assert_eq!((fifth.state(), fifth.records.len()), (StateName::Queued, written));
}

#[test]
fn discard_queued_message_cancels_the_run_and_supersedes_the_message() {
    let mut daemon = Daemon::default();
    let _others = daemon.running("demo", 4);
    let mut fifth = daemon.create("demo");
    daemon.post(&mut fifth).unwrap();
    let run = fifth.session.current_run().unwrap().clone();
    let discard = command(&fifth, "discard");
    daemon.ask(&mut fifth, &discard).unwrap();
    assert_eq!(fifth.state(), StateName::Idle);
    assert_eq!(fifth.session.run(run.id).unwrap().state, RunState::Cancelled);
    let superseded = format!(r#""type":"superseded","ids":["{}"]"#, run.message_id.unwrap());
    assert!(messages_jsonl(&fifth.records).contains(&superseded));
    assert_eq!(daemon.admissions.counts().total, 4, "it held no slot");
}

#[test]
fn paused_session_frees_its_slot_and_waits_for_one_to_go_on() {
    let mut daemon = Daemon::default();
    let mut a = daemon.running("demo", 1).remove(0);
    let others = daemon.running("demo", 3);
    let mut b = daemon.create("demo");
    daemon.post(&mut b).unwrap();
    assert_eq!(b.state(), StateName::Queued);
    let told = daemon.line(&mut a, "pause").unwrap();
    assert!(told.effects.contains(&Effect::BroadcastRunning));
    assert_eq!((a.state(), daemon.admissions.counts().total), (StateName::Paused, 3));
    daemon.resume(&mut b).unwrap();
    assert_eq!((b.state(), daemon.admissions.counts().total), (StateName::Running, 4));
    let written = a.records.len();
    let refusal = daemon.line(&mut a, "resume k1").unwrap_err();
    assert_eq!((refusal.code, refusal.code.http()), (Code::Ebusy, 409));
    assert_eq!((a.state(), a.records.len()), (StateName::Paused, written), "it stays paused");
    daemon.finish(&mut b);
    daemon.line(&mut a, "resume k1").unwrap();
    assert_eq!((a.state(), daemon.admissions.counts().total), (StateName::Running, 4));
    drop(others);
}

#[test]
fn a_compaction_that_is_asked_for_or_approved_takes_a_slot_and_is_not_queued() {
    let mut daemon = Daemon::default();
    let mut a = daemon.running("demo", 1).remove(0);
    daemon.line(&mut a, "propose x1").unwrap();
    assert_eq!(daemon.admissions.counts().total, 0, "while it waits it has none");
    let mut others = daemon.running("demo", 4);
    let mut b = daemon.create("demo");
    for line in ["approve x1", "resume k1", "compact"] {
        let world = if line == "compact" { &mut b } else { &mut a };
        let before = world.state();
        assert_eq!(daemon.line(world, line).unwrap_err().code, Code::Ebusy, "{line}");
        assert_eq!((world.state(), daemon.admissions.counts().total), (before, 4), "{line}");
    }
    daemon.finish(&mut others[0]);
    daemon.line(&mut a, "approve x1").unwrap();
    daemon.finish(&mut others[1]);
    daemon.line(&mut b, "compact").unwrap();
    assert_eq!(daemon.admissions.counts().total, 4);
}

#[test]
fn session_creation_ignores_concurrency() {
    let mut daemon = Daemon::default();
    let _others = daemon.running("demo", 4);
    for _ in 0..5 {
        assert_eq!(daemon.create("demo").state(), StateName::Idle);
    }
}

#[test]
fn count_is_broadcast_at_the_start_and_end_of_a_run_and_at_no_other_time() {
    let broadcasts = |script: &str, last: &str| {
        let mut world = World::new();
        play(&mut world, script);
        let asked = command(&world, last);
        world.ask(&asked).unwrap().effects.contains(&Effect::BroadcastRunning)
    };
    for (script, last) in [
        ("", "post"),
        ("post at-limit", "resume"),
        ("post", "finish done"),
        ("post", "finish failed"),
        ("post", "finish cancelled"),
        ("post", "end"),
        ("post", "fail"),
        ("post", "recover"),
        ("post", "pause"),
        ("post; pause", "resume k1"),
        ("post", "propose x1"),
        ("post; propose x1", "approve x1"),
        ("", "compact"),
    ] {
        assert!(broadcasts(script, last), "{script}; {last}");
    }
    for (script, last) in [
        ("", "post at-limit"),
        ("post at-limit", "discard"),
        ("post at-limit", "end"),
        ("post at-limit", "fail"),
        ("", "end"),
        ("fail", "end"),
        ("post", "cancel"),
        ("post", "progress text=hi"),
        ("post", "rename x"),
        ("post; pause", "rollback k1"),
        ("post; pause", "cancel"),
        ("post; pause", "end"),
        ("post; pause", "fail"),
        ("post; pause; progress text=hi", "resume k1"),
        ("post; propose x1", "reject x1"),
        ("compact; propose x1", "approve x1"),
        ("post; finish done; post; pause; cancel", "rollback k1"),
    ] {
        assert!(!broadcasts(script, last), "{script}; {last}");
    }
}

#[test]
fn the_last_slot_goes_to_one_of_two() {
    let mut daemon = Daemon::default();
    let _others = daemon.running("demo", 3);
    let (mut a, mut b) = (daemon.create("demo"), daemon.create("demo"));
    // Both have asked for a slot before either has written anything.
    let (for_a, for_b) = (daemon.admit(&a), daemon.admit(&b));
    daemon.ask(&mut a, &Command::PostMessage(post("a", for_a))).unwrap();
    daemon.ask(&mut b, &Command::PostMessage(post("b", for_b))).unwrap();
    assert_eq!((a.state(), b.state()), (StateName::Running, StateName::Queued));
    assert_eq!(daemon.admissions.counts().total, 4);
}

#[test]
fn a_slot_that_was_reserved_for_a_refused_message_is_free_again() {
    let mut daemon = Daemon::default();
    let mut world = daemon.running("demo", 1).remove(0);
    assert_eq!(daemon.post(&mut world).unwrap_err().code, Code::Ebusy);
    assert_eq!(daemon.admissions.counts().total, 1);
}

#[test]
fn giving_back_more_than_was_taken_frees_no_slot_of_others() {
    let (mut admissions, limits) = (Admissions::default(), Limits::default());
    let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
    admissions.release(&a, 1);
    admissions.reserve(&a, 1, &limits).unwrap();
    admissions.reserve(&b, 2, &limits).unwrap();
    admissions.release(&a, 1);
    admissions.release(&a, 1);
    assert_eq!((admissions.in_project(&a, 1), admissions.in_project(&b, 2)), (0, 1));
    assert_eq!((admissions.of_operator(1), admissions.of_operator(2), admissions.counts().total), (0, 1, 1));
}

#[test]
fn a_limit_of_none_queues_everything() {
    let mut daemon =
        Daemon { limits: Limits { running_per_project: 0, ..Limits::default() }, ..Daemon::default() };
    let mut world = daemon.create("demo");
    daemon.post(&mut world).unwrap();
    assert_eq!(world.state(), StateName::Queued);
    let Some(Body::Session(SessionBody::StateChanged(change))) = world.records.last().map(|r| &r.body) else {
        panic!("no move")
    };
    assert_eq!(change.trigger, Trigger::ConcurrencyLimit);
}
