//! Laws that hold for every sequence of commands, on an intact log and on a damaged one.
//!
//! Random scripts ([`crate::ops`]) run against a [`Model`], which knows far less than the rules.

use std::collections::{BTreeMap, BTreeSet};

use ctx_session::control::CompactionState;
use ctx_session::conversation::{Part, Role, restored_ids};
use ctx_session::record::{
    ApprovalBody, ApprovalOutcome, CheckpointBody, CheckpointBy, CompactionBody, RunBody, RunKind,
    SessionBody, ToolBody,
};
use ctx_session::{Answer, Body, Effect, IdSource, Record, Refusal, RunId, Session, State, StateName, Ulid};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::log::{from_line, replay, to_line};
use crate::model::{AGGREGATED, COMPACTIONS, Expected, Model};
use crate::ops::{Op, op};
use crate::run_table::is_end;
use crate::script::scene;
use crate::vocabulary::command;
use crate::world::{Told, World, recover};

/// Asks for one line of a script, and holds the answer against the model and the laws.
fn step(world: &mut World, model: &mut Model, op: &Op) {
    let op = &op.at(model);
    world.tick();
    if matches!(op, Op::Restart) {
        let before = world.session.clone();
        world.restart();
        assert_eq!(world.session, before, "replaying the log gives the same session");
        return;
    }
    let (before, written) = (world.session.clone(), world.records.len());
    let op_line = op.line(model);
    let told = world.ask(&command(world, &op_line));
    let expected = model.expect(op);
    match (&told, &expected) {
        (Err(Refusal { code, .. }), Expected::Refused(expected)) => assert_eq!(code, expected, "{op_line}"),
        (Ok(decision), Expected::NoChange) => assert!(decision.records.is_empty(), "{op_line}: {decision:?}"),
        (Ok(decision), Expected::Written) if matches!(op, Op::SetModel(_)) => {
            assert!(decision.records.len() <= 1)
        }
        (Ok(decision), Expected::Written) => assert!(!decision.records.is_empty(), "{op_line}"),
        (Ok(decision), Expected::Repeated(run)) => is_repeated(world, decision, *run),
        (Ok(_) | Err(_), _) => panic!("{op_line}: {expected:?} was expected, not {told:?}"),
    }
    if told.is_err() {
        assert_eq!((&world.session, world.records.len()), (&before, written), "a refusal writes nothing");
    }
    if let Ok(decision) = &told {
        moves_are_told(before.state.name(), world.state(), decision);
        only_a_rollback_brings_back(&before, &world.session, decision);
        only_a_rollback_shows_output_again(&before, world, decision);
    }
    agrees(world, model);
    is_lawful(world);
}

fn is_repeated(world: &World, decision: &Told, run: usize) {
    let begun = world.session.runs().nth(run).unwrap();
    let (state, message) = (begun.state.clone(), begun.message_id.expect("a message began it"));
    assert!(decision.records.is_empty() && decision.effects.is_empty(), "a retry starts nothing");
    assert_eq!(decision.answer, Answer::Posted { run: begun.id, message, state, repeated: true });
}

/// A move is one `state_changed` at the end of its command, and the count is broadcast when it changes.
fn moves_are_told(before: StateName, after: StateName, decision: &Told) {
    let changes: Vec<_> = decision
        .records
        .iter()
        .filter(|b| matches!(b, Body::Session(SessionBody::StateChanged(_))))
        .collect();
    assert_eq!(changes.len(), usize::from(before != after), "{decision:?}");
    if let Some(Body::Session(SessionBody::StateChanged(change))) = changes.first() {
        assert_eq!((change.from, change.to), (before, after));
        assert_eq!(decision.records.last(), changes.first().copied());
    }
    let count_moves = (before == StateName::Running) != (after == StateName::Running);
    assert_eq!(decision.effects.contains(&Effect::BroadcastRunning), count_moves, "{decision:?}");
    let is_start = |effect: &&Effect| matches!(effect, Effect::StartRun { .. } | Effect::ContinueRun { .. });
    let starts = decision.effects.iter().filter(is_start).count();
    assert_eq!(starts, usize::from(after == StateName::Running && before != after));
}

