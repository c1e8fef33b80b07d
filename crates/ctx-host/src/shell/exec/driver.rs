//! The task that owns one shell: commands in their order, restarts, late output, and the end.
//!
//! It only routes. A command's life is in `run`, its words are in `dialect`, its processes are behind the
//! transport's connection.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::frame_run::Framing;
use super::hints::{Anew, Cause, Shown};
use super::report_reader::Unsettled;
use super::run::RunError;
use crate::shell::error::ShellError;
use crate::shell::frame::exports::{self, Export, StartFile, is_variable_name};
use crate::shell::frame::{Habits, holds_word};
use crate::shell::limits::ShellLimits;
use crate::shell::local::scratch::{Scratch, ScratchDir};
use crate::shell::log::{LogError, ShellLog, ShellRecord, StopReason};
use crate::shell::output::background::Late;
use crate::shell::output::stream::READ_BYTES_MIN;
use crate::shell::request::{ExecRequest, ExecResult, Progress};
use crate::shell::secret_values::Known;
use crate::shell::state::{Seat, Shared};
use crate::shell::text::budget::Plan;
use crate::shell::text::ends::Ends;
use crate::shell::transport::{Connection, Place, Streams};

/// What a shell was made with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub plan: Option<Plan>,
    pub timeout: Duration,
    pub limits: Arc<ShellLimits>,
    /// Where a command's stdin, and a long command, is put for the interpreter to read.
    pub scratch: ScratchDir,
    /// What the server's own `BASH_ENV` says.
    pub start_file: Option<Vec<u8>>,
}

impl Settings {
    pub fn start_file(&self) -> StartFile<'_> {
        StartFile(self.start_file.as_deref())
    }
}

/// A command in the queue.
pub(crate) struct Order {
    pub request: ExecRequest,
    /// Compiled from the request's budget.
    pub plan: Option<Plan>,
    pub progress: Option<watch::Sender<Progress>>,
    pub reply: oneshot::Sender<Result<ExecResult, ShellError>>,
    /// Its caller's, who gives it up with the command.
    pub seat: Weak<Seat>,
}

/// Why a shell came to its end.
#[derive(Debug)]
enum End {
    Destroyed,
    Reaped { idle: Duration },
    Lost { reason: String },
}

pub(crate) struct Driver {
    pub shared: Arc<Shared>,
    pub settings: Settings,
    pub log: Arc<dyn ShellLog>,
    pub(crate) connection: Box<dyn Connection>,
    pub(crate) streams: Streams,
    /// Commands that wait for their turn, or until any may begin.
    queue: VecDeque<Order>,
    /// The interpreter ended outside of a command, with this exit code.
    pub(crate) ended: Option<i32>,
    pub(crate) late: (Late, Late),
    /// The last command's report, where it has not been read to its end.
    pub(crate) unsettled: Option<Unsettled>,
    /// A report broke off: the rest of it may still stand in the pipe, and is nobody's output.
    pub(crate) cut_report: bool,
    /// What is read into, for stdout and stderr.
    pub(crate) buffers: (Vec<u8>, Vec<u8>),
    pub(crate) habits: Habits,
    /// What `$?` is when the next command starts.
    pub(crate) status: i32,
    /// Whether the interpreter may not have read the last command to its end.
    pub(crate) misread: bool,
    /// Where the interpreter is.
    pub(crate) cwd: PathBuf,
    /// What the last report said behind its answer.
    pub(crate) told: Vec<u8>,
    pub(crate) exports: Vec<Export>,
    /// What the shell was made with and does not list: names that are none to it, and functions of bash.
    pub(crate) unlisted: Vec<Export>,
    known: Known,
    /// Why a command's end is not in the log.
    pub(crate) unlogged: Option<LogError>,
}

