//! The task that owns one shell: it takes commands from the queue in their order, and ends the shell.
//!
//! It only routes. The steps of a command are in the other modules of this folder, and its processes are behind the
//! transport's connection.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::command::Command;
use super::frame_run::FrameRun;
use super::hints::waited_hint;
use super::interpreter::{Idle, Interpreter};
use super::memory::Memory;
use super::recorder::Recorder;
use super::report_reader::{read_report, read_report_behind};
use super::restart::{Cause, Directory, restart, set_up};
use super::result::{failure_of, record_cut_off, result, take_late_output};
use super::run::{Cancelled, Ended, RunError};
use crate::error::ShellError;
use crate::frame::FrameInput;
use crate::frame::exports::StartFile;
use crate::limits::ShellLimits;
use crate::local::scratch::Scratch;
use crate::log::{ShellLog, ShellRecord};
use crate::request::{EXIT_KILLED, ExecRequest, ExecResult, Progress, RunningCommand};
use crate::secret_values::SecretValues;
use crate::state::{Running, Seat, ShellState};
use crate::transport::{Connection, StartPlace, Streams};
use ctx_text::budget::Plan;
use ctx_text::ends::Ends;

/// What a shell was made with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub plan: Option<Plan>,
    pub timeout: Duration,
    pub limits: Arc<ShellLimits>,
    /// Where a command's stdin, and a long command, is put for the interpreter to read.
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
    pub asked: Instant,
    /// What ran when it was asked for.
    pub behind: Option<RunningCommand>,
}

/// Why a shell came to its end.
#[derive(Debug, Clone)]
pub(crate) enum End {
    Destroyed,
    Reaped { idle: Duration },
    Lost { reason: String },
}

pub(crate) struct Driver {
    shared: Arc<ShellState>,
    settings: Settings,
    recorder: Recorder,
    interpreter: Interpreter,
    memory: Memory,
    /// Commands that wait for their turn, or until any may begin.
    queue: VecDeque<Order>,
    /// The command before.
    previous: Option<RunningCommand>,
}

impl Driver {
    /// Starts the interpreter and waits until it answers.
    pub async fn start(
        shared: Arc<ShellState>,
        settings: Settings,
        log: Arc<dyn ShellLog>,
        mut connection: Box<dyn Connection>,
        place: StartPlace,
        secret_values: SecretValues,
    ) -> Result<Driver, ShellError> {
        let StartPlace { cwd, env } = place;
        let (later, env): (Vec<_>, Vec<_>) =
            env.into_iter().partition(|export| settings.start_file().is_anothers(export));
        let place = StartPlace { cwd, env };
        let streams = connection.start(&place).await?;
        let mut interpreter = Interpreter::new(Arc::clone(&shared), connection, streams);
        let mut memory = Memory::new(place, secret_values);
        if let Err(error) = set_up(&mut interpreter, &mut memory, &later).await {
            interpreter.connection.close().await;
            return Err(error);
        }
        let recorder = Recorder::new(Arc::clone(&shared), log);
        Ok(Driver { shared, settings, recorder, interpreter, memory, queue: VecDeque::new(), previous: None })
    }

    /// Serves commands until the shell ends, and leaves no process behind. Says why it ended.
    pub async fn serve(mut self, mut orders: mpsc::Receiver<Order>) -> End {
        let end = self.route(&mut orders).await;
        orders.close();
        self.take_last_output().await;
        // To find the processes of a shell takes descriptors, and there may be none left but its own.
        self.interpreter.streams = Streams::none();
        self.interpreter.connection.close().await;
        let why = match &end {
            End::Destroyed => "it was destroyed",
            End::Reaped { .. } => "it was idle for too long",
            End::Lost { reason } => reason,
        };
        while let Some(order) = match self.queue.pop_front() {
            Some(order) => Some(order),
            None => orders.recv().await,
        } {
            drop(order.reply.send(Err(self.shared.closed(&why))));
        }
        let commands = self.shared.status().commands;
        self.recorder.record(&match end.clone() {
            End::Destroyed => ShellRecord::Destroyed { commands },
            End::Reaped { idle } => ShellRecord::Reaped { idle_secs: idle.as_secs(), commands },
            End::Lost { reason } => ShellRecord::Lost { reason, commands },
        });
        self.recorder.close();
        end
    }