/// A message that no longer counted counts again only where a rollback names it.
fn only_a_rollback_brings_back(before: &Session, after: &Session, decision: &Told) {
    let gone = |session: &Session| -> BTreeSet<Ulid> {
        session.ledger.entries().iter().filter(|e| e.superseded_at.is_some()).map(|e| e.id).collect()
    };
    let back: BTreeSet<Ulid> = gone(before).difference(&gone(after)).copied().collect();
    let named: BTreeSet<Ulid> = decision.records.iter().flat_map(restored_ids).copied().collect();
    assert_eq!(back, named);
    assert!(
        named.is_empty()
            || decision
                .records
                .iter()
                .any(|body| matches!(body, Body::Checkpoint(CheckpointBody::RolledBack(_))))
    );
}

/// What a tool gave is shown again only by a rollback, which shows what was shown at its checkpoint.
fn only_a_rollback_shows_output_again(before: &Session, world: &World, decision: &Told) {
    let elided = |session: &Session| -> BTreeSet<Ulid> { session.ledger.elided().collect() };
    let now = elided(&world.session);
    let back = decision.records.iter().find_map(|body| match body {
        Body::Checkpoint(CheckpointBody::RolledBack(back)) => {
            world.session.control.checkpoint(back.checkpoint_id)
        }
        _ => None,
    });
    match back {
        Some(at) => {
            let then: Vec<Record> = world.records.iter().filter(|r| r.seq <= at.seq).cloned().collect();
            assert_eq!(now, elided(&replay(&then)), "as at the checkpoint");
        }
        None => {
            let counts = |id: &Ulid| world.session.ledger.counts(*id);
            let shown: Vec<Ulid> = elided(before).difference(&now).filter(|id| counts(id)).copied().collect();
            assert!(shown.is_empty(), "{decision:?}");
        }
    }
}

fn agrees(world: &World, model: &Model) {
    let session = &world.session;
    let named = |ids: Vec<Ulid>| ids.into_iter().map(|id| world.name_of(id)).collect::<BTreeSet<_>>();
    assert_eq!(world.state(), model.state());
    assert_eq!(session.runs().map(|run| run.state.as_str()).collect::<Vec<_>>(), model.runs);
    assert_eq!(session.attached.is_some(), model.attached.is_some());
    assert_eq!(session.archived, model.archived);
    assert_eq!(session.bound_issue.map(|issue| world.name_of(issue.0)), model.bound.map(|n| format!("i{n}")));
    let open = named(session.open_tools().map(|(call, _)| call.0).collect());
    assert_eq!(open, model.open_tools.iter().cloned().collect());
    let pending: Vec<String> =
        session.pending_calls().iter().map(|call| world.name_of(call.call_id.0)).collect();
    assert_eq!(pending, model.pending);
    let waiting = named(session.control.open_approvals().map(|open| open.asked.approval_id.0).collect());
    let asked = model.approvals.iter().filter(|approval| approval.is_open);
    assert_eq!(waiting, asked.map(|approval| approval.name.clone()).collect());
    assert_eq!(world.counting(), model.talk, "the messages that count, in order");
    let counting = named(session.ledger.counting().map(|entry| entry.id).collect());
    assert_eq!(counting, model.talk.iter().cloned().collect(), "the ledger and the conversation agree");
    let pinned = named(session.ledger.pinned().collect());
    let kept = model.pins.iter().filter(|name| model.talk.contains(name));
    assert_eq!(pinned, kept.cloned().collect(), "the messages that no compaction takes");
    control_agrees(world, model);
}

fn control_agrees(world: &World, model: &Model) {
    let (session, control) = (&world.session, &world.session.control);
    let paused = model.paused.map(|at| format!("k{}", at + 1));
    assert_eq!(session.paused_at().map(|at| world.name_of(at.id().0)), paused);
    let found = control.checkpoints.iter();
    let found: Vec<_> =
        found.map(|c| (c.resumed_at.is_some(), c.rolled_back, c.superseded_by.is_some())).collect();
    let expected = model.checkpoints.iter();
    let expected: Vec<_> = expected.map(|c| (c.resumed, c.rolled_back, c.superseded.is_some())).collect();
    assert_eq!(found, expected, "checkpoints: resumed, rolled back, superseded");
    let found = control.compactions.iter();
    let found: Vec<_> = found.map(|c| (world.name_of(c.id().0), c.state.as_str(), c.rolled_back)).collect();
    let expected = model.compactions.iter().enumerate().skip(model.aggregated);
    let expected: Vec<_> =
        expected.map(|(at, c)| (format!("x{}", at + 1), c.state, c.rolled_back.is_some())).collect();
    assert_eq!(found, expected, "compactions: state, rolled back");
    let aggregated: u32 = control.aggregates.iter().map(|aggregate| aggregate.count).sum();
    assert_eq!(aggregated as usize, model.aggregated);
}

