//! A sample of every record of the operator's control, with each optional field both there and not.

use ctx_session::CallId;
use ctx_session::record::{
    ApprovalBody, ApprovalOutcome, ApprovalRequested, ApprovalScope, ApprovalSettled, Approvals,
    AssistantFinished, AssistantStarted, Bound, Caller, CheckpointBody, CheckpointBy, CheckpointCreated,
    CheckpointResumed, Compaction, CompactionApproved, CompactionBody, CompactionFlag, CompactionFlagged,
    CompactionRejected, CompactionTrigger, CompactionsAggregated, ExitCause, FilesBack, FinishReason,
    MessageBody, MessagePinned, PluginCost, PluginFired, PromptEdited, PromptRef, ReasoningFinished,
    Rejection, RolledBack, RunBody, RunCreated, RunFinish, RunFinished, RunKind, RunNet, RunWishes,
    SessionBody, SnapshotState, Strategy, SubagentBody, SubagentExited, SubagentRunning, SubagentSnapshot,
    SubagentSpawned, SubagentState, SystemNote, TerminalBody, TerminalClosed, TerminalEnd, TerminalOpened,
    TerminalReattached, ToolBody, ToolFinished, ToolPending, ToolStarted, ToolStatus, Unbound, Usage,
};
use ctx_session::request::{RequestKey, Requested};
use ctx_session::{ApprovalId, Body, CheckpointId, CompactionId, IssueId, SubagentId, TerminalId, Timestamp};
use serde_json::json;

use crate::records::RUN;
use crate::world::{call, message, small_id};

pub fn control_samples() -> Vec<Body> {
    let mut all = run_samples();
    all.extend(checkpoint_samples());
    all.extend(compaction_samples());
    all.extend(approval_samples());
    all.extend(subagent_samples());
    all.extend(terminal_samples());
    let (issue_id, by) = (IssueId(small_id("i1")), 1000);
    all.extend(request_samples(issue_id));
    all.extend([
        Body::Session(SessionBody::Bound(Bound { issue_id, by })),
        Body::Session(SessionBody::Unbound(Unbound { issue_id, by })),
    ]);
    let pinned =
        |pinned| Body::Message(MessageBody::Pinned(MessagePinned { message_id: small_id("m1"), pinned, by }));
    all.extend([pinned(true), pinned(false)]);
    all
}

pub fn request_key() -> RequestKey {
    RequestKey { request: "ee55".to_owned(), asked: "ff66".to_owned() }
}

fn request_samples(issue: IssueId) -> Vec<Body> {
    let bare = Requested { key: request_key(), turn_id: None, checkpoint_id: None, issue_id: None };
    let full = Requested {
        turn_id: Some(RUN),
        checkpoint_id: Some(checkpoint_id()),
        issue_id: Some(issue),
        ..bare.clone()
    };
    vec![Body::Session(SessionBody::Requested(bare)), Body::Session(SessionBody::Requested(full))]
}

fn tester() -> Caller {
    Caller { name: "tester".to_owned(), invocation_id: SubagentId(small_id("g1")) }
}

