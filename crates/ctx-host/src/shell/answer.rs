//! What a result says in words.

use std::time::Duration;

use super::broken::Broken;
use super::log::StopReason;
use super::text::budget;

/// What a result says besides the output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// Whether a budget was asked for.
    pub asked: bool,
    /// Where a new interpreter has taken the place of the old.
    pub restarted: Option<Anew>,
    /// The command left a shell that cannot run another.
    pub broken: Option<Broken>,
    pub timeout: Duration,
    pub duration: Duration,
}

/// Where a new interpreter was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anew {
    /// Where the one before was.
    Here,
    /// That directory is gone, and it is the nearest one above.
    Elsewhere,
}

/// What went other than a caller may think.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notes<'a> {
    pub stopped: Option<StopReason>,
    /// Where the shell is now.
    pub cwd: &'a str,
    /// Whether late output is not shown in full.
    pub late_cut: bool,
    /// Why not all of the output is on disk.
    pub unkept: Option<&'a std::io::Error>,
    /// Whether bash could not read a `[[` and has not said so.
    pub unsaid: bool,
}

pub(super) fn hint(
    stdout: &budget::StreamReport,
    stderr: &budget::StreamReport,
    notes: Notes<'_>,
    shown: Shown,
) -> Option<String> {
    let mut hints = Vec::new();
    if notes.stopped == Some(StopReason::TimedOut) {
        let secs = shown.timeout.as_secs_f64();
        hints.push(format!(
            "the command was stopped after {secs} seconds: give a larger timeout_secs, or run it in the \
             background with its output in a file"
        ));
    }
    hints.extend(
        shown.broken.map(|why| format!("the command left a shell that cannot run another: {}", why.words())),
    );
    if let Some(anew) = shown.restarted {
        let back = match anew {
            Anew::Here => "cwd and exported variables are back".to_owned(),
            Anew::Elsewhere => {
                let cwd = notes.cwd;
                format!("its directory is gone, so that it is in {cwd} now; exported variables are back")
            }
        };
        hints.push(format!(
            "the shell had ended and was started anew: {back}, functions, aliases and other variables are not"
        ));
    }
    if notes.unsaid {
        hints.push("bash says nothing of some mistakes inside of `[[ … ]]`: look there".to_owned());
    }
    hints.extend(budget::hint(stdout, stderr));
    if notes.late_cut {
        hints.push(
            "not all of late_output is shown: session_output with stream late_output has it".to_owned(),
        );
    }
    hints.extend(
        notes.unkept.map(|error| format!("not all of the output could be kept for session_output: {error}")),
    );
    (!hints.is_empty()).then(|| hints.join("; "))
}
