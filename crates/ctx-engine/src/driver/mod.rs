//! One driver per active session: it takes one thing at a time, asks the rules, commits, and only then tells.
//!
//! The loop only selects and routes; each arm is a named function. `load` brings a session up, `work` looks after
//! the run that goes on, `commit` is the way every change takes. The mailbox is bounded: who sends too fast waits.

mod commit;
mod control;
mod import;
mod load;
mod mail;
mod run_port;
mod subagents;
mod terminals;
mod work;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ctx_session::command::{Admission, Partial, PostMessage, RunNet, RunWishes};
use ctx_session::object::Earlier;
use ctx_session::record::{Context, PromptRef};
use ctx_session::request::RequestKey;
use ctx_session::rules::Known;
use ctx_session::{Answer, Code, Command, Refusal, SessionId, TerminalId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::core::Core;
use crate::live::Live;
use crate::port::{Place, Prepare, Prepared};
use crate::request::{Post, Posted};
use crate::shared::Inner;

pub(crate) use load::{Begin, spawn};
pub(crate) use mail::{Ask, DriverLink, Gone, Mail, ReplyTo};
use work::Work;

/// Letters that may wait for a driver.
const MAILBOX: usize = 64;
/// How soon files that could not be written are tried again.
const FILES_RETRY: Duration = Duration::from_millis(500);

/// Whether the driver goes on.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    /// The log was lost or the session was unloaded: the task ends, a successor takes the log up again.
    Exit,
}

/// A run's worker and place, made ready before the message is accepted.
struct Ready {
    prepared: Prepared,
    slot: crate::admission::Slot,
}

pub(crate) struct Driver {
    id: SessionId,
    inner: Arc<Inner>,
    link: DriverLink,
    mailbox: mpsc::Receiver<Mail>,
    /// Away only while a commit is on its blocking thread.
    core: Option<Core>,
    live: Arc<Live>,
    work: Option<Work>,
    /// Set at shutdown: when a run that still goes on is failed.
    closing: Option<Instant>,
    idle_since: Instant,
    /// When files that are behind were last tried.
    files_tried: Instant,
    /// What the log has, while records are brought in: how far it was read, and what was there.
    imported: Option<(u64, Known)>,
    /// Terminals that were told to close.
    strays: HashSet<TerminalId>,
    /// The log was lost; the driver must not go on.
    lost: bool,
}

impl Driver {
    async fn run(mut self) {
        loop {
            let deadline = self.deadline();
            let next = tokio::select! {
                biased;
                mail = self.mailbox.recv() => match mail {
                    Some(mail) => self.on_mail(mail).await,
                    None => Next::Exit,
                },
                () = tokio::time::sleep_until(deadline) => self.on_deadline().await,
            };
            if self.lost || next == Next::Exit {
                break;
            }
        }
        self.leave();
    }

    async fn on_mail(&mut self, mail: Mail) -> Next {
        if !matches!(mail, Mail::Shutdown) {
            self.idle_since = Instant::now();
        }
        match mail {
            Mail::Ask(ask) => self.on_ask(ask).await,
            Mail::Delta { run, caller, message, kind, text } => match caller {
                None => self.on_delta(run, message, kind, &text),
                Some(caller) => self.on_subagent_delta(run, caller, message, kind, &text),
            },
            Mail::Progress { run, caller: None, progress, reply } => {
                self.on_progress(run, progress, reply).await;
            }
            Mail::Progress { run, caller: Some(caller), progress, reply } => {
                self.on_subagent_progress(run, caller, progress, reply).await;
            }
            Mail::Blob { bytes, reply } => {
                let _ = reply.send(self.on_blob(bytes).await);
            }
            Mail::Step { run, caller: None, reply } => self.on_step(run, reply),
            Mail::Step { run, caller: Some(caller), reply } => self.on_subagent_step(run, caller, reply),
            Mail::Approval { run, caller, ask, reply } => self.on_approval(run, caller, ask, reply).await,
            Mail::Pause { run, call, reason, reply } => self.on_pause(run, call, reason, reply).await,
            Mail::Issue { run, act, reply } => self.on_issue(run, act, reply),
            Mail::Output { run, call, reply } => self.on_output(run, call, reply),
            Mail::Terminal { run, caller, open, reply } => {
                let _ = reply.send(self.on_terminal(run, caller, open).await);
            }
            Mail::Spend { run, reply } => self.on_spend(run, reply),
            Mail::ReadBlob { run, sha256, reply } => self.on_read_blob(run, sha256, reply),
            Mail::Pack { run, json } => self.on_pack(run, json).await,
            Mail::Spawn { run, spawn, reply } => self.on_spawn(run, spawn, reply).await,
            Mail::Reap { run, subagent, exit, reply } => self.on_reap(run, subagent, exit, reply).await,
            Mail::RunEnded { run, outcome } => self.on_run_ended(run, outcome).await,
            Mail::LetGo => return self.let_go(),
            Mail::Shutdown => return self.on_shutdown(),
        }
        self.next_after_work()
    }

