//! Every kind of record in a session's log, one row each: variant, fields, name on disk, version, what it can mean for
//! the conversation, and events.
//!
//! A new kind is a row here and a struct with its fields. From the row follow the variant, the JSON, the decoding,
//! the list of kinds, the names in the audit log and on the WebSocket, and the entry in `docs/records.md`.

use super::event::EventName;
use super::*;
use crate::ids::RunId;
use crate::request::Requested;

/// What is known of a kind of record without reading one.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// The `type` in the log.
    pub name: &'static str,
    /// The variant of the body that it belongs to.
    pub group: &'static str,
    /// The version of its fields. A field that may be absent does not change it.
    pub version: u32,
    pub conversation: InConversation,
    /// The events that a record of this kind can give; the first is its own, where it has one.
    pub events: &'static [EventName],
}

/// What a record can mean for the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InConversation {
    Nothing,
    /// It says a message, or pins one.
    Says,
    /// It says that messages no longer count, or count again; it may say a message too.
    Marks,
}

impl Kind {
    pub fn is_audited(&self) -> bool {
        self.events.iter().any(|event| event.is_audited())
    }
}

/// What a line of a log turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded<B = Body> {
    Known(B),
    /// A type of a later version: it stays in the log and is ignored here.
    Unknown,
    /// A type of ours whose fields do not fit: ignored with a warning.
    Malformed(String),
}

