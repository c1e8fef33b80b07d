//! What a session needs after the daemon that worked on it is gone. Ordinary records, so that a second crash in
//! the middle of recovery is harmless.

use super::{
    answer,
    attach::detached,
    count_changed,
    left_open::{approval_interrupted, interrupted},
    moved,
    run::closing_records,
    subagent::exit_record,
};
use crate::code::{Code, Refusal};
use crate::command::{Answer, Decision, Effect, Interruption, Outcome, Partial, UnderWay};
use crate::control::{Approval, Compacted};
use crate::ids::RunId;
use crate::record::{
    Body, CompactionBody, CompactionRejected, DetachReason, ExitCause, Failure, Rejection, StateName, Trigger,
};
use crate::session::{RunState, Session, State};
use crate::subagent::Invocation;
use crate::time::Timestamp;

/// What an interrupted run fails with.
fn failure(cause: Interruption) -> Failure {
    let (code, reason, message) = match cause {
        Interruption::DaemonCrash => (
            Code::Eintr,
            "daemon_crash_during_run",
            "the daemon stopped during this run; send the message again",
        ),
        Interruption::StorageFailure => (
            Code::Eio,
            "storage_failure",
            "the log could not be written during this run; check the disk and send the message again",
        ),
    };
    Failure { code, reason: reason.to_owned(), message: message.to_owned() }
}

pub(super) fn recover(
    session: &Session,
    cause: Interruption,
    under_way: Option<&UnderWay>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let (mut records, mut effects) = let_go(session, cause);
    let waits = waiting_run(session);
    // One at most, unless damage took the end of an earlier one.
    for run in session.runs().filter(|run| !run.state.is_over() && Some(run.id) != waits) {
        let of_run = under_way.filter(|text| text.run == run.id);
        let partial = of_run.map(|kept| Partial { message_id: kept.message_id, text: kept.text.clone() });
        // Nobody worked on it between its last record and now.
        let ended = run.last_at.max(run.created_at).min(now);
        records.extend(match session.is_answered(run.id) {
            // The whole answer is in the log; only that it is the end was not written.
            true => closing_records(session, run, &Outcome::Done, None, ended),
            false => closing_records(session, run, &Outcome::Failed(failure(cause)), partial.as_ref(), ended),
        });
    }
    // Damage may have taken the run that an approval was asked for in.
    let is_lost =
        |approval: &&Approval| session.run(approval.asked.turn_id).is_none_or(|r| r.state.is_over());
    records.extend(session.control.open_approvals().filter(is_lost).map(approval_interrupted));
    // Likewise of a subagent.
    let is_lost = |one: &&Invocation| session.run(one.run()).is_none_or(|run| run.state.is_over());
    let lost = session.subagents.alive().filter(is_lost);
    records.extend(lost.map(|one| exit_record(one, ExitCause::DaemonStopped, now)));
    // What was going on in a paused run is gone; the run itself waits for the operator.
    if let Some(run) = waits {
        let why = "the daemon stopped before this tool was done";
        records.extend(interrupted(session, run, ExitCause::DaemonStopped, why, now));
    }
    // Damage may have taken the checkpoint that a proposed compaction waits at.
    let lost = session.control.proposed().filter(|waiting| !is_waited_for(session, waiting));
    records.extend(lost.map(|lost| {
        Body::Compaction(CompactionBody::Rejected(CompactionRejected {
            compaction_id: lost.id(),
            by: None,
            reason: Rejection::Interrupted,
        }))
    }));
    let to = match &session.state {
        State::Running { .. } | State::Idle => StateName::Idle,
        // Damage may have taken the record with which a queued run was resumed or discarded.
        State::Queued { .. } if waits.is_none() => StateName::Idle,
        State::Queued { .. } => StateName::Queued,
        // Likewise with how a pause ended.
        State::Paused { .. } if !is_paused(session) => StateName::Idle,
        State::Paused { .. } => StateName::Paused,
        State::Ended => StateName::Ended,
        State::Failed(_) => StateName::Failed,
    };
    // After damage too, the newest `state_changed` is to tell the state.
    let from = session.logged_state();
    if from != to {
        records.push(moved(from, to, Trigger::CrashRecovered, None));
        effects.extend(count_changed(from, to));
    }
    if records.is_empty() {
        return Ok(answer(Answer::Ignored));
    }
    Ok(Decision { records, effects, answer: Answer::Done })
}

/// The connection that the log says is attached: gone with its daemon, or to be closed so that it comes again.
fn let_go(session: &Session, cause: Interruption) -> (Vec<Body>, Vec<Effect>) {
    match (session.attached, cause) {
        (None, _) => (Vec::new(), Vec::new()),
        (Some(old), Interruption::DaemonCrash) => {
            (vec![detached(old, DetachReason::DaemonRestart)], Vec::new())
        }
        (Some(old), Interruption::StorageFailure) => {
            let reason = DetachReason::Error;
            let close = Effect::CloseConnection { connection: old.connection, reason };
            (vec![detached(old, reason)], vec![close])
        }
    }
}

/// The run that is queued and never began, or is paused: it waits through a restart.
fn waiting_run(session: &Session) -> Option<RunId> {
    let run = match &session.state {
        State::Queued { run, .. } => session.run(*run).filter(|run| run.state == RunState::Pending),
        State::Paused { .. } if is_paused(session) => session.current_run(),
        State::Paused { .. } => None,
        State::Idle | State::Running { .. } | State::Ended | State::Failed(_) => None,
    };
    run.map(|run| run.id).filter(|run| session.can_go_on(*run))
}

fn is_waited_for(session: &Session, compaction: &Compacted) -> bool {
    let at = session.paused_at().filter(|_| is_paused(session));
    at.is_some_and(|at| at.created.compaction_id == Some(compaction.id()))
}

fn is_paused(session: &Session) -> bool {
    session.paused_at().is_some_and(|checkpoint| session.waits_at(checkpoint))
}
