//! What may be sent to a driver, and the way to send it. The mailbox is bounded: who sends too fast waits.

use std::sync::{Arc, OnceLock};

use ctx_session::command::{ApprovalAsk, Approved, Exit, Import, Outcome, Progress, Spawn};
use ctx_session::issue::IssueAct;
use ctx_session::port::{DeltaKind, OpenTerminal, Reaped, RunPort, Step, Stopped};
use ctx_session::record::{BlobRef, Caller, Failure};
use ctx_session::{
    Answer, CallId, CheckpointId, Command, MessageId, Refusal, RunId, Session, SessionId, SubagentId,
    TerminalId, Ulid,
};
use tokio::sync::{mpsc, oneshot};

use crate::live::Live;
use crate::port::Prepared;
use crate::request::{Post, Posted};
use crate::shared::Inner;

/// Where an answer goes.
pub(crate) type ReplyTo<T> = oneshot::Sender<Result<T, Refusal>>;

/// What is asked of a session, each with a reply of its own kind.
pub(crate) enum Ask {
    /// A command for the rules. What only the driver knows (a slot, text that is not in the log yet) it fills in.
    Do {
        command: Command,
        reply: ReplyTo<Answer>,
    },
    Post {
        post: Post,
        by: u32,
        reply: ReplyTo<Posted>,
    },
    ResumeQueued {
        by: u32,
        reply: ReplyTo<Posted>,
    },
    /// The text is stored before the rules are asked.
    EditPrompt {
        checkpoint: CheckpointId,
        target: String,
        content: String,
        by: u32,
        reply: ReplyTo<Answer>,
    },
    /// The session as it is.
    Look {
        reply: ReplyTo<Box<Session>>,
    },
    /// Under what a run would work now.
    Prepare {
        reply: ReplyTo<Prepared>,
    },
    /// Its live events.
    Live {
        reply: ReplyTo<Arc<Live>>,
    },
    /// Adds what another agent's session has besides, or says how much that is.
    Import {
        import: Import,
        is_dry: bool,
        reply: ReplyTo<u64>,
    },
    /// Takes back what an import added.
    UndoImport {
        import: Ulid,
        by: u32,
        reply: ReplyTo<()>,
    },
    /// Its name is used again: gives the directory of a session that is over another name.
    Rename {
        reply: ReplyTo<()>,
    },
}

/// A terminal that the log has now: of which session, whose, and its id.
pub(crate) type OpenedTerminal = (SessionId, u32, TerminalId);

/// The way of a new subagent, or why there is none, for the model to read.
pub(crate) type Spawned = Result<Arc<dyn RunPort>, Refusal>;

pub(crate) enum Mail {
    Ask(Ask),
    Delta {
        run: RunId,
        caller: Option<Caller>,
        message: MessageId,
        kind: DeltaKind,
        text: String,
    },
    Progress {
        run: RunId,
        caller: Option<SubagentId>,
        progress: Progress,
        reply: oneshot::Sender<Result<(), Stopped>>,
    },
    Blob {
        bytes: Vec<u8>,
        reply: oneshot::Sender<Result<BlobRef, Stopped>>,
    },
    Step {
        run: RunId,
        caller: Option<SubagentId>,
        reply: oneshot::Sender<Result<Step, Stopped>>,
    },
    Approval {
        run: RunId,
        caller: Option<SubagentId>,
        ask: ApprovalAsk,
        reply: oneshot::Sender<Result<Approved, Stopped>>,
    },
    Pause {
        run: RunId,
        call: CallId,
        reason: Option<String>,
        reply: oneshot::Sender<Result<(), Stopped>>,
    },
    Issue {
        run: RunId,
        act: IssueAct,
        reply: oneshot::Sender<Result<Result<String, Refusal>, Stopped>>,
    },
    ReadBlob {
        run: RunId,
        sha256: String,
        reply: oneshot::Sender<Result<Result<Vec<u8>, Refusal>, Stopped>>,
    },
    Spend {
        run: RunId,
        reply: oneshot::Sender<Result<Result<(), Failure>, Stopped>>,
    },
    Output {
        run: RunId,
        call: CallId,
        reply: oneshot::Sender<Result<Result<String, Refusal>, Stopped>>,
    },
    Terminal {
        run: RunId,
        caller: Option<SubagentId>,
        open: OpenTerminal,
        reply: oneshot::Sender<Result<Result<OpenedTerminal, Refusal>, Stopped>>,
    },
    Pack {
        run: RunId,
        json: Vec<u8>,
    },
    Spawn {
        run: RunId,
        spawn: Spawn,
        reply: oneshot::Sender<Result<Spawned, Stopped>>,
    },
    Reap {
        run: RunId,
        subagent: SubagentId,
        exit: Exit,
        reply: oneshot::Sender<Result<Reaped, Stopped>>,
    },
    RunEnded {
        run: RunId,
        outcome: Outcome,
    },
    LetGo,
    Shutdown,
}

