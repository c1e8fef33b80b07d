//! Whole runs: tools, policy, stops, limits.

use std::sync::Arc;
use std::time::Duration;

use ctx_session::Limits;
use ctx_session::command::Outcome;
use expect_test::expect;
use tokio_util::sync::CancellationToken;

use crate::support::{Log, Root};

#[tokio::test]
async fn what_the_model_gets_wrong_goes_back_to_it() {
    let root = Root::new();
    let script = r#"{"script":[{"tool":{"name":"fs.fly","input":{}}},{"tool":{"name":"fs.read","input":{"file":"a"}}},
        {"tool":{"name":"fs.read","input":{"path":"none"}}},{"text":"I see"}]}"#;
    let told = root.run("debug/script", script).await;
    let failed: Vec<&str> = told.lines().filter(|line| line.contains(" failed ")).collect();
    assert_eq!(failed.len(), 3, "{told}");
    let known = "#2 failed \"ENOENT: unknown tool `fs.fly`; the tools are fs.read, fs.list, fs.stat, ";
    assert!(failed[0].starts_with(known), "{}", failed[0]);
    assert!(failed[1].contains("EINVAL: bad arguments for fs.read: unknown field `file`"), "{told}");
    assert_eq!(failed[2], r##"#6 failed "ENOENT: none does not exist""##);
    assert!(told.ends_with("done\n"));
}

#[tokio::test]
async fn the_policy_is_asked_before_a_tool_works() {
    let root = Root::new();
    root.put("secret/key", "42");
    root.put("open", "free");
    std::os::unix::fs::symlink("secret/key", root.work().join("innocent")).unwrap();
    root.control("policy", "deny fs.read secret/*\nask fs.list /work/secret\nallow fs.*\n");
    let script = r#"{"script":[{"tool":[{"name":"fs.read","input":{"path":"open"}},
        {"name":"fs.read","input":{"path":"./secret/../secret/key"}},{"name":"fs.read","input":{"path":"innocent"}},
        {"name":"fs.list","input":{"path":"secret"}}]},{"text":"ok"}]}"#;
    let told = root.run("debug/script", script).await;
    let results: Vec<&str> =
        told.lines().filter(|l| l.contains(" gave ") || l.contains(" failed ")).collect();
    let denied = r#""EACCES: the policy denies fs.read on /work/secret/key; do without it""#;
    assert_eq!(results[0], r##"#2 gave "free""##);
    assert_eq!(results[1], format!("#3 failed {denied}"));
    assert_eq!(results[2], format!("#4 failed {denied}"), "also through a link");
    assert!(told.contains("asks for fs.list on /work/secret"), "{told}");
    assert!(results[3].contains("nobody approved fs.list on /work/secret in time"), "{told}");
}

#[tokio::test]
async fn large_output_is_cut_for_the_model_and_kept_whole() {
    let root = Root::with_limits(Limits { tool_output_bytes: 200, ..Limits::default() });
    let whole = "zeile mit ä\n".repeat(50);
    root.put("big", &whole);
    let script = r#"{"script":[{"tool":{"name":"fs.read","input":{"path":"big"}}},{"text":"big"}]}"#;
    let log = Arc::new(Log::default());
    let outcome = root.run_with(root.job("debug/script", script), &log, CancellationToken::new()).await;
    assert_eq!(outcome, Outcome::Done);
    assert_eq!(log.blobs.lock().unwrap().as_slice(), [whole.clone().into_bytes()]);
    let line = log.lines().into_iter().find(|line| line.contains(" gave ")).unwrap();
    assert!(line.ends_with(&format!(" blob of {}", whole.len())), "{line}");
    assert!(line.contains("of 650 bytes; read on with output.read, call_id ") && line.len() < 350, "{line}");
}

