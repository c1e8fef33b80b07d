//! What becomes of a command's end: the result for its caller, and the records for the log.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::driver::Driver;
use super::hints::{Notes, Shown, hint};
use super::run::Ended;
use crate::shell::frame::failure::{self, Broken};
use crate::shell::frame::holds_word;
use crate::shell::frame::stop::without_stop;
use crate::shell::log::{ShellRecord, StopReason};
use crate::shell::request::{BudgetReport, EXIT_INTERRUPTED, EXIT_TIMED_OUT, ExecResult};
use crate::shell::text::{ends::Ends, output::Finished};

/// How long the last output of a shell is read: a program may print without end.
const LAST_WORDS_MAX: Duration = Duration::from_millis(100);

impl Driver {
    pub(crate) fn result(&mut self, call: u64, command: String, ended: Ended, shown: Shown) -> ExecResult {
        let code = ended.told.or(ended.exit).unwrap_or(1);
        let exit_code = match ended.stopped {
            Some(StopReason::TimedOut) => EXIT_TIMED_OUT,
            Some(StopReason::Interrupted | StopReason::Cancelled) => EXIT_INTERRUPTED,
            None => code,
        };
        let timed_out = ended.stopped == Some(StopReason::TimedOut);
        let late = self.late_output();
        let (stdout, mut stderr) = (ended.stdout.finished.kept, ended.stderr.finished.kept);
        let mut printed = (ended.stdout.finished.ends, ended.stderr.finished.ends);
        if ended.stopped.is_some() {
            let dialect = self.connection.dialect();
            stderr.text = without_stop(dialect, stderr.text);
            printed.1.change(|text| without_stop(dialect, text.to_owned()));
        }
        let truncated = stdout.truncated || stderr.truncated || late.truncated;
        let (cwd, unkept) = (self.shared.shown_cwd(), ended.unkept.as_ref());
        let is_silent = stdout.report.lines_total == 0 && stderr.report.lines_total == 0;
        let unsaid = exit_code == 2 && is_silent && command.contains("[[");
        let notes = Notes { stopped: ended.stopped, cwd: &cwd, late_cut: late.truncated, unkept, unsaid };
        let hint = hint(&stdout.report, &stderr.report, notes, shown);
        let report = BudgetReport { stdout: stdout.report, stderr: stderr.report };
        let mut result = ExecResult {
            call,
            command,
            stdout: stdout.text,
            stderr: stderr.text,
            exit_code,
            duration_ms: u64::try_from(shown.duration.as_millis()).unwrap_or(u64::MAX),
            cwd,
            truncated,
            timed_out,
            shell_restarted: shown.restarted.is_some(),
            late_output: late.text,
            budget: (shown.asked || truncated).then_some(report),
            hint,
        };
        self.late.0 = ended.stdout.after;
        self.late.1 = ended.stderr.after;
        self.record_finished(&result, (&printed.0, ended.stdout.bytes), (&printed.1, ended.stderr.bytes));
        if let Some(error) = self.unlogged.take() {
            let said = format!("the end of this command is not in the shell's log: {error}");
            result.hint = Some(result.hint.map_or(said.clone(), |hint| format!("{hint}; {said}")));
        }
        result
    }

    /// Why the command left a shell that cannot run another, where it did. What the shell said of that is not shown.
    pub(crate) fn why_broken(&self, command: &str, ended: &mut Ended) -> Option<Broken> {
        ended.exit?;
        let pipes = self.connection.pipes();
        let said = [&ended.stderr, &ended.stdout].into_iter().find_map(|lane| {
            // A budget may hide it from the caller.
            let Finished { kept, ends, .. } = &lane.finished;
            failure::reason(&kept.text, pipes).or_else(|| failure::reason(&ends.text(), pipes))
        });
        if said.is_some() {
            ended.hide(|text| failure::without(text, pipes));
        }
        // dash closes its stderr before it can say so.
        let limited = || {
            holds_word(command, &["ulimit"])
                && command.contains("-n")
                && !holds_word(command, &["exit", "exec", "kill"])
        };
        let guessed = || limited().then_some(Broken::OpenFiles);
        said.or_else(guessed).or(ended.broke_frame.then_some(Broken::Silent))
    }

    /// What was printed since the command before, on both streams.
    fn late_output(&mut self) -> LateOutput {
        let (mut text, mut recorded, mut truncated) = (String::new(), String::new(), false);
        for mut finished in [self.late.0.take(), self.late.1.take()].into_iter().flatten() {
            text.push_str(&finished.kept.text);
            truncated |= finished.kept.truncated;
            finished.ends.change(|text| self.shared.shown(text));
            recorded.push_str(&finished.ends.text());
        }
        let text = self.shared.shown(&text);
        self.shared.spool().tell_late();
        if !recorded.is_empty() {
            self.record(&ShellRecord::LateOutput { text: recorded });
        }
        LateOutput { text, truncated }
    }

    /// The log has what was printed by its own bounds: whoever asked for little is not who reads it.
    fn record_finished(
        &mut self,
        result: &ExecResult,
        (stdout, stdout_bytes): (&Ends, u64),
        (stderr, stderr_bytes): (&Ends, u64),
    ) {
        self.record(&ShellRecord::ExecFinished {
            call: result.call,
            exit_code: result.exit_code,
            duration_ms: result.duration_ms,
            cwd: result.cwd.clone(),
            stdout: stdout.text(),
            stderr: stderr.text(),
            stdout_bytes,
            stderr_bytes,
            truncated: result.truncated,
            timed_out: result.timed_out,
            shell_restarted: result.shell_restarted,
        });
    }

    /// A command that its shell's end has cut off: what it printed is not lost with it.
    pub(crate) fn record_cut(&mut self, call: u64, mut ended: Ended, duration: Duration) {
        ended.hide(|text| self.shared.shown(text));
        self.late_output();
        (self.late.0, self.late.1) = (ended.stdout.after, ended.stderr.after);
        self.record(&ShellRecord::ExecCut {
            call,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            stdout: ended.stdout.finished.ends.text(),
            stderr: ended.stderr.finished.ends.text(),
            stdout_bytes: ended.stdout.bytes,
            stderr_bytes: ended.stderr.bytes,
        });
    }

    /// Records what came after the last command, also what stands in the pipes.
    pub(crate) async fn take_last_words(&mut self) {
        let give_up = Instant::now() + LAST_WORDS_MAX;
        // A report that was not read to its end is nobody's output.
        let settled = self.settle().await.is_ok() && !self.cut_report;
        let (mut out_open, mut err_open) = (settled, true);
        let (out, err) = (&mut self.buffers.0, &mut self.buffers.1);
        while Instant::now() < give_up {
            tokio::select! {
                biased;
                read = self.streams.stdout.read(out), if out_open => match read {
                    Ok(count @ 1..) => self.late.0.push(out.get(..count).unwrap_or_default()),
                    Ok(0) | Err(_) => out_open = false,
                },
                read = self.streams.stderr.read(err), if err_open => match read {
                    Ok(count @ 1..) => self.late.1.push(err.get(..count).unwrap_or_default()),
                    Ok(0) | Err(_) => err_open = false,
                },
                () = std::future::ready(()) => break,
            }
        }
        self.late_output();
    }

    /// A record of what has happened already, whether it can be written or not.
    pub(crate) fn record(&mut self, record: &ShellRecord) {
        if let Err(error) = self.log.record(self.shared.log, record) {
            tracing::warn!(shell = %self.shared.id, %error, "a shell's record was not written");
            self.unlogged = Some(error);
        }
    }
}

/// What a result shows of late output.
struct LateOutput {
    text: String,
    truncated: bool,
}
