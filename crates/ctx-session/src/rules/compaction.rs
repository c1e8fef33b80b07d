//! Compaction as a session sees it: what was made shorter, what is proposed, and what the operator says to it.
//!
//! How a conversation is made shorter is the agent loop's business.

use std::collections::HashSet;

use super::{
    Given, answer, busy, checkpoint, count_changed, moved, over, post::context_record, run::closing_records,
    slot_of,
};
use crate::code::{Code, Refusal};
use crate::command::{Admission, Answer, CompactionEdits, Decision, Effect, Outcome};
use crate::control::{Checkpoint, Compacted, CompactionState};
use crate::estimate::{left, share};
use crate::ids::{CallId, CheckpointId, CompactionId, MessageId, RunId, Ulid};
use crate::limits::Limits;
use crate::record::{
    Archived, Body, COMPACTION_PENDING, CheckpointBody, CheckpointBy, Compaction, CompactionApproved,
    CompactionBody, CompactionFlag, CompactionFlagged, CompactionsAggregated, RunBody, RunCreated, RunFinish,
    RunKind, RunWishes, SessionBody, StateName, Strategy, Trigger,
};
use crate::session::{Run, RunState, Session, State};

/// A compaction that the operator asks for.
pub(super) fn compact(
    session: &Session,
    strategy: Option<Strategy>,
    admission: &Admission,
    by: u32,
    given: &mut Given<'_>,
) -> Result<Decision, Refusal> {
    match &session.state {
        State::Idle => {}
        State::Running { .. } => {
            return Err(busy("the session is running; cancel the run or wait, then compact"));
        }
        State::Queued { .. } => return Err(busy("a message is queued; resume or discard it, then compact")),
        State::Paused { .. } => {
            return Err(busy("the session is paused; resume it or roll it back, then compact"));
        }
        State::Ended | State::Failed(_) => return Err(over(session)),
    }
    let context = slot_of(admission)?;
    let run = RunId(given.ids.next(given.now));
    let (from, to) = (StateName::Idle, StateName::Running);
    let back = session
        .archived
        .then_some(Body::Session(SessionBody::Archived(Archived { archived: false, by: None })));
    let mut records: Vec<Body> = back.into_iter().collect();
    records.extend([
        Body::Run(RunBody::Created(RunCreated {
            turn_id: run,
            kind: RunKind::Compaction,
            continues: None,
            strategy,
            wishes: RunWishes::default(),
        })),
        context_record(run, context),
        moved(from, to, Trigger::CompactionRequested, Some(by)),
    ]);
    let effects = std::iter::once(Effect::StartRun { run }).chain(count_changed(from, to)).collect();
    Ok(Decision { records, effects, answer: Answer::Run { run, state: RunState::Running } })
}

/// What the loop of a run made shorter, or proposes to.
pub(super) fn compacted(
    session: &Session,
    run: &Run,
    compaction: &Compaction,
    given: &mut Given<'_>,
) -> Result<Decision, Refusal> {
    let id = compaction.compaction_id;
    if session.control.compaction(id).is_some() {
        return Err(Refusal::new(Code::Eexist, format!("compaction {id} is recorded already")));
    }
    check_superseded(session, &compaction.superseded_message_ids)?;
    check_last_exchange(session, &compaction.superseded_message_ids)?;
    check_elided(session, &compaction.elided_call_ids)?;
    check_stands_for_something(compaction.summary.as_deref(), &compaction.superseded_message_ids)?;
    let mut made = Compaction { turn_id: run.id, checkpoint_id: None, ..compaction.clone() };
    leave_pinned(session, &mut made);
    let mut records = aggregated(session, given.limits);
    if !made.proposed {
        records.push(Body::Compaction(CompactionBody::Recorded(Box::new(made))));
        return Ok(Decision { records, effects: Vec::new(), answer: Answer::Done });
    }
    let checkpoint_id = CheckpointId(given.ids.next(given.now));
    let made = Compaction { checkpoint_id: Some(checkpoint_id), summary_message_id: None, ..made };
    let compaction_id = Some(made.compaction_id);
    records.push(Body::Compaction(CompactionBody::Recorded(Box::new(made))));
    let reason = Some(COMPACTION_PENDING.to_owned());
    let by = CheckpointBy::Compaction;
    if let Body::Checkpoint(CheckpointBody::Created(mut created)) =
        checkpoint::created(session, checkpoint_id, run.id, by, None, reason)
    {
        created.compaction_id = compaction_id;
        records.push(Body::Checkpoint(CheckpointBody::Created(created)));
    }
    let end = closing_records(session, run, &Outcome::Done, None, given.now);
    records.extend(end.into_iter().map(|body| match body {
        Body::Run(RunBody::Finished(mut end)) => {
            end.finish_reason = Some(RunFinish::AwaitingCompaction);
            Body::Run(RunBody::Finished(end))
        }
        other => other,
    }));
    let (from, to) = (StateName::Running, StateName::Paused);
    records.push(moved(from, to, Trigger::Checkpoint, None));
    let kill = Effect::KillRun { run: run.id };
    let effects = std::iter::once(kill).chain(count_changed(from, to)).collect();
    Ok(Decision { records, effects, answer: Answer::Checkpoint { checkpoint: checkpoint_id } })
}