#[tokio::test]
async fn a_run_that_never_comes_to_an_end_fails_after_its_steps() {
    let root = Root::with_limits(Limits { steps_per_run: 2, ..Limits::default() });
    let step = r#"{"tool":{"name":"fs.list"}}"#;
    let told = root.run("debug/script", &format!(r#"{{"script":[{step},{step},{step}]}}"#)).await;
    expect![[r##"
        #1 started step 1 debug/script
        #1 finished ToolCalls ""
        #2 calls fs.list {}
        #2 gave "(empty)\n"
        #3 started step 2 debug/script
        #3 finished ToolCalls ""
        #4 calls fs.list {}
        #4 gave "(empty)\n"
        failed ETIMEDOUT max_steps: the run reached its limit of 2 steps; send a message to continue, or raise limits.steps_per_run
    "##]]
    .assert_eq(&told);
}

/// Runs a script that is stopped once `line` was told: it must be the last, whatever the run would have done next.
async fn stopped_at(line: &str, script: &str) -> String {
    let root = Root::new();
    let stop = CancellationToken::new();
    let log = Log::stopping_at(line, &stop);
    let run = root.run_with(root.job("debug/script", script), &log, stop);
    let outcome = tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
    assert_eq!(log.lines().last().unwrap(), line);
    log.text(&outcome)
}

#[tokio::test(start_paused = true)]
async fn a_stop_cuts_a_sleep_short() {
    let begin = tokio::time::Instant::now();
    let script = r#"{"script":[{"text":"a"},{"sleep_ms":18446744073709551615},{"text":"b"}]}"#;
    expect![[r##"
        #1 started step 1 debug/script
        #1 text "a"
        cancelled
    "##]]
    .assert_eq(&stopped_at(r##"#1 text "a""##, script).await);
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_stop_cuts_a_retry_short() {
    let line = "retries EAGAIN after attempt 1 of 5 in 250 ms";
    let told = stopped_at(line, r#"{"script":[{"error":"rate_limit"}]}"#).await;
    assert_eq!(told, format!("{line}\ncancelled\n"));
}

#[tokio::test]
async fn a_stop_in_the_middle_of_a_stream_lets_nothing_more_out() {
    let script = format!(r#"{{"script":[{{"text":"begin"}},{{"text":"{}"}}]}}"#, "x".repeat(400_000));
    let told = stopped_at(r##"#1 text "begin""##, &script).await;
    assert!(told.ends_with("cancelled\n"));
}

#[tokio::test]
async fn after_a_stop_no_tool_is_started() {
    let script = r#"{"script":[{"tool":{"name":"fs.list"}},{"text":"never"}]}"#;
    for line in [r##"#1 finished ToolCalls """##, "#2 calls fs.list {}", r##"#2 gave "(empty)\n""##] {
        let told = stopped_at(line, script).await;
        assert!(told.ends_with("cancelled\n"), "{told}");
    }
}

#[tokio::test]
async fn a_run_that_was_stopped_before_it_began_tells_nothing() {
    let root = Root::new();
    let stop = CancellationToken::new();
    stop.cancel();
    let log = Arc::new(Log::default());
    let outcome = root.run_with(root.job("main", "hi"), &log, stop).await;
    assert_eq!(log.text(&outcome), "cancelled\n");
}

#[tokio::test]
async fn when_nobody_listens_any_more_the_loop_ends() {
    let root = Root::new();
    let log = Log::deaf_at(r##"#1 text "b""##);
    let script = r#"{"script":[{"text":"a"},{"text":"b"},{"text":"c"}]}"#;
    let outcome = root.run_with(root.job("debug/script", script), &log, CancellationToken::new()).await;
    assert!(matches!(outcome, Outcome::Cancelled { .. }));
    assert_eq!(log.lines().last().unwrap(), r##"#1 text "b""##);
}

#[tokio::test]
async fn a_model_that_vanished_since_fails_the_run() {
    let root = Root::new();
    let job = root.job("debug/echo", "hi");
    std::fs::remove_dir_all(root.path().join("model/debug/echo.d")).unwrap();
    let log = Arc::new(Log::default());
    let outcome = root.run_with(job, &log, CancellationToken::new()).await;
    assert!(log.text(&outcome).starts_with("failed ENOENT no_such_model: unknown model debug:echo"));
}
