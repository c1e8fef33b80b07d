//! The form of records: golden lines, the way back, and what a reader does with lines it does not know.

use ctx_session::command::{Progress, StartedTool};
use ctx_session::conversation::{self, Change};
use ctx_session::image::Image;
use ctx_session::record::{
    Approvals, Archived, AssistantFinished, AssistantStarted, Attached, BlobRef, CancelReason, Cancelled,
    Context, CwdChanged, Decoded, DetachReason, Detached, Failed, Failure, FinishReason, Forked, ForkedFrom,
    ImportUndone, Imported, LimitHit, LimitScope, MessageBody, ModelSet, Noticed, PromptRef, QueuedDiscarded,
    ReasoningFinished, Redact, Retrying, RunBody, RunCreated, RunFinished, RunKind, RunWishes, SessionBody,
    SessionMeta, SessionRenamed, Source, StateChanged, ToolBody, ToolFinished, ToolStarted, ToolStatus,
    ToolSummary, Trigger, Usage, User, Workspace,
};
use ctx_session::{Body, Code, Name, Record, RunId, Scope, SessionId, StateName, Timestamp, Ulid};
use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::log::{from_line, kind, to_line};
use crate::record_samples::{control_samples, request_key};
use crate::script::scene;
use crate::world::{World, call, message, small_id};

pub const RUN: RunId = RunId(Ulid(0x0001_9a86_2013_0000_0000_0000_0000_0001));

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn meta() -> SessionMeta {
    SessionMeta {
        session_id: SessionId(small_id("s1")),
        name: name("default"),
        scope: Scope::Private,
        space: None,
        owner: 1000,
        agent: None,
        project: name("default"),
        cwd: "/work".to_owned(),
        dir: None,
        workspace: None,
        provider: None,
        model: "debug/echo".to_owned(),
        title: None,
        client: None,
        origin: None,
        forked_from: None,
        dsl_hash: None,
        dsl_snapshot: None,
        requested: None,
        app: "ctx 0.1.0".to_owned(),
    }
}

fn full_meta() -> SessionMeta {
    SessionMeta {
        scope: Scope::Shared,
        space: Some(name("team")),
        agent: Some(name("coder")),
        provider: Some("debug".to_owned()),
        title: Some("Ti\"tle".to_owned()),
        client: Some("cli".to_owned()),
        dir: Some("/home/op/src".to_owned()),
        workspace: Some(Workspace {
            directory: "/home/op/src".to_owned(),
            read_only: true,
            described_by: Some(name("coder")),
        }),
        origin: Some(json!({ "format": "codex" })),
        forked_from: Some(ForkedFrom { session_id: SessionId(small_id("s2")), seq: 9 }),
        dsl_hash: Some("cc33".to_owned()),
        dsl_snapshot: Some("dd44".to_owned()),
        requested: Some(request_key()),
        ..meta()
    }
}

fn failure() -> Failure {
    Failure {
        code: Code::Ehostdown,
        reason: "provider_unreachable".to_owned(),
        message: "try again".to_owned(),
    }
}

/// Every kind of record, with each optional field both there and not.
pub fn samples() -> Vec<Body> {
    let mut all = run_samples();
    all.splice(
        0..0,
        [
            Body::Session(SessionBody::Meta(Box::new(meta()))),
            Body::Session(SessionBody::Meta(Box::new(full_meta()))),
        ],
    );
    all.extend(session_samples());
    all.extend(control_samples());
    all
}

