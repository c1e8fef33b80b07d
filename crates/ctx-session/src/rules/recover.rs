//! What a session needs after the daemon that worked on it is gone. Ordinary records, so that a second crash in
//! the middle of recovery is harmless.

use super::{answer, attach::detached, count_changed, moved, run::settle};
use crate::code::{Code, Refusal};
use crate::command::{Answer, Decision, Outcome};
use crate::record::{DetachReason, Failure, StateName, Trigger};
use crate::session::{Session, State};
use crate::time::Timestamp;

/// The reason that a run interrupted by a crash fails with.
pub const CRASH_REASON: &str = "daemon_crash_during_run";

pub(super) fn recover(session: &Session, now: Timestamp) -> Result<Decision, Refusal> {
    let mut records = Vec::new();
    let mut effects = Vec::new();
    if let Some(old) = session.attached {
        records.push(detached(old, DetachReason::DaemonRestart));
    }
    match &session.state {
        State::Running { run } => {
            // A run whose end is in the log only lost the record that says the session is idle again.
            if let Some(open) = session.run(*run).filter(|run| !run.state.is_over()) {
                let failure = Failure {
                    code: Code::Eintr,
                    reason: CRASH_REASON.to_owned(),
                    message: "the daemon stopped during this run; send the message again".to_owned(),
                };
                records.extend(settle(session, open, &Outcome::Failed(failure), None, now));
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