    /// Unloads without waiting for the session to have been idle for long.
    fn let_go(&mut self) -> Next {
        match self.next_after_work() {
            Next::Continue if self.work.is_none() => self.try_unload(),
            next => next,
        }
    }

    /// The next moment at which something is due without being asked.
    fn deadline(&self) -> Instant {
        const FAR: Duration = Duration::from_secs(3600);
        let idle = self.idle_since + Duration::from_millis(self.inner.limits.idle_unload_ms);
        let due = [
            self.work.is_none().then_some(idle),
            self.work.as_ref().and_then(Work::deadline),
            self.approval_deadline(),
            self.walltime_deadline(),
            self.closing,
            self.files_are_behind().then_some(self.files_tried + FILES_RETRY),
        ];
        due.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + FAR)
    }

    fn files_are_behind(&self) -> bool {
        self.core_ref().is_some_and(Core::is_stale)
    }

    /// What a full disk kept from the files is written when there is room, also if nobody asks for anything.
    async fn retry_files(&mut self, now: Instant) {
        if !self.files_are_behind() || now < self.files_tried + FILES_RETRY {
            return;
        }
        self.files_tried = now;
        // A core that is lost meanwhile is taken up again, files and all.
        let _ = self.blocking(Core::catch_up).await;
    }

    async fn on_deadline(&mut self) -> Next {
        let now = Instant::now();
        self.retry_files(now).await;
        if self.work.is_some() {
            self.on_work_deadline(now).await;
        }
        if self.next_after_work() == Next::Exit {
            return Next::Exit;
        }
        let idle_for = now.duration_since(self.idle_since);
        if self.work.is_none() && idle_for >= Duration::from_millis(self.inner.limits.idle_unload_ms) {
            return self.try_unload();
        }
        Next::Continue
    }

    /// At shutdown the driver is done as soon as no run goes on. A paused one stays paused.
    fn next_after_work(&mut self) -> Next {
        if self.closing.is_some() && self.is_paused() {
            self.drop_worker();
        }
        if self.closing.is_some() && self.work.is_none() { Next::Exit } else { Next::Continue }
    }

    fn on_shutdown(&mut self) -> Next {
        let grace = Duration::from_millis(self.inner.limits.stop_grace_ms);
        self.closing.get_or_insert(Instant::now() + grace);
        self.next_after_work()
    }

    async fn on_ask(&mut self, ask: Ask) {
        // Whoever asked may have gone: then nobody needs the answer.
        match ask {
            Ask::Do { command: Command::CancelRun { run, reason, by, .. }, reply } => {
                self.on_cancel(run, reason, by, reply).await;
            }
            Ask::Do { command, reply } => drop(reply.send(self.carry_out(command).await)),
            Ask::Post { post, by, reply } => drop(reply.send(self.post(post, by).await)),
            Ask::ResumeQueued { by, reply } => drop(reply.send(self.resume_queued(by).await)),
            Ask::EditPrompt { checkpoint, target, content, by, reply } => {
                drop(reply.send(self.edit_prompt(checkpoint, target, content, by).await));
            }
            Ask::Look { reply } => {
                drop(reply.send(self.core().map(|core| Box::new(core.session.clone()))));
            }
            Ask::Prepare { reply } => drop(reply.send(self.prepare_as_it_is().await)),
            Ask::Live { reply } => drop(reply.send(Ok(self.live.clone()))),
            Ask::Rename { reply } => drop(reply.send(self.rename().await)),
            Ask::Import { import, is_dry, reply } => drop(reply.send(self.import(import, is_dry).await)),
            Ask::UndoImport { import, by, reply } => {
                drop(reply.send(self.undo_import(import, by).await));
            }
        }
    }

    /// Carries out a command from outside, once where its client gave it a key.
    async fn carry_out(&mut self, command: Command) -> Result<Answer, Refusal> {
        let (key, command) = match command {
            Command::Once { key, command } => (Some(key), *command),
            command => (None, command),
        };
        if let Some(answer) = self.repeated(key.as_ref())? {
            return Ok(answer);
        }
        let (command, ready) = self.complete(command).await?;
        let answer = self.perform(once(key, command), ready).await?;
        if let Answer::Run { run, .. } = &answer {
            self.inner.runs.remember(*run, self.id);
        }
        Ok(answer)
    }

    /// Fills in what only the driver knows.
    async fn complete(&mut self, command: Command) -> Result<(Command, Option<Ready>), Refusal> {
        Ok(match command {
            Command::End { by, .. } => (Command::End { by, partial: self.partial() }, None),
            Command::Rollback { checkpoint, by, files, .. } => {
                (Command::Rollback { checkpoint, by, partial: self.partial(), files }, None)
            }
            Command::Checkpoint { .. } => {
                self.may_pause()?;
                (command, None)
            }
            Command::Resume { checkpoint, by, message, .. } => {
                let (admission, ready) = self.admit_resume(checkpoint).await?;
                (Command::Resume { checkpoint, admission, by, message }, ready)
            }
            Command::Compact { strategy, by, .. } => {
                let (admission, ready) = self.admit_compaction(strategy).await?;
                (Command::Compact { strategy, admission, by }, ready)
            }
            Command::Retry { by, .. } => {
                let (admission, ready) = self.admit_retry(by).await?;
                (Command::Retry { admission, by }, ready)
            }
            Command::ApproveCompaction { compaction, edits, by, .. } => {
                let (admission, ready) = self.admit_approval(compaction).await?;
                (Command::ApproveCompaction { compaction, edits, admission, by }, ready)
            }
            command => (command, None),
        })
    }

    /// The answer to a request that was carried out before, whatever the session is doing now.
    fn repeated(&self, key: Option<&RequestKey>) -> Result<Option<Answer>, Refusal> {
        let session = &self.core()?.session;
        key.map_or(Ok(None), |key| session.repeated(key))
    }

    async fn post(&mut self, post: Post, by: u32) -> Result<Posted, Refusal> {
        self.try_to_end_failing_run().await?;
        let Post { text, images, client_id, model_override, cwd, wishes, key } = post;
        if let Some(answer) = self.repeated(key.as_ref())? {
            return self.posted(answer);
        }
        let session = &self.core()?.session;
        if let Some(answer) = session.may_post(&text, client_id.as_deref(), &self.inner.limits)? {
            return self.posted(answer);
        }
        ctx_session::image::check(&images)?;
        let model = model_override.clone().unwrap_or_else(|| session.model_override.clone());
        let was = session.cwd.clone();
        let wanted = cwd.clone().unwrap_or_else(|| was.clone());
        let model_override = model_override.filter(|model| *model != session.model_override);
        let (admission, ready, resolved) = self.admit_at(model, wanted, wishes.clone(), None).await?;
        // However it was written, it is one directory.
        let cwd = cwd.map(|_| resolved).filter(|cwd| *cwd != was);
        // The record that names a blob comes after it. One whose record is refused then is read by nobody.
        let images = match images.is_empty() {
            true => Vec::new(),
            false => self.blocking(move |core| core.put_images(images)).await??,
        };
        let post = PostMessage { text, images, client_id, model_override, cwd, wishes, admission, by };
        let answer = self.perform(once(key, Command::PostMessage(post)), ready).await?;
        self.posted(answer)
    }

    /// Says where the run of a post begins, and remembers whose run it is.
    fn posted(&self, answer: Answer) -> Result<Posted, Refusal> {
        let Answer::Posted { run, message, state, repeated } = answer else {
            return Err(Refusal::new(Code::Eio, "a post without a run"));
        };
        if !repeated {
            self.inner.runs.remember(run, self.id);
        }
        let first_seq = self.core_ref().and_then(|core| core.session.run(run)).map_or(0, |run| run.first_seq);
        Ok(Posted { run, message, state, repeated, first_seq })
    }

    async fn resume_queued(&mut self, by: u32) -> Result<Posted, Refusal> {
        let is_queued = matches!(self.core()?.session.state, ctx_session::State::Queued { .. });
        // Where nothing waits, the rules say so without a slot being taken.
        let (admission, ready) = if is_queued { self.admit_anew().await? } else { (Admission::none(), None) };
        let answer = self.perform(Command::ResumeQueued { admission, by }, ready).await?;
        self.posted(answer)
    }

    /// Makes a run ready with the session's own model and place.
    async fn admit_as_it_is(&mut self) -> Result<(Admission, Option<Ready>), Refusal> {
        let session = &self.core()?.session;
        let (model, cwd) = (session.model_override.clone(), session.cwd.clone());
        self.admit(model, cwd, None).await
    }

    /// The same with what came with the message: for one that was queued, or whose run ended for a compaction.
    async fn admit_anew(&mut self) -> Result<(Admission, Option<Ready>), Refusal> {
        let session = &self.core()?.session;
        let (model, cwd) = (session.model_override.clone(), session.cwd.clone());
        let run = match &session.state {
            ctx_session::State::Queued { run, .. } => Some(*run),
            _ => session.paused_at().map(|at| at.created.turn_id),
        };
        let wishes = run.and_then(|run| session.run(run)).map(|run| run.wishes.clone()).unwrap_or_default();
        let (admission, ready, _) = self.admit_at(model, cwd, wishes, None).await?;
        Ok((admission, ready))
    }

    /// Makes a paused run ready to go on: under what it began with, whatever files and settings say by now. Only its
    /// prompts may have been edited.
    async fn admit_as_it_was(&mut self) -> Result<(Admission, Option<Ready>), Refusal> {
        let session = &self.core()?.session;
        let run = session.current_run().map(|run| run.id);
        match session.control.context.clone().filter(|context| Some(context.turn_id) == run) {
            Some(context) => {
                let (model, cwd) = (context.model.clone(), context.cwd.clone());
                self.admit(Some(model), cwd, Some(context)).await
            }
            // A compaction that waits: another run goes on. Or damage took the record.
            None => self.admit_anew().await,
        }
    }

    async fn admit(
        &mut self,
        model_override: Option<String>,
        cwd: String,
        began_under: Option<Arc<Context>>,
    ) -> Result<(Admission, Option<Ready>), Refusal> {
        let wishes = RunWishes { net: began_under.as_deref().and_then(net_of), ..RunWishes::default() };
        let (admission, ready, _) = self.admit_at(model_override, cwd, wishes, began_under).await?;
        Ok((admission, ready))
    }

    /// Makes a run ready: the agent's files are read, its prompts stored, a slot reserved. The slot is free again when what
    /// is ready is dropped. Also says where it works, without links and dots.
    async fn admit_at(
        &mut self,
        model_override: Option<String>,
        cwd: String,
        wishes: RunWishes,
        began_under: Option<Arc<Context>>,
    ) -> Result<(Admission, Option<Ready>, String), Refusal> {
        self.inner.refuse_when_closing()?;
        let core = self.core()?;
        let (owner, project) = (core.session.meta.owner, core.session.meta.project.clone());
        let prepared = self.prepare_at(model_override, cwd, wishes, began_under).await?;
        match self.inner.slots.reserve(&project, owner, &self.inner.limits_of(&project)) {
            Ok(slot) => {
                let (context, running) = (prepared.context.clone(), slot.running);
                let cwd = context.cwd.clone();
                Ok((Admission::Granted { context, running }, Some(Ready { prepared, slot }), cwd))
            }
            Err(hit) => Ok((Admission::Full(hit), None, prepared.context.cwd)),
        }
    }

    /// Under what a run would work now, without one.
    async fn prepare_as_it_is(&mut self) -> Result<Prepared, Refusal> {
        let session = &self.core()?.session;
        let (model, cwd) = (session.model_override.clone(), session.cwd.clone());
        self.prepare_at(model, cwd, RunWishes::default(), None).await
    }

    async fn prepare_at(
        &mut self,
        model_override: Option<String>,
        cwd: String,
        wishes: RunWishes,
        began_under: Option<Arc<Context>>,
    ) -> Result<Prepared, Refusal> {
        let core = self.core()?;
        let object = self.inner.working_object(&core.session.meta);
        let object = object.ok_or_else(|| Refusal::invalid("id", "this session has no agent"))?;
        let owner = core.session.meta.owner;
        let prompts = control::prompts_in_place(&core.session);
        let ask = Prepare {
            object,
            owner,
            model_override,
            cwd: Some(cwd),
            snapshot: None,
            prompts: Vec::new(),
            wishes,
            recorded: None,
            earlier: Earlier::of(&core.session.meta),
            place: Place::of(&core.session.meta),
        };
        let inner = self.inner.clone();
        self.blocking(move |core| {
            let recorded = began_under.map(|context| core.recorded(&context));
            prepare(core, &inner, Prepare { recorded, ..ask }, &prompts)
        })
        .await?
    }

    /// Text of the current message that clients have seen and the log does not have.
    fn partial(&self) -> Option<Partial> {
        self.work.as_ref().and_then(|work| work.partial.clone())
    }
}