/// A subagent from its start to its end; what it says and does has its name.
fn subagent_samples() -> Vec<Body> {
    let Caller { name, invocation_id } = tester();
    let spawned = SubagentSpawned {
        turn_id: RUN,
        invocation_id,
        call_id: call("t1"),
        name: name.clone(),
        model: "debug/script".to_owned(),
        prompt: "run the tests".to_owned(),
        walltime_ms: 600_000,
        memory_bytes: Some(1 << 29),
    };
    let running = SubagentRunning {
        turn_id: RUN,
        invocation_id,
        name: name.clone(),
        cage_id: Some("cage-1".to_owned()),
    };
    let exited = SubagentExited {
        turn_id: RUN,
        invocation_id,
        name,
        state: SubagentState::Killed,
        cause: ExitCause::Walltime,
        exit_code: Some(137),
        duration_ms: 600_000,
        message: Some("Subagent tester exceeded walltime limit.".to_owned()),
    };
    let done = SubagentExited {
        state: SubagentState::Done,
        cause: ExitCause::Answered,
        exit_code: Some(0),
        message: None,
        ..exited.clone()
    };
    let step = AssistantStarted {
        turn_id: RUN,
        message_id: message("a9"),
        model: "debug/script".to_owned(),
        step: 1,
        caller: Some(tester()),
    };
    let said = AssistantFinished {
        turn_id: RUN,
        message_id: message("a9"),
        text: "2 tests failed".to_owned(),
        finish_reason: FinishReason::Stop,
        usage: None,
        caller: Some(tester()),
    };
    let thought = ReasoningFinished {
        turn_id: RUN,
        message_id: message("a9"),
        text: "hm".to_owned(),
        caller: Some(tester()),
    };
    let called = ToolStarted {
        turn_id: RUN,
        call_id: call("t9"),
        provider_call_id: None,
        name: "fs.read".to_owned(),
        input: json!({ "path": "a.rs" }),
        provider: None,
        caller: Some(tester()),
    };
    vec![
        Body::Subagent(SubagentBody::Spawned(SubagentSpawned { memory_bytes: None, ..spawned.clone() })),
        Body::Subagent(SubagentBody::Spawned(spawned)),
        Body::Subagent(SubagentBody::Running(running)),
        Body::Message(MessageBody::AssistantStarted(step)),
        Body::Message(MessageBody::ReasoningFinished(thought)),
        Body::Message(MessageBody::AssistantFinished(said)),
        Body::Tool(ToolBody::Started(called)),
        Body::Tool(ToolBody::Finished(ToolFinished {
            turn_id: RUN,
            call_id: call("t9"),
            status: ToolStatus::Ok,
            duration_ms: 3,
            output: "fn main() {}".to_owned(),
            truncated: false,
            blob: None,
            diff: None,
            diff_blob: None,
            summary: None,
            caller: Some(tester()),
        })),
        Body::Subagent(SubagentBody::Exited(exited)),
        Body::Subagent(SubagentBody::Exited(done)),
    ]
}

fn checkpoint_id() -> CheckpointId {
    CheckpointId(small_id("k1"))
}

fn compaction_id() -> CompactionId {
    CompactionId(small_id("x1"))
}

fn prompts() -> Vec<PromptRef> {
    vec![PromptRef { target: "primary".to_owned(), hash: "bb22".to_owned() }]
}

fn run_samples() -> Vec<Body> {
    let pending = ToolPending {
        turn_id: RUN,
        call_id: call("t1"),
        provider_call_id: None,
        name: "read".to_owned(),
        input: json!({ "path": "a.rs" }),
        provider: None,
    };
    let compaction = RunKind::Compaction;
    let asked = RunCreated {
        turn_id: RUN,
        kind: compaction,
        continues: None,
        strategy: Some(Strategy::Drop),
        wishes: RunWishes::default(),
    };
    let goes_on = RunCreated {
        turn_id: RUN,
        kind: RunKind::Continuation,
        continues: Some(RUN),
        strategy: None,
        wishes: RunWishes::default(),
    };
    let wishes = RunWishes {
        approvals: Some(Approvals::Allow),
        allow: vec!["shell.exec cargo *".to_owned()],
        net: Some(RunNet::Host),
    };
    let wished = RunCreated { kind: RunKind::Message, strategy: None, wishes, ..asked.clone() };
    vec![
        Body::Run(RunBody::Created(asked)),
        Body::Run(RunBody::Created(goes_on)),
        Body::Run(RunBody::Created(wished)),
        Body::Run(RunBody::Finished(RunFinished {
            turn_id: RUN,
            duration_ms: 9,
            usage: Usage::default(),
            finish_reason: Some(RunFinish::AwaitingCompaction),
        })),
        Body::Message(MessageBody::System(SystemNote {
            turn_id: RUN,
            message_id: message("n1"),
            text: "changed".to_owned(),
            injected: true,
        })),
        Body::Tool(ToolBody::Pending(ToolPending {
            provider_call_id: Some("call_0".to_owned()),
            ..pending.clone()
        })),
        Body::Tool(ToolBody::Pending(pending)),
    ]
}