fn run_samples() -> Vec<Body> {
    let user = User {
        turn_id: RUN,
        message_id: message("m1"),
        client_id: None,
        text: "why?".to_owned(),
        images: Vec::new(),
    };
    let image = Image { mime: "image/png".to_owned(), sha256: "ab".repeat(32), size: 70 };
    let context = Context {
        turn_id: RUN,
        model: "debug/echo".to_owned(),
        cwd: "/work".to_owned(),
        policy: vec!["read".to_owned()],
        cage: None,
        sources: vec![Source {
            kind: "instructions".to_owned(),
            path: "/work/AGENTS.md".to_owned(),
            hash: "aa11".to_owned(),
            truncated: true,
            scope: None,
            error: None,
        }],
        prompts: vec![PromptRef { target: "primary".to_owned(), hash: "bb22".to_owned() }],
        redact: Some(Redact::Off),
        approvals: Some(Approvals::Allow),
    };
    let step = AssistantStarted {
        turn_id: RUN,
        message_id: message("a1"),
        model: "debug/echo".to_owned(),
        step: 1,
        caller: None,
    };
    let said = AssistantFinished {
        turn_id: RUN,
        message_id: message("a1"),
        text: "line\nline \u{1f980}".to_owned(),
        finish_reason: FinishReason::ToolCalls,
        usage: Some(Usage { input: 11, output: 7, ..Usage::default() }),
        caller: None,
    };
    let cut_off = AssistantFinished { finish_reason: FinishReason::Cancelled, usage: None, ..said.clone() };
    let thought =
        ReasoningFinished { turn_id: RUN, message_id: message("a1"), text: "hm".to_owned(), caller: None };
    vec![
        Body::Run(RunBody::Context(Box::new(context))),
        Body::Message(MessageBody::User(User { client_id: Some("msg-1".to_owned()), ..user.clone() })),
        Body::Message(MessageBody::User(User { images: vec![image], ..user.clone() })),
        Body::Message(MessageBody::User(user)),
        Body::Run(RunBody::Created(RunCreated {
            turn_id: RUN,
            kind: RunKind::Message,
            continues: None,
            strategy: None,
            wishes: RunWishes::default(),
        })),
        Body::Message(MessageBody::AssistantStarted(step)),
        Body::Message(MessageBody::AssistantFinished(said)),
        Body::Message(MessageBody::AssistantFinished(cut_off)),
        Body::Message(MessageBody::ReasoningFinished(thought)),
        Body::Run(RunBody::Retrying(Retrying {
            turn_id: RUN,
            code: Code::Eagain,
            reason: "rate_limit".to_owned(),
            message: "slow down".to_owned(),
            attempt: 1,
            attempts_max: 5,
            wait_ms: 250,
            caller: None,
        })),
        Body::Run(RunBody::Noticed(Noticed {
            turn_id: RUN,
            reason: "no_price".to_owned(),
            message: "its price is not known".to_owned(),
            caller: None,
        })),
        Body::Tool(ToolBody::Started(ToolStarted {
            turn_id: RUN,
            call_id: call("t1"),
            provider_call_id: Some("call_0".to_owned()),
            name: "read".to_owned(),
            input: json!({ "path": "a.rs" }),
            provider: None,
            caller: None,
        })),
        Body::Tool(ToolBody::Finished(ToolFinished {
            turn_id: RUN,
            call_id: call("t1"),
            status: ToolStatus::Ok,
            duration_ms: 5,
            output: "fn main".to_owned(),
            truncated: true,
            blob: Some(BlobRef { sha256: "dd44".to_owned(), size: 70_000 }),
            diff: Some("--- a.rs\n+++ a.rs\n@@ -1 +1 @@\n-a\n+b\n".to_owned()),
            diff_blob: None,
            summary: Some(ToolSummary {
                lines_added: Some(1),
                lines_removed: Some(1),
                ..ToolSummary::default()
            }),
            caller: None,
        })),
        Body::Run(RunBody::Finished(RunFinished {
            turn_id: RUN,
            duration_ms: 9,
            usage: Usage { input: 11, output: 7, ..Usage::default() },
            finish_reason: None,
        })),
        Body::Run(RunBody::Cancelled(Cancelled {
            turn_id: RUN,
            reason: CancelReason::Operator,
            by: Some(1000),
            duration_ms: 9,
        })),
        Body::Run(RunBody::Cancelled(Cancelled {
            turn_id: RUN,
            reason: CancelReason::Disconnected,
            by: None,
            duration_ms: 9,
        })),
        Body::Run(RunBody::Failed(Failed {
            turn_id: RUN,
            code: Code::Eintr,
            reason: "daemon_crash_during_run".to_owned(),
            message: "send it again".to_owned(),
            duration_ms: 9,
        })),
    ]
}