/// With one more than the limit, the oldest are listed as one.
fn aggregated(session: &Session, limits: &Limits) -> Vec<Body> {
    let listed = &session.control.compactions;
    if listed.len() < limits.compactions_per_session.max(1) {
        return Vec::new();
    }
    let count = limits.compactions_aggregated.clamp(1, listed.len());
    let Some(newest) = listed.get(count - 1) else { return Vec::new() };
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    vec![Body::Compaction(CompactionBody::Aggregated(CompactionsAggregated {
        count,
        before: newest.created_at,
    }))]
}

fn known(session: &Session, id: CompactionId) -> Result<&Compacted, Refusal> {
    let found = session.control.compaction(id);
    found.ok_or_else(|| Refusal::new(Code::Enoent, format!("no compaction {id} in this session")))
}

/// The checkpoint at which the session waits for an answer to this compaction.
fn waits_for(session: &Session, id: CompactionId) -> Result<(&Compacted, &Checkpoint), Refusal> {
    let found = known(session, id)?;
    match &session.state {
        State::Ended | State::Failed(_) => return Err(over(session)),
        State::Idle | State::Running { .. } | State::Queued { .. } | State::Paused { .. } => {}
    }
    let at = session.paused_at().filter(|at| at.created.compaction_id == Some(id));
    match (found.state, at) {
        (CompactionState::Proposed, Some(at)) => Ok((found, at)),
        (CompactionState::Proposed | CompactionState::Applied | CompactionState::Rejected, _) => {
            Err(busy("this compaction does not wait for review"))
        }
    }
}