/// What holds whatever was asked, also where no model says it.
fn is_lawful(world: &World) {
    let session = &world.session;
    let open: Vec<RunId> = session.runs().filter(|run| !run.state.is_over()).map(|run| run.id).collect();
    let current: Vec<RunId> = session.current_run().map(|run| run.id).into_iter().collect();
    assert_eq!(open, current, "one open run at most, and the state knows it");
    match &session.state {
        State::Idle | State::Ended | State::Failed(_) => assert_eq!(open, []),
        State::Running { run } | State::Queued { run, .. } => assert_eq!(open, [*run]),
        State::Paused { .. } => assert!(pause_points(session).len() == 1, "one pause point"),
    }
    if world.state() != StateName::Paused {
        assert!(session.pending_calls().is_empty() || world.state() == StateName::Running);
    }
    assert_eq!(
        newest_state_changed(&world.records),
        world.state(),
        "the newest state_changed tells the state"
    );
    let waiting: Vec<Ulid> = session.control.proposed().map(|proposed| proposed.id().0).collect();
    let asked = session.paused_at().and_then(|at| at.created.compaction_id).map(|id| id.0);
    assert_eq!(waiting, asked.into_iter().collect::<Vec<_>>(), "what is proposed waits at the pause");
    calls_have_their_results(world);
}

/// The checkpoints at which something waits: an open run, or a compaction to decide on.
fn pause_points(session: &Session) -> Vec<Ulid> {
    let checkpoints = session.control.checkpoints.iter();
    let left = checkpoints.filter(|c| c.resumed_at.is_none() && !c.rolled_back && c.superseded_by.is_none());
    let waits = left.filter(|c| {
        let proposed = c.created.compaction_id.and_then(|id| session.control.compaction(id));
        session.run(c.created.turn_id).is_some_and(|run| !run.state.is_over())
            || proposed.is_some_and(|found| found.state == CompactionState::Proposed)
    });
    waits.map(|c| c.id().0).collect()
}

/// No result without its call before it; no call without its result, unless it still goes on.
fn calls_have_their_results(world: &World) {
    let mut parts: BTreeMap<Ulid, Vec<&'static str>> = BTreeMap::new();
    let conversation = world.conversation();
    for message in &conversation {
        for part in &message.content {
            match part {
                Part::Text { .. } | Part::Image(_) => {}
                Part::ToolCall { call_id, .. } => parts.entry(*call_id).or_default().push("call"),
                Part::ToolResult { call_id, .. } => {
                    assert_eq!(message.role, Role::Tool);
                    parts.entry(*call_id).or_default().push("result");
                }
            }
        }
    }
    let open: BTreeSet<Ulid> = world.session.open_tools().map(|(call, _)| call.0).collect();
    for (call, parts) in parts {
        let whole: &[&str] = if open.contains(&call) { &["call"] } else { &["call", "result"] };
        assert_eq!(parts, whole, "{}", world.name_of(call));
    }
}

fn newest_state_changed(records: &[Record]) -> StateName {
    let newest = records.iter().rev().find_map(|record| match &record.body {
        Body::Session(SessionBody::StateChanged(change)) => Some(change.to),
        _ => None,
    });
    newest.unwrap_or(StateName::Idle)
}

fn ends_of(records: &[Record], run: RunId) -> usize {
    let ended = |body: &Body| match body {
        Body::Run(RunBody::Finished(end)) => end.turn_id == run,
        Body::Run(RunBody::Cancelled(end)) => end.turn_id == run,
        Body::Run(RunBody::Failed(end)) => end.turn_id == run,
        _ => false,
    };
    records.iter().filter(|record| is_end(&record.body) && ended(&record.body)).count()
}

fn played(ops: &[Op]) -> (World, Model) {
    let (mut world, mut model) = (World::new(), Model::default());
    world.limits.compactions_per_session = COMPACTIONS;
    world.limits.compactions_aggregated = AGGREGATED;
    for op in ops {
        step(&mut world, &mut model, op);
    }
    (world, model)
}

