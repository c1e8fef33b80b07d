//! What becomes of a command that has ended: the result for its caller, and the records for the log.

use super::command::Command;
use super::hints::{Notes, hint};
use super::interpreter::Interpreter;
use super::recorder::Recorder;
use super::run::Ended;
use crate::frame::failure::{self, Failure};
use crate::frame::holds_word;
use crate::frame::stop::without_stop;
use crate::log::{ShellRecord, StopReason};
use crate::request::{BudgetReport, EXIT_INTERRUPTED, EXIT_TIMED_OUT, ExecResult};
use ctx_text::budget::{self, Kept};
use ctx_text::output::Finished;

/// Makes the result of a command and records it.
pub(crate) fn result(
    command: Command,
    mut ended: Ended,
    interpreter: &mut Interpreter,
    recorder: &mut Recorder,
) -> ExecResult {
    let exit_code = match ended.stopped {
        Some(StopReason::TimedOut) => EXIT_TIMED_OUT,
        Some(StopReason::Interrupted | StopReason::Cancelled) => EXIT_INTERRUPTED,
        None => ended.code.or(ended.exit).unwrap_or(1),
    };
    let late = take_late_output(interpreter, recorder);
    if ended.stopped.is_some() {
        let dialect = interpreter.connection.dialect();
        let Finished { kept, ends, .. } = &mut ended.stderr.finished;
        kept.text = without_stop(dialect, std::mem::take(&mut kept.text));
        ends.change(|text| without_stop(dialect, text.to_owned()));
    }
    let has_redactions =
        ended.stdout.finished.redactions + ended.stderr.finished.redactions + late.redactions > 0;
    let (stdout, stderr) = (&mut ended.stdout.finished.kept, &mut ended.stderr.finished.kept);
    if command.plan.shares_default {
        share(stdout, stderr, STREAMS_CHARS_MAX.saturating_sub(late.text.chars().count()));
    }
    let truncated = stdout.truncated || stderr.truncated || late.truncated;
    let report = BudgetReport { stdout: stdout.report.clone(), stderr: stderr.report.clone() };
    let is_silent = report.stdout.lines_total == 0 && report.stderr.lines_total == 0;
    let cwd = interpreter.shared.shown_cwd();
    let notes = Notes {
        command: &command,
        stopped: ended.stopped,
        cwd: &cwd,
        report: &report,
        late_is_cut: late.truncated,
        unkept: ended.unkept.as_ref(),
        has_redactions,
        is_unexplained: exit_code == 2 && is_silent && command.shown_text.contains("[["),
    };
    let hint = hint(&notes);
    let mut result = ExecResult {
        call: command.call,
        exit_code,
        duration_ms: u64::try_from(command.duration().as_millis()).unwrap_or(u64::MAX),
        command: without_middle(command.shown_text),
        stdout: std::mem::take(&mut ended.stdout.finished.kept.text),
        stderr: std::mem::take(&mut ended.stderr.finished.kept.text),
        cwd,
        truncated,
        timed_out: ended.stopped == Some(StopReason::TimedOut),
        shell_restarted: command.restarted.is_some(),
        late_output: late.text,
        bytes: ended.stdout.bytes + ended.stderr.bytes,
        budget: (command.has_budget || truncated).then_some(report),
        hint,
    };
    record_finished(&result, &ended, recorder);
    interpreter.late = (ended.stdout.after, ended.stderr.after);
    if let Some(error) = recorder.take_error() {
        let said = format!("the end of this command is not in the shell's log: {error}");
        result.hint = Some(result.hint.map_or(said.clone(), |hint| format!("{hint}; {said}")));
    }
    result
}

/// Why the command left a shell that cannot run another, where it did. What the shell said about that is hidden.
pub(crate) fn failure_of(command: &str, ended: &mut Ended, interpreter: &Interpreter) -> Option<Failure> {
    ended.exit?;
    let pipes = interpreter.connection.pipes();
    let said = [&ended.stderr, &ended.stdout].into_iter().find_map(|stream| {
        // A budget may hide it from the caller.
        let Finished { kept, ends, .. } = &stream.finished;
        failure::reason(&kept.text, pipes).or_else(|| failure::reason(&ends.text(), pipes))
    });
    if said.is_some() {
        ended.hide(|text| failure::without(text, pipes));
    }
    // dash closes its stderr before it can say so.
    let limits_files = || {
        holds_word(command, &["ulimit"])
            && command.contains("-n")
            && !holds_word(command, &["exit", "exec", "kill"])
    };
    said.or_else(|| limits_files().then_some(Failure::OpenFiles))
        .or(ended.broke_frame.then_some(Failure::Silent))
}