impl Driver {
    /// Starts the interpreter and waits until it answers.
    pub async fn start(
        shared: Arc<Shared>,
        settings: Settings,
        log: Arc<dyn ShellLog>,
        mut connection: Box<dyn Connection>,
        place: Place,
        known: Known,
    ) -> Result<Driver, ShellError> {
        let Place { cwd, env } = place;
        let (later, env) = env.into_iter().partition(|export| settings.start_file().is_anothers(export));
        let place = Place { cwd, env };
        let streams = connection.start(&place)?;
        let mut driver = Driver {
            late: (Late::new(&shared), Late::new(&shared)),
            shared,
            settings,
            log,
            connection,
            streams,
            queue: VecDeque::new(),
            ended: None,
            unsettled: None,
            cut_report: false,
            buffers: (vec![0; READ_BYTES_MIN], vec![0; READ_BYTES_MIN]),
            habits: Habits::default(),
            status: 0,
            misread: false,
            cwd: place.cwd,
            told: Vec::new(),
            unlisted: place.env.iter().filter(|export| !is_variable_name(&export.name)).cloned().collect(),
            exports: place.env,
            known,
            unlogged: None,
        };
        let ready = match driver.handshake().await {
            Ok(()) => driver.export(&later).await,
            Err(error) => Err(error),
        };
        match ready {
            Ok(()) => Ok(driver),
            Err(error) => {
                driver.connection.close().await;
                Err(error)
            }
        }
    }

    /// Serves commands until the shell ends, and leaves no process behind. Says whether it was closed for idling.
    pub async fn serve(mut self, mut orders: mpsc::Receiver<Order>) -> bool {
        let end = self.route(&mut orders).await;
        orders.close();
        self.take_last_words().await;
        // To find the processes of a shell takes descriptors, and there may be none left but its own.
        self.streams = Streams::none();
        self.connection.close().await;
        let commands = self.shared.status().commands;
        let why = match &end {
            End::Destroyed => "it was destroyed".to_owned(),
            End::Reaped { .. } => "it was idle for too long".to_owned(),
            End::Lost { reason } => reason.clone(),
        };
        while let Some(order) = match self.queue.pop_front() {
            Some(order) => Some(order),
            None => orders.recv().await,
        } {
            let closed = ShellError::Closed { id: self.shared.id.clone(), why: why.clone() };
            drop(order.reply.send(Err(closed)));
        }
        let reaped = matches!(end, End::Reaped { .. });
        self.record(&match end {
            End::Destroyed => ShellRecord::Destroyed { commands },
            End::Reaped { idle } => ShellRecord::Reaped { idle_secs: idle.as_secs(), commands },
            End::Lost { reason } => ShellRecord::Lost { reason, commands },
        });
        self.log.close(self.shared.log);
        reaped
    }

    async fn route(&mut self, orders: &mut mpsc::Receiver<Order>) -> End {
        let shared = Arc::clone(&self.shared);
        loop {
            let idle_until = self.shared.status().used + self.settings.limits.idle_max;
            let due = self.unsettled.as_ref().map(|unsettled| unsettled.due);
            let (out, err) = (&mut self.buffers.0, &mut self.buffers.1);
            tokio::select! {
                biased;
                () = shared.closing.cancelled() => return End::Destroyed,
                order = orders.recv() => match order {
                    Some(order) => self.enqueue(order),
                    None => return End::Destroyed,
                },
                () = shared.may_begin(), if !self.queue.is_empty() =>
                    if let Some(order) = self.queue.pop_front()
                        && let Some(end) = self.serve_order(order).await { return end },
                read = self.streams.stdout.read(out), if due.is_none() => match read {
                    Ok(count @ 1..) => self.late.0.push(self.buffers.0.get(..count).unwrap_or_default()),
                    Ok(0) | Err(_) => return End::Lost { reason: "its stdout was closed".to_owned() },
                },
                read = self.streams.stderr.read(err) => match read {
                    Ok(count @ 1..) => self.late.1.push(self.buffers.1.get(..count).unwrap_or_default()),
                    Ok(0) | Err(_) => return End::Lost { reason: "its stderr was closed".to_owned() },
                },
                code = self.connection.wait(), if self.ended.is_none() => self.ended = Some(code),
                () = tokio::time::sleep_until(due.unwrap_or(idle_until)), if due.is_some() =>
                    if let Err(error) = self.settle().await { return self.end_of(&error) },
                () = tokio::time::sleep_until(idle_until) => if !self.is_awaited() {
                    return End::Reaped { idle: self.settings.limits.idle_max };
                }
            }
        }
    }

