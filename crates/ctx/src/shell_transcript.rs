//! A shell's log as a person reads it: commands, what they printed, and how they ended.

use ctx_host::{ShellRecord, StopReason};
use ctx_journal::Entry;
use serde_json::Value;

use crate::output::{self, Paint};
use crate::words;

/// The transcript of one log, record by record.
#[derive(Debug, Clone)]
pub struct ShellTranscript {
    paint: Paint,
    /// The command whose end has not come yet.
    running: Option<u64>,
    /// Whether the shell was opened and its end has not come yet.
    open: bool,
    /// The id that its server gave it.
    shell: String,
}

/// A record's body; what a later version wrote is passed over.
pub fn parse(entry: &Entry) -> Option<ShellRecord> {
    let value: Value = serde_json::from_str(&entry.text).ok()?;
    serde_json::from_value(value).ok()
}

impl ShellTranscript {
    pub fn new(paint: Paint) -> ShellTranscript {
        ShellTranscript { paint, running: None, open: false, shell: String::new() }
    }

    /// What the next record adds.
    pub fn record(&mut self, entry: &Entry) -> String {
        let Some(record) = parse(entry) else { return String::new() };
        let mut text = String::new();
        match &record {
            ShellRecord::ExecStarted { call, .. } => {
                text = self.without_end("");
                self.running = Some(*call);
            }
            ShellRecord::ExecFinished { .. } | ShellRecord::ExecCut { .. } => self.running = None,
            ShellRecord::Destroyed { .. } | ShellRecord::Reaped { .. } | ShellRecord::Lost { .. } => {
                text = self.without_end("");
                self.open = false;
            }
            ShellRecord::Created { shell, .. } => {
                self.open = true;
                self.shell = output::one_line(shell);
            }
            ShellRecord::ExecRefused { .. }
            | ShellRecord::Interrupted { .. }
            | ShellRecord::Restarted { .. }
            | ShellRecord::Checkpointed { .. }
            | ShellRecord::Restored { .. }
            | ShellRecord::LateOutput { .. } => {}
        }
        text.push_str(&shown(record, &words::date_time(entry.time), self.paint));
        text
    }

    /// Whether the shell is there, if there is somebody who writes its log.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The id that the shell's server gave it; nothing until its log says so.
    pub fn shell(&self) -> &str {
        &self.shell
    }

    /// What is to be said behind the last record; a log that somebody writes to may go on.
    pub fn end(mut self, has_writer: bool) -> String {
        match (has_writer, self.running.is_some(), self.open) {
            (true, true, _) => format!("{}\n", self.paint.dim("[it is still running]")),
            (true, false, _) => String::new(),
            (false, true, _) => self.without_end(": its server was killed"),
            (false, false, true) => format!("{}\n", self.paint.dim("[lost: its server was killed]")),
            (false, false, false) => String::new(),
        }
    }

    /// Says of a command without an end that it has none: it looks like one that printed nothing otherwise.
    fn without_end(&mut self, why: &str) -> String {
        let note = |call| format!("[the end of command {call} was not recorded{why}]");
        self.running.take().map_or_else(String::new, |call| format!("{}\n", self.paint.dim(&note(call))))
    }
}

/// One record.
pub fn shown(record: ShellRecord, time: &str, paint: Paint) -> String {
    let note = |text: String| format!("{}\n", paint.dim(&format!("[{time} {}]", output::one_line(&text))));
    match record {
        ShellRecord::Created { shell, cwd, app, .. } => note(format!("{shell} opened in {cwd} by {app}")),
        ShellRecord::ExecStarted { command, .. } => {
            format!("{} {}\n", paint.bold("$"), output::plain(command.trim_end()))
        }
        ShellRecord::ExecFinished { stdout, stderr, exit_code, duration_ms, timed_out, .. } => {
            let mut text = printed(&stdout, &stderr, paint);
            // A command that says nothing looks as if it were still running.
            if exit_code != 0 || timed_out || text.is_empty() {
                let why = if timed_out { ", timed out" } else { "" };
                text.push_str(&note(format!("exit code {exit_code}{why}, {duration_ms} ms")));
            }
            text
        }
        ShellRecord::ExecCut { stdout, stderr, duration_ms, .. } => {
            let cut = format!("cut off after {duration_ms} ms by the end of its shell");
            printed(&stdout, &stderr, paint) + &note(cut)
        }
        ShellRecord::ExecRefused { command, reason } => {
            format!(
                "{} {}\n{}",
                paint.bold("$"),
                output::plain(command.trim_end()),
                note(format!("refused: {reason}"))
            )
        }
        ShellRecord::Interrupted { reason, .. } => note(format!("stopped: {}", stop_reason(reason))),
        ShellRecord::Restarted { exit_code, cwd } => {
            note(format!("the shell ended with {exit_code}; a new one started in {cwd}"))
        }
        ShellRecord::LateOutput { text } => format!("{}{}", note("late output".to_owned()), with_end(&text)),
        ShellRecord::Checkpointed { checkpoint, label, files } => {
            let label = label.map(|label| format!(" `{label}`")).unwrap_or_default();
            note(format!("checkpoint {checkpoint}{label}: {files} files"))
        }
        ShellRecord::Restored { checkpoint, undo, files } => {
            note(format!("restored to checkpoint {checkpoint}: {files} files changed; undo with {undo}"))
        }
        ShellRecord::Destroyed { commands: 1 } => note("destroyed after 1 command".to_owned()),
        ShellRecord::Destroyed { commands } => note(format!("destroyed after {commands} commands")),
        ShellRecord::Reaped { idle_secs, .. } => note(format!("closed after {idle_secs} idle seconds")),
        ShellRecord::Lost { reason, .. } => note(format!("lost: {reason}")),
    }
}

fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::TimedOut => "it ran out of time",
        StopReason::Interrupted => "it was interrupted",
        StopReason::Cancelled => "its caller gave up",
    }
}

fn printed(stdout: &str, stderr: &str, paint: Paint) -> String {
    let mut text = with_end(stdout);
    if !stderr.is_empty() {
        text.push_str(&paint.red(&with_end(stderr)));
    }
    text
}

fn with_end(text: &str) -> String {
    let text = output::plain(text);
    if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
}
