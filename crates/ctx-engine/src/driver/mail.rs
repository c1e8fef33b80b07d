//! What may be sent to a driver, and the way to send it. The mailbox is bounded: who sends too fast waits.

use std::sync::{Arc, OnceLock};

use ctx_session::command::{
    ApprovalAnswer, ApprovalAsk, Approved, Change, CompactionEdits, Outcome, Progress,
};
use ctx_session::issue::IssueAct;
use ctx_session::port::{DeltaKind, Step, Stopped};
use ctx_session::project::Strategy;
use ctx_session::record::{BlobRef, CancelReason, CompactionFlag, DetachReason};
use ctx_session::request::RequestKey;
use ctx_session::{
    Answer, ApprovalId, CallId, CheckpointId, CompactionId, IssueId, MessageId, Refusal, RunId, Session, Ulid,
};
use tokio::sync::{mpsc, oneshot};

use crate::engine::Post;
use crate::inner::Inner;
use crate::live::Live;

/// What is asked of a session.
#[derive(Debug)]
pub(crate) enum Ask {
    Post {
        post: Post,
        by: u32,
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
    Change(Change),
    Checkpoint {
        by: u32,
        reason: Option<String>,
        key: Option<RequestKey>,
    },
    EditPrompt {
        checkpoint: CheckpointId,
        target: String,
        content: String,
        by: u32,
    },
    Resume {
        checkpoint: CheckpointId,
        by: u32,
    },
    Rollback {
        checkpoint: CheckpointId,
        by: u32,
    },
    Compact {
        strategy: Option<Strategy>,
        by: u32,
        key: Option<RequestKey>,
    },
    ApproveCompaction {
        compaction: CompactionId,
        edits: CompactionEdits,
        by: u32,
    },
    RejectCompaction {
        compaction: CompactionId,
        by: u32,
    },
    FlagCompaction {
        compaction: CompactionId,
        flag: Option<Option<CompactionFlag>>,
        notes: Option<Option<String>>,
        by: u32,
    },
    AnswerApproval {
        approval: ApprovalId,
        answer: ApprovalAnswer,
        note: Option<String>,
    },
    Bind {
        issue: IssueId,
        by: u32,
    },
    Unbind {
        by: u32,
    },
    Pin {
        message: Ulid,
        pinned: bool,
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
    /// It is over, and its name is used again: its directory gets another.
    Rename,
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
    Step { run: RunId, reply: oneshot::Sender<Result<Step, Stopped>> },
    Approval { run: RunId, ask: ApprovalAsk, reply: oneshot::Sender<Result<Approved, Stopped>> },
    Pause { run: RunId, call: CallId, reason: Option<String>, reply: oneshot::Sender<Result<(), Stopped>> },
    Issue { run: RunId, act: IssueAct, reply: oneshot::Sender<Result<Result<String, Refusal>, Stopped>> },
    Output { run: RunId, call: CallId, reply: oneshot::Sender<Result<Result<String, Refusal>, Stopped>> },
    Pack { run: RunId, json: Vec<u8> },
    RunEnded { run: RunId, outcome: Outcome },
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
    /// Whether asking again does no harm when it is not known what became of the first time.
    pub fn may_repeat(&self) -> bool {
        match self {
            Ask::Post { post, .. } => post.client_id.is_some() || post.key.is_some(),
            Ask::Checkpoint { key, .. } | Ask::Compact { key, .. } => key.is_some(),
            Ask::ResumeQueued { .. }
            | Ask::DiscardQueued { .. }
            | Ask::Cancel { .. }
            | Ask::End { .. }
            | Ask::Change(_)
            | Ask::EditPrompt { .. }
            | Ask::FlagCompaction { .. }
            | Ask::Bind { .. }
            | Ask::Unbind { .. }
            | Ask::Pin { .. }
            | Ask::Attach { .. }
            | Ask::Detach { .. }
            | Ask::Rename
            | Ask::Look
            | Ask::Live => true,
            // The second time would be answered as if someone else had done the first.
            Ask::Resume { .. }
            | Ask::Rollback { .. }
            | Ask::ApproveCompaction { .. }
            | Ask::RejectCompaction { .. }
            | Ask::AnswerApproval { .. } => false,
        }
    }
}

impl DriverLink {
    pub fn new_id(&self) -> Ulid {
        self.inner.fresh.id()
    }

    pub fn live(&self) -> Option<Arc<Live>> {
        self.live.get().cloned()
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
    Dropped,
}
