//! One driver per active session: it takes one thing at a time, asks the rules, commits, and only then tells.
//!
//! The loop only selects and routes; each arm is a named function. `load` brings a session up, `work` looks after
//! the run that goes on, `commit` is the way every change takes. The mailbox is bounded: who sends too fast waits.

mod commit;
mod load;
mod work;

use std::sync::Arc;
use std::time::Duration;

use ctx_session::command::{Admission, Partial, PostMessage, Progress};
use ctx_session::record::{BlobRef, CancelReason, DetachReason};
use ctx_session::{Answer, Code, Command, MessageId, Refusal, RunId, Session, SessionId, Ulid};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::core::Core;
use crate::inner::Inner;
use crate::live::Live;
use crate::port::{DeltaKind, Prepare, Prepared, Stopped};

pub(crate) use load::{Begin, spawn};
use work::Work;

/// Letters that may wait for a driver.
const MAILBOX: usize = 64;
/// How soon files that could not be written are tried again.
const FILES_RETRY: Duration = Duration::from_millis(500);

/// What is asked of a session.
#[derive(Debug)]
pub(crate) enum Ask {
    Post {
        text: String,
        client_id: Option<String>,
        model_override: Option<Option<String>>,
        cwd: Option<String>,
    },
    ResumeQueued {
        by: u32,
    },
    DiscardQueued {
        by: u32,
    },
    Cancel {
        run: RunId,
        reason: CancelReason,
        by: Option<u32>,
    },
    End {
        by: u32,
    },
    Rename {
        title: String,
    },
    SetModel {
        model: Option<String>,
    },
    Archive {
        archived: bool,
        by: u32,
    },
    Attach {
        connection: Ulid,
        user: u32,
        device_hint: Option<String>,
        takeover: bool,
    },
    Detach {
        connection: Ulid,
        reason: DetachReason,
    },
    /// The session as it is.
    Look,
    /// Its live events.
    Live,
}

/// What the one who asked is told.
pub(crate) enum Reply {
    Answer(Answer),
    /// A post was accepted, now or before; its run begins in the log at `first_seq`.
    Posted {
        answer: Answer,
        first_seq: u64,
    },
    Look(Box<Session>),
    Live(Arc<Live>),
}

pub(crate) type ReplyTo = oneshot::Sender<Result<Reply, Refusal>>;

pub(crate) enum Mail {
    Ask { ask: Ask, reply: ReplyTo },
    Delta { run: RunId, message: MessageId, kind: DeltaKind, text: String },
    Progress { run: RunId, progress: Progress, reply: oneshot::Sender<Result<(), Stopped>> },
    Blob { bytes: Vec<u8>, reply: oneshot::Sender<Result<BlobRef, Stopped>> },
    RunEnded { run: RunId, outcome: ctx_session::command::Outcome },
    LetGo,
    Shutdown,
}

/// A way to a session's driver.
#[derive(Clone)]
pub(crate) struct DriverLink {
    inner: Arc<Inner>,
    mailbox: mpsc::Sender<Mail>,
}

impl Ask {
    /// Whether asking again does no harm when it is not known what became of the first time.
    pub fn may_repeat(&self) -> bool {
        match self {
            Ask::Post { client_id, .. } => client_id.is_some(),
            Ask::ResumeQueued { .. }
            | Ask::DiscardQueued { .. }
            | Ask::Cancel { .. }
            | Ask::End { .. }
            | Ask::Rename { .. }
            | Ask::SetModel { .. }
            | Ask::Archive { .. }
            | Ask::Attach { .. }
            | Ask::Detach { .. }
            | Ask::Look
            | Ask::Live => true,
        }
    }
}

impl DriverLink {
    pub fn new_id(&self) -> Ulid {
        self.inner.fresh.id()
    }

    pub async fn ask(&self, ask: Ask) -> Result<Reply, Gone> {
        let (reply, answer) = oneshot::channel();
        self.mailbox.send(Mail::Ask { ask, reply }).await.map_err(|_| Gone::Unloaded)?;
        match answer.await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(refusal)) => Err(Gone::Refused(refusal)),
            Err(_) => Err(Gone::Dropped),
        }
    }

    /// Has the session unloaded, unless someone else needs it: then it goes when it has been idle.
    pub fn let_go(&self) {
        // A mailbox that is full belongs to a session that is needed.
        let _ = self.mailbox.try_send(Mail::LetGo);
    }

    pub fn is_closed(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Whether both lead to the same driver.
    pub fn is_same(&self, other: &DriverLink) -> bool {
        self.mailbox.same_channel(&other.mailbox)
    }

    pub async fn shut_down(&self) {
        let _ = self.mailbox.send(Mail::Shutdown).await;
        self.mailbox.closed().await;
    }

    pub async fn delta(
        &self,
        run: RunId,
        message: MessageId,
        kind: DeltaKind,
        text: String,
    ) -> Result<(), Stopped> {
        self.mailbox.send(Mail::Delta { run, message, kind, text }).await.map_err(|_| Stopped)
    }

    pub async fn progress(&self, run: RunId, progress: Progress) -> Result<(), Stopped> {
        let (reply, answer) = oneshot::channel();
        self.mailbox.send(Mail::Progress { run, progress, reply }).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)?
    }

    pub async fn store_blob(&self, bytes: Vec<u8>) -> Result<BlobRef, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.mailbox.send(Mail::Blob { bytes, reply }).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)?
    }

    async fn run_ended(&self, run: RunId, outcome: ctx_session::command::Outcome) {
        let _ = self.mailbox.send(Mail::RunEnded { run, outcome }).await;
    }
}

