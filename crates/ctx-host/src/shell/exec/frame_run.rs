//! One frame in a shell: what goes into it, how it is run, and what is taken over of its answer.
//!
//! Not here: what a result is made of (`told`), and the report behind the answer (`settle`).

use std::path::Path;

use tokio::sync::watch;
use tokio::time::Instant;

use super::driver::Driver;
use super::report_reader::{SETTLE_AFTER, Unsettled};
use super::run::{Ended, Run, Stops};
use crate::shell::error::ShellError;
use crate::shell::frame::{Framed, Marked};
use crate::shell::local::random::random_bits;
use crate::shell::output::background::Late;
use crate::shell::output::markers::{Nonce, Stream};
use crate::shell::output::stream::{Lane, READ_BYTES_MIN};
use crate::shell::request::Progress;
use crate::shell::text::budget::Plan;
use crate::shell::text::output::OutputStream;

/// A command and how it gets its input and output.
#[derive(Clone, Copy)]
pub(crate) struct Framing<'a> {
    pub command: &'a str,
    pub file: Option<&'a Path>,
    pub stdin: Option<&'a Path>,
    pub merge: bool,
}

impl<'a> Framing<'a> {
    pub(crate) fn of(command: &'a str) -> Self {
        Framing { command, file: None, stdin: None, merge: false }
    }
}

impl Driver {
    /// Runs one frame and takes over what the shell reports of itself.
    pub(crate) async fn frame(
        &mut self,
        framing: Framing<'_>,
        progress: Option<watch::Sender<Progress>>,
        plan: &Plan,
        deadline: Instant,
        cancelled: std::pin::Pin<&mut (dyn Future<Output = ()> + Send)>,
    ) -> Result<Ended, ShellError> {
        let nonce = Nonce::new(random_bits());
        let Framing { command, file, stdin, merge } = framing;
        let (dialect, holds_much) = (self.connection.dialect(), self.connection.holds_much());
        let (habits, status, pipes) = (&self.habits, self.status, self.connection.pipes());
        let mut framed = Framed {
            nonce: &nonce,
            command,
            file,
            stdin,
            merge,
            habits,
            way: dialect.way(habits, command),
            status,
            pipes,
            holds_much,
            misread: self.misread,
            marked: Marked::default(),
        };
        let way = framed.way;
        let begun = self.begin_streams(&mut framed);
        let marked = framed.marked.stdout;
        let (frame, rescue, before) =
            (dialect.frame(&framed), dialect.rescue(&framed), dialect.before(&framed));
        let cut = std::mem::take(&mut self.cut_report);
        let lane = |stream, late: Option<&mut Late>, buffer: &mut Vec<u8>| {
            let output = OutputStream::new(self.shared.secrets(), plan);
            let before = late.map(|late| std::mem::replace(late, Late::new(&self.shared)));
            Lane::new(&nonce, stream, output, before, &self.shared, std::mem::take(buffer), progress.clone())
        };
        let mut out = lane(Stream::Stdout, (!cut).then_some(&mut self.late.0), &mut self.buffers.0);
        let mut err = lane(Stream::Stderr, Some(&mut self.late.1), &mut self.buffers.1);
        for (lane, begun) in [(&mut out, begun.stdout), (&mut err, begun.stderr)] {
            if begun {
                lane.begin();
            }
        }
        let connection = self.connection.as_mut();
        let run = Run {
            nonce,
            frame,
            rescue: rescue.as_deref().map(str::as_bytes),
            marked,
            connection,
            streams: &mut self.streams,
        };
        let stops =
            Stops { deadline, cancelled, interrupt: &self.shared.interrupt, closing: &self.shared.closing };
        let mut ended = run.run(out, err, stops).await.map_err(|error| self.closed(&error))?;
        for (lane, buffer) in
            [(&mut ended.stdout, &mut self.buffers.0), (&mut ended.stderr, &mut self.buffers.1)]
        {
            *buffer = std::mem::take(&mut lane.buffer);
            buffer.resize(READ_BYTES_MIN, 0);
            buffer.shrink_to_fit();
        }
        if ended.rescued
            && let Some(rescue) = &rescue
        {
            // Under `set -v` bash has shown it.
            ended.hide(|text| text.replace(rescue.as_str(), ""));
        }
        self.misread = ended.told.is_some_and(|code| dialect.may_misread(way, code));
        if ended.answer.as_ref().is_none_or(|answer| !answer.begun) && before.contains("__ctx") {
            ended.hide(|text| text.replace(&before, ""));
        }
        self.answered(&mut ended);
        Ok(ended)
    }

    /// Says where the command's output starts, as far as the shell need not, and which streams start empty.
    fn begin_streams(&self, framed: &mut Framed<'_>) -> Marked {
        if !self.connection.dialect().may_be_marked(framed) {
            return Marked::default();
        }
        let begins = |stream| self.connection.is_drained(stream);
        let is_marked = |stream| self.connection.mark(stream, framed.nonce.start()).is_none();
        let begun = Marked { stdout: begins(Stream::Stdout), stderr: begins(Stream::Stderr) };
        let stdout = begun.stdout || is_marked(Stream::Stdout);
        framed.marked = Marked { stdout, stderr: begun.stderr || is_marked(Stream::Stderr) };
        begun
    }

    /// Takes over what the shell has said so far; the rest is for [`Driver::settle`].
    fn answered(&mut self, ended: &mut Ended) {
        let before = (ended.stdout.before.take(), ended.stderr.before.take());
        for (late, before) in [(&mut self.late.0, before.0), (&mut self.late.1, before.1)] {
            if let Some(before) = before {
                *late = before;
            }
        }
        if let Some(answer) = &ended.answer {
            let cwd = self.connection.cwd(&answer.cwd);
            if cwd != self.cwd {
                self.shared.status().cwd = cwd.to_string_lossy().into_owned();
                self.cwd = cwd;
            }
            let (due, stopped) = (Instant::now() + SETTLE_AFTER, ended.stopped.is_some());
            let scanner = ended.stdout.scanner.take();
            self.unsettled = scanner.map(|mut scanner| {
                scanner.expect(std::mem::take(&mut self.told));
                Unsettled { scanner, stopped, due }
            });
        }
    }
}
