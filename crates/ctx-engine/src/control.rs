//! What an operator may do with a session besides talking to it: pause, look, change course, go back.

use ctx_session::command::{Admission, ApprovalAnswer, CompactionEdits, Pauser};
use ctx_session::project::Strategy;
use ctx_session::record::{ApprovalScope, CompactionFlag, DetachReason, FilesBack};
use ctx_session::request::RequestKey;
use ctx_session::{
    Answer, ApprovalId, CheckpointId, Code, Command, CompactionId, Refusal, RunId, RunState, SessionId, Ulid,
};

use tokio::sync::oneshot;

use crate::driver::{Ask, once};
use crate::engine::Engine;
use crate::request::Caller;

impl Engine {
    /// Pauses the run that goes on.
    pub async fn checkpoint(
        &self,
        caller: Caller,
        id: SessionId,
        reason: Option<String>,
        key: Option<RequestKey>,
    ) -> Result<CheckpointId, Refusal> {
        let pause = Command::Checkpoint { by: Pauser::Operator { by: caller.uid }, reason };
        match self.command(caller, id, once(key, pause)).await? {
            Answer::Checkpoint { checkpoint } => Ok(checkpoint),
            _ => Err(Refusal::new(Code::Eio, "a pause without a checkpoint")),
        }
    }

    /// Edits a prompt at the checkpoint that the session is paused at.
    pub async fn edit_prompt(
        &self,
        caller: Caller,
        id: SessionId,
        checkpoint: CheckpointId,
        target: &str,
        content: &str,
    ) -> Result<(), Refusal> {
        self.find(caller, id)?;
        let ask = |reply| Ask::EditPrompt {
            checkpoint,
            target: target.to_owned(),
            content: content.to_owned(),
            by: caller.uid,
            reply,
        };
        self.inner.ask(id, ask).await.map(drop)
    }

    /// Goes on from a checkpoint. The run that goes on, if one does, and the state it is in then.
    pub async fn resume(
        &self,
        caller: Caller,
        id: SessionId,
        checkpoint: CheckpointId,
    ) -> Result<Option<(RunId, RunState)>, Refusal> {
        self.resume_with(caller, id, checkpoint, None).await
    }

    /// The same, with the operator's answer for the model.
    pub async fn resume_with(
        &self,
        caller: Caller,
        id: SessionId,
        checkpoint: CheckpointId,
        message: Option<String>,
    ) -> Result<Option<(RunId, RunState)>, Refusal> {
        let most = self.limits().message_bytes;
        match message.as_deref().map(str::trim) {
            Some("") => return Err(Refusal::invalid("message", "it is empty")),
            Some(text) if text.len() > most => {
                return Err(Refusal::invalid("message", format!("it is longer than {most} bytes")));
            }
            Some(_) | None => {}
        }
        let resume = Command::Resume { checkpoint, admission: Admission::none(), by: caller.uid, message };
        self.command(caller, id, resume).await.map(run_of)
    }

    /// Goes back to a checkpoint.
    pub async fn rollback(
        &self,
        caller: Caller,
        id: SessionId,
        checkpoint: CheckpointId,
        files: Option<FilesBack>,
    ) -> Result<(), Refusal> {
        let rollback = Command::Rollback { checkpoint, by: caller.uid, partial: None, files };
        self.command(caller, id, rollback).await.map(drop)
    }

    /// Begins a compaction: a run of its own.
    pub async fn compact(
        &self,
        caller: Caller,
        id: SessionId,
        strategy: Option<Strategy>,
        key: Option<RequestKey>,
    ) -> Result<RunId, Refusal> {
        let compact = Command::Compact { strategy, admission: Admission::none(), by: caller.uid };
        let begun = self.command(caller, id, once(key, compact)).await.map(run_of)?;
        begun.map(|(run, _)| run).ok_or_else(|| Refusal::new(Code::Eio, "a compaction without a run"))
    }