/// A way to a session's driver.
#[derive(Clone)]
pub(crate) struct DriverLink {
    pub(super) inner: Arc<Inner>,
    pub(super) mailbox: mpsc::Sender<Mail>,
    /// Its live events, once it is loaded.
    pub(super) live: Arc<OnceLock<Arc<Live>>>,
}

impl Ask {
    /// Whoever asked may have gone: then nobody needs the answer.
    pub fn refuse(self, refusal: Refusal) {
        match self {
            Ask::Do { reply, .. } | Ask::EditPrompt { reply, .. } => drop(reply.send(Err(refusal))),
            Ask::Post { reply, .. } | Ask::ResumeQueued { reply, .. } => drop(reply.send(Err(refusal))),
            Ask::Look { reply } => drop(reply.send(Err(refusal))),
            Ask::Prepare { reply } => drop(reply.send(Err(refusal))),
            Ask::Live { reply } => drop(reply.send(Err(refusal))),
            Ask::Rename { reply } => drop(reply.send(Err(refusal))),
            Ask::Import { reply, .. } => drop(reply.send(Err(refusal))),
            Ask::UndoImport { reply, .. } => drop(reply.send(Err(refusal))),
        }
    }

    /// Whether asking again does no harm when it is not known what became of the first time.
    pub fn may_repeat(&self) -> bool {
        match self {
            Ask::Do { command, .. } => may_repeat(command),
            Ask::Post { post, .. } => post.client_id.is_some() || post.key.is_some(),
            Ask::ResumeQueued { .. }
            | Ask::EditPrompt { .. }
            | Ask::Look { .. }
            | Ask::Prepare { .. }
            | Ask::Live { .. }
            | Ask::Import { .. }
            | Ask::UndoImport { .. }
            | Ask::Rename { .. } => true,
        }
    }
}

fn may_repeat(command: &Command) -> bool {
    match command {
        // Without a key the second time would pause, compact or post again.
        Command::Checkpoint { .. }
        | Command::Compact { .. }
        | Command::Retry { .. }
        | Command::PostMessage(_) => false,
        // The second time would be answered as if someone else had done the first.
        Command::Resume { .. }
        | Command::Rollback { .. }
        | Command::ApproveCompaction { .. }
        | Command::RejectCompaction { .. }
        | Command::AnswerApproval { .. } => false,
        Command::Once { .. }
        | Command::ResumeQueued { .. }
        | Command::DiscardQueued { .. }
        | Command::Progress { .. }
        | Command::FinishRun { .. }
        | Command::CancelRun { .. }
        | Command::EditPrompt { .. }
        | Command::FlagCompaction { .. }
        | Command::Bind { .. }
        | Command::Unbind { .. }
        | Command::Pin { .. }
        | Command::Import(_)
        | Command::UndoImport(_)
        | Command::Terminal(_)
        | Command::Change(_)
        | Command::Attach { .. }
        | Command::Detach { .. }
        | Command::End { .. }
        | Command::Fail { .. }
        | Command::Recover { .. } => true,
    }
}

impl DriverLink {
    pub fn new_id(&self) -> Ulid {
        self.inner.fresh.id()
    }

    pub fn live(&self) -> Option<Arc<Live>> {
        self.live.get().cloned()
    }

    pub async fn ask<T>(&self, ask: impl FnOnce(ReplyTo<T>) -> Ask) -> Result<T, Gone> {
        let (reply, answer) = oneshot::channel();
        let ask = ask(reply);
        let may_repeat = ask.may_repeat();
        self.mailbox.send(Mail::Ask(ask)).await.map_err(|_| Gone::Unloaded)?;
        match answer.await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(refusal)) => Err(Gone::Refused(refusal)),
            Err(_) => Err(Gone::Dropped { may_repeat }),
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

    /// Puts something into the mailbox without making the driver wait for its own mail.
    pub(super) fn post_later(&self, mail: Mail) {
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            let _ = mailbox.send(mail).await;
        });
    }

    pub(super) async fn run_ended(&self, run: RunId, outcome: Outcome) {
        let _ = self.mailbox.send(Mail::RunEnded { run, outcome }).await;
    }
}

/// Why an ask has no reply.
pub(crate) enum Gone {
    Refused(Refusal),
    /// The driver had gone before it was asked: ask its successor.
    Unloaded,
    /// The driver went without an answer; whether it did what was asked is not known.
    Dropped {
        may_repeat: bool,
    },
}