/// What happens to one line of a log.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Drop(Index),
    Repeat(Index, Index),
    Swap(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        3 => any::<Index>().prop_map(Damage::Drop),
        1 => any::<(Index, Index)>().prop_map(|(from, to)| Damage::Repeat(from, to)),
        1 => any::<(Index, Index)>().prop_map(|(a, b)| Damage::Swap(a, b)),
    ]
}

/// Everything but the first line may be damaged: a log without it is given a new one by recovery.
fn damaged(records: &[Record], damages: &[Damage]) -> Vec<Record> {
    let lines: Vec<String> = records.iter().map(to_line).collect();
    let mut rest: Vec<String> = lines[1..].to_vec();
    for damage in damages {
        if rest.is_empty() {
            break;
        }
        let len = rest.len();
        match damage {
            Damage::Drop(at) => drop(rest.remove(at.index(len))),
            Damage::Repeat(from, to) => rest.insert(to.index(len), rest[from.index(len)].clone()),
            Damage::Swap(a, b) => rest.swap(a.index(len), b.index(len)),
        }
    }
    lines.iter().take(1).chain(&rest).map(|line| from_line(line)).collect()
}

/// A daemon starts on this log and recovers the session.
fn recovered(records: Vec<Record>) -> World {
    let mut world = World::new();
    // Another daemon makes other ids.
    world.ids = IdSource::new(2);
    world.records = records;
    world.restart();
    world.ask(&recover()).expect("recovery is never refused");
    world
}

/// `PROPTEST_CASES` in the environment asks for more.
fn config() -> ProptestConfig {
    let given = ProptestConfig::default();
    ProptestConfig { cases: given.cases.max(500), failure_persistence: None, ..given }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_rules_do_what_the_model_says(ops in vec(op(), 0..90)) {
        let (world, _) = played(&ops);
        prop_assert_eq!(&replay(&world.records), &world.session);
        let mut read = World::new();
        read.records = world.records.iter().map(|record| from_line(&to_line(record))).collect();
        prop_assert_eq!(read.conversation(), world.conversation(), "the log gives the same conversation");
        for (seq, record) in world.records.iter().enumerate() {
            prop_assert_eq!(record.seq, seq as u64, "seq has no gap");
        }
        for run in world.session.runs() {
            prop_assert_eq!(ends_of(&world.records, run.id), usize::from(run.state.is_over()), "one end");
            prop_assert_eq!(run.completed_at.is_some(), run.state.is_over());
        }
    }

    #[test]
    fn every_prefix_of_a_log_opens_and_recovers(ops in vec(op(), 0..30)) {
        let (world, _) = played(&ops);
        for len in 1..=world.records.len() {
            let world = recovered(world.records[..len].to_vec());
            is_sound(&world);
        }
    }

    #[test]
    fn a_damaged_log_opens_recovers_once_and_goes_on(
        ops in vec(op(), 0..40),
        damages in vec(damage(), 1..8),
        more in vec(op(), 0..10),
    ) {
        let (whole, model) = played(&ops);
        let mut world = recovered(damaged(&whole.records, &damages));
        is_sound(&world);
        let before = world.records.len();
        world.ask(&recover()).unwrap();
        prop_assert_eq!(world.records.len(), before, "recovery is idempotent");
        prop_assert_eq!(&replay(&world.records), &world.session);
        for op in more.iter().map(|op| op.at(&model)).filter(|op| !matches!(op, Op::Restart)) {
            let _ = world.ask(&command(&world, &op.line(&model)));
            prop_assert_eq!(newest_state_changed(&world.records), world.state());
        }
        prop_assert_eq!(&replay(&world.records), &world.session);
    }

    #[test]
    fn records_in_any_order_never_panic(
        ops in vec(op(), 0..40),
        order in vec(any::<Index>(), 0..80),
        seqs in vec(any::<u64>(), 80),
    ) {
        let (world, _) = played(&ops);
        let mut session = world.session.clone();
        for (at, seq) in order.iter().zip(seqs) {
            let record = Record { seq, ..at.get(&world.records).clone() };
            session.apply(&record);
        }
    }
}