/// What the streams show together where nobody has said how much: the rest of the default is for what a result says
/// besides.
const STREAMS_CHARS_MAX: usize = budget::CHARS_DEFAULT as usize - 1_500;
/// What is shown of each stream's late output.
const LATE_CHARS_MAX: usize = 5_000;
/// A longer command is not repeated in its result.
const COMMAND_CHARS_MAX: usize = 200;

/// Two streams in the room for both: a short one is shown whole.
fn share(stdout: &mut Kept, stderr: &mut Kept, room: usize) {
    let (out, err) = (stdout.text.chars().count(), stderr.text.chars().count());
    if out + err > room {
        let half = room / 2;
        stdout.narrow(if err < half { room - err } else { half.max(room.saturating_sub(err)) });
        stderr.narrow(if out < half { room - out } else { half });
    }
}

fn without_middle(command: String) -> String {
    let chars = command.chars().count();
    if chars <= COMMAND_CHARS_MAX {
        return command;
    }
    let begin: String = command.chars().take(COMMAND_CHARS_MAX).collect();
    format!("{begin} [… {} characters …]", chars - COMMAND_CHARS_MAX)
}

/// What a result shows of late output.
pub(crate) struct ShownLateOutput {
    text: String,
    truncated: bool,
    redactions: u64,
}

/// Takes and records what was printed on both streams since the command before.
pub(crate) fn take_late_output(interpreter: &mut Interpreter, recorder: &mut Recorder) -> ShownLateOutput {
    let Interpreter { shared, late, .. } = interpreter;
    let (mut text, mut recorded, mut truncated, mut redactions) = (String::new(), String::new(), false, 0);
    for mut finished in [late.0.take(), late.1.take()].into_iter().flatten() {
        finished.kept.narrow(LATE_CHARS_MAX);
        redactions += finished.redactions;
        text.push_str(&finished.kept.text);
        truncated |= finished.kept.truncated;
        finished.ends.change(|text| shared.shown(text));
        recorded.push_str(&finished.ends.text());
    }
    let text = shared.shown(&text);
    shared.spool().assign_late();
    if !recorded.is_empty() {
        recorder.record(&ShellRecord::LateOutput { text: recorded });
    }
    ShownLateOutput { text, truncated, redactions }
}

/// The log has its own bounds for what was printed, because its readers did not choose the budget.
fn record_finished(result: &ExecResult, ended: &Ended, recorder: &mut Recorder) {
    recorder.record(&ShellRecord::ExecFinished {
        call: result.call,
        exit_code: result.exit_code,
        duration_ms: result.duration_ms,
        cwd: result.cwd.clone(),
        stdout: ended.stdout.finished.ends.text(),
        stderr: ended.stderr.finished.ends.text(),
        stdout_bytes: ended.stdout.bytes,
        stderr_bytes: ended.stderr.bytes,
        truncated: result.truncated,
        timed_out: result.timed_out,
        shell_restarted: result.shell_restarted,
    });
}

/// Records a command that the end of its shell has cut off, with what it printed.
pub(crate) fn record_cut_off(
    command: &Command,
    mut ended: Ended,
    interpreter: &mut Interpreter,
    recorder: &mut Recorder,
) {
    ended.hide(|text| interpreter.shared.shown(text));
    take_late_output(interpreter, recorder);
    recorder.record(&ShellRecord::ExecCut {
        call: command.call,
        duration_ms: u64::try_from(command.duration().as_millis()).unwrap_or(u64::MAX),
        stdout: ended.stdout.finished.ends.text(),
        stderr: ended.stderr.finished.ends.text(),
        stdout_bytes: ended.stdout.bytes,
        stderr_bytes: ended.stderr.bytes,
    });
    interpreter.late = (ended.stdout.after, ended.stderr.after);
}
