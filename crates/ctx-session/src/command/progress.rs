//! What the agent's loop says of the run that it works on, one finished step after the other.

use super::{Exit, FinishedTool, Partial, Spawn, StartedTool};
use crate::ids::{ApprovalId, CallId, MessageId};
use crate::port::Retry;
use crate::record::{Compaction, FinishReason, Usage};
use crate::time::Timestamp;

/// A finished step of the agent's loop.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    AssistantStarted {
        message_id: MessageId,
        model: String,
        step: u32,
    },
    AssistantFinished {
        message_id: MessageId,
        text: String,
        finish_reason: FinishReason,
        usage: Option<Usage>,
    },
    ReasoningFinished {
        message_id: MessageId,
        text: String,
    },
    /// A model call will be made again.
    Retrying(Retry),
    /// Something that the operator should know of.
    Noticed {
        reason: String,
        message: String,
    },
    /// The tool calls of one answer, before any of them is made.
    ToolsStarted(Vec<StartedTool>),
    /// The same where one of them pauses the session: those behind it wait for the resume, also through a restart.
    ToolsStartedUpTo {
        calls: Vec<StartedTool>,
        behind: Vec<StartedTool>,
    },
    ToolFinished(Box<FinishedTool>),
    ApprovalRequested {
        approval_id: ApprovalId,
        call_id: CallId,
        tool: String,
        subject: Option<String>,
        pattern: Option<String>,
        diff: Option<String>,
        expires_at: Timestamp,
    },
    /// The primary starts a subagent.
    SubagentSpawned(Box<Spawn>),
    /// The subagent begins to work.
    SubagentRunning {
        cage_id: Option<String>,
    },
    /// The subagent has ended.
    SubagentExited {
        exit: Exit,
        /// What it had said so far of a message.
        partial: Option<Partial>,
    },
    /// The conversation was made shorter, or a way to do so is proposed: then the session is paused and the run over.
    Compacted(Box<Compaction>),
    /// Several that follow each other and none of which rests on another: they are written at once.
    Together(Vec<Progress>),
}

impl Progress {
    /// One by itself, several together.
    pub fn together(mut parts: Vec<Progress>) -> Progress {
        match parts.pop() {
            Some(only) if parts.is_empty() => only,
            last => Progress::Together(parts.into_iter().chain(last).collect()),
        }
    }

    /// Each of several; else it alone.
    pub fn each(&self) -> &[Progress] {
        match self {
            Progress::Together(parts) => parts,
            alone => std::slice::from_ref(alone),
        }
    }

    /// Whether it ends a message, and which.
    pub fn finishes(&self) -> Option<MessageId> {
        let id = |part: &Progress| match part {
            Progress::AssistantFinished { message_id, .. } => Some(*message_id),
            _ => None,
        };
        self.each().iter().find_map(id)
    }

    /// The tool calls that it is about, where they begin.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &StartedTool> {
        let (calls, behind): (&[StartedTool], &[StartedTool]) = match self {
            Progress::ToolsStarted(calls) => (calls, &[]),
            Progress::ToolsStartedUpTo { calls, behind } => (calls, behind),
            Progress::AssistantStarted { .. }
            | Progress::AssistantFinished { .. }
            | Progress::ReasoningFinished { .. }
            | Progress::Retrying(_)
            | Progress::Noticed { .. }
            | Progress::ToolFinished(_)
            | Progress::ApprovalRequested { .. }
            | Progress::SubagentSpawned(_)
            | Progress::SubagentRunning { .. }
            | Progress::SubagentExited { .. }
            | Progress::Compacted(_)
            | Progress::Together(_) => (&[], &[]),
        };
        calls.iter().chain(behind)
    }
}
