//! The words of scripts: a line as a command. Adding a command is an arm here; a new field of one touches only this
//! file.
//!
//! Runs, messages and checkpoints have names of their own (`r1`, `m1`, `k1`). What the rules are told by others is
//! the script's to name: tool calls `t1`, connections `c1`, compactions `x1` (their summary is `s1`), approvals
//! `p1`, issues `i1`, subagents `g1` (`by=g1`: it is that one's loop that says so). The assistant's messages are `a1`, `a2` … in their order.

use ctx_session::command::{
    Admission, ApprovalAnswer, Change, CompactionEdits, Exit, FinishedTool, Import, Interruption, Outcome,
    Partial, Pauser, PostMessage, Progress, RunWishes, Spawn, StartedTool, TerminalAct, UndoImport,
};
use ctx_session::record::{
    ApprovalScope, Approvals, CancelReason, Compaction, CompactionFlag, CompactionTrigger, DetachReason,
    ExitCause, Failure, FinishReason, LimitScope, MessageBody, Strategy, TerminalEnd, ToolStatus, Usage,
};
use ctx_session::request::RequestKey;
use ctx_session::{
    ApprovalId, Body, CallId, CheckpointId, Code, Command, CompactionId, IssueId, MessageId, SubagentId,
    TerminalId, Timestamp, Ulid,
};

use crate::world::{OWNER, World, call, full, granted, post, small_id};

/// A line of a script as a command: a verb, then words and `key=value` in any order.
pub fn command(world: &World, line: &str) -> Command {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words = Words(rest);
    match verb {
        "post" => Command::PostMessage(post_message(&words)),
        "resume" if words.named('k').is_some() => Command::Resume {
            checkpoint: checkpoint(world, &words),
            admission: admission(&words),
            by: OWNER,
            message: None,
        },
        "resume" => Command::ResumeQueued { admission: admission(&words), by: OWNER },
        "discard" => Command::DiscardQueued { by: OWNER },
        "rename" => change(Change { title: Some(rest.to_owned()), ..Change::default() }),
        "set_model" => change(Change { model: Some(model(rest)), ..Change::default() }),
        "set_all" => change(Change {
            title: Some("all".to_owned()),
            model: Some(model(rest)),
            archived: Some(true),
            by: 0,
        }),
        "once" => {
            let (key, rest) = rest.split_once(' ').unwrap_or((rest, "post"));
            let key = RequestKey { request: key.to_owned(), asked: rest.to_owned() };
            Command::Once { key, command: Box::new(command(world, rest)) }
        }
        "attach" => Command::Attach {
            connection: connection(&words),
            user: OWNER,
            device_hint: words.value("device").map(str::to_owned),
            takeover: words.has("takeover"),
        },
        "detach" => Command::Detach { connection: connection(&words), reason: DetachReason::Clean },
        "term" => {
            let subagent = words.named('g').map(|name| SubagentId(small_id(name)));
            let run = (words.has("run") || subagent.is_some()).then(|| world.run());
            Command::Terminal(TerminalAct::Open {
                terminal: terminal(&words),
                run,
                caller: subagent,
                name: None,
                command: vec!["vim".to_owned()],
                caged: true,
                by: OWNER,
            })
        }
        "term-end" => Command::Terminal(TerminalAct::Closed {
            terminal: terminal(&words),
            reason: if words.has("closed") { TerminalEnd::Closed } else { TerminalEnd::Exited },
            exit_code: Some(0),
            lines: 7,
        }),
        "term-back" => {
            let (terminal, user) = (terminal(&words), OWNER);
            Command::Terminal(TerminalAct::Reattached { terminal, user, scrollback_lines: 3 })
        }
        "archive" => change(Change { archived: Some(true), ..Change::default() }),
        "unarchive" => change(Change { archived: Some(false), ..Change::default() }),
        "bind" => Command::Bind { issue: IssueId(small_id(words.must('i'))), by: OWNER },
        "unbind" => Command::Unbind { by: OWNER },
        "pin" | "unpin" => {
            let message = world.id_called(words.all().next().expect("a message's name"));
            Command::Pin { message, pinned: verb == "pin", by: OWNER }
        }
        "import" => Command::Import(Import {
            import_id: small_id("i1"),
            records: Vec::new(),
            by: OWNER,
            restored: Vec::new(),
            superseded: Vec::new(),
        }),
        "undo-import" => Command::UndoImport(UndoImport {
            import_id: small_id("i1"),
            by: OWNER,
            superseded: Vec::new(),
            restored: Vec::new(),
        }),
        "end" => Command::End { by: OWNER, partial: partial(world, &words) },
        "fail" => Command::Fail { failure: failure(), partial: partial(world, &words) },
        "recover" if words.has("storage") => {
            Command::Recover { cause: Interruption::StorageFailure, under_way: None }
        }
        "recover" => Command::Recover { cause: Interruption::DaemonCrash, under_way: None },
        "allow" => answer(&words, ApprovalAnswer::Allow { by: OWNER, scope: scope(&words) }),
        "deny" => answer(&words, ApprovalAnswer::Deny { by: OWNER }),
        "expire" => answer(&words, ApprovalAnswer::Timeout),
        _ => of_a_run(world, verb, &words)
            .or_else(|| of_a_checkpoint(world, verb, &words))
            .or_else(|| of_a_compaction(world, verb, &words))
            .unwrap_or_else(|| panic!("`{verb}` is no word of the script vocabulary")),
    }
}

