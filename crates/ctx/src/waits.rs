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

/// Which limit is reached: `4 of 4 runs in this project are busy`.
pub fn busy(hit: LimitHit) -> String {
    let whose = match hit.scope {
        LimitScope::PerProject => "in this project",
        LimitScope::PerOperator => "of this operator",
    };
    format!("{} of {} runs {whose} are busy", hit.running, hit.limit)
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

/// A tool call waits for an approval.
pub fn asks(named: &str, approval: &str, tool: &str, subject: Option<&str>) -> String {
    let call = output::one_line(&format!("{tool} {}", subject.unwrap_or_default()));
    let call = call.trim_end();
    format!(
        "approval needed for {call}: `ctx approve {named} {approval}` allows it, with --deny it is denied"
    )
}
