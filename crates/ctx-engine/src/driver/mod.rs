//! One driver per active session: it takes one thing at a time, asks the rules, commits, and only then tells.
//!
//! The loop only selects and routes; each arm is a named function. `load` brings a session up, `work` looks after
//! the run that goes on, `commit` is the way every change takes. The mailbox is bounded: who sends too fast waits.

mod commit;
mod control;
mod load;
mod mail;
mod run_port;
mod work;

use std::sync::Arc;
use std::time::Duration;

use ctx_session::command::{Admission, Partial, PostMessage};
use ctx_session::record::{Context, PromptRef};
use ctx_session::request::RequestKey;
use ctx_session::{Answer, Command, Refusal, SessionId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::core::Core;
use crate::engine::Post;
use crate::inner::Inner;
use crate::live::Live;
use crate::port::{Prepare, Prepared};

pub(crate) use load::{Begin, spawn};
pub(crate) use mail::{Ask, DriverLink, Gone, Mail, Reply, ReplyTo};
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
    ready: Option<Ready>,
    work: Option<Work>,
    /// Set at shutdown: when a run that still goes on is failed.
    closing: Option<Instant>,
    idle_since: Instant,
    /// When files that are behind were last tried.
    files_tried: Instant,
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
            Mail::Ask { ask, reply } => self.on_ask(ask, reply).await,
            Mail::Delta { run, message, kind, text } => self.on_delta(run, message, kind, &text),
            Mail::Progress { run, progress, reply } => self.on_progress(run, progress, reply).await,
            Mail::Blob { bytes, reply } => {
                let _ = reply.send(self.on_blob(bytes).await);
            }
            Mail::Step { run, reply } => self.on_step(run, reply),
            Mail::Approval { run, ask, reply } => self.on_approval(run, ask, reply).await,
            Mail::Pause { run, call, reason, reply } => self.on_pause(run, call, reason, reply).await,
            Mail::Issue { run, act, reply } => self.on_issue(run, act, reply),
            Mail::Output { run, call, reply } => self.on_output(run, call, reply),
            Mail::Pack { run, json } => self.on_pack(run, json).await,
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

    async fn on_ask(&mut self, ask: Ask, reply: ReplyTo) {
        let by_run = match ask {
            Ask::Cancel { run, reason, by } => return self.on_cancel(run, reason, by, reply).await,
            Ask::Look => self.core().map(|core| Reply::Look(Box::new(core.session.clone()))),
            Ask::Live => Ok(Reply::Live(self.live.clone())),
            Ask::Post { post, by } => self.post(post, by).await,
            Ask::ResumeQueued { by } => self.resume_queued(by).await,
            Ask::DiscardQueued { by } => self.perform(Command::DiscardQueued { by }).await,
            Ask::End { by } => {
                let partial = self.partial();
                self.perform(Command::End { by, partial }).await
            }
            Ask::Rename => self.rename().await,
            Ask::Change(change) => self.perform(Command::Change(change)).await,
            Ask::Checkpoint { by, reason, key } => self.checkpoint(by, reason, key).await,
            Ask::EditPrompt { checkpoint, target, content, by } => {
                self.edit_prompt(checkpoint, target, content, by).await
            }
            Ask::Resume { checkpoint, by } => self.resume(checkpoint, by).await,
            Ask::Rollback { checkpoint, by } => {
                let partial = self.partial();
                self.perform(Command::Rollback { checkpoint, by, partial }).await
            }
            Ask::Compact { strategy, by, key } => self.compact(strategy, by, key).await,
            Ask::ApproveCompaction { compaction, edits, by } => self.approve(compaction, edits, by).await,
            Ask::RejectCompaction { compaction, by } => {
                self.perform(Command::RejectCompaction { compaction, by }).await
            }
            Ask::FlagCompaction { compaction, flag, notes, by } => {
                self.perform(Command::FlagCompaction { compaction, flag, notes, by }).await
            }
            Ask::AnswerApproval { approval, answer, note } => {
                self.perform(Command::AnswerApproval { approval, answer, note }).await
            }
            Ask::Bind { issue, by } => self.perform(Command::Bind { issue, by }).await,
            Ask::Unbind { by } => self.perform(Command::Unbind { by }).await,
            Ask::Pin { message, pinned, by } => self.perform(Command::Pin { message, pinned, by }).await,
            Ask::Attach { connection, user, device_hint, takeover } => {
                self.perform(Command::Attach { connection, user, device_hint, takeover }).await
            }
            Ask::Detach { connection, reason } => self.perform(Command::Detach { connection, reason }).await,
        };
        let _ = reply.send(by_run);
    }

    /// The answer to a request that was carried out before, whatever the session is doing now.
    fn repeated(&self, key: Option<&RequestKey>) -> Result<Option<Answer>, Refusal> {
        let session = &self.core()?.session;
        key.map_or(Ok(None), |key| session.repeated(key))
    }

    async fn post(&mut self, post: Post, by: u32) -> Result<Reply, Refusal> {
        self.try_to_end_failing_run().await?;
        let Post { text, client_id, model_override, cwd, key } = post;
        if let Some(answer) = self.repeated(key.as_ref())? {
            return Ok(self.with_first_seq(answer));
        }
        let session = &self.core()?.session;
        if let Some(answer) = session.may_post(&text, client_id.as_deref(), &self.inner.limits)? {
            return Ok(self.with_first_seq(answer));
        }
        let model = model_override.clone().unwrap_or_else(|| session.model_override.clone());
        let wanted = cwd.clone().unwrap_or_else(|| session.cwd.clone());
        let cwd = cwd.filter(|cwd| *cwd != session.cwd);
        let model_override = model_override.filter(|model| *model != session.model_override);
        let admission = self.admit(model, wanted, None).await?;
        let post = PostMessage { text, client_id, model_override, cwd, admission, by };
        let reply = self.perform(once(key, Command::PostMessage(post))).await;
        self.ready = None;
        self.posted(reply?)
    }

    /// Says where the run of a post begins, and remembers whose run it is.
    fn posted(&self, reply: Reply) -> Result<Reply, Refusal> {
        match reply {
            Reply::Answer(answer) => {
                if let Answer::Posted { run, .. } = &answer {
                    self.inner.runs.remember(*run, self.id);
                }
                Ok(self.with_first_seq(answer))
            }
            other => Ok(other),
        }
    }

    fn with_first_seq(&self, answer: Answer) -> Reply {
        let run = match &answer {
            Answer::Posted { run, .. } => self.core_ref().and_then(|core| core.session.run(*run)),
            Answer::Done
            | Answer::Run { .. }
            | Answer::Checkpoint { .. }
            | Answer::Held
            | Answer::Ignored => None,
        };
        let first_seq = run.map_or(0, |run| run.first_seq);
        Reply::Posted { answer, first_seq }
    }

    async fn resume_queued(&mut self, by: u32) -> Result<Reply, Refusal> {
        let session = &self.core()?.session;
        if !matches!(session.state, ctx_session::State::Queued { .. }) {
            // Nothing waits: the rules say so without a slot being taken.
            return self.perform(Command::ResumeQueued { admission: no_admission(), by }).await;
        }
        let admission = self.admit_as_it_is().await?;
        let reply = self.perform(Command::ResumeQueued { admission, by }).await;
        self.ready = None;
        self.posted(reply?)
    }

    /// Makes a run ready with the session's own model and place.
    async fn admit_as_it_is(&mut self) -> Result<Admission, Refusal> {
        let session = &self.core()?.session;
        let (model, cwd) = (session.model_override.clone(), session.cwd.clone());
        self.admit(model, cwd, None).await
    }

    /// Makes a paused run ready to go on: under what it began with, whatever files and settings say by now. Only its
    /// prompts may have been edited.
    async fn admit_as_it_was(&mut self) -> Result<Admission, Refusal> {
        let session = &self.core()?.session;
        let run = session.current_run().map(|run| run.id);
        match session.control.context.clone().filter(|context| Some(context.turn_id) == run) {
            Some(context) => {
                let (model, cwd) = (context.model.clone(), context.cwd.clone());
                self.admit(Some(model), cwd, Some(context)).await
            }
            // A compaction that waits: another run goes on. Or damage took the record.
            None => self.admit_as_it_is().await,
        }
    }

    /// Makes a run ready: the agent's files are read, its prompts stored, a slot reserved.
    async fn admit(
        &mut self,
        model_override: Option<String>,
        cwd: String,
        began_under: Option<Arc<Context>>,
    ) -> Result<Admission, Refusal> {
        self.inner.refuse_when_closing()?;
        let core = self.core()?;
        let agent = core.session.meta.agent.clone();
        let agent = agent.ok_or_else(|| Refusal::invalid("id", "this session has no agent"))?;
        let owner = core.session.meta.owner;
        let project = core.session.meta.project.clone();
        let prompts = control::prompts_in_place(&core.session);
        let ask = Prepare {
            agent,
            owner,
            model_override,
            cwd: Some(cwd),
            snapshot: None,
            prompts: Vec::new(),
            recorded: None,
        };
        let inner = self.inner.clone();
        let prepared = self
            .blocking(move |core| {
                let recorded = began_under.map(|context| core.recorded(&context));
                prepare(core, &inner, Prepare { recorded, ..ask }, &prompts)
            })
            .await??;
        match self.inner.slots.reserve(&project, owner, &self.inner.limits_of(&project)) {
            Ok(slot) => {
                let (context, running) = (prepared.context.clone(), slot.running);
                self.ready = Some(Ready { prepared, slot });
                Ok(Admission::Granted { context, running })
            }
            Err(hit) => Ok(Admission::Full(hit)),
        }
    }

    /// Text of the current message that clients have seen and the log does not have.
    fn partial(&self) -> Option<Partial> {
        self.work.as_ref().and_then(|work| work.partial.clone())
    }
}

/// The command, done once where its client gave it a key.
fn once(key: Option<RequestKey>, command: Command) -> Command {
    match key {
        Some(key) => Command::Once { key, command: Box::new(command) },
        None => command,
    }
}

/// The admission of a command that needs none: the rules refuse it, or do without.
fn no_admission() -> Admission {
    Admission::Full(ctx_session::record::LimitHit {
        scope: ctx_session::record::LimitScope::PerProject,
        running: 0,
        limit: 0,
    })
}

/// Reads what describes the agent, and stores the prompts that the context names. Those that the session has in place of
/// the agent's own are read first.
fn prepare(core: &mut Core, inner: &Inner, ask: Prepare, prompts: &[PromptRef]) -> Result<Prepared, Refusal> {
    let snapshot = inner.snapshot_of(&core.session.meta)?;
    let prompts = core.read_prompts(prompts)?;
    let prepared = inner.worker.prepare(&Prepare { snapshot, prompts, ..ask })?;
    for prompt in &prepared.prompts {
        core.put_blob(prompt.as_bytes())?;
    }
    Ok(prepared)
}