    /// Begins a new run from the log after one that failed or was cancelled.
    pub async fn retry(
        &self,
        caller: Caller,
        id: SessionId,
        key: Option<RequestKey>,
    ) -> Result<RunId, Refusal> {
        let retry = Command::Retry { admission: Admission::none(), by: caller.uid };
        let begun = self.command(caller, id, once(key, retry)).await.map(run_of)?;
        begun.map(|(run, _)| run).ok_or_else(|| Refusal::new(Code::Eio, "a retry without a run"))
    }

    /// Lets a proposed compaction take effect. The run that goes on, if one does.
    pub async fn approve_compaction(
        &self,
        caller: Caller,
        id: SessionId,
        compaction: CompactionId,
        edits: &CompactionEdits,
    ) -> Result<Option<(RunId, RunState)>, Refusal> {
        let (edits, by) = (edits.clone(), caller.uid);
        let approve = Command::ApproveCompaction { compaction, edits, admission: Admission::none(), by };
        self.command(caller, id, approve).await.map(run_of)
    }

    pub async fn reject_compaction(
        &self,
        caller: Caller,
        id: SessionId,
        compaction: CompactionId,
    ) -> Result<(), Refusal> {
        self.command(caller, id, Command::RejectCompaction { compaction, by: caller.uid }).await.map(drop)
    }

    /// Says what the operator thinks of a compaction; `None` leaves a field as it is.
    pub async fn flag_compaction(
        &self,
        caller: Caller,
        id: SessionId,
        compaction: CompactionId,
        flag: Option<Option<CompactionFlag>>,
        notes: Option<Option<String>>,
    ) -> Result<(), Refusal> {
        let flag = Command::FlagCompaction { compaction, flag, notes, by: caller.uid };
        self.command(caller, id, flag).await.map(drop)
    }

    /// Pins a message, so that no compaction takes it; or takes the pin back.
    pub async fn pin(
        &self,
        caller: Caller,
        id: SessionId,
        message: Ulid,
        pinned: bool,
    ) -> Result<(), Refusal> {
        self.command(caller, id, Command::Pin { message, pinned, by: caller.uid }).await.map(drop)
    }

    /// Answers a tool call that waits; None denies it.
    pub async fn answer_approval(
        &self,
        caller: Caller,
        id: SessionId,
        approval: ApprovalId,
        allowed: Option<ApprovalScope>,
        note: Option<&str>,
    ) -> Result<(), Refusal> {
        if allowed.is_some() {
            self.check_allows(caller, &*self.find(caller, id)?)?;
        }
        let by = caller.uid;
        let answer = match allowed {
            Some(scope) => ApprovalAnswer::Allow { by, scope },
            None => ApprovalAnswer::Deny { by },
        };
        let note = note.map(str::to_owned);
        self.command(caller, id, Command::AnswerApproval { approval, answer, note }).await.map(drop)
    }

    /// Attaches an operator's interactive connection. What is returned tells why it has to close, once it has.
    pub async fn attach(
        &self,
        caller: Caller,
        id: SessionId,
        connection: Ulid,
        device_hint: Option<String>,
        takeover: bool,
    ) -> Result<oneshot::Receiver<DetachReason>, Refusal> {
        self.find(caller, id)?;
        let closed = self.inner.connections.add(connection);
        let attach = Command::Attach { connection, user: caller.uid, device_hint, takeover };
        match self.inner.command(id, attach).await {
            Ok(_) => Ok(closed),
            Err(refusal) => {
                self.inner.connections.remove(connection);
                Err(refusal)
            }
        }
    }

    pub async fn detach(&self, id: SessionId, connection: Ulid, reason: DetachReason) -> Result<(), Refusal> {
        self.inner.connections.remove(connection);
        self.inner.command(id, Command::Detach { connection, reason }).await.map(drop)
    }
}

fn run_of(answer: Answer) -> Option<(RunId, RunState)> {
    match answer {
        Answer::Run { run, state } => Some((run, state)),
        _ => None,
    }
}
