//! What a session waits for, and the commands that answer it: said the same way by all who show a run.

use ctx_session::record::COMPACTION_PENDING;

use crate::output;

/// No slot was free.
pub fn queued(named: &str) -> String {
    format!(
        "queued: as many runs as may are going already. The message is kept; `ctx queue resume {named}` starts it, \
         `ctx queue discard {named}` drops it"
    )
}

/// It is paused at a checkpoint; the reason says whether a compaction made it.
pub fn paused(named: &str, reason: Option<&str>) -> String {
    if reason == Some(COMPACTION_PENDING) {
        return format!(
            "a compaction waits for your review, and the run stops until then: `ctx compact show {named}` shows it, \
             `ctx compact approve {named}` lets it take effect and goes on, `ctx compact reject {named}` turns it down"
        );
    }
    let why = reason.map_or(String::new(), |why| format!(" ({})", output::one_line(why)));
    format!("paused{why}: `ctx resume {named}` goes on, `ctx rollback {named}` goes back")
}

/// A tool call is to be allowed or not.
pub fn asks(named: &str, approval: &str, tool: &str, subject: Option<&str>) -> String {
    let call = output::one_line(&format!("{tool} {}", subject.unwrap_or_default()));
    let call = call.trim_end();
    format!("asks for {call}: `ctx approve {named} {approval}` allows it, with --deny it is not done")
}
