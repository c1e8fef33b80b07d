//! A frame that cannot go on: what its shell printed of it, and why.
//!
//! A command may leave its shell without what the frame needs. What the shell says of that is not the command's output;
//! it is known by the names that only a frame uses.

use super::Pipes;

/// `/dev/null`, as a frame calls it and nobody else does.
pub const NOWHERE: &str = "/dev/./null";

/// What bash says first where it has no descriptor left to put one aside.
const NO_COPY: &str = "redirection error: cannot duplicate fd";

/// What the frame itself says where neither of its two ways to redirect the shell is left.
pub const NO_EXEC: &str = "exec and command are functions";

/// Why a shell cannot run another command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    OpenFiles,
    Restricted,
    Functions,
    /// It did not say.
    Silent,
}

impl Failure {
    pub fn words(self) -> &'static str {
        match self {
            Failure::OpenFiles => "it may open too few files (`ulimit -n`)",
            Failure::Restricted => "it is restricted (`set -r`)",
            Failure::Functions => {
                "`exec` and `command` are functions in it, and the shell is kept by one of the two"
            }
            Failure::Silent => {
                "options such as `set -n` and `set -t`, limits on open files, or a function that is named \
                 `builtin` or `command` do that"
            }
        }
    }
}

/// Why the frame could not go on, where the shell has said so among what it printed.
pub fn reason(printed: &str, pipes: &Pipes) -> Option<Failure> {
    let said = printed.lines().find(|line| is_of_frame(line, pipes))?;
    Some(match said {
        said if said.ends_with(NO_EXEC) => Failure::Functions,
        said if said.contains("restricted") => Failure::Restricted,
        said if said.contains("open files") => Failure::OpenFiles,
        _ => Failure::Silent,
    })
}

/// What was printed, without what the shell said of the frame.
pub fn without(printed: &str, pipes: &Pipes) -> String {
    let mut kept = String::with_capacity(printed.len());
    let mut lines = printed.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let is_before = line.contains(NO_COPY) && lines.peek().is_some_and(|next| is_of_frame(next, pipes));
        if !is_before && !is_of_frame(line, pipes) {
            kept.push_str(line);
        }
    }
    kept
}

fn is_of_frame(line: &str, pipes: &Pipes) -> bool {
    let (_, names) = pipes.in_dir();
    let named = |name: &str| !name.is_empty() && line.contains(&format!("{name}: "));
    named(NOWHERE) || names.into_iter().any(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_says_of_the_frame_is_known_by_its_names() {
        let pipes =
            Pipes { commands: "/s/in".into(), stdout: "/s/out".into(), stderr: "/s/err".into(), names: None };
        let said = "mine\nbash: redirection error: cannot duplicate fd: Too many open files\n\
                    bash: line 1: /dev/./null: Too many open files\nbash: line 1: /s/err: Too many open files\n";
        assert_eq!(reason(said, &pipes), Some(Failure::OpenFiles));
        assert_eq!(without(said, &pipes), "mine\n");
        let mine = "bash: redirection error: cannot duplicate fd: Too many open files\n/dev/null: no\n\n";
        assert_eq!((reason(mine, &pipes), without(mine, &pipes).as_str()), (None, mine));
        let dash = "dash: 1: cannot create /dev/./null: Too many open files\n";
        assert_eq!((reason(dash, &pipes), without(dash, &pipes).as_str()), (Some(Failure::OpenFiles), ""));
        let restricted = "bash: line 1: /dev/./null: restricted: cannot redirect output";
        assert_eq!(reason(restricted, &pipes), Some(Failure::Restricted));
        assert_eq!(reason(&format!("{NOWHERE}: {NO_EXEC}"), &pipes), Some(Failure::Functions));
    }
}