fn change(change: Change) -> Command {
    Command::Change(Change { by: OWNER, ..change })
}

fn of_a_run(world: &World, verb: &str, words: &Words<'_>) -> Option<Command> {
    let run = words.named('r').map_or_else(|| world.run(), |name| world.run_called(name));
    let partial = partial(world, words);
    let caller = words.value("by").map(|name| SubagentId(small_id(name)));
    let of_loop = |progress| Command::Progress { run, caller, progress };
    let of_subagent = |progress| Command::Progress { run, caller: Some(subagent(words)), progress };
    Some(match verb {
        "cancel" if words.has("disconnected") => {
            Command::CancelRun { run, reason: CancelReason::Disconnected, by: None, partial }
        }
        "cancel" => Command::CancelRun { run, reason: CancelReason::Operator, by: Some(OWNER), partial },
        "finish" => Command::FinishRun { run, outcome: outcome(words), partial },
        "progress" => of_loop(progress(world, words)),
        "spawn" => of_loop(Progress::SubagentSpawned(Box::new(Spawn {
            invocation_id: subagent(words),
            call_id: call(words.must('t')),
            name: "tester".to_owned(),
            model: "debug/script".to_owned(),
            prompt: "run the tests".to_owned(),
            walltime_ms: Some(60_000),
            memory_bytes: None,
        }))),
        "works" => of_subagent(Progress::SubagentRunning { cage_id: None }),
        "exit" => {
            let cause = ExitCause::ALL.into_iter().find(|cause| words.has(cause.as_str()));
            let exit = Exit { cause: cause.expect("a cause"), message: None };
            of_subagent(Progress::SubagentExited { exit, partial })
        }
        "ask" => of_loop(Progress::ApprovalRequested {
            approval_id: approval(words),
            call_id: call(words.must('t')),
            tool: "read".to_owned(),
            subject: Some("a.rs".to_owned()),
            pattern: words.value("pattern").map(str::to_owned),
            diff: None,
            expires_at: Timestamp::from_millis(world.now.as_millis() + 300_000),
        }),
        "compacted" => of_loop(Progress::Compacted(Box::new(compaction(world, words, false)))),
        "propose" => of_loop(Progress::Compacted(Box::new(compaction(world, words, true)))),
        "model-pause" => {
            let by = Pauser::Model { run, call: call(words.must('t')) };
            Command::Checkpoint { by, reason: words.value("reason").map(str::to_owned) }
        }
        _ => return None,
    })
}

fn of_a_checkpoint(world: &World, verb: &str, words: &Words<'_>) -> Option<Command> {
    Some(match verb {
        "pause" => {
            let reason = words.value("reason").map(str::to_owned);
            Command::Checkpoint { by: Pauser::Operator { by: OWNER }, reason }
        }
        "edit-prompt" => Command::EditPrompt {
            checkpoint: checkpoint(world, words),
            target: words.value("target").unwrap_or("primary").to_owned(),
            hash: words.value("hash").unwrap_or("cc33").to_owned(),
            by: OWNER,
        },
        "rollback" => Command::Rollback {
            checkpoint: checkpoint(world, words),
            by: OWNER,
            partial: partial(world, words),
            files: None,
        },
        _ => return None,
    })
}

