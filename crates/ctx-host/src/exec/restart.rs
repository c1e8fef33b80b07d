//! Sets up a new interpreter: the first one of a shell, or one in the place of an interpreter that has ended.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::frame_run::FrameRun;
use super::interpreter::Interpreter;
use super::memory::Memory;
use super::report_reader::read_report;
use super::run::RunError;
use crate::error::ShellError;
use crate::frame::FrameInput;
use crate::frame::exports::{self, Export, StartFile};
use ctx_text::budget::Plan;

/// The time in which a new interpreter must answer its first frame.
const HANDSHAKE_MAX: Duration = Duration::from_secs(20);

/// Where a new interpreter was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directory {
    /// Where the one before was.
    Same,
    /// That directory is gone, and this is the nearest one above it.
    Above,
}

/// What ended the interpreter before the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Something before this command, which ran in the new one.
    Before,
    Command,
    /// The command, whose shell ends with whatever fails in it (`set -e`).
    Errexit,
}

impl Cause {
    /// Why a command ended its shell. No report has said that it set the option itself, so its text is read.
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

/// Starts an interpreter in the same directory, with the variables exported as of the last completed command.
pub(crate) async fn restart(
    interpreter: &mut Interpreter,
    memory: &mut Memory,
    start_file: StartFile<'_>,
) -> Result<Directory, ShellError> {
    let (place, later) = memory.for_restart(interpreter.connection.as_ref(), start_file);
    interpreter.exit = None;
    memory.interpreter_ended();
    let started = interpreter.connection.start(&place).await;
    interpreter.streams = started.map_err(|error| interpreter.shared.closed(&error))?;
    let is_same = place.cwd == memory.cwd && !interpreter.connection.is_above();
    set_up(interpreter, memory, &later).await?;
    Ok(if is_same { Directory::Same } else { Directory::Above })
}

/// Sends a new interpreter its first lines, and exports what it could not be started with.
pub(crate) async fn set_up(
    interpreter: &mut Interpreter,
    memory: &mut Memory,
    later: &[Export],
) -> Result<(), ShellError> {
    let dialect = interpreter.connection.dialect();
    let written = interpreter.streams.stdin.write_all(dialect.setup().as_bytes()).await;
    written.map_err(|error| interpreter.shared.closed(&RunError::Lost(error)))?;
    run_quietly(interpreter, memory, ":").await?;
    if later.is_empty() {
        return Ok(());
    }
    let script = interpreter.connection.put(exports::script(later)).await?;
    let source = dialect.source(script.path());
    run_quietly(interpreter, memory, &format!("{source} 2>/dev/null")).await
}

/// Runs a command of our own, in a new interpreter.
async fn run_quietly(
    interpreter: &mut Interpreter,
    memory: &mut Memory,
    command: &str,
) -> Result<(), ShellError> {
    let run = FrameRun {
        interpreter: &mut *interpreter,
        memory: &mut *memory,
        plan: &Plan::default(),
        progress: None,
        deadline: Instant::now() + HANDSHAKE_MAX,
        cancelled: std::pin::pin!(std::future::pending()),
    };
    let ended = run.run(FrameInput { command, ..FrameInput::default() }).await?;
    let (out, err) = &mut interpreter.late;
    for (late, stream) in [(out, ended.stdout), (err, ended.stderr)] {
        // The command prints nothing itself, so what came meanwhile is a job's.
        late.push(stream.finished.kept.text.as_bytes());
        late.join(stream.after);
    }
    let shared = &interpreter.shared;
    match (ended.answer, ended.stopped, ended.exit) {
        (Some(_), None, None) => read_report(interpreter, memory).await,
        _ if ended.cut_off => Err(shared.closed(&RunError::Closing)),
        (_, _, Some(code)) => {
            Err(shared.closed(&format_args!("its interpreter ended at once with exit code {code}")))
        }
        (_, _, None) => Err(shared.closed(&"its interpreter does not answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_sets_errexit_is_the_cause_when_it_fails() {
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
