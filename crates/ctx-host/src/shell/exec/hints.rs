//! What a result says in words.

use std::time::Duration;

use crate::shell::frame::failure::Broken;
use crate::shell::log::StopReason;
use crate::shell::text::budget;

/// What a result says besides the output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// Whether a budget was asked for.
    pub asked: bool,
    /// Where a new interpreter has taken the place of the old, and why.
    pub restarted: Option<(Anew, Cause)>,
    /// The command left a shell that cannot run another.
    pub broken: Option<Broken>,
    pub timeout: Duration,
    pub duration: Duration,
}

/// Where a new interpreter was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anew {
    /// Where the one before was.
    Here,
    /// That directory is gone, and it is the nearest one above.
    Elsewhere,
}

/// What ended the interpreter before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Something before this command, which ran in the new one.
    Before,
    Command,
    /// The command, whose shell ends with whatever fails in it (`set -e`).
    Errexit,
}

impl Cause {
    /// Why a command ended its shell. Where it set the option itself, nothing has told of that but its text.
    pub fn of(command: &str, exit_code: i32, errexit: bool) -> Cause {
        match exit_code != 0 && (errexit || sets_errexit(command)) {
            true => Cause::Errexit,
            false => Cause::Command,
        }
    }
}

fn sets_errexit(command: &str) -> bool {
    let is_option = |word: &&str| word.starts_with('-') && !word.starts_with("--");
    command.split([';', '&', '|', '(', ')', '{', '}', '\n']).any(|part| {
        let mut words = part.split_whitespace().skip_while(|word| *word != "set").skip(1);
        words.clone().take_while(is_option).any(|word| word.contains('e'))
            || words.any(|word| word == "errexit")
    })
}

/// What went other than a caller may think.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notes<'a> {
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

pub(crate) fn hint(
    stdout: &budget::StreamReport,
    stderr: &budget::StreamReport,
    notes: Notes<'_>,
    shown: Shown,
) -> Option<String> {
    let mut hints = Vec::new();
    if notes.stopped == Some(StopReason::TimedOut) {
        let secs = shown.timeout.as_secs_f64();
        let seconds = if shown.timeout == Duration::from_secs(1) { "second" } else { "seconds" };
        hints.push(format!(
            "the command was stopped after {secs} {seconds}: give a larger timeout_secs, or run it in the \
             background with its output in a file; if it waited for an editor or a terminal, there is none \
             (git commit -m, GIT_EDITOR=true)"
        ));
    }
    hints.extend(
        shown.broken.map(|why| format!("the command left a shell that cannot run another: {}", why.words())),
    );
    hints.extend(shown.restarted.map(|(anew, cause)| restarted(anew, cause, notes.cwd)));
    if notes.unsaid {
        hints.push("bash says nothing of some mistakes inside of `[[ … ]]`: look there".to_owned());
    }
    hints.extend(budget::hint(stdout, stderr, shown.asked));
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

fn restarted(anew: Anew, cause: Cause, cwd: &str) -> String {
    let ended = match cause {
        Cause::Before => "the shell had ended before this command, which ran in a new one",
        Cause::Command => "the shell ended with this command and was started anew",
        Cause::Errexit => {
            "the shell ended with this command, as under `set -e` any failure ends it (say `( set -e; … )` to keep \
             that to one command), and was started anew"
        }
    };
    let back = match anew {
        Anew::Here => "cwd and exported variables are as they were before it".to_owned(),
        Anew::Elsewhere => format!(
            "its directory is gone, so that it is in {cwd} now; exported variables are as they were before"
        ),
    };
    format!("{ended}: {back}, functions, aliases, options and other variables are gone")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sets_errexit_is_told_that_it_ended_the_shell() {
        for command in
            ["set -e", "set -euo pipefail; ls", "cd x && set -o errexit\nfalse", "{ set -xe;}", "set  -u -e"]
        {
            assert_eq!(Cause::of(command, 1, false), Cause::Errexit, "{command}");
            assert_eq!(Cause::of(command, 0, false), Cause::Command, "{command}");
        }
        for command in ["set -u", "exit 3", "set -- -e", "set +e", "set x -e", "reset -e", "echo errexited"] {
            assert_eq!(Cause::of(command, 1, false), Cause::Command, "{command}");
            assert_eq!(Cause::of(command, 1, true), Cause::Errexit, "{command}");
        }
    }
}
