//! A command on its way from the queue through its frame to its result.

use std::time::Duration;

use tokio::time::Instant;

use super::restart::{Cause, Directory};
use crate::frame::failure::Failure;
use crate::frame::holds_word;
use crate::local::scratch::Scratch;
use ctx_text::budget::Plan;

pub(crate) struct Command {
    /// The number of the command in its shell.
    pub call: u64,
    pub text: String,
    /// The text as it is shown and recorded.
    pub shown_text: String,
    /// A file with the text, where the interpreter runs it faster from there.
    pub file: Option<Scratch>,
    /// A file with the command's stdin.
    pub stdin: Option<Scratch>,
    /// Both streams into stdout, in the order of arrival.
    pub merge: bool,
    pub plan: Plan,
    /// Whether the plan comes from a budget that somebody asked for.
    pub has_budget: bool,
    pub timeout: Duration,
    pub started: Instant,
    /// How long the shell's own work took before the command started. Its caller has waited for that too.
    pub waited: Duration,
    /// Where a new interpreter was started, and why.
    pub restarted: Option<(Directory, Cause)>,
    /// Why the command left a shell that cannot run another.
    pub failure: Option<Failure>,
    /// What its caller is to know of the shell's cage.
    pub failure_hint: Option<String>,
}

impl Command {
    pub fn deadline(&self) -> Instant {
        self.started + self.timeout
    }

    pub fn duration(&self) -> Duration {
        self.waited + self.started.elapsed()
    }

    /// Whether it may set variables for the programs after it. Then its own output is shown only when those are known,
    /// because one of them may be a secret that it also prints.
    pub fn may_export(&self) -> bool {
        holds_word(&self.text, &["export", "declare", "typeset", "source", ".", "eval", "set"])
    }
}