/// Why an ask has no reply.
pub(crate) enum Gone {
    Refused(Refusal),
    /// The driver had gone before it was asked: ask its successor.
    Unloaded,
    /// The driver went without an answer; whether it did what was asked is not known.
    Dropped,
}

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
            Mail::Progress { run, progress, reply } => {
                let _ = reply.send(self.on_progress(run, progress).await);
            }
            Mail::Blob { bytes, reply } => {
                let _ = reply.send(self.on_blob(bytes).await);
            }
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

    /// At shutdown the driver is done as soon as no run goes on.
    fn next_after_work(&self) -> Next {
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
            Ask::Post { text, client_id, model_override, cwd } => {
                self.post(text, client_id, model_override, cwd).await
            }
            Ask::ResumeQueued { by } => self.resume_queued(by).await,
            Ask::DiscardQueued { by } => self.perform(Command::DiscardQueued { by }).await,
            Ask::End { by } => {
                let partial = self.partial();
                self.perform(Command::End { by, partial }).await
            }
            Ask::Rename { title } => self.perform(Command::Rename { title }).await,
            Ask::SetModel { model } => self.perform(Command::SetModel { model }).await,
            Ask::Archive { archived, by } => self.perform(Command::Archive { archived, by }).await,
            Ask::Attach { connection, user, device_hint, takeover } => {
                self.perform(Command::Attach { connection, user, device_hint, takeover }).await
            }
            Ask::Detach { connection, reason } => self.perform(Command::Detach { connection, reason }).await,
        };
        let _ = reply.send(by_run);
    }

    async fn post(
        &mut self,
        text: String,
        client_id: Option<String>,
        model_override: Option<Option<String>>,
        cwd: Option<String>,
    ) -> Result<Reply, Refusal> {
        self.try_to_end_failing_run().await?;
        let session = &self.core()?.session;
        if let Some(answer) = session.may_post(&text, client_id.as_deref(), &self.inner.limits)? {
            return Ok(self.with_first_seq(answer));
        }
        let model = model_override.clone().unwrap_or_else(|| session.model_override.clone());
        let wanted = cwd.clone().unwrap_or_else(|| session.cwd.clone());
        let cwd = cwd.filter(|cwd| *cwd != session.cwd);
        let model_override = model_override.filter(|model| *model != session.model_override);
        let admission = self.admit(model, wanted).await?;
        let post = PostMessage { text, client_id, model_override, cwd, admission };
        let reply = self.perform(Command::PostMessage(post)).await;
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
            Answer::Done | Answer::Run { .. } | Answer::Ignored => None,
        };
        let first_seq = run.map_or(0, |run| run.first_seq);
        Reply::Posted { answer, first_seq }
    }

    async fn resume_queued(&mut self, by: u32) -> Result<Reply, Refusal> {
        let session = &self.core()?.session;
        if !matches!(session.state, ctx_session::State::Queued { .. }) {
            // Nothing waits: the rules say so without a slot being taken.
            let full = Admission::Full(ctx_session::record::LimitHit {
                scope: ctx_session::record::LimitScope::PerProject,
                running: 0,
                limit: 0,
            });
            return self.perform(Command::ResumeQueued { admission: full, by }).await;
        }
        let (model, cwd) = (session.model_override.clone(), session.cwd.clone());
        let admission = self.admit(model, cwd).await?;
        let reply = self.perform(Command::ResumeQueued { admission, by }).await;
        self.ready = None;
        self.posted(reply?)
    }

    /// Makes a run ready: the agent's files are read, its prompts stored, a slot reserved.
    async fn admit(&mut self, model_override: Option<String>, cwd: String) -> Result<Admission, Refusal> {
        self.inner.refuse_when_closing()?;
        let core = self.core()?;
        let agent = core.session.meta.agent.clone();
        let agent = agent.ok_or_else(|| Refusal::new(Code::Einval, "this session has no agent"))?;
        let owner = core.session.meta.owner;
        let project = core.session.meta.project.clone();
        let ask = Prepare { agent, owner, model_override, cwd: Some(cwd), snapshot: None };
        let inner = self.inner.clone();
        let prepared = self.blocking(move |core| prepare(core, &inner, ask)).await??;
        match self.inner.slots.reserve(&project, owner, &self.inner.limits_of(&project)) {
            Ok(slot) => {
                let context = prepared.context.clone();
                self.ready = Some(Ready { prepared, slot });
                Ok(Admission::Granted(context))
            }
            Err(hit) => Ok(Admission::Full(hit)),
        }
    }

    /// Text of the current message that clients have seen and the log does not have.
    fn partial(&self) -> Option<Partial> {
        self.work.as_ref().and_then(|work| work.partial.clone())
    }
}

/// Reads what describes the agent, and stores the prompts that the context names.
fn prepare(core: &mut Core, inner: &Inner, ask: Prepare) -> Result<Prepared, Refusal> {
    let snapshot = inner.snapshot_of(&core.session.meta)?;
    let prepared = inner.worker.prepare(&Prepare { snapshot, ..ask })?;
    for prompt in &prepared.prompts {
        core.put_blob(prompt.as_bytes())?;
    }
    Ok(prepared)
}