fn of_a_compaction(world: &World, verb: &str, words: &Words<'_>) -> Option<Command> {
    Some(match verb {
        "compact" => {
            let strategy = Strategy::ALL.into_iter().find(|strategy| words.has(strategy.as_str()));
            Command::Compact { strategy, admission: admission(words), by: OWNER }
        }
        "retry" => Command::Retry { admission: admission(words), by: OWNER },
        "approve" => Command::ApproveCompaction {
            compaction: compaction_id(words),
            edits: CompactionEdits {
                superseded: words.value("gone").map(|_| gone(world, words)),
                summary: words.value("summary").map(str::to_owned),
            },
            admission: admission(words),
            by: OWNER,
        },
        "reject" => Command::RejectCompaction { compaction: compaction_id(words), by: OWNER },
        "flag" => Command::FlagCompaction {
            compaction: compaction_id(words),
            flag: flag(words),
            notes: words.value("notes").map(model),
            by: OWNER,
        },
        _ => return None,
    })
}

/// `scope=session`: it holds until the session ends.
fn scope(words: &Words<'_>) -> ApprovalScope {
    let found = ApprovalScope::ALL.into_iter().find(|scope| words.value("scope") == Some(scope.as_str()));
    found.unwrap_or_default()
}

fn answer(words: &Words<'_>, answer: ApprovalAnswer) -> Command {
    let note = words.value("note").map(str::to_owned);
    Command::AnswerApproval { approval: approval(words), answer, note }
}

fn post_message(words: &Words<'_>) -> PostMessage {
    let text = if words.has("empty") { "" } else { words.value("text").unwrap_or("hello") };
    PostMessage {
        client_id: words.value("id").map(str::to_owned),
        model_override: words.value("model").map(model),
        cwd: words.value("cwd").map(str::to_owned),
        wishes: RunWishes {
            approvals: words.has("yes").then_some(Approvals::Allow),
            allow: words.value("allow").map(str::to_owned).into_iter().collect(),
            net: None,
        },
        ..post(text, admission(words))
    }
}

fn admission(words: &Words<'_>) -> Admission {
    match (words.has("at-limit"), words.has("at-operator-limit")) {
        (true, _) => full(LimitScope::PerProject),
        (_, true) => full(LimitScope::PerOperator),
        (false, false) => granted(),
    }
}

fn outcome(words: &Words<'_>) -> Outcome {
    if words.has("done") {
        Outcome::Done
    } else if words.has("failed") {
        Outcome::Failed(unreachable_provider())
    } else if words.has("cancelled") {
        Outcome::Cancelled { reason: CancelReason::Operator, by: Some(OWNER) }
    } else {
        panic!("finish done, failed or cancelled")
    }
}

/// `tool=t1,t2` starts two calls of one answer; those of `behind=` wait for the first ones.
fn progress(world: &World, words: &Words<'_>) -> Progress {
    let calls = |tools: &str| -> Vec<StartedTool> { tools.split(',').map(started_tool).collect() };
    if let (Some(tools), Some(behind)) = (words.value("tool"), words.value("behind")) {
        return Progress::ToolsStartedUpTo { calls: calls(tools), behind: calls(behind) };
    }
    if let Some(tools) = words.value("tool") {
        return Progress::ToolsStarted(calls(tools));
    }
    if let Some(tool) = words.value("tool-done") {
        let finished = FinishedTool::new(call(tool), ToolStatus::Ok, 5, "fn main() {}");
        return Progress::ToolFinished(Box::new(finished));
    }
    let message_id = next_answer(world);
    match (words.value("text"), words.value("thought")) {
        (Some(text), _) => Progress::AssistantFinished {
            message_id,
            text: text.to_owned(),
            finish_reason: if words.has("calls") { FinishReason::ToolCalls } else { FinishReason::Stop },
            usage: Some(Usage { input: 11, output: 7, ..Usage::default() }),
        },
        (None, Some(text)) => Progress::ReasoningFinished { message_id, text: text.to_owned() },
        (None, None) => Progress::AssistantStarted { message_id, model: "debug/echo".to_owned(), step: 1 },
    }
}

fn started_tool(name: &str) -> StartedTool {
    StartedTool {
        call_id: CallId(small_id(name)),
        provider_call_id: Some("call_0".to_owned()),
        name: "read".to_owned(),
        input: serde_json::json!({ "path": "a.rs" }),
        provider: None,
    }
}

/// The assistant's message that is being said.
fn next_answer(world: &World) -> MessageId {
    let finished = world
        .records
        .iter()
        .filter(|r| matches!(r.body, Body::Message(MessageBody::AssistantFinished(_))))
        .count();
    MessageId(small_id(&format!("a{}", finished + 1)))
}

