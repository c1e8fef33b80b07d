//! One command on its way through a shell: the frame goes in, the markers come out, and in between it may
//! have to be stopped.
//!
//! The result is ready when both streams have shown their end marker; what the shell says of itself behind that
//! is for the next command (`report_reader`). Nothing here sleeps or polls for it: it waits
//! for bytes, for the interpreter's end, for a deadline, and for whoever wants the command stopped. A command that
//! breaks its own frame reports nothing, so the interpreter is checked now and then.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::frame::Answer;
use crate::frame::marker::Nonce;
use crate::log::StopReason;
use crate::output::pipeline::StreamEnd;
use crate::output::stream::CommandStream;
use crate::transport::Stream;
use crate::transport::{BoxFuture, Connection, Force, Streams};

/// What each kind of asking gets before the next.
const STOP_PATIENCE: Duration = Duration::from_millis(250);
/// What the interpreter gets to come back when all that it ran is gone. Its variables are lost with it, and on a busy machine
/// it needs a while; all in all a stop takes less than a second.
const LAST_PATIENCE: Duration = Duration::from_millis(400);

/// When the interpreter is checked first; then ever more rarely, up to the second constant.
const CHECK_FIRST: Duration = Duration::from_millis(100);
const CHECK_MAX: Duration = Duration::from_secs(2);
/// A single check can race with the last bytes of output; four checks 50 ms apart cannot.
const CHECKS_IN_A_ROW: u32 = 4;
const CHECK_AGAIN: Duration = Duration::from_millis(50);

/// Ready when the caller has gone away.
pub(crate) type Cancelled<'a> = std::pin::Pin<&'a mut (dyn Future<Output = ()> + Send)>;

/// Everything that can end a command early.
pub(crate) struct Stops<'a> {
    pub deadline: Instant,
    pub cancelled: Cancelled<'a>,
    pub interrupt: &'a Notify,
    /// The shell itself is being closed.
    pub closing: &'a CancellationToken,
}

/// How a command came to its end.
pub(crate) struct Ended {
    /// What the shell said; missing where it died.
    pub answer: Option<Answer>,
    /// The command's exit code, where the shell reported it, also where the shell died after that.
    pub code: Option<i32>,
    /// The exit code of the interpreter, where that has ended.
    pub exit: Option<i32>,
    pub stopped: Option<StopReason>,
    /// The command kept the shell from reporting its end.
    pub broke_frame: bool,
    /// The shell is being closed: how the command would have ended is not known.
    pub cut_off: bool,
    /// The interpreter has ended without having read the command.
    pub unread: bool,
    /// It was asked for the command's end by itself.
    pub rescued: bool,
    pub stdout: StreamEnd,
    pub stderr: StreamEnd,
    /// Why not all of the output is on disk.
    pub unkept: Option<io::Error>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("it was destroyed, or its server stops")]
    Closing,
    #[error("the connection to the shell was lost: {0}")]
    Lost(io::Error),
}