fn orders_of(lines: &[&'static str]) -> Vec<Vec<&'static str>> {
    let Some((first, rest)) = lines.split_first() else { return vec![Vec::new()] };
    let with_first = |order: Vec<&'static str>| {
        (0..=order.len()).map(move |at| [&order[..at], &[*first], &order[at..]].concat()).collect::<Vec<_>>()
    };
    orders_of(rest).into_iter().flat_map(with_first).collect()
}

#[test]
fn in_whatever_order_the_end_of_a_run_and_its_operator_come_one_end_wins() {
    let raced =
        ["cancel r1", "pause", "resume k1", "rollback k1", "finish done r1", "finish cancelled r1", "end"];
    for text in ["progress text=hi", "progress text=hi calls"] {
        for order in orders_of(&raced) {
            let mut world = scene(&format!("post; {text}"));
            for line in &order {
                let _ = world.ask(&command(&world, line));
                is_lawful(&world);
            }
            assert_eq!(ends_of(&world.records, world.run()), 1, "{order:?}");
            assert_eq!(world.state(), StateName::Ended, "{order:?}");
        }
    }
}

/// How often random scripts come to what the laws speak of: a law that nothing tries is not tested.
#[test]
fn random_scripts_reach_what_the_laws_speak_of() {
    let mut runner = TestRunner::deterministic();
    let mut reached: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..300 {
        let ops = vec(op(), 60..90).new_tree(&mut runner).unwrap().current();
        let (world, _) = played(&ops);
        for record in &world.records {
            for what in worth_counting(&record.body) {
                *reached.entry(what).or_default() += 1;
            }
        }
    }
    for what in [
        "pause",
        "pause by the model",
        "resume",
        "resume with edits",
        "rollback",
        "rollback past a compaction",
        "compaction",
        "summary",
        "proposal",
        "approval",
        "rejection",
        "aggregation",
        "continuation",
        "held call",
        "interrupted approval",
    ] {
        let count = reached.get(what).copied().unwrap_or(0);
        assert!(count >= 20, "{what}: {count} times of {reached:?}");
    }
}

fn worth_counting(body: &Body) -> Vec<&'static str> {
    match body {
        Body::Checkpoint(CheckpointBody::Created(made)) if made.created_by == CheckpointBy::Model => {
            vec!["pause by the model"]
        }
        Body::Checkpoint(CheckpointBody::Created(_)) => vec!["pause"],
        Body::Checkpoint(CheckpointBody::Resumed(resumed)) if resumed.prompts.is_empty() => vec!["resume"],
        Body::Checkpoint(CheckpointBody::Resumed(_)) => vec!["resume with edits"],
        Body::Checkpoint(CheckpointBody::RolledBack(back)) if back.restored.is_empty() => vec!["rollback"],
        Body::Checkpoint(CheckpointBody::RolledBack(_)) => vec!["rollback past a compaction"],
        Body::Compaction(CompactionBody::Recorded(made)) if made.proposed => vec!["proposal"],
        Body::Compaction(CompactionBody::Recorded(made)) if made.summary.is_some() => {
            vec!["compaction", "summary"]
        }
        Body::Compaction(CompactionBody::Recorded(_)) => vec!["compaction"],
        Body::Compaction(CompactionBody::Approved(_)) => vec!["approval"],
        Body::Compaction(CompactionBody::Rejected(_)) => vec!["rejection"],
        Body::Compaction(CompactionBody::Aggregated(_)) => vec!["aggregation"],
        Body::Run(RunBody::Created(created)) if created.kind == RunKind::Continuation => vec!["continuation"],
        Body::Tool(ToolBody::Pending(_)) => vec!["held call"],
        Body::Approval(ApprovalBody::Settled(settled)) if settled.outcome == ApprovalOutcome::Interrupted => {
            vec!["interrupted approval"]
        }
        _ => Vec::new(),
    }
}

/// What holds after every recovery, whatever was found.
fn is_sound(world: &World) {
    assert_ne!(world.state(), StateName::Running, "nothing of an earlier daemon runs");
    assert_eq!(newest_state_changed(&world.records), world.state());
    let session = &world.session;
    assert_eq!((session.open_tools().count(), session.control.open_approvals().count()), (0, 0));
    assert_eq!(session.attached, None);
    let waits = session.current_run().map(|run| run.id);
    for run in session.runs() {
        assert_eq!(run.state.is_over(), Some(run.id) != waits, "{run:?}");
    }
    if world.state() == StateName::Paused {
        assert!(pause_points(session).contains(&session.paused_at().unwrap().id().0));
    }
}