/// Makes the body enum of a log, an enum per group, and what follows from the rows.
macro_rules! record_table {
    (
        $(#[$top_doc:meta])* $top:ident derives $derives:tt
        $($(#[$doc:meta])* $group:ident($body:ident) {
            $($variant:ident($fields:ty) = $name:literal $version:literal $conversation:ident [$($event:ident),*];)*
        })*
    ) => {
        record_table!(@top $(#[$top_doc])* $derives $top { $($group($body),)* });
        $(record_table!(@group $(#[$doc])* $derives $body { $($variant($fields) = $name,)* });)*

        $($(impl From<$fields> for $top {
            fn from(fields: $fields) -> $top {
                $top::$group($body::$variant(fields))
            }
        })*)*

        impl $top {
            /// Every kind of record, in the order of the rows.
            pub const KINDS: &'static [$crate::record::Kind] = &[$($($crate::record::Kind {
                name: $name,
                group: stringify!($group),
                version: $version,
                conversation: $crate::record::InConversation::$conversation,
                events: &[$($crate::record::EventName::$event),*],
            },)*)*];

            /// The row of a `type`.
            pub fn kind(name: &str) -> Option<&'static $crate::record::Kind> {
                Self::KINDS.iter().find(|kind| kind.name == name)
            }

            /// The `type` of this record in the log.
            pub fn name(&self) -> &'static str {
                match self {
                    $($($top::$group($body::$variant(_)) => $name,)*)*
                }
            }

            /// The events that a record of this kind can give, its own first.
            fn kind_events(&self) -> &'static [$crate::record::EventName] {
                match self {
                    $($($top::$group($body::$variant(_)) => &[$($crate::record::EventName::$event),*],)*)*
                }
            }

            /// The body as the journal wants it: a JSON object that begins with its `type`.
            pub fn to_json(&self) -> String {
                // Serialising these types cannot fail: no map has keys that are not strings.
                serde_json::to_string(self).unwrap_or_else(|_| r#"{"type":"unwritable"}"#.to_owned())
            }

            /// Reads the body out of a whole line of the log, envelope included.
            pub fn decode(kind: &str, line: &str) -> $crate::record::Decoded<$top> {
                match kind {
                    $($($name => match serde_json::from_str::<$fields>(line) {
                        Ok(fields) => $crate::record::Decoded::Known(fields.into()),
                        Err(error) => $crate::record::Decoded::Malformed(error.to_string()),
                    },)*)*
                    _ => $crate::record::Decoded::Unknown,
                }
            }
        }
    };
    (@top $(#[$doc:meta])* ($($derive:ident),*) $top:ident { $($group:ident($body:ident),)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, $($derive,)* serde::Serialize)]
        #[serde(untagged)]
        pub enum $top { $($group($body),)* }
    };
    (@group $(#[$doc:meta])* ($($derive:ident),*) $body:ident { $($variant:ident($fields:ty) = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, $($derive,)* serde::Serialize)]
        #[serde(tag = "type")]
        pub enum $body { $(#[serde(rename = $name)] $variant($fields),)* }
    };
}

pub(crate) use record_table;

record_table! {
    /// What a record says. A reader decides about a whole group, or about each variant of it.
    Body derives (PartialEq)

    /// What the session is, and what happened to it as a whole.
    Session(SessionBody) {
        Meta(Box<SessionMeta>) = "session_meta" 1 Nothing [SessionCreated];
        StateChanged(StateChanged) = "state_changed" 1 Nothing
            [SessionState, SessionQueued, SessionResumedFromQueue, SessionCrashRecovered, SessionEnded];
        Renamed(SessionRenamed) = "session_renamed" 1 Nothing [SessionRenamed];
        ModelSet(ModelSet) = "model_set" 1 Nothing [SessionModelSet];
        CwdChanged(CwdChanged) = "cwd_changed" 1 Nothing [SessionCwdChanged];
        Attached(Attached) = "attached" 1 Nothing [SessionAttached];
        Detached(Detached) = "detached" 1 Nothing [SessionDetached];
        Failed(Failure) = "session_failed" 1 Nothing [SessionFailed];
        Archived(Archived) = "archived" 1 Nothing [SessionArchived];
        Forked(Forked) = "forked" 1 Nothing [SessionForked];
        Imported(Imported) = "imported" 1 Marks [SessionImported];
        ImportUndone(ImportUndone) = "import_undone" 1 Marks [SessionImportUndone];
        Bound(Bound) = "bound" 1 Nothing [SessionBound];
        Unbound(Unbound) = "unbound" 1 Nothing [SessionUnbound];
        Requested(Requested) = "requested" 1 Nothing [];
    }

    /// How a run begins, under what it works, and how it ends.
    Run(RunBody) {
        Created(RunCreated) = "run_created" 1 Nothing [RunCreated];
        Context(Box<Context>) = "context" 1 Nothing [RunContext];
        Retrying(Retrying) = "retrying" 1 Nothing [RunRetrying];
        Noticed(Noticed) = "noticed" 1 Nothing [RunNoticed];
        Finished(RunFinished) = "run_finished" 1 Nothing [RunCompleted];
        Cancelled(Cancelled) = "cancelled" 1 Nothing [RunCancelled, RunCompleted];
        Failed(Failed) = "failed" 1 Nothing [RunCompleted];
        QueuedDiscarded(QueuedDiscarded) = "queued_discarded" 1 Marks [SessionQueuedDiscarded];
    }

    /// What is said in a run, and whether a message is pinned.
    Message(MessageBody) {
        User(User) = "user" 1 Says [];
        AssistantStarted(AssistantStarted) = "assistant_started" 1 Nothing [RunStep];
        AssistantFinished(AssistantFinished) = "assistant_finished" 1 Says [];
        ReasoningFinished(ReasoningFinished) = "reasoning_finished" 1 Nothing [RunReasoning];
        System(SystemNote) = "system" 1 Says [];
        Pinned(MessagePinned) = "message_pinned" 1 Says [MessagePinned, MessageUnpinned];
    }

    /// Tool calls.
    Tool(ToolBody) {
        Pending(ToolPending) = "tool_pending" 1 Nothing [ToolPending];
        Started(ToolStarted) = "tool_started" 1 Says [];
        Finished(ToolFinished) = "tool_finished" 1 Says [];
    }

    /// Subagents: their starts and their ends.
    Subagent(SubagentBody) {
        Spawned(SubagentSpawned) = "subagent_spawned" 1 Nothing [SubagentSpawned];
        Running(SubagentRunning) = "subagent_running" 1 Nothing [SubagentRunning];
        Exited(SubagentExited) = "subagent_exited" 1 Nothing [SubagentExited];
    }

    /// Terminals of the session, from their beginning to their end.
    Terminal(TerminalBody) {
        Opened(TerminalOpened) = "terminal_opened" 1 Nothing [PtyAllocated];
        Closed(TerminalClosed) = "terminal_closed" 1 Nothing [PtyClosed];
        Reattached(TerminalReattached) = "terminal_reattached" 1 Nothing [PtyReattached];
    }

    /// Pauses, prompt edits made during one, and what followed.
    Checkpoint(CheckpointBody) {
        Created(CheckpointCreated) = "checkpoint_created" 1 Nothing [CheckpointCreated];
        PromptEdited(PromptEdited) = "prompt_edited" 1 Nothing [PromptEdited];
        Resumed(CheckpointResumed) = "checkpoint_resumed" 1 Nothing [CheckpointResumed];
        RolledBack(RolledBack) = "rolled_back" 1 Marks [CheckpointRolledBack];
    }

    /// What was taken out of the model's context, and what the operator thinks of it.
    Compaction(CompactionBody) {
        Recorded(Box<Compaction>) = "compaction" 1 Marks [CompactionApplied, CompactionProposed];
        Approved(CompactionApproved) = "compaction_approved" 1 Marks [CompactionApproved];
        Rejected(CompactionRejected) = "compaction_rejected" 1 Nothing [CompactionRejected];
        Flagged(CompactionFlagged) = "compaction_flagged" 1 Nothing [CompactionFlagged];
        Aggregated(CompactionsAggregated) = "compactions_aggregated" 1 Nothing [CompactionAggregated];
    }

    /// Tool calls that wait for the operator.
    Approval(ApprovalBody) {
        Requested(ApprovalRequested) = "approval_requested" 1 Nothing [ApprovalRequested];
        Settled(ApprovalSettled) = "approval_settled" 1 Nothing [ApprovalSettled];
    }
}

impl Body {
    /// The restore of files that the record is the reason for.
    pub fn restore(&self) -> Option<crate::ids::Ulid> {
        match self {
            Body::Checkpoint(CheckpointBody::RolledBack(back)) => back.files.map(|files| files.restore),
            _ => None,
        }
    }

    /// The name under which the audit log and the WebSocket show this record; a change of state may have a second one
    /// ([`StateChanged::event`]).
    pub fn event(&self) -> Option<EventName> {
        match self {
            Body::Compaction(CompactionBody::Recorded(made)) if made.proposed => {
                Some(EventName::CompactionProposed)
            }
            Body::Message(MessageBody::Pinned(pin)) if !pin.pinned => Some(EventName::MessageUnpinned),
            _ => self.kind_events().first().copied(),
        }
    }

    /// The run that a record belongs to; none where it belongs to the session.
    pub fn run(&self) -> Option<RunId> {
        match self {
            Body::Run(body) => Some(match body {
                RunBody::Context(context) => context.turn_id,
                RunBody::Created(created) => created.turn_id,
                RunBody::Retrying(retry) => retry.turn_id,
                RunBody::Noticed(noticed) => noticed.turn_id,
                RunBody::Finished(end) => end.turn_id,
                RunBody::Cancelled(end) => end.turn_id,
                RunBody::Failed(end) => end.turn_id,
                RunBody::QueuedDiscarded(discarded) => discarded.turn_id,
            }),
            Body::Message(body) => match body {
                MessageBody::User(user) => Some(user.turn_id),
                MessageBody::AssistantStarted(started) => Some(started.turn_id),
                MessageBody::AssistantFinished(message) => Some(message.turn_id),
                MessageBody::ReasoningFinished(reasoning) => Some(reasoning.turn_id),
                MessageBody::System(note) => Some(note.turn_id),
                MessageBody::Pinned(_) => None,
            },
            Body::Tool(body) => Some(match body {
                ToolBody::Pending(tool) => tool.turn_id,
                ToolBody::Started(tool) => tool.turn_id,
                ToolBody::Finished(tool) => tool.turn_id,
            }),
            Body::Subagent(body) => Some(match body {
                SubagentBody::Spawned(spawned) => spawned.turn_id,
                SubagentBody::Running(running) => running.turn_id,
                SubagentBody::Exited(exited) => exited.turn_id,
            }),
            Body::Terminal(TerminalBody::Opened(opened)) => opened.turn_id,
            Body::Terminal(TerminalBody::Closed(closed)) => closed.turn_id,
            Body::Approval(body) => Some(match body {
                ApprovalBody::Requested(asked) => asked.turn_id,
                ApprovalBody::Settled(settled) => settled.turn_id,
            }),
            Body::Checkpoint(CheckpointBody::Created(checkpoint)) => Some(checkpoint.turn_id),
            Body::Compaction(CompactionBody::Recorded(compaction)) => Some(compaction.turn_id),
            Body::Compaction(CompactionBody::Approved(approved)) => Some(approved.turn_id),
            Body::Session(SessionBody::Requested(requested)) => requested.turn_id,
            Body::Session(_) | Body::Checkpoint(_) | Body::Compaction(_) | Body::Terminal(_) => None,
        }
    }

    /// The subagent that says or does what the record tells; none where the primary does, or nobody in particular.
    pub fn caller(&self) -> Option<&Caller> {
        match self {
            Body::Message(body) => match body {
                MessageBody::AssistantStarted(started) => started.caller.as_ref(),
                MessageBody::AssistantFinished(message) => message.caller.as_ref(),
                MessageBody::ReasoningFinished(reasoning) => reasoning.caller.as_ref(),
                MessageBody::User(_) | MessageBody::System(_) | MessageBody::Pinned(_) => None,
            },
            Body::Tool(body) => match body {
                ToolBody::Started(tool) => tool.caller.as_ref(),
                ToolBody::Finished(tool) => tool.caller.as_ref(),
                ToolBody::Pending(_) => None,
            },
            Body::Approval(ApprovalBody::Requested(asked)) => asked.caller.as_ref(),
            Body::Terminal(TerminalBody::Opened(opened)) => opened.caller.as_ref(),
            Body::Run(RunBody::Retrying(retry)) => retry.caller.as_ref(),
            Body::Run(RunBody::Noticed(noticed)) => noticed.caller.as_ref(),
            Body::Session(_)
            | Body::Run(_)
            | Body::Subagent(_)
            | Body::Checkpoint(_)
            | Body::Compaction(_)
            | Body::Terminal(_)
            | Body::Approval(_) => None,
        }
    }
}