    /// Takes a command into the queue, which keeps none that nobody waits for.
    fn enqueue(&mut self, order: Order) {
        self.queue.retain(|order| !order.reply.is_closed());
        self.queue.push_back(order);
    }

    /// Whether a command waits, since none may begin; then the shell is in use.
    fn is_awaited(&mut self) -> bool {
        self.queue.retain(|order| !order.reply.is_closed());
        if self.queue.is_empty() {
            return false;
        }
        self.shared.status().used = Instant::now();
        true
    }

    async fn serve_order(&mut self, order: Order) -> Option<End> {
        let Order { request, plan, progress, mut reply, seat } = order;
        seat.upgrade().inspect(|seat| seat.leave());
        if reply.is_closed() {
            return None;
        }
        let answer = {
            let mut gone = std::pin::pin!(reply.closed());
            self.exec(request, plan, progress, gone.as_mut()).await
        };
        self.shared.status().running = None;
        self.shared.status().used = Instant::now();
        let end = match &answer {
            Err(error @ ShellError::Closed { .. }) => Some(self.end_of(error)),
            Ok(_) | Err(_) => None,
        };
        drop(reply.send(answer));
        end
    }

    /// What a shell that was closed under our hands has come to.
    fn end_of(&self, error: &ShellError) -> End {
        let reason = match error {
            ShellError::Closed { why, .. } => why.clone(),
            error => error.to_string(),
        };
        if self.shared.closing.is_cancelled() {
            tracing::debug!(reason, "a command ended with its shell");
            return End::Destroyed;
        }
        End::Lost { reason }
    }

    async fn exec(
        &mut self,
        request: ExecRequest,
        plan: Option<Plan>,
        progress: Option<watch::Sender<Progress>>,
        mut gone: std::pin::Pin<&mut (dyn Future<Output = ()> + Send)>,
    ) -> Result<ExecResult, ShellError> {
        let asked_at = Instant::now();
        let mut restarted = None;
        self.settle().await?;
        if let Some(code) = self.ended.take().or_else(|| self.connection.has_ended()) {
            restarted = Some((self.restart(code).await?, Cause::Before));
        }
        // The shell's housekeeping is a part of what its caller waits for.
        let waited = asked_at.elapsed();
        if self.known.read(&request.command) {
            self.learn_secrets();
        }
        let shown_command = Ends::of(&self.shared.shown(&request.command)).text();
        let call = self.begin(&shown_command)?;
        let started = Instant::now();
        let timeout = request.timeout.unwrap_or(self.settings.timeout);
        let asked = plan.is_some() || self.settings.plan.is_some();
        let plan = plan.or_else(|| self.settings.plan.clone()).unwrap_or_default();
        let stdin = request.stdin.as_deref().map(|bytes| self.put_scratch(bytes)).transpose()?;
        let long = self.connection.dialect().wants_file(&request.command);
        let file = long.then(|| self.put_scratch(request.command.as_bytes())).transpose()?;
        let framing = Framing {
            command: &request.command,
            file: file.as_ref().map(Scratch::path),
            stdin: stdin.as_ref().map(Scratch::path),
            merge: request.merge,
        };
        let known = self.shared.secrets();
        let deadline = started + timeout;
        let mut ended = self.frame(framing, progress.clone(), &plan, deadline, gone.as_mut()).await?;
        let mut broken = self.why_broken(&request.command, &mut ended);
        if ended.came_too_late() {
            restarted = Some((self.restart_after(ended).await?, Cause::Before));
            ended = self.frame(framing, progress, &plan, deadline, gone).await?;
            broken = self.why_broken(&request.command, &mut ended).or(broken);
        }
        drop((stdin, file));
        if ended.cut {
            // What is still to come on stdout may be the frame's.
            self.cut_report |= ended.answer.is_none();
            self.record_cut(call, ended, waited + started.elapsed());
            return Err(self.closed(&RunError::Closing));
        }
        if may_export(&request.command) {
            self.settle_behind(&mut ended.stdout.after).await?;
        }
        if !Arc::ptr_eq(&known, &self.shared.secrets()) {
            ended.hide(|text| self.shared.shown(text));
        }
        self.stopped(call, ended.stopped);
        let (mut lost, exit) = (None, ended.exit);
        if let Some(code) = exit {
            let cause = Cause::of(&request.command, code, self.habits.has_option('e'));
            let anew = self.restart(code).await;
            restarted = Some((*anew.as_ref().unwrap_or(&Anew::Here), cause));
            lost = anew.err();
        }
        let shown = Shown { asked, restarted, broken, timeout, duration: waited + started.elapsed() };
        let mut result = self.result(call, shown_command, ended, shown);
        self.status = if exit.is_some() { 0 } else { result.exit_code };
        if let Some(error) = lost {
            // The command has ended and its answer is due; the next one meets the error.
            self.ended = Some(result.exit_code);
            result.hint = Some(format!("the shell could not be started anew: {error}"));
        }
        Ok(result)
    }

