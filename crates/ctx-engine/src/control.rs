//! What an operator may do with a session besides talking to it: pause, look, change course, go back.

use ctx_session::command::{ApprovalAnswer, CompactionEdits};
use ctx_session::project::Strategy;
use ctx_session::record::CompactionFlag;
use ctx_session::request::RequestKey;
use ctx_session::{
    Answer, ApprovalId, CheckpointId, Code, CompactionId, Refusal, RunId, RunState, SessionId, Ulid,
};

use crate::driver::{Ask, Reply};
use crate::engine::{Caller, Engine};

impl Engine {
    /// Pauses the run that goes on.
    pub async fn checkpoint(
        &self,
        caller: Caller,
        id: SessionId,
        reason: Option<String>,
        key: Option<RequestKey>,
    ) -> Result<CheckpointId, Refusal> {
        self.find(caller, id)?;
        let ask = || Ask::Checkpoint { by: caller.uid, reason: reason.clone(), key: key.clone() };
        match self.ask(id, ask).await? {
            Reply::Answer(Answer::Checkpoint { checkpoint }) => Ok(checkpoint),
            Reply::Answer(_) | Reply::Posted { .. } | Reply::Look(_) | Reply::Live(_) => {
                Err(Refusal::new(Code::Eio, "a pause without a checkpoint"))
            }
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
        let ask = || Ask::EditPrompt {
            checkpoint,
            target: target.to_owned(),
            content: content.to_owned(),
            by: caller.uid,
        };
        self.ask(id, ask).await.map(drop)
    }

    /// Goes on from a checkpoint. The run that goes on, if one does, and the state it is in then.
    pub async fn resume(
        &self,
        caller: Caller,
        id: SessionId,
        checkpoint: CheckpointId,
    ) -> Result<Option<(RunId, RunState)>, Refusal> {
        self.find(caller, id)?;
        self.ask(id, || Ask::Resume { checkpoint, by: caller.uid }).await.map(run_of)
    }

    /// Goes back to a checkpoint.
    pub async fn rollback(
        &self,
        caller: Caller,
        id: SessionId,
        checkpoint: CheckpointId,
    ) -> Result<(), Refusal> {
        self.find(caller, id)?;
        self.ask(id, || Ask::Rollback { checkpoint, by: caller.uid }).await.map(drop)
    }

    /// Begins a compaction: a run of its own.
    pub async fn compact(
        &self,
        caller: Caller,
        id: SessionId,
        strategy: Option<Strategy>,
        key: Option<RequestKey>,
    ) -> Result<RunId, Refusal> {
        self.find(caller, id)?;
        let ask = || Ask::Compact { strategy, by: caller.uid, key: key.clone() };
        let begun = self.ask(id, ask).await.map(run_of)?;
        begun.map(|(run, _)| run).ok_or_else(|| Refusal::new(Code::Eio, "a compaction without a run"))
    }

    /// Lets a proposed compaction take effect. The run that goes on, if one does.
    pub async fn approve_compaction(
        &self,
        caller: Caller,
        id: SessionId,
        compaction: CompactionId,
        edits: &CompactionEdits,
    ) -> Result<Option<(RunId, RunState)>, Refusal> {
        self.find(caller, id)?;
        let ask = || Ask::ApproveCompaction { compaction, edits: edits.clone(), by: caller.uid };
        self.ask(id, ask).await.map(run_of)
    }

    pub async fn reject_compaction(
        &self,
        caller: Caller,
        id: SessionId,
        compaction: CompactionId,
    ) -> Result<(), Refusal> {
        self.find(caller, id)?;
        self.ask(id, || Ask::RejectCompaction { compaction, by: caller.uid }).await.map(drop)
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
        self.find(caller, id)?;
        let ask = || Ask::FlagCompaction { compaction, flag, notes: notes.clone(), by: caller.uid };
        self.ask(id, ask).await.map(drop)
    }

    /// Pins a message, so that no compaction takes it; or takes the pin back.
    pub async fn pin(
        &self,
        caller: Caller,
        id: SessionId,
        message: Ulid,
        pinned: bool,
    ) -> Result<(), Refusal> {
        self.find(caller, id)?;
        self.ask(id, || Ask::Pin { message, pinned, by: caller.uid }).await.map(drop)
    }

    /// Answers a tool call that waits.
    pub async fn answer_approval(
        &self,
        caller: Caller,
        id: SessionId,
        approval: ApprovalId,
        allow: bool,
        note: Option<&str>,
    ) -> Result<(), Refusal> {
        self.find(caller, id)?;
        let by = caller.uid;
        let answer = if allow { ApprovalAnswer::Allow { by } } else { ApprovalAnswer::Deny { by } };
        let ask = || Ask::AnswerApproval { approval, answer, note: note.map(str::to_owned) };
        self.ask(id, ask).await.map(drop)
    }
}

fn run_of(reply: Reply) -> Option<(RunId, RunState)> {
    match reply {
        Reply::Answer(Answer::Run { run, state }) => Some((run, state)),
        Reply::Answer(_) | Reply::Posted { .. } | Reply::Look(_) | Reply::Live(_) => None,
    }
}