pub(super) fn approve(
    session: &Session,
    id: CompactionId,
    edits: &CompactionEdits,
    admission: &Admission,
    by: u32,
    given: &mut Given<'_>,
) -> Result<Decision, Refusal> {
    let (waiting, at) = waits_for(session, id)?;
    let superseded = match &edits.superseded {
        Some(wanted) => {
            check_pinned(session, wanted)?;
            wanted.clone()
        }
        // What was pinned since it was proposed stays.
        None => unpinned(session, &waiting.made.superseded_message_ids),
    };
    let mut seen = HashSet::new();
    let superseded: Vec<Ulid> = superseded.into_iter().filter(|id| seen.insert(*id)).collect();
    check_superseded(session, &superseded)?;
    let proposer = session.run(waiting.made.turn_id);
    check_last_exchange(session, &superseded)?;
    check_summary(edits.summary.as_deref(), given.limits)?;
    check_stands_for_something(edits.summary.as_deref(), &superseded)?;
    let summary = edits.summary.as_ref().or(waiting.made.summary.as_ref());
    let summary = summary.filter(|summary| !summary.trim().is_empty() && !superseded.is_empty()).cloned();
    let continues = proposer.filter(|run| run.kind != RunKind::Compaction);
    let context = match continues {
        Some(_) => Some(slot_of(admission)?),
        None => None,
    };
    let summary_message_id = summary.as_ref().map(|_| MessageId(given.ids.next(given.now)));
    let elided = elided_besides(session, &waiting.made.elided_call_ids, &superseded);
    let after_estimate = after_estimate(session, &waiting.made, &superseded, &elided, summary.as_deref());
    let mut records = vec![
        Body::Compaction(CompactionBody::Approved(CompactionApproved {
            compaction_id: id,
            turn_id: waiting.made.turn_id,
            by,
            superseded_message_ids: superseded,
            elided_call_ids: elided,
            summary_message_id,
            summary,
            after_estimate,
        })),
        checkpoint::resumed(at, by),
    ];
    let from = StateName::Paused;
    let (Some(continues), Some(context)) = (continues, context) else {
        records.extend(checkpoint::notice(at, waiting.made.turn_id, given));
        records.push(moved(from, StateName::Idle, Trigger::CompactionApproved, Some(by)));
        return Ok(Decision { records, effects: Vec::new(), answer: Answer::Done });
    };
    let run = RunId(given.ids.next(given.now));
    let to = StateName::Running;
    records.push(Body::Run(RunBody::Created(RunCreated {
        turn_id: run,
        kind: RunKind::Continuation,
        continues: Some(continues.id),
        strategy: None,
        wishes: continues.wishes.clone(),
    })));
    records.extend(checkpoint::continued(at, run, context, given));
    records.push(moved(from, to, Trigger::CompactionApproved, Some(by)));
    let effects = std::iter::once(Effect::StartRun { run }).chain(count_changed(from, to)).collect();
    Ok(Decision { records, effects, answer: Answer::Run { run, state: RunState::Running } })
}

pub(super) fn reject(
    session: &Session,
    id: CompactionId,
    by: u32,
    given: &Given<'_>,
) -> Result<Decision, Refusal> {
    let (_, at) = waits_for(session, id)?;
    checkpoint::rollback(session, at.id(), by, None, None, given)
}

/// How full the window is after what is really superseded and elided; None where the proposal does not say how it reckoned.
fn after_estimate(
    session: &Session,
    proposed: &Compaction,
    superseded: &[Ulid],
    elided: &[CallId],
    summary: Option<&str>,
) -> Option<f64> {
    let (used, window) = (proposed.used?, proposed.window?);
    let gone = session.ledger.tokens_of(superseded).saturating_add(session.ledger.saved_by(elided));
    Some(share(left(used, gone, summary), window))
}

/// Of these messages, those that may go.
fn unpinned(session: &Session, ids: &[Ulid]) -> Vec<Ulid> {
    let pinned: HashSet<Ulid> = session.ledger.pinned().collect();
    ids.iter().filter(|id| !pinned.contains(id)).copied().collect()
}

/// Of these calls, those whose output may be elided where these messages go: what counts no more has none to show.
fn elided_besides(session: &Session, calls: &[CallId], superseded: &[Ulid]) -> Vec<CallId> {
    let pinned: HashSet<Ulid> = session.ledger.pinned().collect();
    let gone: HashSet<&Ulid> = superseded.iter().collect();
    let stays = |call: &&CallId| !pinned.contains(&call.0) && !gone.contains(&call.0);
    calls.iter().filter(stays).copied().collect()
}

/// What was pinned while the loop made its compaction stays, and is shown whole.
fn leave_pinned(session: &Session, made: &mut Compaction) {
    let left_over = unpinned(session, &made.superseded_message_ids);
    let elided = elided_besides(session, &made.elided_call_ids, &left_over);
    if left_over.len() == made.superseded_message_ids.len() && elided.len() == made.elided_call_ids.len() {
        return;
    }
    if left_over.is_empty() {
        (made.summary, made.summary_message_id) = (None, None);
    }
    let after = after_estimate(session, made, &left_over, &elided, made.summary.as_deref());
    made.after_estimate = after.unwrap_or(made.after_estimate);
    (made.superseded_message_ids, made.elided_call_ids) = (left_over, elided);
}

