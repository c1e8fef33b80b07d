//! One command on its way through a shell: the frame goes in, the markers come out, and in between it may
//! have to be stopped.
//!
//! The result is ready when both streams have shown their end marker. Nothing here sleeps or polls: it waits
//! for bytes, for the interpreter's end, for a deadline, and for whoever wants the command stopped.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dialect::Report;
use super::exec::Progress;
use super::log::StopReason;
use super::scan::{Nonce, Part, Scanner, Stream};
use super::spool::Spool;
use super::text::output::{Finished, OutputStream};
use super::transport::{Connection, Force, Streams};

const READ_BYTES: usize = 64 << 10;
/// What each kind of asking gets before the next: three of them fit well into a second.
const STOP_PATIENCE: Duration = Duration::from_millis(250);
/// Late output that is kept; of more, the end.
const LATE_BYTES_MAX: usize = 64 << 10;

/// Everything that can end a command early.
pub(super) struct Stops<'a> {
    pub deadline: Instant,
    /// Ready when the caller has gone away.
    pub cancelled: std::pin::Pin<&'a mut (dyn Future<Output = ()> + Send)>,
    pub interrupt: &'a Notify,
    /// The shell itself is being closed.
    pub closing: &'a CancellationToken,
}

/// How a command came to its end.
#[derive(Debug)]
pub(super) struct Ended {
    /// The shell's own report; missing where it died.
    pub report: Option<Report>,
    /// The exit code of the interpreter, where that has ended.
    pub exit: Option<i32>,
    pub stopped: Option<StopReason>,
    pub stdout: LaneEnd,
    pub stderr: LaneEnd,
    /// Why not all of the output is on disk.
    pub unkept: Option<io::Error>,
}

#[derive(Debug)]
pub(super) struct LaneEnd {
    pub finished: Finished,
    pub bytes: u64,
    /// Bytes that were printed behind the end marker.
    pub after: Late,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("the shell is being closed")]
    Closing,
    #[error("the connection to the shell was lost: {0}")]
    Lost(io::Error),
}

/// Bytes that no command of ours printed while it ran.
#[derive(Debug, Default)]
pub(super) struct Late(Vec<u8>);

impl Late {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 2 * LATE_BYTES_MAX {
            self.0.drain(..self.0.len() - LATE_BYTES_MAX);
        }
    }

    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.0);
        bytes.drain(..bytes.len().saturating_sub(LATE_BYTES_MAX));
        bytes
    }
}

/// One of the two streams.
struct Lane {
    stream: Stream,
    scanner: Scanner,
    output: OutputStream,
    bytes: u64,
    after: Late,
    buffer: Vec<u8>,
}

impl Lane {
    fn new(nonce: &Nonce, stream: Stream, output: OutputStream) -> Self {
        let scanner = Scanner::new(nonce, stream);
        Lane { stream, scanner, output, bytes: 0, after: Late::default(), buffer: vec![0; READ_BYTES] }
    }

    /// Takes what a read has put into the buffer; no bytes are the end of the stream.
    fn took(&mut self, count: usize, late: &mut Late, spool: &Mutex<Spool>) -> io::Result<()> {
        let Lane { stream, scanner, output, bytes, after, buffer } = self;
        let mut kept = Ok(());
        let mut sink = |part: Part<'_>| match part {
            Part::Late(part) => late.push(part),
            Part::After(part) => after.push(part),
            Part::Body(part) => {
                *bytes += part.len() as u64;
                let redacted = output.push(part);
                let mut spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
                if let (Ok(()), Err(error)) = (&kept, spool.keep(*stream, redacted)) {
                    kept = Err(error);
                }
            }
        };
        match buffer.get(..count) {
            Some([]) | None => scanner.finish(&mut sink),
            Some(read) => scanner.push(read, &mut sink),
        }
        kept
    }

    fn end(self, spool: &Mutex<Spool>) -> (LaneEnd, Vec<u8>, io::Result<()>) {
        let finished = self.output.finish();
        let kept = spool.lock().unwrap_or_else(PoisonError::into_inner).keep(self.stream, &finished.rest);
        (LaneEnd { finished, bytes: self.bytes, after: self.after }, self.scanner.into_report(), kept)
    }
}

/// A stop that is under way.
struct Stopping {
    reason: StopReason,
    force: Force,
    /// Signals the processes and counts those that are left.
    asked: Option<JoinHandle<usize>>,
    left: usize,
    next: Instant,
    /// Nothing is left to try; where the command still ran, its interpreter was killed.
    killed: bool,
}

/// A command that runs.
pub(super) struct Run<'a> {
    pub nonce: Nonce,
    pub frame: Vec<u8>,
    pub connection: &'a mut dyn Connection,
    pub streams: &'a mut Streams,
    pub spool: &'a Mutex<Spool>,
    pub late: &'a mut Late,
    pub progress: Option<watch::Sender<Progress>>,
}

enum Event {
    Read(Stream, io::Result<usize>),
    Sent(io::Result<usize>),
    Exit(i32),
    Stop(StopReason),
    Asked(usize),
    Harder,
    Closing,
}

