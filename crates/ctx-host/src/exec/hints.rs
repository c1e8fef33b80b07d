//! What a result says in words: what went differently from what its caller may expect.

use std::time::Duration;

use super::command::Command;
use super::restart::{Cause, Directory};
use crate::log::StopReason;
use crate::request::{BudgetReport, RunningCommand};
use ctx_text::budget;

/// What the hint is made of.
pub(crate) struct Notes<'a> {
    pub command: &'a Command,
    pub stopped: Option<StopReason>,
    /// Where the shell is now.
    pub cwd: &'a str,
    pub report: &'a BudgetReport,
    /// Whether late output is not shown in full.
    pub late_is_cut: bool,
    /// Why not all of the output is on disk.
    pub unkept: Option<&'a std::io::Error>,
    /// Whether something that was printed is a secret, and not shown.
    pub has_redactions: bool,
    /// Whether bash could not read a `[[` and has not said so.
    pub is_unexplained: bool,
}

pub(crate) fn hint(notes: &Notes<'_>) -> Option<String> {
    let Command { timeout, failure, failure_hint, restarted, has_budget, .. } = notes.command;
    let mut hints: Vec<String> = failure_hint.iter().cloned().collect();
    if notes.stopped == Some(StopReason::TimedOut) {
        let seconds = if *timeout == Duration::from_secs(1) { "second" } else { "seconds" };
        hints.push(format!(
            "the command was stopped after {} {seconds}: give a larger timeout_secs, or run it in the background with \
             its output in a file; if it waited for an editor or a terminal, there is none (git commit -m, \
             GIT_EDITOR=true)",
            timeout.as_secs_f64()
        ));
    }
    hints.extend(
        failure.map(|why| format!("the command left a shell that cannot run another: {}", why.words())),
    );
    hints.extend(restarted.map(|(directory, cause)| restart_hint(directory, cause, notes.cwd)));
    if notes.is_unexplained {
        hints.push("bash says nothing of some mistakes inside of `[[ … ]]`: look there".to_owned());
    }
    if notes.command.text.contains("[REDACTED:") {
        hints.push(
            "the command has a [REDACTED:…] in it: that stands for a secret that was not shown, and is not its value; read \
             the value where it is kept, in the command itself (a variable, a file)"
                .to_owned(),
        );
    }
    if notes.has_redactions {
        hints.push("secrets in the output were replaced by [REDACTED:…]".to_owned());
    }
    hints.extend(budget::hint(&notes.report.stdout, &notes.report.stderr, *has_budget));
    if notes.late_is_cut {
        hints.push(
            "not all of late_output is shown: session_output with stream late_output has it".to_owned(),
        );
    }
    hints.extend(
        notes.unkept.map(|error| format!("not all of the output could be kept for session_output: {error}")),
    );
    (!hints.is_empty()).then(|| hints.join("; "))
}

/// What is said of a command that had to wait for its turn.
pub(crate) fn waited_hint(waited: Duration, behind: Option<&RunningCommand>) -> Option<String> {
    let secs = waited.as_secs();
    let what = behind.map_or("earlier commands".to_owned(), |running| {
        format!("command {} (`{}`), which ran in this shell", running.call, running.command)
    });
    (secs > 0).then(|| {
        format!("it waited {secs} s for {what}; session_interrupt stops a command that nobody waits for")
    })
}

fn restart_hint(directory: Directory, cause: Cause, cwd: &str) -> String {
    let ended = match cause {
        Cause::Before => "the shell had ended before this command, which ran in a new one",
        Cause::Command => "the shell ended with this command and was started anew",
        Cause::Errexit => {
            "the shell ended with this command, as under `set -e` any failure ends it (say `( set -e; … )` to keep \
             that to one command), and was started anew"
        }
    };
    let back = match directory {
        Directory::Same => "cwd and exported variables are as they were before it".to_owned(),
        Directory::Above => format!(
            "its directory is gone, so that it is in {cwd} now; exported variables are as they were before"
        ),
    };
    format!("{ended}: {back}, functions, aliases, options and other variables are gone")
}
