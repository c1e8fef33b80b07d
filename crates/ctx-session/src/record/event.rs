//! The names of what happens to sessions and projects, as the audit log and the WebSocket write them.
//!
//! One row per name. Which record gives which name is in the tables of records ([`super::table`] and
//! `project::record`); the fields that go with a name are decided by the audit log and by the door.

use serde::{Deserialize, Serialize};

macro_rules! event_names {
    (audited { $($audited:ident = $audited_name:literal,)* } live { $($live:ident = $live_name:literal,)* }) => {
        /// The name of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum EventName {
            $(#[serde(rename = $audited_name)] $audited,)*
            $(#[serde(rename = $live_name)] $live,)*
        }

        impl EventName {
            /// The names that the audit log knows; `docs/audit.md` has a row for each.
            pub const AUDITED: &'static [EventName] = &[$(EventName::$audited,)*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(EventName::$audited => $audited_name,)*
                    $(EventName::$live => $live_name,)*
                }
            }

            /// Whether the audit log has events of this name. The others are shown to live clients only.
            pub fn is_audited(self) -> bool {
                match self {
                    $(EventName::$audited => true,)*
                    $(EventName::$live => false,)*
                }
            }
        }
    };
}

event_names! {
    audited {
        SessionCreated = "session.created",
        SessionQueued = "session.queued",
        SessionResumedFromQueue = "session.resumed_from_queue",
        SessionQueuedDiscarded = "session.queued_discarded",
        SessionState = "session.state",
        SessionAttached = "session.attached",
        SessionDetached = "session.detached",
        SessionEnded = "session.ended",
        SessionPurged = "session.purged",
        SessionCrashRecovered = "session.crash_recovered",
        SessionBound = "session.bound",
        SessionUnbound = "session.unbound",
        SessionImported = "session.imported",
        SessionImportUndone = "session.import_undone",
        RunCreated = "run.created",
        RunCompleted = "run.completed",
        RunCancelled = "run.cancelled",
        MessagePinned = "message.pinned",
        MessageUnpinned = "message.unpinned",
        SubagentSpawned = "subagent.spawned",
        SubagentExited = "subagent.exited",
        PtyAllocated = "pty.allocated",
        PtyClosed = "pty.closed",
        PtyReattached = "pty.reattached",
        CheckpointCreated = "checkpoint.created",
        CheckpointResumed = "checkpoint.resumed",
        CheckpointRolledBack = "checkpoint.rolled_back",
        PromptEdited = "prompt.edited",
        CompactionProposed = "compaction.proposed",
        CompactionApplied = "compaction.applied",
        CompactionApproved = "compaction.approved",
        CompactionRejected = "compaction.rejected",
        CompactionFlagged = "compaction.flagged",
        ApprovalRequested = "approval.requested",
        ApprovalSettled = "approval.settled",
        RootTakenOver = "root.taken_over",
        ProjectAdded = "project.added",
        ProjectMoved = "project.moved",
        ProjectTrusted = "project.trusted",
        ProjectRemoved = "project.removed",
        IssueCreated = "issue.created",
        IssueChanged = "issue.changed",
        TodoAdded = "todo.added",
        TodoChanged = "todo.changed",
    }
    live {
        SessionRenamed = "session.renamed",
        SessionModelSet = "session.model_set",
        SessionCwdChanged = "session.cwd_changed",
        SessionFailed = "session.failed",
        SessionArchived = "session.archived",
        SessionForked = "session.forked",
        RunContext = "run.context",
        RunStep = "run.step",
        RunRetrying = "run.retrying",
        RunNoticed = "run.noticed",
        RunReasoning = "run.reasoning",
        SubagentRunning = "subagent.running",
        ToolPending = "tool.pending",
        CompactionAggregated = "compaction.aggregated",
    }
}