fn partial(world: &World, words: &Words<'_>) -> Option<Partial> {
    words.has("partial").then(|| Partial { message_id: next_answer(world), text: "so f".to_owned() })
}

fn compaction(world: &World, words: &Words<'_>, proposed: bool) -> Compaction {
    let name = words.must('x');
    let summary = words.value("summary").map(str::to_owned);
    let of_summary = || MessageId(small_id(&name.replace('x', "s")));
    let strategy = match (proposed, &summary) {
        (true, _) => Strategy::Checkpoint,
        (false, Some(_)) => Strategy::Summarize,
        (false, None) => Strategy::Drop,
    };
    Compaction {
        compaction_id: compaction_id(words),
        turn_id: world.run(),
        agent_path: "coder".to_owned(),
        trigger: CompactionTrigger::ThresholdCrossed,
        strategy,
        proposed,
        window: Some(1_000),
        used: Some(910),
        threshold_estimate: 0.91,
        after_estimate: 0.55,
        window_upper: 0.85,
        window_lower: 0.6,
        superseded_message_ids: gone(world, words),
        elided_call_ids: elided(world, words),
        summary_message_id: summary.as_ref().map(|_| of_summary()),
        summary,
        plugins_fired: Vec::new(),
        plugin_cost: None,
        fallback_occurred: false,
        fallback_reason: None,
        checkpoint_id: None,
    }
}

/// Of the calls named; or of `all` whose output may be elided.
fn elided(world: &World, words: &Words<'_>) -> Vec<CallId> {
    if words.value("elided") == Some("all") {
        let ledger = &world.session.ledger;
        let last: Vec<Ulid> = ledger.last_exchange().map(|entry| entry.id).collect();
        let may = ledger.counting().filter(|entry| entry.output.is_some() && !last.contains(&entry.id));
        return may.map(|entry| CallId(entry.id)).collect();
    }
    let names = words.value("elided").unwrap_or_default().split(',').filter(|name| !name.is_empty());
    names.map(|name| CallId(world.id_called(name))).collect()
}

fn gone(world: &World, words: &Words<'_>) -> Vec<Ulid> {
    let names = words.value("gone").unwrap_or_default().split(',').filter(|name| !name.is_empty());
    names.map(|name| world.id_called(name)).collect()
}

fn compaction_id(words: &Words<'_>) -> CompactionId {
    CompactionId(small_id(words.must('x')))
}

fn flag(words: &Words<'_>) -> Option<Option<CompactionFlag>> {
    let flags = [
        ("good", Some(CompactionFlag::Good)),
        ("bad", Some(CompactionFlag::Bad)),
        ("neutral", Some(CompactionFlag::Neutral)),
        ("none", None),
    ];
    flags.into_iter().find(|(word, _)| words.has(word)).map(|(_, flag)| flag)
}

fn checkpoint(world: &World, words: &Words<'_>) -> CheckpointId {
    CheckpointId(world.id_called(words.must('k')))
}

fn approval(words: &Words<'_>) -> ApprovalId {
    ApprovalId(small_id(words.must('p')))
}

fn subagent(words: &Words<'_>) -> SubagentId {
    SubagentId(small_id(words.must('g')))
}

fn connection(words: &Words<'_>) -> Ulid {
    small_id(words.must('c'))
}

/// `none` takes something back.
fn model(word: &str) -> Option<String> {
    (word != "none").then(|| word.to_owned())
}

fn failure() -> Failure {
    Failure { code: Code::Eio, reason: "storage_failure".to_owned(), message: "cannot write".to_owned() }
}

fn unreachable_provider() -> Failure {
    let message = "provider unreachable; try again or check the provider's config".to_owned();
    Failure { code: Code::Ehostdown, reason: "provider_unreachable".to_owned(), message }
}

struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn all(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.0.split_whitespace()
    }

    fn has(&self, word: &str) -> bool {
        self.all().any(|found| found == word)
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.all().find_map(|word| word.split_once('=').filter(|(found, _)| *found == key)).map(|(_, v)| v)
    }

    /// A word that is this letter and a number.
    fn named(&self, letter: char) -> Option<&'a str> {
        self.all().find(|word| {
            word.strip_prefix(letter).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
    }

    fn must(&self, letter: char) -> &'a str {
        self.named(letter).unwrap_or_else(|| panic!("a name like {letter}1 in `{}`", self.0))
    }
}

fn terminal(words: &Words<'_>) -> TerminalId {
    TerminalId(small_id(words.must('z')))
}
