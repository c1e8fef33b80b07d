//! What is done with the output of a command: whose the bytes are, which of them must not be stored, what is shown.
//!
//! Nothing here reads or waits; `stream` does, in place or with threads (`bulk_reader`).

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

use super::background::LateOutput;
use super::markers::{Part, Scanner};
use crate::request::Progress;
use crate::state::ShellState;
use crate::transport::Stream;
use ctx_text::output::{Finished, Shown};
use ctx_text::redact::Redactor;

/// How far a stream is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamProgress {
    /// Bytes that the command printed.
    pub bytes: u64,
    /// Whether the command has ended on this stream, and its exit code is known where this stream carries it.
    pub answered: bool,
    /// Whether all is in that a shell has printed which has died.
    pub sealed: bool,
}

impl StreamProgress {
    /// Whether nothing is to come that is worth waiting for.
    pub fn is_all(self, shell_has_ended: bool) -> bool {
        if shell_has_ended { self.sealed } else { self.answered }
    }
}

/// A stream that has ended, or whose command has.
pub(crate) struct StreamEnd {
    pub finished: Finished,
    pub bytes: u64,
    /// Printed before the start marker, where that is anybody's output.
    pub before: Option<LateOutput>,
    /// Printed behind the end marker.
    pub after: LateOutput,
    /// The shell may still be telling its report.
    pub scanner: Option<Scanner>,
    /// Why not all of the output is on disk.
    pub spool_error: Option<io::Error>,
    /// For the next command to read into.
    pub buffer: Vec<u8>,
}

/// What is done with the bytes that were read: two steps, which two threads may take.
pub(crate) struct Pipeline {
    pub intake: Intake,
    pub storage: Storage,
}

/// The second step: redacted bytes are written to disk, and what is shown is gathered.
pub(crate) struct Storage {
    pub stream: Stream,
    pub shared: Arc<ShellState>,
    pub shown: Shown,
    /// Why not all of the output is on disk. The command goes on: its output is shown, but not all of it is kept.
    pub error: Option<io::Error>,
}

impl Storage {
    pub fn write(&mut self, redacted: &[u8]) {
        let kept = self.shared.spool().keep(self.stream, redacted);
        self.error = self.error.take().or(kept.err());
        self.shown.push(redacted);
    }
}

/// The first step: which bytes are the command's, and which of them must not be stored.
pub(crate) struct Intake {
    pub scanner: Scanner,
    pub redactor: Redactor,
    pub bytes: u64,
    pub before: Option<LateOutput>,
    pub after: LateOutput,
    pub stream: Stream,
    /// Who wants to know how far the command is.
    pub progress: Option<watch::Sender<Progress>>,
}

impl Intake {
    /// Takes what was read and hands on what is left of it; no bytes are the end of the stream.
    pub fn take(&mut self, read: &[u8], redacted: &mut dyn FnMut(&[u8])) -> StreamProgress {
        self.scan(redacted, |scanner, sink| match read {
            [] => scanner.finish(sink),
            read => scanner.push(read, sink),
        })
    }

    fn scan(
        &mut self,
        redacted: &mut dyn FnMut(&[u8]),
        step: impl FnOnce(&mut Scanner, &mut dyn FnMut(Part<'_>)),
    ) -> StreamProgress {
        let Intake { scanner, redactor, bytes, before, after, .. } = self;
        let mut sink = |part: Part<'_>| match part {
            Part::Late(part) => {
                if let Some(before) = before {
                    before.push(part);
                }
            }
            Part::After(part) => after.push(part),
            Part::Body(part) => {
                *bytes += part.len() as u64;
                redactor.push_to(part, redacted);
            }
        };
        step(scanner, &mut sink);
        if let Some(progress) = &self.progress {
            progress.send_modify(|progress| match self.stream {
                Stream::Stdout => progress.stdout_bytes = self.bytes,
                Stream::Stderr => progress.stderr_bytes = self.bytes,
            });
        }
        self.progress()
    }

    pub fn progress(&self) -> StreamProgress {
        StreamProgress { bytes: self.bytes, answered: self.scanner.answered(), sealed: self.scanner.sealed }
    }
}

impl Pipeline {
    /// Takes what was read; no bytes are the end of the stream.
    pub fn take(&mut self, read: &[u8]) -> StreamProgress {
        self.intake.take(read, &mut |redacted| self.storage.write(redacted))
    }

    /// The command has ended, and all that it printed was taken.
    pub fn finish(&mut self) -> StreamProgress {
        let Pipeline { intake, storage } = self;
        intake.scan(&mut |redacted| storage.write(redacted), |scanner, sink| scanner.end(sink))
    }

    pub fn end(self, buffer: Vec<u8>) -> StreamEnd {
        let Pipeline { intake, storage: Storage { stream, shared, shown, error } } = self;
        let Intake { mut scanner, redactor, bytes, before, mut after, .. } = intake;
        after.push(&scanner.rest());
        let finished = shown.finish(redactor);
        let spool_error = error.or(shared.spool().keep(stream, &finished.rest).err());
        StreamEnd { finished, bytes, before, after, scanner: Some(scanner), spool_error, buffer }
    }
}