impl RunError {
    pub fn unanswered() -> RunError {
        RunError::Lost(io::Error::new(io::ErrorKind::TimedOut, "the other side does not answer"))
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

impl Stopping {
    /// Waits for how many processes are left.
    async fn asked(stopping: &mut Option<Stopping>) -> usize {
        match stopping.as_mut().and_then(|stopping| stopping.asked.as_mut()) {
            Some(asked) => asked.await.unwrap_or(0),
            None => std::future::pending().await,
        }
    }
}

/// Brings a mark into its pipe, while the reader makes room.
async fn marks(marking: &mut Option<BoxFuture<'static, ()>>) {
    match marking {
        Some(later) => later.await,
        None => std::future::pending().await,
    }
}

/// A command that runs.
pub(crate) struct Run<'a> {
    pub nonce: Nonce,
    pub frame: Vec<u8>,
    /// What makes a shell that has left the frame report the command's end, if anything does. Sent once.
    pub rescue: Option<&'a [u8]>,
    /// Whether the start on stdout is marked already.
    pub marked: bool,
    pub connection: &'a mut dyn Connection,
    pub streams: &'a mut Streams,
}

impl Run<'_> {
    /// Runs the command to its end.
    #[expect(clippy::indexing_slicing, reason = "no more is sent than there is")]
    pub async fn run(
        mut self,
        mut out: CommandStream,
        mut err: CommandStream,
        stops: Stops<'_>,
    ) -> Result<Ended, RunError> {
        let mut state = State::new();
        let Stops { mut deadline, mut cancelled, interrupt, closing } = stops;
        let mut frozen = self.connection.frozen_for();
        let interrupted = interrupt.notified();
        tokio::pin!(interrupted);
        let mut lost = self.connection.lost();
        self.connection.command_starts();
        // Before anything else is set up: the shell can begin meanwhile.
        tokio::select! {
            biased;
            sent = self.streams.stdin.write(&self.frame) => state.took_sent(sent, self.frame.len()),
            () = std::future::ready(()) => {}
        }
        loop {
            let ended = state.exit.is_some();
            if out.progress.answered && !ended && !std::mem::replace(&mut state.marked_end, true) {
                let is_all_in = self.connection.is_drained(Stream::Stderr) && err.finish();
                let mark = || self.connection.mark(Stream::Stderr, self.nonce.end());
                state.marking = if is_all_in { None } else { mark() };
            }
            let (has_out, has_err) = (out.progress.is_all(ended), err.progress.is_all(ended));
            if has_out && has_err && state.nothing_left() {
                break;
            }
            let free = state.stopping.is_none();
            let next = state.stopping.as_ref().map_or(deadline, |stopping| stopping.next);
            let (check, alive) = (state.checks.next, !ended);
            let unsent = &self.frame[state.sent..];
            tokio::select! {
                got = out.next(&mut self.streams.stdout), if !has_out => state.got(got)?,
                got = err.next(&mut self.streams.stderr), if !has_err => state.got(got)?,
                sent = self.streams.stdin.write(unsent), if !unsent.is_empty() =>
                    state.took_sent(sent, self.frame.len()),
                code = self.connection.wait(), if alive => self.seal(&mut state, code),
                () = &mut lost => return Err(RunError::unanswered()),
                left = Stopping::asked(&mut state.stopping) => state.asked_and_left(left),
                () = marks(&mut state.marking) => state.marking = None,
                () = tokio::time::sleep_until(next) => match free {
                    // Time in which the command was kept from running is not its own.
                    true if self.connection.frozen_for() > frozen => {
                        let before = std::mem::replace(&mut frozen, self.connection.frozen_for());
                        deadline += frozen.saturating_sub(before);
                    }
                    true => state.begin_stop(StopReason::TimedOut, self.connection),
                    false => self.stop_harder(&mut state, &out, &err),
                },
                () = tokio::time::sleep_until(check), if free && alive =>
                    self.check(&mut state, out.is_behind() || err.is_behind()),
                () = &mut cancelled, if free => state.begin_stop(StopReason::Cancelled, self.connection),
                () = &mut interrupted, if free => state.begin_stop(StopReason::Interrupted, self.connection),
                () = closing.cancelled() => {
                    let Streams { stdout, stderr, .. } = &mut *self.streams;
                    tokio::try_join!(out.take_rest(stdout), err.take_rest(stderr)).map_err(RunError::Lost)?;
                    state.cut_off = true;
                    break;
                }
            }
        }
        self.connection.command_ended();
        Ended::of(out, err, state)
    }

    /// A stop has not helped so far. A shell that waits for a command without having reported this one's end is asked
    /// for it; output that is still being worked on may hold the end.
    fn stop_harder(&mut self, state: &mut State, out: &CommandStream, err: &CommandStream) {
        let may_have_ended = out.progress.answered || out.is_behind() || err.is_behind();
        if !may_have_ended && state.sent == self.frame.len() && self.connection.awaits_command() {
            self.sends_rescue(state);
        }
        let running = !(out.progress.answered && err.progress.answered);
        state.stop_harder(self.connection, running);
    }

