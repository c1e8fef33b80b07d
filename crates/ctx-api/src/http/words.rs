//! The closed words of the API, as the document lists them. The answers themselves are written by the types they are of.

use ctx_session::control::CompactionState;
use ctx_session::conversation::Role;
use ctx_session::issue::IssueStatus;
use ctx_session::project::{Strategy, TodoStatus};
use ctx_session::record::{
    ApprovalScope, CheckpointBy, CompactionFlag, CompactionTrigger, RunFinish, RunKind, SnapshotState,
    SubagentState, ToolStatus,
};
use ctx_session::{Scope, StateName};
use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};

fn values<T: Serialize>(words: &[T]) -> Vec<Value> {
    words.iter().filter_map(|word| serde_json::to_value(word).ok()).collect()
}

fn one_of<T: Serialize>(words: &[T]) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(values(words))).build()
}

fn one_of_or_null<T: Serialize>(words: &[T]) -> Object {
    let words = values(words).into_iter().chain([Value::Null]);
    let kinds = SchemaType::from_iter([Type::String, Type::Null]);
    ObjectBuilder::new().schema_type(kinds).enum_values(Some(words)).build()
}

pub(super) fn session_state() -> Object {
    one_of(&StateName::ALL)
}

pub(super) fn scope() -> Object {
    one_of(&Scope::ALL)
}

pub(super) fn run_kind() -> Object {
    one_of(&[RunKind::Message, RunKind::Compaction, RunKind::Continuation])
}

pub(super) fn run_state() -> Object {
    one_of(&["pending", "running", "done", "failed", "cancelled"])
}

/// A run's, but `queued` for one that has no slot.
pub(super) fn posted_state() -> Object {
    one_of(&["queued", "running", "done", "failed", "cancelled"])
}

pub(super) fn run_finish() -> Object {
    one_of_or_null(&[RunFinish::AwaitingCompaction])
}

pub(super) fn role() -> Object {
    one_of(&Role::ALL)
}

pub(super) fn subagent_state() -> Object {
    one_of(&SubagentState::ALL)
}

pub(super) fn snapshot_state() -> Object {
    one_of(&SnapshotState::ALL)
}

pub(super) fn call_state() -> Object {
    one_of(&["pending", "running", "waiting_approval", "finished"])
}

pub(super) fn held_call_state() -> Object {
    one_of(&["pending", "running", "waiting_approval", "finished", "interrupted", "skipped"])
}

pub(super) fn call_status() -> Object {
    one_of_or_null(&ToolStatus::ALL)
}

pub(super) fn approval_state() -> Object {
    one_of(&["pending", "allow", "deny", "timeout", "interrupted"])
}

pub(super) fn approval_scope() -> Object {
    one_of_or_null(&ApprovalScope::ALL)
}

pub(super) fn checkpoint_by() -> Object {
    one_of(&CheckpointBy::ALL)
}

pub(super) fn compaction_state() -> Object {
    one_of(&CompactionState::ALL)
}

pub(super) fn compaction_trigger() -> Object {
    one_of(&[
        CompactionTrigger::ThresholdCrossed,
        CompactionTrigger::ProviderOverflowRetry,
        CompactionTrigger::OperatorManual,
        CompactionTrigger::Scheduled,
    ])
}

pub(super) fn compaction_flag() -> Object {
    one_of_or_null(&[CompactionFlag::Good, CompactionFlag::Bad, CompactionFlag::Neutral])
}

pub(super) fn strategy() -> Object {
    one_of(&Strategy::ALL)
}

pub(super) fn issue_status() -> Object {
    one_of(&IssueStatus::ALL)
}

pub(super) fn todo_status() -> Object {
    one_of(&TodoStatus::ALL)
}
