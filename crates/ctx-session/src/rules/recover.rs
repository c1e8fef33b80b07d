//! What a session needs after the daemon that worked on it is gone. Ordinary records, so that a second crash in
//! the middle of recovery is harmless.

use super::{answer, attach::detached, count_changed, moved, run::settle};
use crate::code::{Code, Refusal};
use crate::command::{Answer, Decision, Interruption, Outcome};
use crate::record::{DetachReason, Failure, StateName, Trigger};
use crate::session::{Session, State};
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

pub(super) fn recover(session: &Session, cause: Interruption, now: Timestamp) -> Result<Decision, Refusal> {
    let mut records = Vec::new();
    let mut effects = Vec::new();
    if let Some(old) = session.attached {
        records.push(detached(old, DetachReason::DaemonRestart));
    }
    match &session.state {
        State::Running { run } => {
            // A run whose end is in the log only lost the record that says the session is idle again.
            if let Some(open) = session.run(*run).filter(|run| !run.state.is_over()) {
                records.extend(settle(session, open, &Outcome::Failed(failure(cause)), None, now));
            }
            let (from, to) = (StateName::Running, StateName::Idle);
            records.push(moved(from, to, Trigger::CrashRecovered, None));
            effects.extend(count_changed(from, to));
        }
        State::Idle | State::Queued { .. } | State::Ended | State::Failed(_) => {}
    }
    if records.is_empty() {
        return Ok(answer(Answer::Ignored));
    }
    Ok(Decision { records, effects, answer: Answer::Done })
}