fn session_samples() -> Vec<Body> {
    let moved = StateChanged {
        from: StateName::Running,
        to: StateName::Ended,
        trigger: Trigger::SessionEnded,
        by: Some(1000),
        limit: None,
    };
    let queued = StateChanged {
        from: StateName::Idle,
        to: StateName::Queued,
        trigger: Trigger::ConcurrencyLimit,
        by: None,
        limit: Some(LimitHit { scope: LimitScope::PerProject, running: 4, limit: 4 }),
    };
    let device_hint = Some("phone".to_owned());
    vec![
        Body::Run(RunBody::QueuedDiscarded(QueuedDiscarded {
            turn_id: RUN,
            message_id: message("m1"),
            by: 1000,
        })),
        Body::Session(SessionBody::StateChanged(queued)),
        Body::Session(SessionBody::StateChanged(moved)),
        Body::Session(SessionBody::Renamed(SessionRenamed { title: "A title".to_owned() })),
        Body::Session(SessionBody::ModelSet(ModelSet { model: Some("anthropic:opus".to_owned()) })),
        Body::Session(SessionBody::ModelSet(ModelSet { model: None })),
        Body::Session(SessionBody::CwdChanged(CwdChanged { cwd: "/src".to_owned() })),
        Body::Session(SessionBody::Attached(Attached {
            connection: small_id("c1"),
            user: 1000,
            device_hint,
        })),
        Body::Session(SessionBody::Detached(Detached {
            connection: small_id("c1"),
            user: 1000,
            reason: DetachReason::TakenOver,
        })),
        Body::Session(SessionBody::Failed(failure())),
        Body::Session(SessionBody::Archived(Archived { archived: true, by: Some(1000) })),
        Body::Session(SessionBody::Archived(Archived { archived: false, by: None })),
        Body::Session(SessionBody::Forked(Forked { by: 1000 })),
        Body::Session(SessionBody::Imported(Imported {
            import_id: small_id("i1"),
            by: 1000,
            records: 3,
            at: Timestamp::from_millis(1_794_722_400_123),
            restored: Vec::new(),
            superseded: Vec::new(),
        })),
        Body::Session(SessionBody::Imported(Imported {
            import_id: small_id("i3"),
            by: 1000,
            records: 0,
            at: Timestamp::from_millis(1_794_722_400_123),
            restored: vec![small_id("m1")],
            superseded: vec![small_id("m2")],
        })),
        Body::Session(SessionBody::ImportUndone(ImportUndone {
            import_id: small_id("i2"),
            by: 1000,
            superseded: vec![small_id("m1")],
            restored: vec![small_id("m2")],
            at: Timestamp::from_millis(1_794_722_400_123),
        })),
    ]
}

fn record(body: Body) -> Record {
    Record { seq: 7, time: Timestamp::from_millis(1_794_722_400_123), body }
}

