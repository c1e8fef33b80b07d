//! Runs one frame in an interpreter, and takes over what the shell answers at once: its directory and its exit code.
//!
//! Not here: the report behind the answer (`report_reader`), and what a result is made of (`result`).

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::interpreter::{Interpreter, PendingReport};
use super::memory::Memory;
use super::run::{Cancelled, Ended, Run, Stops};
use crate::error::ShellError;
use crate::frame::bash::EvalMode;
use crate::frame::marker::Nonce;
use crate::frame::{FrameInput, Framed, Marked};
use crate::local::random::random_bits;
use crate::output::background::LateOutput;
use crate::output::stream::{CommandStream, READ_BYTES_MIN};
use crate::request::Progress;
use crate::transport::Stream;
use ctx_text::budget::Plan;
use ctx_text::output::OutputStream;

/// If no command comes, the report is read after this long. By then the shell has written all of it, and one read
/// takes it.
const REPORT_AFTER: Duration = Duration::from_millis(2);

/// What a frame runs in, and until when.
pub(crate) struct FrameRun<'a> {
    pub interpreter: &'a mut Interpreter,
    pub memory: &'a mut Memory,
    pub plan: &'a Plan,
    pub progress: Option<watch::Sender<Progress>>,
    pub deadline: Instant,
    pub cancelled: Cancelled<'a>,
}

/// The texts of a frame.
struct Texts {
    way: EvalMode,
    frame: Vec<u8>,
    rescue: Option<String>,
    /// What stands before the command on its first line.
    before: String,
    /// The streams whose start is marked already.
    marked: Marked,
    /// The streams that start empty, and so need no mark.
    empty: Marked,
}

impl FrameRun<'_> {
    pub async fn run(mut self, input: FrameInput<'_>) -> Result<Ended, ShellError> {
        let nonce = Nonce::new(random_bits());
        let texts = self.texts(input, &nonce);
        let (out, err) = self.streams(&nonce, texts.empty);
        let Interpreter { shared, connection, streams, .. } = &mut *self.interpreter;
        let run = Run {
            nonce,
            frame: texts.frame,
            rescue: texts.rescue.as_deref().map(str::as_bytes),
            marked: texts.marked.stdout,
            connection: connection.as_mut(),
            streams,
        };
        let stops = Stops {
            deadline: self.deadline,
            cancelled: self.cancelled,
            interrupt: &shared.interrupt,
            closing: &shared.closing,
        };
        let mut ended = run.run(out, err, stops).await.map_err(|error| shared.closed(&error))?;
        let dialect = connection.dialect();
        if let Some(rescue) = texts.rescue.filter(|_| ended.rescued) {
            // Under `set -v` bash has shown it.
            ended.hide(|text| text.replace(rescue.as_str(), ""));
        }
        if ended.answer.as_ref().is_none_or(|answer| !answer.begun) && texts.before.contains("__ctx") {
            ended.hide(|text| text.replace(&texts.before, ""));
        }
        self.memory.misread = ended.code.is_some_and(|code| dialect.may_misread(texts.way, code));
        take_answer(&mut ended, self.interpreter, self.memory);
        Ok(ended)
    }

    fn texts(&mut self, input: FrameInput<'_>, nonce: &Nonce) -> Texts {
        let holds_much = self.interpreter.connection.holds_much();
        let connection = self.interpreter.connection.as_ref();
        let (dialect, habits) = (connection.dialect(), &self.memory.habits);
        let way = dialect.way(habits, input.command);
        let mut framed = Framed {
            nonce,
            input,
            habits,
            way,
            status: self.memory.status,
            pipes: connection.pipes(),
            holds_much,
            misread: self.memory.misread,
            marked: Marked::default(),
            marks_end: connection.marks_ends(),
        };
        let mut empty = Marked::default();
        if dialect.may_be_marked(&framed) {
            let is_marked = |stream| connection.mark(stream, nonce.start()).is_none();
            let is_empty = |stream| connection.is_drained(stream);
            empty = Marked { stdout: is_empty(Stream::Stdout), stderr: is_empty(Stream::Stderr) };
            let stdout = empty.stdout || is_marked(Stream::Stdout);
            framed.marked = Marked { stdout, stderr: empty.stderr || is_marked(Stream::Stderr) };
        }
        let (frame, rescue) = (dialect.frame(&framed), dialect.rescue(&framed));
        let before = dialect.before(&framed);
        Texts { way, frame, rescue, before, marked: framed.marked, empty }
    }

    fn streams(&mut self, nonce: &Nonce, empty: Marked) -> (CommandStream, CommandStream) {
        let Interpreter { shared, buffers, late, has_cut_report, .. } = &mut *self.interpreter;
        let output = |stream, is_empty, late: Option<&mut LateOutput>, buffer: &mut Vec<u8>| {
            let output = OutputStream::new(shared.secrets(), self.plan);
            let before = late.map(|late| std::mem::replace(late, LateOutput::new(shared)));
            let buffer = std::mem::take(buffer);
            let mut output =
                CommandStream::new(nonce, stream, output, before, shared, buffer, self.progress.clone());
            if is_empty {
                output.begin();
            }
            output
        };
        // What is left of a report that broke off is nobody's output.
        let is_cut = std::mem::take(has_cut_report);
        let out = output(Stream::Stdout, empty.stdout, (!is_cut).then_some(&mut late.0), &mut buffers.0);
        (out, output(Stream::Stderr, empty.stderr, Some(&mut late.1), &mut buffers.1))
    }
}

/// Takes over what the shell has said so far, and gives the interpreter back what was lent to the streams.
fn take_answer(ended: &mut Ended, interpreter: &mut Interpreter, memory: &mut Memory) {
    let Interpreter { shared, connection, buffers, late, pending_report, .. } = interpreter;
    for (output, buffer, late) in
        [(&mut ended.stdout, &mut buffers.0, &mut late.0), (&mut ended.stderr, &mut buffers.1, &mut late.1)]
    {
        *buffer = std::mem::take(&mut output.buffer);
        buffer.resize(READ_BYTES_MIN, 0);
        buffer.shrink_to_fit();
        if let Some(before) = output.before.take() {
            *late = before;
        }
    }
    let Some(answer) = &ended.answer else { return };
    let cwd = connection.cwd(&answer.cwd);
    if cwd != memory.cwd {
        shared.status().cwd = cwd.to_string_lossy().into_owned();
        memory.cwd = cwd;
    }
    let (due, was_stopped) = (Instant::now() + REPORT_AFTER, ended.stopped.is_some());
    *pending_report = ended.stdout.scanner.take().map(|mut scanner| {
        scanner.expect(std::mem::take(&mut memory.last_report));
        PendingReport { scanner, was_stopped, due }
    });
}