    /// Checks whether the interpreter waits for a command although it has not reported the end of this one. Then it is
    /// asked for the end. If it still waits, its stdin is closed: it ends like a script at its end, and is replaced.
    /// Output that is still being worked on may hold the end.
    fn check(&mut self, state: &mut State, is_behind: bool) {
        let waits = !is_behind && state.sent == self.frame.len() && self.connection.awaits_command();
        match state.checks.took(waits, Instant::now()) {
            CheckResult::Fine => {}
            CheckResult::Broken if self.sends_rescue(state) => state.checks = Checks::new(Instant::now()),
            CheckResult::Broken => self.streams.stdin = Box::new(tokio::io::sink()),
            CheckResult::StillBroken => self.connection.kill_interpreter(),
        }
    }

    /// Asks for the command's end, where that was not asked for yet and can be.
    fn sends_rescue(&mut self, state: &mut State) -> bool {
        let rescue = self.rescue.take();
        self.frame.extend(rescue.unwrap_or_default());
        state.rescued |= rescue.is_some();
        rescue.is_some()
    }

    /// The interpreter has ended: marks the end of what it printed.
    fn seal(&self, state: &mut State, code: i32) {
        state.exit = Some(code);
        // Who was asked for the command's end has read the command.
        let left = state.refused || self.connection.left_unread();
        state.unread = self.marked && !state.rescued && left;
        state.sent = self.frame.len();
        state.marking = None;
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(later) = self.connection.mark(stream, self.nonce.seal()) {
                tokio::spawn(later);
            }
        }
    }
}

impl Ended {
    /// Whether the interpreter had ended before it came to the command.
    pub fn came_too_late(&self) -> bool {
        let started = self.stdout.scanner.as_ref().is_some_and(|scanner| scanner.started);
        self.exit.is_some() && self.stopped.is_none() && !self.cut_off && (!started || self.unread)
    }

    /// Takes out of what is shown and recorded what turned out to be a secret.
    pub fn hide(&mut self, shown: impl Fn(&str) -> String) {
        for stream in [&mut self.stdout, &mut self.stderr] {
            stream.finished.kept.text = shown(&stream.finished.kept.text);
            stream.finished.ends.change(&shown);
        }
    }

    fn of(out: CommandStream, err: CommandStream, state: State) -> Result<Ended, RunError> {
        let mut stdout = out.end().map_err(RunError::Lost)?;
        let mut stderr = err.end().map_err(RunError::Lost)?;
        let unkept = stdout.spool_error.take().or(stderr.spool_error.take());
        let answer = stdout.scanner.as_ref().and_then(|scanner| Answer::parse(scanner.report()));
        let code = answer.as_ref().map(|answer| answer.exit_code);
        let answer = answer.filter(|_| state.exit.is_none());
        let stopped = state.stopping.as_ref().map(|stopping| stopping.reason);
        let State { exit, cut_off, unread, rescued, checks, .. } = state;
        // Nothing more can come, although no interpreter has ended.
        if exit.is_none() && !cut_off && stdout.scanner.as_ref().is_some_and(|scanner| scanner.sealed) {
            return Err(RunError::Lost(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "its streams were closed",
            )));
        }
        let broke_frame = checks.broken || (exit.is_some() && (code.is_some() || rescued));
        Ok(Ended {
            answer,
            code,
            exit,
            stopped,
            broke_frame,
            cut_off,
            unread,
            rescued,
            stdout,
            stderr,
            unkept,
        })
    }
}

/// The checks of the interpreter, and when the next one is due.
struct Checks {
    next: Instant,
    pause: Duration,
    in_a_row: u32,
    broken: bool,
}

/// What a check has found.
#[derive(Debug, PartialEq, Eq)]
enum CheckResult {
    Fine,
    Broken,
    /// It did not end either when its stdin was closed.
    StillBroken,
}