fn checkpoint_samples() -> Vec<Body> {
    let (checkpoint_id, compaction_id) = (checkpoint_id(), Some(compaction_id()));
    let (created_by, by) = (CheckpointBy::Compaction, Some(1000));
    let bare = CheckpointCreated {
        checkpoint_id,
        turn_id: RUN,
        created_by: CheckpointBy::Model,
        by: None,
        reason: None,
        compaction_id: None,
        cursor: None,
        prompts: Vec::new(),
        active_subagents: Vec::new(),
    };
    let full = CheckpointCreated {
        created_by,
        by,
        reason: Some("compaction_pending".to_owned()),
        compaction_id,
        cursor: Some(small_id("m1")),
        prompts: prompts(),
        active_subagents: vec![SubagentSnapshot {
            invocation_id: tester().invocation_id,
            name: tester().name,
            state: SnapshotState::Suspended,
            cage_id: None,
            last_output: "2 tests failed".to_owned(),
            pty_id: None,
        }],
        ..bare.clone()
    };
    vec![
        Body::Checkpoint(CheckpointBody::Created(bare)),
        Body::Checkpoint(CheckpointBody::Created(full)),
        Body::Checkpoint(CheckpointBody::PromptEdited(PromptEdited {
            checkpoint_id,
            target: "primary".to_owned(),
            old_hash: "bb22".to_owned(),
            new_hash: "cc33".to_owned(),
            by: 1000,
        })),
        Body::Checkpoint(CheckpointBody::Resumed(CheckpointResumed {
            checkpoint_id,
            by: 1000,
            prompts: prompts(),
        })),
        Body::Checkpoint(CheckpointBody::RolledBack(RolledBack {
            checkpoint_id,
            by: 1000,
            superseded: vec![small_id("m2"), small_id("t1")],
            restored: vec![small_id("m1")],
            restored_call_ids: vec![CallId(small_id("t2"))],
            elided_call_ids: vec![CallId(small_id("t3"))],
            files: Some(FilesBack { restore: small_id("r1"), undo: small_id("s1"), changed: 3, kept: 1 }),
        })),
        Body::Checkpoint(CheckpointBody::RolledBack(RolledBack {
            checkpoint_id,
            by: 1000,
            superseded: Vec::new(),
            restored: Vec::new(),
            restored_call_ids: Vec::new(),
            elided_call_ids: Vec::new(),
            files: None,
        })),
    ]
}

fn compaction_samples() -> Vec<Body> {
    let compaction_id = compaction_id();
    let bare = Compaction {
        compaction_id,
        turn_id: RUN,
        agent_path: "coder".to_owned(),
        trigger: CompactionTrigger::ThresholdCrossed,
        strategy: Strategy::Checkpoint,
        proposed: true,
        window: None,
        used: None,
        threshold_estimate: 0.91,
        after_estimate: 0.55,
        window_upper: 0.85,
        window_lower: 0.6,
        superseded_message_ids: vec![small_id("m1"), small_id("t1")],
        elided_call_ids: Vec::new(),
        summary_message_id: None,
        summary: None,
        plugins_fired: Vec::new(),
        plugin_cost: None,
        fallback_occurred: false,
        fallback_reason: None,
        checkpoint_id: Some(checkpoint_id()),
    };
    let full = Compaction {
        trigger: CompactionTrigger::ProviderOverflowRetry,
        window: Some(8_192),
        used: Some(7_455),
        strategy: Strategy::Delegate,
        proposed: false,
        elided_call_ids: vec![CallId(small_id("t2"))],
        summary_message_id: Some(message("s1")),
        summary: Some("they spoke".to_owned()),
        plugins_fired: vec![PluginFired {
            name: "scribe".to_owned(),
            role: "compactor".to_owned(),
            duration_ms: 12,
            result_kind: "compactor_result".to_owned(),
        }],
        plugin_cost: Some(PluginCost {
            provider: "debug".to_owned(),
            model: "echo".to_owned(),
            input_tokens: 11,
            output_tokens: 7,
            cost_usd: 0.25,
        }),
        fallback_occurred: true,
        fallback_reason: Some("timeout".to_owned()),
        checkpoint_id: None,
        ..bare.clone()
    };
    let bare_yes = CompactionApproved {
        compaction_id,
        turn_id: RUN,
        by: 1000,
        superseded_message_ids: vec![small_id("m1")],
        elided_call_ids: Vec::new(),
        summary_message_id: None,
        summary: None,
        after_estimate: None,
    };
    let summary_message_id = Some(message("s1"));
    let full_yes = CompactionApproved {
        elided_call_ids: vec![CallId(small_id("t2"))],
        summary_message_id,
        summary: Some("they spoke".to_owned()),
        after_estimate: Some(0.55),
        ..bare_yes.clone()
    };
    let notes = Some("lost the plan".to_owned());
    let flag = Some(CompactionFlag::Bad);
    vec![
        Body::Compaction(CompactionBody::Recorded(Box::new(bare))),
        Body::Compaction(CompactionBody::Recorded(Box::new(full))),
        Body::Compaction(CompactionBody::Approved(bare_yes)),
        Body::Compaction(CompactionBody::Approved(full_yes)),
        Body::Compaction(CompactionBody::Rejected(CompactionRejected {
            compaction_id,
            by: Some(1000),
            reason: Rejection::OperatorRejected,
        })),
        Body::Compaction(CompactionBody::Rejected(CompactionRejected {
            compaction_id,
            by: None,
            reason: Rejection::SessionFailed,
        })),
        Body::Compaction(CompactionBody::Flagged(CompactionFlagged { compaction_id, flag, notes, by: 1000 })),
        Body::Compaction(CompactionBody::Flagged(CompactionFlagged {
            compaction_id,
            flag: None,
            notes: None,
            by: 1000,
        })),
        Body::Compaction(CompactionBody::Aggregated(CompactionsAggregated {
            count: 100,
            before: Timestamp::from_millis(1_794_722_400_123),
        })),
    ]
}