/// The network that a run was given, where that is more than none.
fn net_of(context: &Context) -> Option<RunNet> {
    let words = context.cage.as_deref().unwrap_or_default();
    words.split(' ').any(|word| word == "net=host").then_some(RunNet::Host)
}

/// The command, done once where its client gave it a key.
pub(crate) fn once(key: Option<RequestKey>, command: Command) -> Command {
    match key {
        Some(key) => Command::Once { key, command: Box::new(command) },
        None => command,
    }
}

/// Reads what describes the agent, and stores the prompts that the context names. Those that the session has in place of
/// the agent's own are read first.
fn prepare(core: &mut Core, inner: &Inner, ask: Prepare, prompts: &[PromptRef]) -> Result<Prepared, Refusal> {
    let meta = &core.session.meta;
    let is_imported = inner.is_another_agents(meta);
    let snapshot = match is_imported {
        true => inner.snapshot_of_agent(meta, &ask.object)?,
        false => inner.snapshot_of(meta)?,
    };
    let prompts = core.read_prompts(prompts)?;
    let ask = Prepare { snapshot, prompts, ..ask };
    let prepared = match inner.worker.prepare(&ask) {
        // Where another agent worked need not be a place that this one sees: then it works where it always does.
        Err(refusal) if is_imported && matches!(refusal.code, Code::Eacces | Code::Enoent | Code::Einval) => {
            inner.worker.prepare(&Prepare { cwd: None, ..ask }).map_err(|_| refusal)?
        }
        prepared => prepared?,
    };
    for prompt in &prepared.prompts {
        core.put_blob(prompt.as_bytes())?;
    }
    Ok(prepared)
}