fn check_pinned(session: &Session, ids: &[Ulid]) -> Result<(), Refusal> {
    let wanted: HashSet<&Ulid> = ids.iter().collect();
    match session.ledger.pinned().find(|id| wanted.contains(id)) {
        Some(id) => {
            let message = format!("{id} is pinned and stays; unpin it first, or leave it out");
            Err(Refusal::invalid("superseded_message_ids", message))
        }
        None => Ok(()),
    }
}

fn check_superseded(session: &Session, ids: &[Ulid]) -> Result<(), Refusal> {
    let counting: HashSet<Ulid> = session.ledger.counting().map(|entry| entry.id).collect();
    match ids.iter().find(|id| !counting.contains(id)) {
        Some(id) => Err(Refusal::invalid(
            "superseded_message_ids",
            format!("{id} is not a message in this session's context"),
        )),
        None => Ok(()),
    }
}

/// Output that is elided was given, counts, and is no part of the last exchange.
fn check_elided(session: &Session, calls: &[CallId]) -> Result<(), Refusal> {
    let bad = |call: &CallId, why: &str| {
        let message = format!("{call} {why}");
        Err(Refusal::invalid("elided_call_ids", message))
    };
    let outputs = session.ledger.counting().filter(|entry| entry.output.is_some());
    let outputs: HashSet<Ulid> = outputs.map(|entry| entry.id).collect();
    if let Some(call) = calls.iter().find(|call| !outputs.contains(&call.0)) {
        return bad(call, "is not a tool call with output in this session's context");
    }
    let last: HashSet<Ulid> = session.ledger.last_exchange().map(|entry| entry.id).collect();
    match calls.iter().find(|call| last.contains(&call.0)) {
        Some(call) => bad(call, "belongs to the last exchange, which always stays"),
        None => Ok(()),
    }
}

fn check_summary(text: Option<&str>, limits: &Limits) -> Result<(), Refusal> {
    if text.is_some_and(|text| text.len() > limits.message_bytes) {
        let message = format!("a summary has at most {} bytes", limits.message_bytes);
        return Err(Refusal::new(Code::Emsgsize, message));
    }
    Ok(())
}

/// A summary takes the place of messages: without any it would stand for nothing.
fn check_stands_for_something(summary: Option<&str>, superseded: &[Ulid]) -> Result<(), Refusal> {
    if superseded.is_empty() && summary.is_some_and(|text| !text.trim().is_empty()) {
        let message = "a summary replaces messages; name them, or leave the summary out";
        return Err(Refusal::invalid("summary", message));
    }
    Ok(())
}

/// What is being talked about stays: see [`Ledger::last_exchange`](crate::ledger::Ledger::last_exchange).
fn check_last_exchange(session: &Session, ids: &[Ulid]) -> Result<(), Refusal> {
    let wanted: HashSet<&Ulid> = ids.iter().collect();
    match session.ledger.last_exchange().find(|entry| wanted.contains(&entry.id)) {
        Some(entry) => Err(Refusal::invalid(
            "superseded_message_ids",
            format!("{} belongs to the last exchange, which always stays", entry.id),
        )),
        None => Ok(()),
    }
}

pub(super) fn flag(
    session: &Session,
    id: CompactionId,
    flag: Option<Option<CompactionFlag>>,
    notes: Option<&Option<String>>,
    by: u32,
    limits: &Limits,
) -> Result<Decision, Refusal> {
    let found = known(session, id)?;
    if notes.is_some_and(|notes| notes.as_ref().is_some_and(|text| text.len() > limits.message_bytes)) {
        let message = format!("notes have at most {} bytes", limits.message_bytes);
        return Err(Refusal::new(Code::Emsgsize, message));
    }
    let flag = flag.unwrap_or(found.flag);
    let notes = notes.unwrap_or(&found.notes).clone();
    if flag == found.flag && notes == found.notes {
        return Ok(answer(Answer::Done));
    }
    let record =
        Body::Compaction(CompactionBody::Flagged(CompactionFlagged { compaction_id: id, flag, notes, by }));
    Ok(Decision { records: vec![record], effects: Vec::new(), answer: Answer::Done })
}