#[test]
fn golden_lines_of_every_body() {
    let lines: String = samples().iter().map(|body| body.to_json() + "\n").collect();
    expect![[r#"
        {"type":"session_meta","session_id":"000000000000000000EC000001","name":"default","scope":"private","owner":1000,"agent":null,"project":"default","cwd":"/work","model":"debug:echo","app":"ctx 0.1.0"}
        {"type":"session_meta","session_id":"000000000000000000EC000001","name":"default","scope":"shared","space":"team","owner":1000,"agent":"coder","project":"default","cwd":"/work","dir":"/home/op/src","workspace":{"directory":"/home/op/src","read_only":true,"described_by":"coder"},"provider":"debug","model":"debug:echo","title":"Ti\"tle","client":"cli","origin":{"format":"codex"},"forked_from":{"session_id":"000000000000000000EC000002","seq":9},"dsl_hash":"cc33","dsl_snapshot":"dd44","requested":{"request":"ee55","asked":"ff66"},"app":"ctx 0.1.0"}
        {"type":"context","turn_id":"0006D8C80K0000000000000001","model":"debug:echo","cwd":"/work","policy":["read"],"cage":null,"sources":[{"kind":"instructions","path":"/work/AGENTS.md","hash":"aa11","truncated":true}],"prompts":[{"target":"primary","hash":"bb22"}],"redact":"off","approvals":"allow"}
        {"type":"user","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000DM000001","client_id":"msg-1","text":"why?"}
        {"type":"user","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000DM000001","text":"why?","images":[{"mime":"image/png","sha256":"abababababababababababababababababababababababababababababababab","size":70}]}
        {"type":"user","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000DM000001","text":"why?"}
        {"type":"run_created","turn_id":"0006D8C80K0000000000000001"}
        {"type":"assistant_started","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000C4000001","model":"debug:echo","step":1}
        {"type":"assistant_finished","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000C4000001","text":"line\nline 🦀","finish_reason":"tool_calls","usage":{"input":11,"output":7}}
        {"type":"assistant_finished","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000C4000001","text":"line\nline 🦀","finish_reason":"cancelled"}
        {"type":"reasoning_finished","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000C4000001","text":"hm"}
        {"type":"retrying","turn_id":"0006D8C80K0000000000000001","code":"EAGAIN","reason":"rate_limit","message":"slow down","attempt":1,"attempts_max":5,"wait_ms":250}
        {"type":"noticed","turn_id":"0006D8C80K0000000000000001","reason":"no_price","message":"its price is not known"}
        {"type":"tool_started","turn_id":"0006D8C80K0000000000000001","call_id":"000000000000000000EG000001","provider_call_id":"call_0","name":"read","input":{"path":"a.rs"}}
        {"type":"tool_finished","turn_id":"0006D8C80K0000000000000001","call_id":"000000000000000000EG000001","status":"ok","duration_ms":5,"output":"fn main","truncated":true,"blob":{"sha256":"dd44","size":70000},"diff":"--- a.rs\n+++ a.rs\n@@ -1 +1 @@\n-a\n+b\n","summary":{"lines_added":1,"lines_removed":1}}
        {"type":"run_finished","turn_id":"0006D8C80K0000000000000001","duration_ms":9,"usage":{"input":11,"output":7}}
        {"type":"cancelled","turn_id":"0006D8C80K0000000000000001","reason":"operator","by":1000,"duration_ms":9}
        {"type":"cancelled","turn_id":"0006D8C80K0000000000000001","reason":"disconnected","duration_ms":9}
        {"type":"failed","turn_id":"0006D8C80K0000000000000001","code":"EINTR","reason":"daemon_crash_during_run","message":"send it again","duration_ms":9}
        {"type":"queued_discarded","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000DM000001","by":1000}
        {"type":"state_changed","from":"idle","to":"queued","trigger":"concurrency_limit","limit":{"scope":"per_project","running":4,"limit":4}}
        {"type":"state_changed","from":"running","to":"ended","trigger":"session_ended","by":1000}
        {"type":"session_renamed","title":"A title"}
        {"type":"model_set","model":"anthropic:opus"}
        {"type":"model_set","model":null}
        {"type":"cwd_changed","cwd":"/src"}
        {"type":"attached","connection":"000000000000000000CC000001","user":1000,"device_hint":"phone"}
        {"type":"detached","connection":"000000000000000000CC000001","user":1000,"reason":"taken_over"}
        {"type":"session_failed","code":"EHOSTDOWN","reason":"provider_unreachable","message":"try again"}
        {"type":"archived","archived":true,"by":1000}
        {"type":"archived","archived":false}
        {"type":"forked","by":1000}
        {"type":"imported","import_id":"000000000000000000D4000001","by":1000,"records":3,"at":"2026-11-15T06:00:00.123Z"}
        {"type":"imported","import_id":"000000000000000000D4000003","by":1000,"records":0,"at":"2026-11-15T06:00:00.123Z","restored":["000000000000000000DM000001"],"superseded":["000000000000000000DM000002"]}
        {"type":"import_undone","import_id":"000000000000000000D4000002","by":1000,"superseded":["000000000000000000DM000001"],"restored":["000000000000000000DM000002"],"at":"2026-11-15T06:00:00.123Z"}
        {"type":"run_created","turn_id":"0006D8C80K0000000000000001","kind":"compaction","strategy":"drop"}
        {"type":"run_created","turn_id":"0006D8C80K0000000000000001","kind":"continuation","continues":"0006D8C80K0000000000000001"}
        {"type":"run_created","turn_id":"0006D8C80K0000000000000001","wishes":{"approvals":"allow","allow":["shell.exec cargo *"],"net":"host"}}
        {"type":"run_finished","turn_id":"0006D8C80K0000000000000001","duration_ms":9,"usage":{"input":0,"output":0},"finish_reason":"awaiting_compaction"}
        {"type":"system","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000DR000001","text":"changed","injected":true}
        {"type":"tool_pending","turn_id":"0006D8C80K0000000000000001","call_id":"000000000000000000EG000001","provider_call_id":"call_0","name":"read","input":{"path":"a.rs"}}
        {"type":"tool_pending","turn_id":"0006D8C80K0000000000000001","call_id":"000000000000000000EG000001","name":"read","input":{"path":"a.rs"}}
        {"type":"checkpoint_created","checkpoint_id":"000000000000000000DC000001","turn_id":"0006D8C80K0000000000000001","created_by":"model","prompts":[]}
        {"type":"checkpoint_created","checkpoint_id":"000000000000000000DC000001","turn_id":"0006D8C80K0000000000000001","created_by":"compaction","by":1000,"reason":"compaction_pending","compaction_id":"000000000000000000F0000001","cursor":"000000000000000000DM000001","prompts":[{"target":"primary","hash":"bb22"}],"active_subagents":[{"invocation_id":"000000000000000000CW000001","name":"tester","state":"suspended","cage_id":null,"last_output":"2 tests failed","pty_id":null}]}
        {"type":"prompt_edited","checkpoint_id":"000000000000000000DC000001","target":"primary","old_hash":"bb22","new_hash":"cc33","by":1000}
        {"type":"checkpoint_resumed","checkpoint_id":"000000000000000000DC000001","by":1000,"prompts":[{"target":"primary","hash":"bb22"}]}
        {"type":"rolled_back","checkpoint_id":"000000000000000000DC000001","by":1000,"superseded":["000000000000000000DM000002","000000000000000000EG000001"],"restored":["000000000000000000DM000001"],"restored_call_ids":["000000000000000000EG000002"],"elided_call_ids":["000000000000000000EG000003"],"files":{"restore":"000000000000000000E8000001","undo":"000000000000000000EC000001","changed":3,"kept":1}}
        {"type":"rolled_back","checkpoint_id":"000000000000000000DC000001","by":1000,"superseded":[],"restored":[]}
        {"type":"compaction","compaction_id":"000000000000000000F0000001","turn_id":"0006D8C80K0000000000000001","agent_path":"coder","trigger":"threshold_crossed","strategy":"checkpoint","proposed":true,"threshold_estimate":0.91,"after_estimate":0.55,"window_upper":0.85,"window_lower":0.6,"superseded_message_ids":["000000000000000000DM000001","000000000000000000EG000001"],"plugins_fired":[],"fallback_occurred":false,"checkpoint_id":"000000000000000000DC000001"}
        {"type":"compaction","compaction_id":"000000000000000000F0000001","turn_id":"0006D8C80K0000000000000001","agent_path":"coder","trigger":"provider_overflow_retry","strategy":"delegate","window":8192,"used":7455,"threshold_estimate":0.91,"after_estimate":0.55,"window_upper":0.85,"window_lower":0.6,"superseded_message_ids":["000000000000000000DM000001","000000000000000000EG000001"],"elided_call_ids":["000000000000000000EG000002"],"summary_message_id":"000000000000000000EC000001","summary":"they spoke","plugins_fired":[{"name":"scribe","role":"compactor","duration_ms":12,"result_kind":"compactor_result"}],"plugin_cost":{"provider":"debug","model":"echo","input_tokens":11,"output_tokens":7,"cost_usd":0.25},"fallback_occurred":true,"fallback_reason":"timeout"}
        {"type":"compaction_approved","compaction_id":"000000000000000000F0000001","turn_id":"0006D8C80K0000000000000001","by":1000,"superseded_message_ids":["000000000000000000DM000001"]}
        {"type":"compaction_approved","compaction_id":"000000000000000000F0000001","turn_id":"0006D8C80K0000000000000001","by":1000,"superseded_message_ids":["000000000000000000DM000001"],"elided_call_ids":["000000000000000000EG000002"],"summary_message_id":"000000000000000000EC000001","summary":"they spoke","after_estimate":0.55}
        {"type":"compaction_rejected","compaction_id":"000000000000000000F0000001","by":1000}
        {"type":"compaction_rejected","compaction_id":"000000000000000000F0000001","reason":"session_failed"}
        {"type":"compaction_flagged","compaction_id":"000000000000000000F0000001","flag":"bad","notes":"lost the plan","by":1000}
        {"type":"compaction_flagged","compaction_id":"000000000000000000F0000001","flag":null,"notes":null,"by":1000}
        {"type":"compactions_aggregated","count":100,"before":"2026-11-15T06:00:00.123Z"}
        {"type":"approval_requested","turn_id":"0006D8C80K0000000000000001","approval_id":"000000000000000000E0000001","call_id":"000000000000000000EG000001","tool":"shell","subject":"rm a.rs","pattern":"rm *","diff":"--- a.rs\n+++ a.rs\n@@ -1 +1 @@\n-a\n+b\n","expires_at":"2026-11-15T06:05:00.000Z","caller":{"name":"tester","invocation_id":"000000000000000000CW000001"}}
        {"type":"approval_requested","turn_id":"0006D8C80K0000000000000001","approval_id":"000000000000000000E0000001","call_id":"000000000000000000EG000001","tool":"shell","expires_at":"2026-11-15T06:05:00.000Z"}
        {"type":"approval_settled","turn_id":"0006D8C80K0000000000000001","approval_id":"000000000000000000E0000001","outcome":"allow","scope":"session","by":1000}
        {"type":"approval_settled","turn_id":"0006D8C80K0000000000000001","approval_id":"000000000000000000E0000001","outcome":"deny","by":1000,"note":"not now"}
        {"type":"approval_settled","turn_id":"0006D8C80K0000000000000001","approval_id":"000000000000000000E0000001","outcome":"timeout"}
        {"type":"subagent_spawned","turn_id":"0006D8C80K0000000000000001","invocation_id":"000000000000000000CW000001","call_id":"000000000000000000EG000001","name":"tester","model":"debug:script","prompt":"run the tests","walltime_ms":600000}
        {"type":"subagent_spawned","turn_id":"0006D8C80K0000000000000001","invocation_id":"000000000000000000CW000001","call_id":"000000000000000000EG000001","name":"tester","model":"debug:script","prompt":"run the tests","walltime_ms":600000,"memory_bytes":536870912}
        {"type":"subagent_running","turn_id":"0006D8C80K0000000000000001","invocation_id":"000000000000000000CW000001","name":"tester","cage_id":"cage-1"}
        {"type":"assistant_started","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000C4000009","model":"debug:script","step":1,"caller":{"name":"tester","invocation_id":"000000000000000000CW000001"}}
        {"type":"reasoning_finished","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000C4000009","text":"hm","caller":{"name":"tester","invocation_id":"000000000000000000CW000001"}}
        {"type":"assistant_finished","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000C4000009","text":"2 tests failed","finish_reason":"stop","caller":{"name":"tester","invocation_id":"000000000000000000CW000001"}}
        {"type":"tool_started","turn_id":"0006D8C80K0000000000000001","call_id":"000000000000000000EG000009","name":"fs.read","input":{"path":"a.rs"},"caller":{"name":"tester","invocation_id":"000000000000000000CW000001"}}
        {"type":"tool_finished","turn_id":"0006D8C80K0000000000000001","call_id":"000000000000000000EG000009","status":"ok","duration_ms":3,"output":"fn main() {}","truncated":false,"caller":{"name":"tester","invocation_id":"000000000000000000CW000001"}}
        {"type":"subagent_exited","turn_id":"0006D8C80K0000000000000001","invocation_id":"000000000000000000CW000001","name":"tester","state":"killed","cause":"walltime","exit_code":137,"duration_ms":600000,"message":"Subagent tester exceeded walltime limit."}
        {"type":"subagent_exited","turn_id":"0006D8C80K0000000000000001","invocation_id":"000000000000000000CW000001","name":"tester","state":"done","cause":"answered","exit_code":0,"duration_ms":600000}
        {"type":"terminal_opened","pty_id":"000000000000000000F8000001","command":["vim","a.rs"],"caged":true,"by":1000}
        {"type":"terminal_opened","pty_id":"000000000000000000F8000001","turn_id":"0006D8C80K0000000000000001","caller":{"name":"tester","invocation_id":"000000000000000000CW000001"},"name":"edit","command":["vim","a.rs"],"caged":true,"by":1000}
        {"type":"terminal_closed","pty_id":"000000000000000000F8000001","reason":"exited","exit_code":0,"transcript_lines":7}
        {"type":"terminal_closed","pty_id":"000000000000000000F8000001","turn_id":"0006D8C80K0000000000000001","reason":"holder_lost","exit_code":null,"transcript_lines":7}
        {"type":"terminal_reattached","pty_id":"000000000000000000F8000001","user":1000,"scrollback_lines":3}
        {"type":"requested","request":"ee55","asked":"ff66"}
        {"type":"requested","request":"ee55","asked":"ff66","turn_id":"0006D8C80K0000000000000001","checkpoint_id":"000000000000000000DC000001","issue_id":"000000000000000000D4000001"}
        {"type":"bound","issue_id":"000000000000000000D4000001","by":1000}
        {"type":"unbound","issue_id":"000000000000000000D4000001","by":1000}
        {"type":"message_pinned","message_id":"000000000000000000DM000001","pinned":true,"by":1000}
        {"type":"message_pinned","message_id":"000000000000000000DM000001","pinned":false,"by":1000}
    "#]]
    .assert_eq(&lines);
}

/// A record that changes the conversation and is of no type that may would be missing from it.
#[test]
fn what_changes_a_conversation_is_of_a_type_that_may() {
    let mut changing = 0;
    for body in samples() {
        let kind = serde_json::from_str::<serde_json::Value>(&body.to_json()).unwrap();
        let kind = kind["type"].as_str().unwrap().to_owned();
        let record = Record { seq: 7, time: Timestamp::from_millis(1), body };
        let changes = conversation::changes(&record);
        let marks = changes.iter().any(|c| matches!(c, Change::Superseded { .. } | Change::Restored { .. }));
        assert!(changes.is_empty() || conversation::may_change(&kind), "{kind}");
        assert!(!marks || conversation::may_mark(&kind), "{kind}");
        for change in changes {
            assert_eq!(Change::of_line(change.to_line().as_bytes()), Some(change), "{kind}");
            changing += 1;
        }
    }
    assert!(changing > 8, "the samples have of each kind");
}

#[test]
fn every_body_has_a_sample_and_reads_back_as_it_was_written() {
    let names: Vec<_> = samples().iter().map(Body::name).collect();
    for kind in Body::KINDS {
        assert!(names.contains(&kind.name), "{} has no sample", kind.name);
    }
    for body in samples() {
        let written = record(body);
        let line = to_line(&written);
        assert_eq!(from_line(&line), written, "{line}");
    }
}

#[test]
fn the_list_of_types_has_every_one_and_no_other() {
    let kind = |body: &Body| body.to_json().split('"').nth(3).unwrap().to_owned();
    let mut kinds: Vec<String> = samples().iter().map(kind).collect();
    kinds.sort();
    kinds.dedup();
    let mut listed: Vec<&str> = Body::KINDS.iter().map(|kind| kind.name).collect();
    listed.sort_unstable();
    assert_eq!(kinds, listed);
    for kind in ctx_session::project::ProjectBody::KINDS {
        let decoded = ctx_session::project::ProjectBody::decode(kind.name, "[]");
        assert!(matches!(decoded, Decoded::Malformed(_)), "{}", kind.name);
    }
}

#[test]
fn a_body_begins_with_its_type_and_leaves_the_envelope_alone() {
    for body in samples() {
        let json = body.to_json();
        assert!(json.starts_with(&format!(r#"{{"type":"{}""#, kind(&body))), "{json}");
        assert!(!json.contains('\n'), "one record is one line");
        let fields: Value = serde_json::from_str(&json).unwrap();
        for key in ["schema_version", "seq", "time", "more"] {
            assert!(fields.get(key).is_none(), "{key} in {json}");
        }
    }
}

#[test]
fn the_run_of_a_body_is_the_one_that_its_line_names() {
    for body in samples() {
        let fields: Value = serde_json::from_str(&body.to_json()).unwrap();
        let named = fields.get("turn_id").map(|id| id.as_str().unwrap().to_owned());
        assert_eq!(body.run().map(|run| run.to_string()), named, "{fields}");
    }
}

#[test]
fn fields_of_a_later_version_are_ignored() {
    for body in samples() {
        let mut fields: Value = serde_json::from_str(&to_line(&record(body.clone()))).unwrap();
        fields["more"] = json!(true);
        fields["of_a_later_version"] = json!({ "deep": [1, { "x": null }] });
        assert_eq!(Body::decode(&kind(&body), &fields.to_string()), Decoded::Known(body));
    }
}

#[test]
fn a_type_of_a_later_version_is_unknown_not_an_error() {
    for later in ["checkpoint_moved", "", "User", "user ", "state-changed", "\0"] {
        assert_eq!(Body::decode(later, r#"{"type":"whatever"}"#), Decoded::Unknown, "{later:?}");
    }
}

#[test]
fn a_line_whose_fields_do_not_fit_is_malformed_and_says_why() {
    let malformed = |kind: &str, line: &str| match Body::decode(kind, line) {
        Decoded::Malformed(why) => why,
        other => panic!("{line}: {other:?}"),
    };
    let told: Vec<String> = [
        ("user", r#"{"type":"user"}"#),
        ("run_created", r#"{"turn_id":"short"}"#),
        ("run_created", r#"{"turn_id":7}"#),
        ("state_changed", r#"{"from":"idle","to":"asleep","trigger":"run_failed"}"#),
        ("session_renamed", r#"{"title":"a","title":"b"}"#),
        ("session_renamed", r#"{"title":"a""#),
        ("session_renamed", ""),
        ("session_failed", "null"),
    ]
    .map(|(kind, line)| format!("{kind}: {}", malformed(kind, line)))
    .into();
    expect![[r#"
        user: missing field `turn_id` at line 1 column 15
        run_created: `short` is not an id: 26 characters of 0-9 and A-Z without I, L, O and U are expected at line 1 column 19
        run_created: invalid type: integer `7`, expected a string at line 1 column 12
        state_changed: unknown variant `asleep`, expected one of `idle`, `running`, `queued`, `paused`, `ended`, `failed` at line 1 column 28
        session_renamed: duplicate field `title` at line 1 column 20
        session_renamed: EOF while parsing an object at line 1 column 12
        session_renamed: EOF while parsing a value at line 1 column 0
        session_failed: invalid type: null, expected struct Failure at line 1 column 4"#]]
    .assert_eq(&told.join("\n"));
}

#[test]
fn a_model_as_earlier_logs_have_it_is_the_same_model() {
    for (before, now) in [
        (
            r#"{"type":"assistant_started","turn_id":"0006D8C80K0000000000000001","message_id":"000000000000000000C4000001","model":"debug/echo","step":1}"#,
            r#""model":"debug:echo""#,
        ),
        (
            r#"{"type":"session_meta","session_id":"000000000000000000EC000001","name":"default","scope":"private","owner":1000,"agent":null,"project":"default","cwd":"/work","model":"ollama/llama3:8b","app":"ctx 0.1.0"}"#,
            r#""model":"ollama:llama3:8b""#,
        ),
    ] {
        let read = |line: &str| {
            let kind =
                serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].as_str().unwrap().to_owned();
            match Body::decode(&kind, line) {
                Decoded::Known(body) => body,
                other => panic!("{other:?}: {line}"),
            }
        };
        let written = read(before).to_json();
        assert!(written.contains(now), "{written}");
        assert_eq!(read(&written), read(before));
    }
}

#[test]
fn optional_fields_may_be_missing() {
    let lines = [
        ("context", r#"{"turn_id":"00000000000000000000000001","model":"m","cwd":"/"}"#),
        (
            "tool_finished",
            r#"{"turn_id":"00000000000000000000000001","call_id":"00000000000000000000000002","status":"ok","duration_ms":1,"output":""}"#,
        ),
        ("model_set", "{}"),
    ];
    for (kind, line) in lines {
        assert!(matches!(Body::decode(kind, line), Decoded::Known(_)), "{line}");
    }
}

/// `[[[…]]]`, this deep.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

#[test]
fn a_tool_input_that_is_nested_too_deeply_is_kept_in_a_form_that_can_be_read_back() {
    for (levels, is_text) in [(1, false), (100, false), (101, true), (127, true), (500, true)] {
        let mut world: World = scene("post");
        let progress = Progress::ToolsStarted(vec![StartedTool {
            call_id: call("t1"),
            provider_call_id: None,
            name: "read".to_owned(),
            input: nested(levels),
            provider: None,
        }]);
        world.ask(&ctx_session::Command::Progress { run: world.run(), caller: None, progress }).unwrap();
        let written = world.records.last().unwrap();
        assert_eq!(&from_line(&to_line(written)), written, "{levels} levels");
        let Body::Tool(ToolBody::Started(tool)) = &written.body else { panic!("{written:?}") };
        assert_eq!(tool.input.is_string(), is_text, "{levels} levels");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(at in 0..80_usize, line in "\\PC{0,200}") {
        let bodies = samples();
        let _ = Body::decode(&kind(&bodies[at % bodies.len()]), &line);
    }

    #[test]
    fn a_cut_or_altered_line_never_panics(at in 0..80_usize, cut in 0..400_usize, put in "\\PC{0,3}") {
        let bodies = samples();
        let body = &bodies[at % bodies.len()];
        let line = to_line(&record(body.clone()));
        let chars: Vec<char> = line.chars().collect();
        let (head, tail) = chars.split_at(cut % chars.len());
        let head: String = head.iter().collect();
        let tail: String = tail.iter().skip(1).collect();
        prop_assert!(matches!(Body::decode(&kind(body), &head), Decoded::Malformed(_)), "{}", head);
        let _ = Body::decode(&kind(body), &format!("{head}{put}{tail}"));
    }

    #[test]
    fn any_text_of_a_message_reads_back(text in any::<String>(), client_id in any::<Option<String>>()) {
        let body = Body::Message(MessageBody::User(User {
            turn_id: RUN,
            message_id: message("m1"),
            client_id,
            text,
            images: Vec::new(),
        }));
        prop_assert_eq!(from_line(&to_line(&record(body.clone()))).body, body);
    }
}
