//! What a shell or a session did, in blocks: a command with what it printed, or something that was said. Pure.

use std::collections::HashMap;

use ctx_host::ShellRecord;
use ctx_journal::Entry;
use ctx_session::Ulid;
use ctx_session::conversation::{Part, Role};
use ctx_session::record::ToolStatus;
use ctx_views::read::{Ended, Said};
use unicode_width::UnicodeWidthChar;

use crate::output::{self, Paint};
use crate::render::terminal::how_it_ended;
use crate::shell_transcript::{parse, shown};
use crate::words::{self, Clock};

/// Blocks that are kept of one transcript; those before can be read with `ctx shells show` and `ctx show`.
pub const BLOCKS_MAX: usize = 2_000;
/// Of longer output so many lines are shown at each end, until it is opened.
const ENDS: usize = 5;
/// The note of a command that has not ended.
const RUNNING: &str = "running";

/// How a line is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Strong,
    Dim,
    Bad,
}

/// A line of a block, or a row of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub tone: Tone,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Stays the same when the transcript grows.
    pub id: u64,
    /// The command, or who speaks.
    pub head: Line,
    pub body: Vec<Line>,
    /// How it ended.
    pub note: Option<Line>,
    pub failed: bool,
    /// Its body is what a program printed, and is folded.
    pub folds: bool,
}

impl Block {
    fn new(id: u64, tone: Tone, head: &str) -> Block {
        let head = Line { tone, text: output::plain(head.trim_end()) };
        Block { id, head, body: Vec::new(), note: None, failed: false, folds: false }
    }

    fn print(&mut self, tone: Tone, text: &str) {
        let text = output::plain(text);
        self.body.extend(text.lines().map(|line| Line { tone, text: line.to_owned() }));
    }

    fn note(&mut self, failed: bool, text: impl Into<String>) {
        let tone = if failed { Tone::Bad } else { Tone::Dim };
        self.note = Some(Line { tone, text: text.into() });
        self.failed |= failed;
    }

    fn is_running(&self) -> bool {
        self.note.as_ref().is_some_and(|note| note.text == RUNNING)
    }

    /// All lines, or those that stand for it in the transcript.
    pub fn lines(&self, whole: bool) -> Vec<Line> {
        let mut lines: Vec<Line> =
            self.head.text.lines().map(|text| Line { tone: self.head.tone, text: text.to_owned() }).collect();
        if whole || !self.folds || self.body.len() <= 2 * ENDS + 1 {
            lines.extend_from_slice(&self.body);
        } else {
            let hidden = self.body.len() - 2 * ENDS;
            // Of more output than the log keeps it has both ends, and a line between them that counts the rest.
            let missing = |line: &Line| {
                line.text.strip_prefix("[… ").and_then(|rest| rest.strip_suffix(" …]")).map(str::to_owned)
            };
            let missing: Vec<String> = self.body.iter().filter_map(missing).collect();
            let missing = match missing.as_slice() {
                [] => String::new(),
                missing => format!("; the log does not have {}", missing.join(" and ")),
            };
            lines.extend(self.body.iter().take(ENDS).cloned());
            let text = format!("… {hidden} lines, Enter opens them{missing}");
            lines.push(Line { tone: Tone::Dim, text });
            lines.extend(self.body.iter().skip(ENDS + hidden).cloned());
        }
        lines.extend(self.note.clone());
        lines
    }

    /// Whether a text, in small letters, stands anywhere in it.
    pub fn holds(&self, wanted: &str) -> bool {
        let lines = std::iter::once(&self.head).chain(&self.body).chain(&self.note);
        lines.into_iter().any(|line| line.text.to_lowercase().contains(wanted))
    }

    /// What it printed or said.
    pub fn output(&self) -> String {
        self.body.iter().map(|line| format!("{}\n", line.text)).collect()
    }

    /// The command as it can be typed again.
    pub fn command(&self) -> &str {
        self.head.text.strip_prefix("$ ").unwrap_or(&self.head.text)
    }
}

/// A line as rows of at most this width, counted as a terminal does.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let (mut rows, mut row, mut wide) = (Vec::new(), String::new(), 0);
    for c in text.chars() {
        let (piece, columns) = match c {
            '\t' => (' ', 8 - wide % 8),
            c => (c, c.width().unwrap_or(0)),
        };
        if wide + columns > width && wide > 0 {
            rows.push(std::mem::take(&mut row));
            wide = 0;
        }
        row.extend(std::iter::repeat_n(piece, if c == '\t' { columns.min(width) } else { 1 }));
        wide += columns;
    }
    rows.push(row);
    rows
}

/// The blocks of a shell's log, record by record.
#[derive(Default)]
pub struct ShellBlocks {
    pub blocks: Vec<Block>,
}