impl Checks {
    fn new(now: Instant) -> Checks {
        Checks { next: now + CHECK_FIRST, pause: CHECK_FIRST, in_a_row: 0, broken: false }
    }

    fn took(&mut self, waits: bool, now: Instant) -> CheckResult {
        if self.broken {
            self.next = now + CHECK_MAX;
            return CheckResult::StillBroken;
        }
        if !waits {
            self.in_a_row = 0;
            self.pause = (self.pause * 2).min(CHECK_MAX);
            self.next = now + self.pause;
            return CheckResult::Fine;
        }
        self.in_a_row += 1;
        self.broken = self.in_a_row >= CHECKS_IN_A_ROW;
        self.next = now + if self.broken { CHECK_MAX } else { CHECK_AGAIN };
        if self.broken { CheckResult::Broken } else { CheckResult::Fine }
    }
}

struct State {
    /// Bytes of the frame that the shell has taken.
    sent: usize,
    exit: Option<i32>,
    stopping: Option<Stopping>,
    checks: Checks,
    cut_off: bool,
    /// Whether the interpreter was gone before it was sent all.
    refused: bool,
    unread: bool,
    rescued: bool,
    /// Whether the end of stderr is marked, or about to be.
    marked_end: bool,
    /// The mark that there was no room for.
    marking: Option<BoxFuture<'static, ()>>,
}

impl State {
    fn new() -> State {
        let checks = Checks::new(Instant::now());
        State {
            sent: 0,
            exit: None,
            stopping: None,
            checks,
            cut_off: false,
            refused: false,
            unread: false,
            rescued: false,
            marked_end: false,
            marking: None,
        }
    }

    /// Whether no stop is under way that has still something to end.
    fn nothing_left(&self) -> bool {
        self.stopping
            .as_ref()
            .is_none_or(|stopping| stopping.killed || (stopping.asked.is_none() && stopping.left == 0))
    }

    fn asked_and_left(&mut self, left: usize) {
        if let Some(stopping) = &mut self.stopping {
            stopping.asked = None;
            stopping.left = left;
        }
    }

    fn got(&mut self, got: io::Result<()>) -> Result<(), RunError> {
        self.checks.in_a_row = 0;
        got.map_err(RunError::Lost)
    }

    fn took_sent(&mut self, sent: io::Result<usize>, all: usize) {
        match sent {
            Ok(count) => self.sent += count,
            // The interpreter has closed its stdin, so it is ending; its exit says the rest.
            Err(_) => (self.sent, self.refused) = (all, true),
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
        let (force, patience) = match stopping.force {
            Force::Ask => (Force::Insist, STOP_PATIENCE),
            Force::Insist => (Force::Kill, LAST_PATIENCE),
            Force::Kill => {
                (stopping.killed, stopping.next) = (true, Instant::now() + STOP_PATIENCE);
                if running {
                    connection.kill_interpreter();
                }
                return;
            }
        };
        (stopping.force, stopping.next) = (force, Instant::now() + patience);
        stopping.asked = Some(tokio::spawn(connection.stop(stopping.force, STOP_PATIENCE)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_broken_when_the_shell_waits_for_some_checks_in_a_row() {
        let now = Instant::now();
        let mut checks = Checks::new(now);
        let seen: Vec<CheckResult> = [true, true, true, false, true, true, true, true, true]
            .map(|waits| checks.took(waits, now))
            .into();
        let (fine, broken) = seen.split_at(7);
        assert!(fine.iter().all(|result| *result == CheckResult::Fine));
        assert_eq!(broken, [CheckResult::Broken, CheckResult::StillBroken]);
    }

    #[test]
    fn a_long_command_is_checked_ever_more_rarely() {
        let mut checks = Checks::new(Instant::now());
        let mut count = 0;
        let end = checks.next + Duration::from_secs(60);
        while checks.next < end {
            checks.took(false, checks.next);
            count += 1;
        }
        assert!((30..45).contains(&count), "{count} checks in a minute");
    }
}