impl Run<'_> {
    /// Runs the command to its end.
    pub async fn run(
        mut self,
        stdout: OutputStream,
        stderr: OutputStream,
        stops: Stops<'_>,
    ) -> Result<Ended, RunError> {
        let mut out = Lane::new(&self.nonce, Stream::Stdout, stdout);
        let mut err = Lane::new(&self.nonce, Stream::Stderr, stderr);
        let mut state = State { sent: 0, exit: None, stopping: None, failed: None };
        let Stops { deadline, mut cancelled, interrupt, closing } = stops;
        let interrupted = interrupt.notified();
        tokio::pin!(interrupted);
        self.connection.command_starts();
        while !(out.scanner.done() && err.scanner.done() && state.nothing_left()) {
            let free = state.stopping.is_none();
            let next = state.stopping.as_ref().map_or(deadline, |stopping| stopping.next);
            let unsent = self.frame.get(state.sent..).unwrap_or_default();
            let event = tokio::select! {
                read = self.streams.stdout.read(&mut out.buffer), if !out.scanner.done() =>
                    Event::Read(Stream::Stdout, read),
                read = self.streams.stderr.read(&mut err.buffer), if !err.scanner.done() =>
                    Event::Read(Stream::Stderr, read),
                sent = self.streams.stdin.write(unsent), if !unsent.is_empty() => Event::Sent(sent),
                code = self.connection.wait(), if state.exit.is_none() => Event::Exit(code),
                left = state.asked() => Event::Asked(left),
                () = tokio::time::sleep_until(next) =>
                    if free { Event::Stop(StopReason::TimedOut) } else { Event::Harder },
                () = &mut cancelled, if free => Event::Stop(StopReason::Cancelled),
                () = &mut interrupted, if free => Event::Stop(StopReason::Interrupted),
                () = closing.cancelled() => Event::Closing,
            };
            match event {
                Event::Read(Stream::Stdout, read) => self.took(&mut out, read, &mut state)?,
                Event::Read(Stream::Stderr, read) => self.took(&mut err, read, &mut state)?,
                Event::Sent(sent) => state.took_sent(sent, self.frame.len()),
                Event::Exit(code) => self.seal(&mut state, code),
                Event::Stop(reason) => state.begin_stop(reason, self.connection),
                Event::Asked(left) => state.asked_and_left(left),
                Event::Harder => {
                    let running = !(out.scanner.done() && err.scanner.done());
                    state.stop_harder(self.connection, running);
                }
                Event::Closing => return Err(RunError::Closing),
            }
        }
        Ok(self.finish(out, err, state))
    }

    fn took(&mut self, lane: &mut Lane, read: io::Result<usize>, state: &mut State) -> Result<(), RunError> {
        let count = read.map_err(RunError::Lost)?;
        if let Err(error) = lane.took(count, self.late, self.spool) {
            // The command goes on: what it prints is shown, but not all of it is kept.
            state.failed.get_or_insert(error);
        }
        if let Some(progress) = &self.progress {
            progress.send_modify(|progress| match lane.stream {
                Stream::Stdout => progress.stdout_bytes = lane.bytes,
                Stream::Stderr => progress.stderr_bytes = lane.bytes,
            });
        }
        Ok(())
    }

    /// The interpreter has ended: marks the end of what it printed.
    fn seal(&self, state: &mut State, code: i32) {
        state.exit = Some(code);
        state.sent = self.frame.len();
        tokio::spawn(self.connection.seal(self.nonce.seal()));
    }

    fn finish(self, out: Lane, err: Lane, state: State) -> Ended {
        let (stdout, report, kept_out) = out.end(self.spool);
        let (stderr, _, kept_err) = err.end(self.spool);
        let unkept = state.failed.or(kept_out.err()).or(kept_err.err());
        let report = if state.exit.is_some() { None } else { Report::parse(&report) };
        let stopped = state.stopping.map(|stopping| stopping.reason);
        Ended { report, exit: state.exit, stopped, stdout, stderr, unkept }
    }
}

struct State {
    /// Bytes of the frame that the shell has taken.
    sent: usize,
    exit: Option<i32>,
    stopping: Option<Stopping>,
    /// The first failure to keep output.
    failed: Option<io::Error>,
}

impl State {
    /// Whether no stop is under way that has still something to end.
    fn nothing_left(&self) -> bool {
        self.stopping
            .as_ref()
            .is_none_or(|stopping| stopping.killed || (stopping.asked.is_none() && stopping.left == 0))
    }

    async fn asked(&mut self) -> usize {
        match self.stopping.as_mut().and_then(|stopping| stopping.asked.as_mut()) {
            Some(asked) => asked.await.unwrap_or(0),
            None => std::future::pending().await,
        }
    }

    fn asked_and_left(&mut self, left: usize) {
        if let Some(stopping) = &mut self.stopping {
            stopping.asked = None;
            stopping.left = left;
        }
    }

    fn took_sent(&mut self, sent: io::Result<usize>, all: usize) {
        match sent {
            Ok(count) => self.sent += count,
            // The interpreter has closed its stdin, so it is ending; its exit says the rest.
            Err(_) => self.sent = all,
        }
    }

    fn begin_stop(&mut self, reason: StopReason, connection: &dyn Connection) {
        let asked = tokio::spawn(connection.stop(Force::Ask, STOP_PATIENCE));
        self.stopping = Some(Stopping {
            reason,
            force: Force::Ask,
            asked: Some(asked),
            left: 0,
            next: Instant::now() + STOP_PATIENCE,
            killed: false,
        });
    }

    fn stop_harder(&mut self, connection: &dyn Connection, running: bool) {
        let Some(stopping) = &mut self.stopping else { return };
        stopping.next = Instant::now() + STOP_PATIENCE;
        stopping.force = match stopping.force {
            Force::Ask => Force::Insist,
            Force::Insist => Force::Kill,
            Force::Kill => {
                stopping.killed = true;
                if running {
                    connection.kill_interpreter();
                }
                return;
            }
        };
        stopping.asked = Some(tokio::spawn(connection.stop(stopping.force, STOP_PATIENCE)));
    }
}
