//! What is done with the output of a command: whose the bytes are, which of them must not be stored, what is shown.
//!
//! Nothing here reads or waits; who does is `lane`, in place or with threads (`away`).

use std::io;

use tokio::sync::watch;

use super::background::Late;
use super::markers::{Part, Scanner, Stream};
use super::spool_writer::Keeper;
use crate::shell::request::Progress;
use crate::shell::text::output::{Finished, Shown};
use crate::shell::text::redact::Redactor;

/// How far a stream is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Bytes that the command printed.
    pub bytes: u64,
    /// Whether the command has ended on this stream, and its exit code is known where this stream tells it.
    pub answered: bool,
    /// Whether all is in that a shell has printed which has died.
    pub sealed: bool,
}

impl Seen {
    /// Whether nothing is to come that is worth waiting for.
    pub fn is_all(self, shell_has_ended: bool) -> bool {
        if shell_has_ended { self.sealed } else { self.answered }
    }
}

/// A stream that has ended, or whose command has.
pub(crate) struct LaneEnd {
    pub finished: Finished,
    pub bytes: u64,
    /// Printed before the start marker, where that is anybody's output.
    pub before: Option<Late>,
    /// Printed behind the end marker.
    pub after: Late,
    /// The shell may still be telling its report.
    pub scanner: Option<Scanner>,
    /// Why not all of the output is on disk.
    pub unkept: Option<io::Error>,
    /// For the next command to read into.
    pub buffer: Vec<u8>,
}

/// What is done with the bytes that were read: two steps, which two threads may take.
pub(crate) struct Work {
    pub look: Look,
    pub shown: Shown,
}

/// The first step: which bytes are the command's, and which of them must not be stored.
pub(crate) struct Look {
    pub scanner: Scanner,
    pub redactor: Redactor,
    pub bytes: u64,
    pub before: Option<Late>,
    pub after: Late,
    pub stream: Stream,
    /// Who wants to know how far the command is.
    pub progress: Option<watch::Sender<Progress>>,
}

impl Look {
    /// Takes what was read and hands on what is left of it; no bytes are the end of the stream.
    pub fn take(&mut self, read: &[u8], redacted: &mut dyn FnMut(&[u8])) -> Seen {
        self.scan(redacted, |scanner, sink| match read {
            [] => scanner.finish(sink),
            read => scanner.push(read, sink),
        })
    }

    fn scan(
        &mut self,
        redacted: &mut dyn FnMut(&[u8]),
        step: impl FnOnce(&mut Scanner, &mut dyn FnMut(Part<'_>)),
    ) -> Seen {
        let Look { scanner, redactor, bytes, before, after, .. } = self;
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
        self.seen()
    }

    pub fn seen(&self) -> Seen {
        Seen { bytes: self.bytes, answered: self.scanner.answered(), sealed: self.scanner.sealed() }
    }
}

impl Work {
    /// Takes what was read, and hands on what is to be stored.
    pub fn take(&mut self, read: &[u8], store: &mut dyn FnMut(&[u8])) -> Seen {
        self.step(store, |look, redacted| look.take(read, redacted))
    }

    /// The command has ended, and all that it printed was taken.
    pub fn finish(&mut self, store: &mut dyn FnMut(&[u8])) -> Seen {
        self.step(store, |look, redacted| look.scan(redacted, |scanner, sink| scanner.end(sink)))
    }

    fn step(
        &mut self,
        store: &mut dyn FnMut(&[u8]),
        step: impl FnOnce(&mut Look, &mut dyn FnMut(&[u8])) -> Seen,
    ) -> Seen {
        let Work { look, shown } = self;
        step(look, &mut |redacted| {
            store(redacted);
            shown.push(redacted);
        })
    }

    pub fn end(self, mut keeper: Keeper, buffer: Vec<u8>) -> LaneEnd {
        let Work { look: Look { mut scanner, redactor, bytes, before, mut after, .. }, shown } = self;
        after.push(&scanner.rest());
        let finished = shown.finish(redactor);
        keeper.keep(&finished.rest);
        LaneEnd { finished, bytes, before, after, scanner: Some(scanner), unkept: keeper.unkept, buffer }
    }
}
