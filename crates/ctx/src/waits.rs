//! The notices about a session that waits for its operator, each with the commands that answer it. Every command that
//! shows a run prints these.

use ctx_session::record::{COMPACTION_PENDING, LimitHit, LimitScope};

use crate::output;

/// The limit of concurrent runs is reached.
pub fn queued(named: &str, limit: Option<LimitHit>) -> String {
    let why = limit.map_or_else(|| "the limit of concurrent runs is reached".to_owned(), busy);
    format!(
        "queued: {why}. The message is kept; `ctx queue resume {named}` starts it, \
         `ctx queue discard {named}` drops it"
    )
}

/// The same in a chat, which starts the message itself.
pub fn queued_here(limit: Option<LimitHit>, place: Option<usize>) -> String {
    let why = limit.map_or_else(|| "the limit of concurrent runs is reached".to_owned(), busy);
    let place = place.map(|place| format!(" (number {place} of yours)")).unwrap_or_default();
    format!("queued{place}: {why}. The message is sent when one of them ends; /cancel drops it")
}

/// Whoever waits for the answer waits for room, too.
pub fn waits_in_queue(place: Option<usize>) -> String {
    let place = place.map(|place| format!(" (number {place} of yours)")).unwrap_or_default();
    format!("waiting for a run to end{place}; Ctrl-C leaves the message in the queue")
}

/// Whoever waited has left.
pub fn left_in_queue(named: &str) -> String {
    format!(
        "the message stays queued; `ctx queue resume {named}` starts it, `ctx queue discard {named}` drops it"
    )
}

/// A model call came to nothing; it is made again by itself.
pub fn retrying(message: &str, attempt: u32, attempts_max: u32, wait_ms: u64) -> String {
    let wait = wait_ms as f64 / 1_000.0;
    let next = attempt.saturating_add(1);
    format!("{}; trying again in {wait:.1} s ({next} of {attempts_max})", output::one_line(message))
}

/// Which limit is reached: `4 of 4 runs in this project are busy`.
pub fn busy(hit: LimitHit) -> String {
    let whose = match hit.scope {
        LimitScope::PerProject => "in this project",
        LimitScope::PerOperator => "of this operator",
    };
    format!("{} of {} runs {whose} are busy", hit.running, hit.limit)
}

/// The same of a message that was queued then, in a list: meanwhile they may have ended.
pub fn was_busy(hit: LimitHit) -> String {
    busy(hit).replace(" are busy", " were busy")
}

/// It is paused at a checkpoint; the reason says whether a compaction made it.
pub fn paused(named: &str, reason: Option<&str>) -> String {
    if reason == Some(COMPACTION_PENDING) {
        return format!(
            "paused: a compaction waits for your review. `ctx compact show {named}` shows it, \
             `ctx compact approve {named}` applies it and continues, `ctx compact reject {named}` rejects it"
        );
    }
    let why = reason.map_or(String::new(), |why| format!(" ({})", output::one_line(why)));
    format!("paused{why}: `ctx resume {named}` continues, `ctx rollback {named}` goes back to the checkpoint")
}

/// The same of a command that takes the answer and has no commands of a chat.
pub fn paused_typed(named: &str, reason: &str) -> String {
    let reason = output::one_line(reason);
    let end = if reason.ends_with(['.', '?', '!', '…']) { "" } else { "." };
    format!(
        "paused: {reason}{end} Type your answer; `ctx resume {named}` continues without one, `ctx rollback {named}` goes back"
    )
}

/// The same where what is typed is the answer.
pub fn paused_here(reason: &str) -> String {
    let reason = output::one_line(reason);
    let end = if reason.ends_with(['.', '?', '!', '…']) { "" } else { "." };
    format!("paused: {reason}{end} Type your answer; /resume continues without one, /rollback goes back")
}

/// The same where what is typed is the answer.
pub fn asks_here(tool: &str, subject: Option<&str>) -> String {
    let call = output::one_line(&format!("{tool} {}", subject.unwrap_or_default()));
    format!("approval needed: {}? y yes, n no, n REASON, a always in this session", call.trim_end())
}

/// A tool call waits for an approval.
pub fn asks(named: &str, approval: &str, tool: &str, subject: Option<&str>) -> String {
    let call = output::one_line(&format!("{tool} {}", subject.unwrap_or_default()));
    let call = call.trim_end();
    format!(
        "approval needed for {call}: `ctx approve {named} {approval}` allows it, with --deny it is denied"
    )
}