    /// Counts and records a command that starts. What cannot be recorded does not run: whoever watches would not
    /// see it.
    fn begin(&self, command: &str) -> Result<u64, ShellError> {
        let call = self.shared.status().commands + 1;
        let cwd = self.shared.shown_cwd();
        let started = ShellRecord::ExecStarted { call, command: command.to_owned(), cwd };
        let logged = self.log.record(self.shared.log, &started);
        logged.map_err(|error| ShellError::Log { message: error.to_string() })?;
        {
            let mut status = self.shared.status();
            status.commands = call;
            status.running = Some(call);
        }
        self.shared.spool().begin(call);
        Ok(call)
    }

    pub(crate) fn closed(&self, error: &RunError) -> ShellError {
        ShellError::Closed { id: self.shared.id.clone(), why: error.to_string() }
    }

    pub(crate) fn take_habits(&mut self, told: Option<Habits>, stopped: bool) {
        let before = std::mem::take(&mut self.habits);
        self.habits = match told {
            Some(habits) if stopped => habits.with_debug_trap_of(before),
            Some(habits) => habits,
            None => before,
        };
    }

    pub(crate) fn take_exports(&mut self, text: &[u8], spoilt: bool) {
        let Some(mut exports) = exports::parse(text) else { return };
        if spoilt {
            // What is not listed may be what could not be read: it stays until the next report says more.
            let listed = |name: &str| exports.iter().any(|export| export.name == name);
            self.exports.retain(|export| !listed(&export.name));
            exports.append(&mut self.exports);
        }
        self.exports = exports;
        if self.known.export(&self.exports) {
            self.learn_secrets();
        }
    }

    /// Output from now on is shown without what is known by now.
    fn learn_secrets(&self) {
        let secrets = Arc::new(self.known.secrets());
        self.shared.status().secrets = secrets;
    }

    fn stopped(&mut self, call: u64, reason: Option<StopReason>) {
        if let Some(reason) = reason {
            self.record(&ShellRecord::Interrupted { call, reason });
        }
    }

    /// Puts bytes where the interpreter can open them.
    pub(crate) fn put_scratch(&self, bytes: &[u8]) -> Result<Scratch, ShellError> {
        let dir = &self.settings.scratch;
        Scratch::put(dir, bytes).map_err(|source| ShellError::Spool { path: dir.path.clone(), source })
    }
}

/// Whether a command may set variables for the programs after it: then its own output is shown only when those
/// are known, because one of them may be a secret that it also prints.
fn may_export(command: &str) -> bool {
    let exports = ["export", "declare", "typeset", "source", ".", "eval", "set"];
    holds_word(command, &exports)
}
