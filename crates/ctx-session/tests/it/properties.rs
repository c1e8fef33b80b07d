//! Laws that hold for every sequence of commands, on an intact log and on a damaged one.
//!
//! Random scripts run against [`Model`], which knows far less than the rules: it counts runs and remembers words.

use std::collections::HashMap;
use std::fmt;

use ctx_session::{Answer, Body, Code, Effect, IdSource, Record, Refusal, RunId, State, StateName};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::log::{from_line, replay, to_line};
use crate::run_table::is_end;
use crate::script::command;
use crate::world::{Told, World, recover};

/// A line of a random script. `Display` is its form in the script, so that a failure reads as one.
#[derive(Debug, Clone)]
enum Op {
    Post { full: bool, client_id: Option<u8> },
    Resume { full: bool },
    Discard,
    Progress(&'static str),
    Finish { outcome: &'static str, run: Option<usize> },
    Cancel { run: Option<usize> },
    Rename(u8),
    SetModel(&'static str),
    Attach { connection: u8, takeover: bool },
    Detach { connection: u8 },
    Archive(bool),
    End,
    Fail,
    Recover,
    Restart,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |full: &bool| if *full { " at-limit" } else { "" };
        let id = |id: &Option<u8>| id.map_or(String::new(), |id| format!(" id=k{id}"));
        let named = |run: &Option<usize>| run.map_or(String::new(), |run| format!(" r{run}"));
        match self {
            Op::Post { full, client_id } => write!(f, "post{}{}", limit(full), id(client_id)),
            Op::Resume { full } => write!(f, "resume{}", limit(full)),
            Op::Discard => write!(f, "discard"),
            Op::Progress(what) => write!(f, "progress {what}"),
            Op::Finish { outcome, run } => write!(f, "finish {outcome}{}", named(run)),
            Op::Cancel { run } => write!(f, "cancel{}", named(run)),
            Op::Rename(title) => write!(f, "rename title-{title}"),
            Op::SetModel(model) => write!(f, "set_model {model}"),
            Op::Attach { connection, takeover } => {
                write!(f, "attach c{connection}{}", if *takeover { " takeover" } else { "" })
            }
            Op::Detach { connection } => write!(f, "detach c{connection}"),
            Op::Archive(true) => write!(f, "archive"),
            Op::Archive(false) => write!(f, "unarchive"),
            Op::End => write!(f, "end"),
            Op::Fail => write!(f, "fail"),
            Op::Recover => write!(f, "recover"),
            Op::Restart => write!(f, "restart"),
        }
    }
}

const PROGRESS: &[&str] =
    &["", "text=hi", "thought=hm", "tool=t1", "tool=t2", "tool-done=t1", "tool-done=t2"];

fn op() -> impl Strategy<Value = Op> {
    let run = prop::option::weighted(0.3, 1..6_usize);
    prop_oneof![
        20 => (any::<bool>(), prop::option::of(0..3_u8)).prop_map(|(full, client_id)| Op::Post { full, client_id }),
        8 => any::<bool>().prop_map(|full| Op::Resume { full }),
        4 => Just(Op::Discard),
        16 => select(PROGRESS).prop_map(Op::Progress),
        12 => (select(&["done", "failed", "cancelled", "cancelled partial"][..]), run.clone())
            .prop_map(|(outcome, run)| Op::Finish { outcome, run }),
        6 => run.prop_map(|run| Op::Cancel { run }),
        2 => any::<u8>().prop_map(Op::Rename),
        2 => select(&["a:b", "c:d", "none"][..]).prop_map(Op::SetModel),
        4 => (0..3_u8, any::<bool>()).prop_map(|(connection, takeover)| Op::Attach { connection, takeover }),
        4 => (0..3_u8).prop_map(|connection| Op::Detach { connection }),
        4 => any::<bool>().prop_map(Op::Archive),
        1 => Just(Op::End),
        1 => Just(Op::Fail),
        4 => Just(Op::Recover),
        4 => Just(Op::Restart),
    ]
}

/// What a person would keep on a slip of paper about a session.
#[derive(Debug)]
struct Model {
    state: StateName,
    /// The word for each run's state, oldest first.
    runs: Vec<&'static str>,
    client_ids: HashMap<u8, usize>,
    open_tools: Vec<&'static str>,
    attached: Option<u8>,
    archived: bool,
}

/// What the model says comes of a command.
#[derive(Debug, PartialEq)]
enum Expected {
    Refused(Code),
    /// Nothing is written.
    NoChange,
    Written,
    /// The run that a client id began earlier, counted from zero.
    Repeated(usize),
}

impl Model {
    fn new() -> Model {
        Model {
            state: StateName::Idle,
            runs: Vec::new(),
            client_ids: HashMap::new(),
            open_tools: Vec::new(),
            attached: None,
            archived: false,
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, StateName::Ended | StateName::Failed)
    }

    /// Brings the current run to its end and the session to a state.
    fn settle(&mut self, run_state: &'static str, state: StateName) -> Expected {
        if matches!(self.state, StateName::Running | StateName::Queued) {
            *self.runs.last_mut().unwrap() = run_state;
        }
        self.open_tools.clear();
        self.state = state;
        Expected::Written
    }

    fn expect(&mut self, op: &Op) -> Expected {
        match op {
            Op::Post { full, client_id } => self.post(*full, *client_id),
            Op::Resume { .. } | Op::Discard => self.queue(op),
            Op::Progress(what) => self.progress(what),
            Op::Finish { outcome, run } => self.finish(outcome, *run),
            Op::Cancel { run } => self.cancel(*run),
            Op::Rename(_) => Expected::Written,
            // Whether the model changes is left to the tests of settings.
            Op::SetModel(_) if self.is_over() => Expected::Refused(Code::Eshutdown),
            Op::SetModel(_) => Expected::Written,
            Op::Attach { connection, takeover } => self.attach(*connection, *takeover),
            Op::Detach { connection } if self.attached == Some(*connection) => {
                self.attached = None;
                Expected::Written
            }
            Op::Detach { .. } => Expected::NoChange,
            Op::Archive(archived) => self.archive(*archived),
            Op::End if self.state == StateName::Ended => Expected::Refused(Code::Eshutdown),
            Op::End => {
                self.attached = None;
                self.settle("cancelled", StateName::Ended)
            }
            Op::Fail if self.is_over() => Expected::NoChange,
            Op::Fail => {
                self.attached = None;
                self.settle("failed", StateName::Failed)
            }
            Op::Recover => self.recover(),
            Op::Restart => Expected::NoChange,
        }
    }

    fn post(&mut self, full: bool, client_id: Option<u8>) -> Expected {
        if let Some(run) = client_id.and_then(|id| self.client_ids.get(&id)) {
            return Expected::Repeated(*run);
        }
        match self.state {
            StateName::Idle => {
                self.archived = false;
                client_id.map(|id| self.client_ids.insert(id, self.runs.len()));
                self.runs.push(if full { "pending" } else { "running" });
                self.state = if full { StateName::Queued } else { StateName::Running };
                Expected::Written
            }
            StateName::Running | StateName::Queued => Expected::Refused(Code::Ebusy),
            StateName::Ended | StateName::Failed => Expected::Refused(Code::Eshutdown),
        }
    }

    fn queue(&mut self, op: &Op) -> Expected {
        match (self.state, op) {
            (StateName::Queued, Op::Discard) => self.settle("cancelled", StateName::Idle),
            (StateName::Queued, Op::Resume { full: false }) => self.settle("running", StateName::Running),
            (StateName::Queued | StateName::Running, _) => Expected::Refused(Code::Ebusy),
            (StateName::Idle, _) => Expected::Refused(Code::Enoent),
            (StateName::Ended | StateName::Failed, _) => Expected::Refused(Code::Eshutdown),
        }
    }

    fn progress(&mut self, what: &'static str) -> Expected {
        if self.state != StateName::Running {
            return Expected::NoChange;
        }
        match what.split_once('=') {
            Some(("tool", tool)) if self.open_tools.contains(&tool) => {
                return Expected::Refused(Code::Eexist);
            }
            Some(("tool", tool)) => self.open_tools.push(tool),
            Some(("tool-done", tool)) if !self.open_tools.contains(&tool) => {
                return Expected::Refused(Code::Enoent);
            }
            Some(("tool-done", tool)) => self.open_tools.retain(|open| *open != tool),
            Some(_) | None => {}
        }
        Expected::Written
    }

    /// The run that a script means: the one it names, or the newest.
    fn is_current(&self, run: Option<usize>) -> bool {
        run.is_none_or(|run| run == self.runs.len())
    }

    fn finish(&mut self, outcome: &'static str, run: Option<usize>) -> Expected {
        if self.state != StateName::Running || !self.is_current(run) {
            return Expected::NoChange;
        }
        let word = outcome.split(' ').next().unwrap();
        self.settle(word, StateName::Idle)
    }

    fn cancel(&mut self, run: Option<usize>) -> Expected {
        if run.unwrap_or(self.runs.len()) > self.runs.len() || self.runs.is_empty() {
            return Expected::Refused(Code::Enoent);
        }
        if self.state == StateName::Queued && self.is_current(run) {
            return self.settle("cancelled", StateName::Idle);
        }
        Expected::NoChange
    }

    fn attach(&mut self, connection: u8, takeover: bool) -> Expected {
        match self.attached {
            Some(old) if old == connection => Expected::NoChange,
            Some(_) if !takeover => Expected::Refused(Code::Ebusy),
            Some(_) | None => {
                self.attached = Some(connection);
                Expected::Written
            }
        }
    }

    fn archive(&mut self, archived: bool) -> Expected {
        match self.state {
            _ if self.archived == archived => Expected::NoChange,
            StateName::Running | StateName::Queued => Expected::Refused(Code::Ebusy),
            StateName::Idle | StateName::Ended | StateName::Failed => {
                self.archived = archived;
                Expected::Written
            }
        }
    }

    fn recover(&mut self) -> Expected {
        let detached = self.attached.take().is_some();
        if self.state == StateName::Running {
            return self.settle("failed", StateName::Idle);
        }
        if detached { Expected::Written } else { Expected::NoChange }
    }
}

/// Asks for one line of a script, and holds the answer against the model and the laws.
fn step(world: &mut World, model: &mut Model, op: &Op) {
    world.tick();
    if matches!(op, Op::Restart) {
        let before = world.session.clone();
        world.restart();
        assert_eq!(world.session, before, "replaying the log gives the same session");
        return;
    }
    let (before, written) = (world.session.clone(), world.records.len());
    let asked = command(world, &op.to_string());
    let told = world.ask(&asked);
    let expected = model.expect(op);
    match (&told, &expected) {
        (Err(Refusal { code, .. }), Expected::Refused(expected)) => assert_eq!(code, expected, "{op}"),
        (Ok(decision), Expected::NoChange) => assert!(decision.records.is_empty(), "{op}: {decision:?}"),
        (Ok(decision), Expected::Written) if matches!(op, Op::SetModel(_)) => {
            assert!(decision.records.len() <= 1)
        }
        (Ok(decision), Expected::Written) => assert!(!decision.records.is_empty(), "{op}"),
        (Ok(decision), Expected::Repeated(run)) => is_repeated(world, decision, *run),
        (Ok(_) | Err(_), _) => panic!("{op}: {expected:?} was expected, not {told:?}"),
    }
    if told.is_err() {
        assert_eq!((&world.session, world.records.len()), (&before, written), "a refusal writes nothing");
    }
    if let Ok(decision) = &told {
        moves_are_told(before.state.name(), world.state(), decision);
    }
    agrees(world, model);
}

fn is_repeated(world: &World, decision: &Told, run: usize) {
    let begun = world.session.runs().nth(run).unwrap();
    let (state, message) = (begun.state.clone(), begun.message_id);
    assert!(decision.records.is_empty() && decision.effects.is_empty(), "a retry starts nothing");
    assert_eq!(decision.answer, Answer::Posted { run: begun.id, message, state, repeated: true });
}

/// A move is one `state_changed` at the end of its command, and the count is broadcast when it changes.
fn moves_are_told(before: StateName, after: StateName, decision: &Told) {
    let changes: Vec<_> = decision.records.iter().filter(|b| matches!(b, Body::StateChanged(_))).collect();
    assert_eq!(changes.len(), usize::from(before != after), "{decision:?}");
    if let Some(Body::StateChanged(change)) = changes.first() {
        assert_eq!((change.from, change.to), (before, after));
        assert_eq!(decision.records.last(), changes.first().copied());
    }
    let count_moves = (before == StateName::Running) != (after == StateName::Running);
    assert_eq!(decision.effects.contains(&Effect::BroadcastRunning), count_moves, "{decision:?}");
    let starts = decision.effects.iter().any(|effect| matches!(effect, Effect::StartRun { .. }));
    assert_eq!(starts, after == StateName::Running && before != after);
}

fn agrees(world: &World, model: &Model) {
    let session = &world.session;
    assert_eq!(world.state(), model.state);
    assert_eq!(session.runs().map(|run| run.state.as_str()).collect::<Vec<_>>(), model.runs);
    assert_eq!(session.attached.is_some(), model.attached.is_some());
    assert_eq!(session.archived, model.archived);
    assert_eq!(session.open_tools().count(), model.open_tools.len());
    let waits = match &session.state {
        State::Running { .. } => Some("running"),
        State::Queued { .. } => Some("pending"),
        State::Idle | State::Ended | State::Failed(_) => None,
    };
    assert_eq!(session.current_run().map(|run| run.state.as_str()), waits, "no illegal state");
    assert_eq!(
        newest_state_changed(&world.records),
        world.state(),
        "the newest state_changed tells the state"
    );
}

fn newest_state_changed(records: &[Record]) -> StateName {
    let newest = records.iter().rev().find_map(|record| match &record.body {
        Body::StateChanged(change) => Some(change.to),
        _ => None,
    });
    newest.unwrap_or(StateName::Idle)
}

fn ends_of(records: &[Record], run: RunId) -> usize {
    let ended = |body: &Body| match body {
        Body::RunFinished(end) => end.turn_id == run,
        Body::Cancelled(end) => end.turn_id == run,
        Body::Failed(end) => end.turn_id == run,
        _ => false,
    };
    records.iter().filter(|record| is_end(&record.body) && ended(&record.body)).count()
}

fn played(ops: &[Op]) -> World {
    let (mut world, mut model) = (World::new(), Model::new());
    for op in ops {
        step(&mut world, &mut model, op);
    }
    world
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
    world.session = replay(&records);
    world.records = records;
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
    fn the_rules_do_what_the_model_says(ops in vec(op(), 0..60)) {
        let world = played(&ops);
        prop_assert_eq!(&replay(&world.records), &world.session);
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
        let world = played(&ops);
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
        let mut world = recovered(damaged(&played(&ops).records, &damages));
        is_sound(&world);
        let before = world.records.len();
        world.ask(&recover()).unwrap();
        prop_assert_eq!(world.records.len(), before, "recovery is idempotent");
        prop_assert_eq!(&replay(&world.records), &world.session);
        for op in more.iter().filter(|op| !matches!(op, Op::Restart)) {
            let _ = world.ask(&command(&world, &op.to_string()));
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
        let world = played(&ops);
        let mut session = world.session.clone();
        for (at, seq) in order.iter().zip(seqs) {
            let record = Record { seq, ..at.get(&world.records).clone() };
            session.apply(&record);
        }
    }
}

/// What holds after every recovery, whatever was found.
fn is_sound(world: &World) {
    assert_ne!(world.state(), StateName::Running, "nothing of an earlier daemon runs");
    assert_eq!(newest_state_changed(&world.records), world.state());
    assert_eq!(world.session.open_tools().count(), 0);
    assert_eq!(world.session.attached, None);
    for run in world.session.runs() {
        let waits = matches!(&world.session.state, State::Queued { run: queued, .. } if *queued == run.id);
        assert_eq!(run.state.is_over(), !waits, "{run:?}");
    }
}