fn terminal_samples() -> Vec<Body> {
    let pty_id = TerminalId(small_id("z1"));
    let bare = TerminalOpened {
        pty_id,
        turn_id: None,
        caller: None,
        name: None,
        command: vec!["vim".to_owned(), "a.rs".to_owned()],
        caged: true,
        by: 1000,
    };
    let full = TerminalOpened {
        turn_id: Some(RUN),
        caller: Some(tester()),
        name: Some("edit".to_owned()),
        ..bare.clone()
    };
    let closed = TerminalClosed {
        pty_id,
        turn_id: None,
        reason: TerminalEnd::Exited,
        exit_code: Some(0),
        transcript_lines: 7,
    };
    let lost = TerminalClosed {
        turn_id: Some(RUN),
        reason: TerminalEnd::HolderLost,
        exit_code: None,
        ..closed.clone()
    };
    vec![
        Body::Terminal(TerminalBody::Opened(bare)),
        Body::Terminal(TerminalBody::Opened(full)),
        Body::Terminal(TerminalBody::Closed(closed)),
        Body::Terminal(TerminalBody::Closed(lost)),
        Body::Terminal(TerminalBody::Reattached(TerminalReattached {
            pty_id,
            user: 1000,
            scrollback_lines: 3,
        })),
    ]
}

fn approval_samples() -> Vec<Body> {
    let approval_id = ApprovalId(small_id("p1"));
    let asked = ApprovalRequested {
        turn_id: RUN,
        approval_id,
        call_id: call("t1"),
        tool: "shell".to_owned(),
        subject: Some("rm a.rs".to_owned()),
        pattern: Some("rm *".to_owned()),
        diff: Some("--- a.rs\n+++ a.rs\n@@ -1 +1 @@\n-a\n+b\n".to_owned()),
        expires_at: Timestamp::from_millis(1_794_722_700_000),
        caller: Some(tester()),
    };
    let settled = ApprovalSettled {
        turn_id: RUN,
        approval_id,
        outcome: ApprovalOutcome::Deny,
        scope: ApprovalScope::Call,
        by: Some(1000),
        note: Some("not now".to_owned()),
    };
    let silent =
        ApprovalSettled { outcome: ApprovalOutcome::Timeout, by: None, note: None, ..settled.clone() };
    vec![
        Body::Approval(ApprovalBody::Requested(asked.clone())),
        Body::Approval(ApprovalBody::Requested(ApprovalRequested {
            subject: None,
            pattern: None,
            diff: None,
            caller: None,
            ..asked
        })),
        Body::Approval(ApprovalBody::Settled(ApprovalSettled {
            outcome: ApprovalOutcome::Allow,
            scope: ApprovalScope::Session,
            note: None,
            ..settled.clone()
        })),
        Body::Approval(ApprovalBody::Settled(settled)),
        Body::Approval(ApprovalBody::Settled(silent)),
    ]
}