impl ShellBlocks {
    pub fn add(&mut self, entry: &Entry) {
        let Some(record) = parse(entry) else { return };
        match record {
            ShellRecord::ExecStarted { command, .. } => {
                let mut block = Block::new(entry.seq, Tone::Strong, &format!("$ {command}"));
                block.folds = true;
                block.note(false, RUNNING);
                self.push(block);
            }
            ShellRecord::ExecFinished { stdout, stderr, exit_code, duration_ms, timed_out, .. } => {
                let why = if timed_out { ", timed out" } else { "" };
                let failed = exit_code != 0 || timed_out;
                self.end(&stdout, &stderr, failed, format!("exit code {exit_code}{why}, {duration_ms} ms"));
            }
            ShellRecord::ExecCut { stdout, stderr, duration_ms, .. } => {
                let note = format!("cut off after {duration_ms} ms by the end of its shell");
                self.end(&stdout, &stderr, true, note);
            }
            ShellRecord::ExecRefused { command, reason } => {
                let mut block = Block::new(entry.seq, Tone::Strong, &format!("$ {command}"));
                block.note(true, output::one_line(&format!("refused: {reason}")));
                self.push(block);
            }
            ShellRecord::LateOutput { text } => {
                let mut block = Block::new(entry.seq, Tone::Dim, "late output");
                block.folds = true;
                block.print(Tone::Plain, &text);
                self.push(block);
            }
            record @ (ShellRecord::Created { .. }
            | ShellRecord::Interrupted { .. }
            | ShellRecord::Restarted { .. }
            | ShellRecord::Checkpointed { .. }
            | ShellRecord::Restored { .. }
            | ShellRecord::Destroyed { .. }
            | ShellRecord::Reaped { .. }
            | ShellRecord::Lost { .. }) => {
                let failed = matches!(record, ShellRecord::Lost { .. });
                let text = shown(record, &words::date_time(entry.time), Paint::off());
                let tone = if failed { Tone::Bad } else { Tone::Dim };
                self.push(Block { failed, ..Block::new(entry.seq, tone, &text) });
            }
        }
    }

    /// The last command has ended. Notes on how it was stopped may stand behind it.
    fn end(&mut self, stdout: &str, stderr: &str, failed: bool, note: String) {
        let Some(block) = self.blocks.iter_mut().rfind(|block| block.head.text.starts_with("$ ")) else {
            return;
        };
        block.print(Tone::Plain, stdout);
        block.print(Tone::Bad, stderr);
        block.note(failed, note);
    }

    /// Nobody writes the log any more: a command without an end has none.
    pub fn lost(&mut self) {
        if let Some(block) = self.blocks.iter_mut().rfind(|block| block.is_running()) {
            block.note(true, "its end was not recorded");
        }
    }

    fn push(&mut self, block: Block) {
        self.blocks.push(block);
        bound(&mut self.blocks);
    }
}

/// The blocks of a conversation.
#[derive(Default)]
pub struct SessionBlocks {
    pub blocks: Vec<Block>,
    /// The block of each call that has no result yet.
    calls: HashMap<Ulid, u64>,
}

impl SessionBlocks {
    pub fn add(&mut self, said: &Said, clock: Clock) {
        let message = &said.message;
        for (part, at) in message.content.iter().zip(0_u64..) {
            // A message has a place in the log, and its parts one in the message.
            let id = (message.seq << 12) | at.min(4_094);
            match part {
                Part::Text { text } => {
                    let caller = message.caller.as_ref().map(|caller| format!(" {}", caller.name));
                    let who = format!("{}{}", message.role, caller.unwrap_or_default());
                    let tone = if message.role == Role::User { Tone::Strong } else { Tone::Dim };
                    let mut block = Block::new(
                        id,
                        tone,
                        &output::one_line(&format!("{who} {}", clock.show(message.time))),
                    );
                    block.print(Tone::Plain, text);
                    self.blocks.push(block);
                }
                Part::Image(image) => {
                    self.blocks.push(Block::new(id, Tone::Dim, &output::one_line(&image.in_words())));
                }
                Part::ToolCall { call_id, name, input, .. } => {
                    let head = output::one_line(&format!("$ {name} {input}"));
                    let mut block = Block { folds: true, ..Block::new(id, Tone::Strong, &head) };
                    block.note(false, RUNNING);
                    self.calls.insert(*call_id, id);
                    self.blocks.push(block);
                }
                Part::ToolResult { call_id, status, text } => self.result(*call_id, *status, text),
            }
        }
        if let Some(ended) = &said.ended {
            let mut block = Block::new((message.seq << 12) | 4_095, Tone::Dim, "end of the run");
            block.note(matches!(ended, Ended::Failed { .. }), how_it_ended(ended, Paint::off()));
            self.blocks.push(block);
        }
        bound(&mut self.blocks);
    }

