//! What an operator does to a run, as its loop sees it: approvals, pauses, todos, and a window that fills up.

use std::sync::Arc;

use ctx_agent::JobKind;
use ctx_session::command::{Outcome, StartedTool};
use ctx_session::conversation::{Message, Role};
use ctx_session::project::Strategy;
use ctx_session::record::ApprovalOutcome;
use ctx_session::{CallId, Limits, Ulid};
use expect_test::expect;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{Log, Root, Work, said};

async fn told(root: &Root, work: Work, log: &Arc<Log>) -> String {
    let outcome = root.run_with(work, log, CancellationToken::new()).await;
    log.text(&outcome)
}

#[tokio::test]
async fn a_call_that_is_asked_for_is_made_or_not_as_the_operator_says() {
    let root = Root::new();
    root.put("a", "inside");
    root.control("policy", "ask fs.read\n");
    let script = r#"{"script":[{"tool":{"name":"fs.read","input":{"path":"a"}}},{"text":"ok"}]}"#;
    for (approves, expected) in [
        (ApprovalOutcome::Allow, r#"gave "inside\n[the operator: a word]""#),
        (ApprovalOutcome::Deny, r#"the operator denied fs.read on /work/a: a word; do without it"#),
        (ApprovalOutcome::Timeout, r#"nobody approved fs.read on /work/a in time"#),
    ] {
        let log = Log::answering(approves);
        let told = told(&root, root.job("debug/script", script), &log).await;
        assert!(told.contains("asks for fs.read on /work/a") && told.contains(expected), "{told}");
        assert!(told.ends_with("done\n"));
    }
}

#[tokio::test]
async fn a_checkpoint_is_settled_by_the_session_and_the_run_goes_on_after_it() {
    let root = Root::new();
    let script = r#"{"script":[{"tool":[{"name":"checkpoint","input":{"reason":"which one?"}},
        {"name":"fs.list"}]},{"text":"on"}]}"#;
    expect![[r##"
        #1 started step 1 debug/script
        #1 finished ToolCalls ""
        #2 calls checkpoint {"reason":"which one?"}
        #3 will call fs.list {}
        #2 pauses: which one?
        #3 calls fs.list {}
        #3 gave "(empty)\n"
        #4 started step 2 debug/script
        #4 text "on"
        #4 finished Stop "on"
        done
    "##]]
    .assert_eq(&root.run("debug/script", script).await);
}

#[tokio::test]
async fn a_call_that_is_tried_again_is_not_made_while_the_session_is_paused() {
    let root = Root::with_limits(Limits { model_retry_ms: 1, ..Limits::default() });
    let script = r#"{"script":[{"error":"rate_limit","times":1},{"text":"late"}]}"#;
    let retries = "retries EAGAIN after attempt 1 of 5 in 1 ms";
    let work = || root.job("debug/script", script);
    let log = Arc::new(Log::default());
    let told_all = told(&root, work(), &log).await;
    assert!(told_all.starts_with(retries) && told_all.ends_with("done\n"), "{told_all}");
    let log = Log::paused_at(retries);
    assert_eq!(told(&root, work(), &log).await, format!("{retries}\ncancelled\n"));
}

#[tokio::test]
async fn calls_that_waited_for_a_resume_are_made_first() {
    let root = Root::new();
    root.put("a", "inside");
    let script = r#"{"script":[{"tool":{"name":"fs.read","input":{"path":"a"}}},{"text":"read"}]}"#;
    let log = Arc::new(Log::default());
    let mut work = root.job("debug/script", script);
    let call_id = CallId(ctx_session::port::RunPort::new_id(log.as_ref()));
    let input = json!({ "path": "a" });
    work.pending.push(StartedTool {
        call_id,
        provider_call_id: None,
        name: "fs.read".to_owned(),
        input,
        provider: None,
    });
    expect![[r##"
        #1 calls fs.read {"path":"a"}
        #1 gave "inside"
        #2 started step 1 debug/script
        #2 text "read"
        #2 finished Stop "read"
        done
    "##]]
    .assert_eq(&told(&root, work, &log).await);
}

/// What the model was sent, as `debug/script` tells it.
fn dumped(log: &Log) -> Value {
    let line = log.lines().into_iter().rfind(|line| line.contains(" finished ")).unwrap();
    let (_, text) = line.split_once(" finished Stop ").unwrap();
    let text: String = serde_json::from_str(text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn open_todos_are_told_to_the_model_unless_it_just_dealt_with_them() {
    let root = Root::new();
    let log = Arc::new(Log::default());
    let mut work = root.job("debug/script", r#"{"script":[{"dump":true}]}"#);
    work.todos = vec!["[ ] write the tests".to_owned()];
    told(&root, work, &log).await;
    let last = dumped(&log)["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["role"], "system");
    assert!(last["content"][0]["text"].as_str().unwrap().ends_with("\n[ ] write the tests"));

    let log = Arc::new(Log::default());
    let script = r#"{"script":[{"tool":{"name":"todo","input":{"op":"start","item":"1"}}},{"dump":true}]}"#;
    let mut work = root.job("debug/script", script);
    work.todos = vec!["[ ] write the tests".to_owned()];
    let told = told(&root, work, &log).await;
    assert!(told.contains(r#"Todo(Start { item: "1" })"#), "{told}");
    assert_eq!(dumped(&log)["messages"].as_array().unwrap().last().unwrap()["role"], "tool");
}

/// An exchange of so many tokens each way, with ids of its own.
fn exchange(number: u128, tokens: usize) -> [Message; 2] {
    let text = "x".repeat(tokens * 4);
    [
        Message { id: Ulid(number * 2), ..said(Role::User, &text) },
        Message { id: Ulid(number * 2 + 1), ..said(Role::Assistant, &text) },
    ]
}

fn full_window(root: &Root, model: &str, message: &str) -> Work {
    let mut messages: Vec<Message> = (1..=7).flat_map(|number| exchange(number, 500)).collect();
    messages.push(Message { id: Ulid(99), ..said(Role::User, message) });
    root.job_of(model, messages)
}

#[tokio::test]
async fn a_full_window_is_made_smaller_before_the_model_is_asked() {
    let root = Root::new();
    let log = Arc::new(Log::default());
    let script = r#"{"script":[{"dump":true}]}"#;
    let told = told(&root, full_window(&root, "debug/script", script), &log).await;
    // A debug model that repeats what it is to sum up is no help.
    let first = told.lines().next().unwrap();
    // How many go depends on how much room the descriptions of tools leave.
    let (count, how) = first.strip_prefix("compacts ").and_then(|rest| rest.split_once(' ')).unwrap();
    let count: usize = count.parse().unwrap();
    assert!((4..=12).contains(&count), "{first}");
    assert_eq!(
        how,
        "by summarize for ThresholdCrossed, but the summary was not shorter than what it sums up"
    );
    assert!(told.ends_with("done\n"), "{told}");
    let sent = dumped(&log)["messages"].as_array().unwrap().len();
    assert_eq!(sent, 15 - count);
    let pack = log.packs.lock().unwrap().last().unwrap().clone();
    assert_eq!(pack["messages"].as_array().unwrap().len(), sent);
    assert!(pack["share"].as_f64().unwrap() <= 0.60, "{pack}");
    assert_eq!(pack["turns_sha256"], ctx_agent::sha256_hex(dumped(&log)["messages"].to_string().as_bytes()));
}

#[tokio::test]
async fn an_overflow_makes_room_once_and_tries_again() {
    let root = Root::new();
    let mut messages: Vec<Message> = exchange(1, 10).into();
    let once = r#"{"script":[{"error":"overflow","times":1},{"text":"fits"}]}"#;
    messages.push(Message { id: Ulid(99), ..said(Role::User, once) });
    let log = Arc::new(Log::default());
    let story = told(&root, root.job_of("debug/script", messages.clone()), &log).await;
    assert!(story.starts_with("compacts 2 by summarize for ProviderOverflowRetry"), "{story}");
    assert!(story.contains("text \"fits\"") && story.ends_with("done\n"), "{story}");

    let always = r#"{"script":[{"error":"overflow"}]}"#;
    *messages.last_mut().unwrap() = Message { id: Ulid(99), ..said(Role::User, always) };
    let log = Arc::new(Log::default());
    let story = told(&root, root.job_of("debug/script", messages), &log).await;
    assert_eq!(story.matches("compacts").count(), 1, "{story}");
    assert!(story.contains("failed EOVERFLOW"), "{story}");
}

#[tokio::test]
async fn a_compaction_that_was_asked_for_leaves_a_record_also_when_there_is_nothing_to_do() {
    let root = Root::new();
    for (strategy, expected) in [
        (Some(Strategy::Drop), "compacts 0 by drop for OperatorManual\ndone\n"),
        (
            Some(Strategy::Checkpoint),
            "proposes 2 by checkpoint for OperatorManual to \"2 messages were left out here to make room, about 28 tokens; \
             the session's log has them.\"\ndone\n",
        ),
        (
            Some(Strategy::Delegate),
            "compacts 0 by delegate for OperatorManual, but the project file names nobody to delegate to\ndone\n",
        ),
    ] {
        let mut messages: Vec<Message> = exchange(1, 10).into();
        messages.extend(exchange(2, 10));
        let mut work = root.job_of("debug/echo", messages);
        work.job.kind = JobKind::Compaction { strategy };
        let log = Arc::new(Log::default());
        assert_eq!(told(&root, work, &log).await, expected);
    }
}

/// Two exchanges whose summary a model gives that follows this script.
fn summary(root: &Root, script: &str) -> Work {
    let file = root.dir.path().join("summary.json");
    std::fs::write(&file, script).unwrap();
    std::fs::write(root.path().join("model/debug/script.d/default"), format!("script={}\n", file.display()))
        .unwrap();
    let mut messages: Vec<Message> = exchange(1, 100).into();
    messages.extend(exchange(2, 10));
    let mut work = root.job_of("debug/script", messages);
    work.job.kind = JobKind::Compaction { strategy: Some(Strategy::Summarize) };
    work
}

#[tokio::test]
async fn a_summary_takes_the_place_of_what_it_sums_up() {
    let root = Root::new();
    let work = summary(&root, r#"{"script":[{"text":"they agreed"},{"usage":{"input":7,"output":2}}]}"#);
    let log = Arc::new(Log::default());
    let outcome = root.run_with(work, &log, CancellationToken::new()).await;
    assert_eq!(outcome, Outcome::Done);
    assert_eq!(log.lines(), [r#"compacts 2 by summarize for OperatorManual to "they agreed""#]);
}

#[tokio::test]
async fn an_overflow_after_text_makes_room_once_and_the_text_is_kept() {
    let root = Root::new();
    let mut messages: Vec<Message> = (1..=6).flat_map(|number| exchange(number, 200)).collect();
    let cut = r#"{"script":[{"text":"partial"},{"error":"overflow"}]}"#;
    messages.push(Message { id: Ulid(99), ..said(Role::User, cut) });
    let log = Arc::new(Log::default());
    let story = told(&root, root.job_of("debug/script", messages), &log).await;
    assert_eq!(story.matches("for ProviderOverflowRetry").count(), 1, "{story}");
    assert_eq!(story.matches("finished Error \"partial\"").count(), 2, "each attempt is in the log: {story}");
    assert!(story.contains("failed EOVERFLOW"), "{story}");
}

#[tokio::test(start_paused = true)]
async fn a_summary_waits_out_a_rate_limit_within_its_time() {
    let root = Root::new();
    for (times, last) in [
        (r#","times":2"#, r#"compacts 2 by summarize for OperatorManual to "they agreed""#),
        ("", "compacts 0 by summarize for OperatorManual, but "),
    ] {
        let script = format!(r#"{{"script":[{{"error":"rate_limit"{times}}},{{"text":"they agreed"}}]}}"#);
        let work = summary(&root, &script);
        let log = Arc::new(Log::default());
        root.run_with(work, &log, CancellationToken::new()).await;
        let lines = log.lines();
        assert!(lines[0].starts_with("retries EAGAIN after attempt 1 of 5"), "it is shown: {lines:?}");
        assert!(lines.last().unwrap().starts_with(last), "{lines:?}");
    }
}

#[tokio::test]
async fn a_summary_is_not_asked_for_again_while_the_session_is_paused() {
    let root = Root::with_limits(Limits { model_retry_ms: 1, ..Limits::default() });
    let work = summary(&root, r#"{"script":[{"error":"rate_limit"}]}"#);
    let retries = "retries EAGAIN after attempt 1 of 5 in 1 ms";
    let log = Log::paused_at(retries);
    assert_eq!(told(&root, work, &log).await, format!("{retries}\ncancelled\n"));
}

#[tokio::test(start_paused = true)]
async fn a_summary_that_takes_too_long_is_done_without() {
    let root = Root::new();
    let file = root.dir.path().join("slow.json");
    std::fs::write(&file, r#"{"script":[{"sleep_ms":90000},{"text":"late"}]}"#).unwrap();
    std::fs::write(root.path().join("model/debug/script.d/default"), format!("script={}\n", file.display()))
        .unwrap();
    let mut messages: Vec<Message> = exchange(1, 100).into();
    messages.extend(exchange(2, 10));
    let mut work = root.job_of("debug/script", messages);
    work.job.kind = JobKind::Compaction { strategy: Some(Strategy::Summarize) };
    let log = Arc::new(Log::default());
    root.run_with(work, &log, CancellationToken::new()).await;
    assert_eq!(log.lines(), ["compacts 0 by summarize for OperatorManual, but it took longer than 60 s"]);
}

#[tokio::test]
async fn a_run_has_no_more_steps_after_a_pause_than_before() {
    let root = Root::with_limits(Limits { steps_per_run: 2, ..Limits::default() });
    let step = r#"{"tool":{"name":"fs.list"}}"#;
    let script = format!(r#"{{"script":[{step},{step},{step}]}}"#);
    let log = Arc::new(Log::default());
    let mut work = root.job("debug/script", &script);
    // As the log counts them: one was made before the pause.
    work.steps = 1;
    let told = told(&root, work, &log).await;
    assert_eq!(told.matches(" started step ").count(), 1, "{told}");
    assert!(told.contains("failed ETIMEDOUT max_steps"), "{told}");
}

#[tokio::test]
async fn todos_are_not_told_to_an_agent_that_cannot_keep_them() {
    let root = Root::new();
    let log = Arc::new(Log::default());
    let mut work = root.job("debug/script", r#"{"script":[{"dump":true}]}"#);
    work.todos = vec!["[ ] write the tests".to_owned()];
    let agent = Arc::get_mut(&mut work.prepared.agent).unwrap();
    agent.description.settings.tools = Some(vec!["fs.read".to_owned()]);
    told(&root, work, &log).await;
    assert_eq!(dumped(&log)["messages"].as_array().unwrap().last().unwrap()["role"], "user");
}