    async fn route(&mut self, orders: &mut mpsc::Receiver<Order>) -> End {
        let shared = Arc::clone(&self.shared);
        loop {
            let idle_until = self.shared.status().used + self.settings.limits.idle_max;
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
                idle = self.interpreter.idle() => match idle {
                    Idle::ReportDue => if let Err(error) = self.read_report().await { return self.end_of(&error) },
                    Idle::Lost(reason) => {
                        let is_local = self.shared.transport == "local";
                        let reason = if is_local { reason } else { "the connection was lost" };
                        return End::Lost { reason: reason.to_owned() };
                    }
                },
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

    /// Whether a command waits, since none may begin, or the shell is frozen; then it is in use.
    fn is_awaited(&mut self) -> bool {
        self.queue.retain(|order| !order.reply.is_closed());
        if self.queue.is_empty() && !self.shared.cage.as_ref().is_some_and(|cage| cage.is_frozen()) {
            return false;
        }
        self.shared.status().used = Instant::now();
        true
    }

    async fn serve_order(&mut self, order: Order) -> Option<End> {
        let Order { request, plan, progress, mut reply, seat, asked, behind } = order;
        seat.upgrade().inspect(|seat| seat.leave());
        if reply.is_closed() {
            return None;
        }
        let waited = asked.elapsed();
        if let Some(progress) = &progress {
            progress.send_modify(|progress| progress.has_begun = true);
        }
        let mut answer = {
            let mut gone = std::pin::pin!(reply.closed());
            self.exec(request, plan, progress, gone.as_mut()).await
        };
        let behind = behind.or_else(|| self.previous.take());
        self.previous = self.shared.running();
        self.shared.status().running = None;
        self.shared.status().used = Instant::now();
        if let Ok(result) = &mut answer
            && let Some(said) = waited_hint(waited, behind.as_ref())
        {
            result.hint = Some(result.hint.take().map_or(said.clone(), |hint| format!("{said}; {hint}")));
        }
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
        gone: Cancelled<'_>,
    ) -> Result<ExecResult, ShellError> {
        let mut command = self.begin(request, plan).await?;
        let secrets = self.shared.secrets();
        let mut ended = self.run(&mut command, progress, gone).await?;
        if ended.cut_off {
            // What is still to come on stdout may be the frame's.
            self.interpreter.has_cut_report |= ended.answer.is_none();
            record_cut_off(&command, ended, &mut self.interpreter, &mut self.recorder);
            return Err(self.shared.closed(&RunError::Closing));
        }
        if command.may_export() {
            let after = &mut ended.stdout.after;
            read_report_behind(after, &mut self.interpreter, &mut self.memory).await?;
        }
        if !Arc::ptr_eq(&secrets, &self.shared.secrets()) {
            ended.hide(|text| self.shared.shown(text));
        }
        if let Some(reason) = ended.stopped {
            self.recorder.record(&ShellRecord::Interrupted { call: command.call, reason });
        }
        let has_failed = ended.exit.is_some() || ended.code != Some(0);
        if has_failed && self.interpreter.connection.is_at_limit() {
            ended.exit.get_or_insert(EXIT_KILLED);
            ended.code = Some(EXIT_KILLED);
        }
        if has_failed {
            let printed = [&ended.stderr, &ended.stdout].map(|stream| stream.finished.kept.text.as_str());
            command.failure_hint = self.interpreter.connection.failure_hint(&printed.concat());
        }
        let exit = ended.exit;
        let lost = match exit {
            // Whoever ends all processes wants no new one.
            Some(code) if !self.interpreter.connection.may_restart() => {
                self.interpreter.exit = Some(code);
                None
            }
            Some(code) => self.replace(&mut command, code).await.err(),
            None => None,
        };
        let mut result = result(command, ended, &mut self.interpreter, &mut self.recorder);
        self.memory.status = if exit.is_some() { 0 } else { result.exit_code };
        if let Some(error) = lost {
            // The command has ended and its answer is due; the next one meets the error.
            self.interpreter.exit = Some(result.exit_code);
            result.hint = Some(format!("the shell could not be started anew: {error}"));
        }
        Ok(result)
    }

    /// Prepares the shell for a command, then counts and records it. A command that cannot be recorded does not run,
    /// because whoever watches would not see it.
    async fn begin(&mut self, request: ExecRequest, plan: Option<Plan>) -> Result<Command, ShellError> {
        let received = Instant::now();
        self.read_report().await?;
        let mut restarted = None;
        if let Some(code) = self.interpreter.exit.take().or_else(|| self.interpreter.connection.has_ended()) {
            restarted = Some((self.restart(code).await?, Cause::Before));
        }
        let waited = received.elapsed();
        self.memory.read_command(&request.command, &self.shared);
        let shown_text = Ends::of(&self.shared.shown(&request.command)).text();
        let connection = self.interpreter.connection.as_ref();
        let is_long = connection.dialect().wants_file(&request.command);
        let file = put(connection, is_long.then(|| request.command.clone().into_bytes())).await?;
        let stdin = put(connection, request.stdin).await?;
        let call = self.record_start(&shown_text)?;
        let started = Instant::now();
        let plan = plan.or_else(|| self.settings.plan.clone());
        Ok(Command {
            call,
            text: request.command,
            shown_text,
            file,
            stdin,
            merge: request.merge,
            has_budget: plan.is_some(),
            plan: plan.unwrap_or_default(),
            timeout: request.timeout.unwrap_or(self.settings.timeout),
            started,
            waited,
            restarted,
            failure: None,
            failure_hint: None,
        })
    }

    fn record_start(&self, command: &str) -> Result<u64, ShellError> {
        let call = self.shared.status().commands + 1;
        let running = Running { call, command: command.to_owned(), since: Instant::now() };
        let (command, cwd) = (command.to_owned(), self.shared.shown_cwd());
        self.recorder.record_first(&ShellRecord::ExecStarted { call, command, cwd })?;
        let mut status = self.shared.status();
        (status.commands, status.running) = (call, Some(running));
        drop(status);
        self.shared.spool().begin(call);
        Ok(call)
    }

    /// Runs a command, again if the interpreter had ended before it came to it.
    async fn run(
        &mut self,
        command: &mut Command,
        progress: Option<watch::Sender<Progress>>,
        mut gone: Cancelled<'_>,
    ) -> Result<Ended, ShellError> {
        let mut ended = self.run_frame(command, progress.clone(), gone.as_mut()).await?;
        command.failure = failure_of(&command.text, &mut ended, &self.interpreter);
        if ended.came_too_late() {
            self.interpreter.late.0.join(ended.stdout.after);
            self.interpreter.late.1.join(ended.stderr.after);
            command.restarted = Some((self.restart(ended.exit.unwrap_or(1)).await?, Cause::Before));
            ended = self.run_frame(command, progress, gone).await?;
            let failure = failure_of(&command.text, &mut ended, &self.interpreter);
            command.failure = failure.or(command.failure);
        }
        (command.stdin, command.file) = (None, None);
        Ok(ended)
    }

    async fn run_frame(
        &mut self,
        command: &Command,
        progress: Option<watch::Sender<Progress>>,
        cancelled: Cancelled<'_>,
    ) -> Result<Ended, ShellError> {
        let run = FrameRun {
            interpreter: &mut self.interpreter,
            memory: &mut self.memory,
            plan: &command.plan,
            progress,
            deadline: command.deadline(),
            cancelled,
        };
        let input = FrameInput {
            command: &command.text,
            file: command.file.as_ref().map(Scratch::path),
            stdin: command.stdin.as_ref().map(Scratch::path),
            merge: command.merge,
        };
        run.run(input).await
    }

    /// Starts a new interpreter in the place of the one that the command has ended.
    async fn replace(&mut self, command: &mut Command, exit_code: i32) -> Result<(), ShellError> {
        let cause = Cause::of(&command.text, exit_code, self.memory.habits.has_option('e'));
        let started = self.restart(exit_code).await;
        command.restarted = Some((*started.as_ref().unwrap_or(&Directory::Same), cause));
        started.map(drop)
    }

    async fn restart(&mut self, exit_code: i32) -> Result<Directory, ShellError> {
        let start_file = self.settings.start_file();
        let started = restart(&mut self.interpreter, &mut self.memory, start_file).await?;
        let cwd = self.shared.shown_cwd();
        self.recorder.record(&ShellRecord::Restarted { exit_code, cwd });
        Ok(started)
    }

    async fn read_report(&mut self) -> Result<(), ShellError> {
        read_report(&mut self.interpreter, &mut self.memory).await
    }

    /// Records what came after the last command, also what is still in the pipes.
    async fn take_last_output(&mut self) {
        if self.read_report().await.is_err() {
            // The rest of the report is nobody's output.
            self.interpreter.has_cut_report = true;
        }
        self.interpreter.take_last_output().await;
        take_late_output(&mut self.interpreter, &mut self.recorder);
    }
}

/// Puts what a command comes with where its interpreter can open it.
async fn put(connection: &dyn Connection, bytes: Option<Vec<u8>>) -> Result<Option<Scratch>, ShellError> {
    match bytes {
        Some(bytes) => connection.put(bytes).await.map(Some),
        None => Ok(None),
    }
}
