//! Reads what a shell says of itself after a command: traps, options and exported variables.
//!
//! The caller has the command's result before that. The report is read before the next command, or a moment later if
//! none comes.

#![expect(clippy::indexing_slicing, reason = "a read returns at most as many bytes as its buffer has")]

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::interpreter::{Interpreter, PendingReport};
use super::memory::Memory;
use super::run::RunError;
use crate::error::ShellError;
use crate::frame::Report;
use crate::output::background::LateOutput;
use crate::output::markers::{Part, Scanner};

/// A shell that takes longer for its report than this will not finish it.
const REPORT_MAX: Duration = Duration::from_secs(10);

/// Reads the rest of the last command's report and takes over what it says.
pub(crate) async fn read_report(
    interpreter: &mut Interpreter,
    memory: &mut Memory,
) -> Result<(), ShellError> {
    let Some(PendingReport { mut scanner, was_stopped, .. }) = interpreter.pending_report.take() else {
        return Ok(());
    };
    let read = read_to_end(interpreter, &mut scanner).await;
    read.map_err(|error| interpreter.shared.closed(&error))?;
    if !scanner.done() {
        // The interpreter died within its report: what held before still holds.
        let late = &mut interpreter.late.0;
        scanner.finish(&mut |part| late.push(part.bytes()));
        interpreter.has_cut_report = true;
        return Ok(());
    }
    interpreter.late.0.push(&scanner.rest());
    if let Some(Report { habits, exports }) = Report::parse(scanner.report()) {
        memory.set_habits(habits, was_stopped);
        if !scanner.is_as_expected() {
            memory.set_exports(&exports, scanner.spoilt, &interpreter.shared);
        }
    }
    memory.last_report = scanner.into_expected();
    Ok(())
}

/// The same before the command's own output is shown: what jobs print into the report comes after that.
pub(crate) async fn read_report_behind(
    after: &mut LateOutput,
    interpreter: &mut Interpreter,
    memory: &mut Memory,
) -> Result<(), ShellError> {
    std::mem::swap(&mut interpreter.late.0, after);
    let read = read_report(interpreter, memory).await;
    std::mem::swap(&mut interpreter.late.0, after);
    read
}

async fn read_to_end(interpreter: &mut Interpreter, scanner: &mut Scanner) -> Result<(), RunError> {
    let Interpreter { shared, connection, streams, buffers, exit, late, .. } = interpreter;
    let give_up = Instant::now() + REPORT_MAX;
    let mut killed = false;
    let mut lost = connection.lost();
    while !scanner.done() {
        let ended = exit.is_some();
        // What the shell has printed is read before its end counts.
        tokio::select! {
            biased;
            read = streams.stdout.read(&mut buffers.0) => {
                let mut sink = |part: Part<'_>| late.0.push(part.bytes());
                match read.map_err(RunError::Lost)? {
                    0 => scanner.finish(&mut sink),
                    count => scanner.push(&buffers.0[..count], &mut sink),
                }
            }
            () = shared.closing.cancelled() => return Err(RunError::Closing),
            code = connection.wait(), if !ended => *exit = Some(code),
            () = &mut lost => return Err(RunError::unanswered()),
            () = std::future::ready(()), if ended => return Ok(()),
            () = tokio::time::sleep_until(give_up), if !killed => {
                killed = true;
                connection.kill_interpreter();
            }
        }
    }
    Ok(())
}