    fn result(&mut self, call: Ulid, status: ToolStatus, text: &str) {
        let id = self.calls.remove(&call);
        let Some(block) = self.blocks.iter_mut().rfind(|block| Some(block.id) == id) else { return };
        block.print(Tone::Plain, text);
        let exit_code = exit_code(&block.head.text, text).filter(|code| *code != 0);
        match status {
            ToolStatus::Ok if exit_code.is_some() => {
                block.note(true, format!("exit code {}", exit_code.unwrap_or_default()));
            }
            ToolStatus::Ok => block.note(false, "ok"),
            ToolStatus::Error => block.note(true, "error"),
            ToolStatus::Interrupted => block.note(true, "interrupted"),
            ToolStatus::Skipped => block.note(false, "skipped"),
        }
    }

    /// The answer that is being written has no message yet.
    pub fn under_way(&mut self, text: &str) {
        let mut block = Block::new(u64::MAX, Tone::Dim, "assistant, under way");
        block.print(Tone::Plain, text);
        self.blocks.push(block);
    }
}

/// How the command of a call ended, which the line below its output says.
fn exit_code(head: &str, text: &str) -> Option<i32> {
    let is_end = |line: &str| line.strip_prefix("[exit code ").map(str::to_owned);
    let end = head.starts_with("$ shell.exec ").then(|| text.lines().rev().find_map(is_end))??;
    end.split(';').next()?.parse().ok()
}

fn bound(blocks: &mut Vec<Block>) {
    // Not one at a time: each removal moves all the rest.
    if blocks.len() > BLOCKS_MAX + BLOCKS_MAX / 4 {
        blocks.drain(..blocks.len() - BLOCKS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_as_a_terminal_counts() {
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(wrap("日本語", 5), ["日本", "語"], "two columns each");
        assert_eq!(wrap("a\tb", 20), ["a       b"]);
        assert_eq!(wrap("日", 1), ["日"], "no endless loop where nothing fits");
        assert_eq!(wrap("e\u{301}x", 2), ["e\u{301}x"], "what combines takes no column");
    }

    fn log(records: &[ShellRecord]) -> ShellBlocks {
        let mut blocks = ShellBlocks::default();
        for (record, seq) in records.iter().zip(1..) {
            let text = serde_json::to_string(record).unwrap();
            let entry = Entry { seq, ..entry(&text) };
            blocks.add(&entry);
        }
        blocks
    }

    fn entry(text: &str) -> Entry {
        let (time, kind) = (ctx_session::Timestamp::default(), String::new());
        Entry { seq: 0, time, kind, more: false, line: 0, offset: 0, text: text.to_owned() }
    }

    #[test]
    fn a_command_of_an_agent_that_failed_is_one_that_failed() {
        let call = "$ shell.exec {\"command\":\"ls /nonexistent\"}";
        let text = "a\n[stderr]\nls: no\n[exit code 2; 0.0 s; cwd /; call 1]\n[hint: look]";
        let result = |head: &str, text: &str| {
            let id: Ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
            let mut session = SessionBlocks::default();
            session.blocks.push(Block::new(7, Tone::Strong, head));
            session.calls.insert(id, 7);
            session.result(id, ToolStatus::Ok, text);
            (session.blocks[0].failed, session.blocks[0].note.clone().unwrap().text)
        };
        assert_eq!(result(call, text), (true, "exit code 2".to_owned()));
        assert_eq!(result(call, &text.replace("code 2", "code 0")), (false, "ok".to_owned()));
        assert_eq!(result("$ fs.read {}", text), (false, "ok".to_owned()));
    }

    #[test]
    fn a_command_is_a_block_that_grows_and_long_output_is_folded() {
        let started = ShellRecord::ExecStarted { call: 1, command: "make\nall".into(), cwd: "/".into() };
        let running = log(std::slice::from_ref(&started));
        assert_eq!(running.blocks[0].note.as_ref().unwrap().text, "running");
        let stdout: String = (1..=40).map(|n| format!("line {n}\n")).collect();
        let finished = ShellRecord::ExecFinished {
            call: 1,
            exit_code: 2,
            duration_ms: 7,
            cwd: "/".into(),
            stdout,
            stderr: "oops \u{1b}[31m\n".into(),
            stdout_bytes: 0,
            stderr_bytes: 0,
            truncated: false,
            timed_out: false,
            shell_restarted: false,
        };
        let ended = log(&[started, finished]);
        let [block] = ended.blocks.as_slice() else { panic!("one block") };
        assert!(block.failed && block.command() == "make\nall");
        let texts: Vec<String> = block.lines(false).into_iter().map(|line| line.text).collect();
        assert_eq!(texts[..3], ["$ make", "all", "line 1"]);
        assert_eq!(texts[7], "… 31 lines, Enter opens them");
        assert_eq!(texts[texts.len() - 2..], ["oops \u{fffd}[31m", "exit code 2, 7 ms"]);
        assert_eq!(block.lines(true).len(), 2 + 41 + 1);
        assert!(block.holds("oops") && block.holds("line 20") && !block.holds("line 41"));
        let mut cut = block.clone();
        cut.body[20].text = "[… 5701 bytes …]".to_owned();
        assert_eq!(
            cut.lines(false)[7].text,
            "… 31 lines, Enter opens them; the log does not have 5701 bytes"
        );
    }
}
