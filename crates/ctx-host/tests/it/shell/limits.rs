//! The operator's limits, the fence and the log.

use std::time::Duration;

use ctx_host::{CreateRequest, ExecRequest, ShellHost, ShellRecord};
use ctx_session::Code;

use super::support::{Bench, Kind, Records, config, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_more_shells_than_the_operator_allows() {
    let bench = Bench::with(Kind::Bash, |limits| limits.shells_max = 2).await;
    let second = bench.host.create(CreateRequest::default()).await.unwrap();
    let error = bench.host.create(CreateRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Ebusy);
    assert!(error.to_string().contains("session_destroy"));
    bench.host.destroy(&second).await.unwrap();
    let third = bench.host.create(CreateRequest::default()).await.unwrap();
    assert_eq!((bench.id.as_str(), second.as_str(), third.as_str()), ("1_local", "2_local", "3_local"));
    let ids: Vec<String> = bench.host.list().into_iter().map(|shell| shell.session_id).collect();
    assert_eq!(ids, ["1_local", "3_local"]);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_out_of_bounds_is_refused_and_changes_nothing() {
    let bench = Bench::with(Kind::Bash, |limits| {
        (limits.command_bytes_max, limits.stdin_bytes_max) = (1000, 2000);
    })
    .await;
    let long = ExecRequest { command: "x".repeat(1001), ..ExecRequest::default() };
    assert_eq!(bench.try_run(long).await.unwrap_err().code(), Code::Emsgsize);
    let stdin = Some(vec![b'x'; 2001]);
    let long = ExecRequest { command: "cat".to_owned(), stdin, ..ExecRequest::default() };
    assert_eq!(bench.try_run(long).await.unwrap_err().code(), Code::Emsgsize);
    for timeout in [Duration::ZERO, Duration::MAX] {
        let request =
            ExecRequest { command: "true".to_owned(), timeout: Some(timeout), ..ExecRequest::default() };
        assert_eq!(bench.try_run(request).await.unwrap_err().code(), Code::Einval);
    }
    for (cwd, env) in
        [(Some("/nonexistent"), ("A", "b")), (None, ("A=B", "c")), (None, ("A", "\0")), (None, ("", ""))]
    {
        let request = CreateRequest {
            cwd: cwd.map(str::to_owned),
            env: vec![(env.0.to_owned(), env.1.to_owned())],
            ..CreateRequest::default()
        };
        assert_eq!(bench.host.create(request).await.unwrap_err().code(), Code::Einval, "{env:?}");
    }
    assert_eq!(bench.host.list().len(), 1);
    assert_eq!(bench.host.list()[0].commands, 0);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_refuses_what_is_denied_and_the_log_says_so() {
    let bench = Bench::new(Kind::Bash).await;
    let request = CreateRequest { deny: vec!["rm".to_owned()], ..CreateRequest::default() };
    let fenced = bench.host.create(request).await.unwrap();
    for command in [
        "rm -rf x",
        "true && rm x",
        "echo $(rm x)",
        "echo x | xargs rm",
        "sudo -u x rm y",
        "tmux new -d 'rm x'",
    ] {
        let request = ExecRequest { command: command.to_owned(), ..ExecRequest::default() };
        let error = bench.host.exec(&fenced, request, None).await.unwrap_err();
        assert_eq!(error.code(), Code::Eacces, "{command}");
    }
    let fine = ExecRequest { command: "echo fine".to_owned(), ..ExecRequest::default() };
    assert_eq!(bench.host.exec(&fenced, fine, None).await.unwrap().stdout, "fine\n");
    let refused = |record: &ShellRecord| matches!(record, ShellRecord::ExecRefused { .. });
    assert_eq!(bench.records.0.lock().unwrap().iter().filter(|record| refused(record)).count(), 6);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_reach_neither_results_nor_the_log_nor_the_kept_output() {
    let dir = tempfile::tempdir().unwrap();
    let records = std::sync::Arc::new(Records::default());
    let host = ShellHost::new(config(Kind::Bash, dir.path()), records.clone()).unwrap();
    let secret = format!("{}{}", "plain-but-", "secret-value-7261");
    let env = vec![("MY_API_TOKEN".to_owned(), secret.clone())];
    let id = host.create(CreateRequest { env, ..CreateRequest::default() }).await.unwrap();
    let command = format!("echo $MY_API_TOKEN; echo {secret} >&2; (sleep 0.1; echo $MY_API_TOKEN) &");
    let result = host.exec(&id, ExecRequest { command, ..ExecRequest::default() }, None).await.unwrap();
    let wait = ExecRequest {
        command: "wait; export OTHER_SECRET=another-secret-99".to_owned(),
        ..ExecRequest::default()
    };
    let second = host.exec(&id, wait, None).await.unwrap();
    // A variable that was exported meanwhile counts from then on.
    let third = ExecRequest { command: "echo $OTHER_SECRET".to_owned(), ..ExecRequest::default() };
    let third = host.exec(&id, third, None).await.unwrap();
    assert!(third.stdout.contains("[REDACTED:"), "{third:?}");
    let request = ctx_host::OutputRequest {
        call: 1,
        stream: ctx_host::Output::Stdout,
        offset: 0,
        limit: None,
        grep: None,
        ..ctx_host::OutputRequest::default()
    };
    let page = host.output(&id, &request).unwrap();
    let seen = format!("{result:?} {second:?} {page:?} {:?}", records.0.lock().unwrap());
    assert!(!seen.contains(&secret), "{seen}");
    assert!(result.stdout.contains("[REDACTED:"));
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_tells_a_shell_s_life_in_order() {
    let bench = Bench::new(Kind::Bash).await;
    bench.run("echo hi").await;
    bench.run_for("sleep 60", 100).await;
    bench.run("exit 2").await;
    let records = bench.records.clone();
    bench.end().await;
    let types: Vec<String> = records
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|record| serde_json::to_value(record).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    let want = "shell_created shell_exec_started shell_exec_finished shell_exec_started shell_interrupted \
                shell_exec_finished shell_exec_started shell_restarted shell_exec_finished shell_destroyed";
    assert_eq!(types.join(" "), want.split_whitespace().collect::<Vec<_>>().join(" "));
}

fn echo() -> ExecRequest {
    ExecRequest { command: "echo here".to_owned(), ..ExecRequest::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_that_a_command_waits_for_is_not_idle_while_none_may_begin() {
    let bench = Bench::with(Kind::Bash, |limits| limits.idle_max = Duration::from_millis(500)).await;
    bench.host.hold().send_replace(true);
    let mut waits = Box::pin(bench.try_run(echo()));
    let early = tokio::time::timeout(Duration::from_secs(2), &mut waits).await;
    assert!(early.is_err(), "it was not to begin: {early:?}");
    bench.host.hold().send_replace(false);
    assert_eq!(waits.await.unwrap().stdout, "here\n");

    bench.host.hold().send_replace(true);
    let given_up = tokio::time::timeout(Duration::from_millis(10), bench.try_run(echo())).await;
    assert!(given_up.is_err(), "it was not to begin: {given_up:?}");
    eventually("the end of a shell that nobody waits for", || bench.host.list().is_empty()).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_were_given_up_keep_no_place_while_none_may_begin() {
    let bench = Bench::with(Kind::Bash, |limits| limits.waiting_max = 2).await;
    bench.host.hold().send_replace(true);
    for n in 0..5 {
        let given_up = tokio::time::timeout(Duration::ZERO, bench.try_run(echo())).await;
        assert!(given_up.is_err(), "command {n}: {given_up:?}");
    }
    let crowd = tokio::time::timeout(Duration::from_millis(200), async {
        tokio::join!(bench.try_run(echo()), bench.try_run(echo()), async {
            assert_eq!(bench.try_run(echo()).await.unwrap_err().code(), Code::Ebusy, "two wait");
        })
    });
    assert!(crowd.await.is_err(), "they were not to begin");
    bench.host.hold().send_replace(false);
    assert_eq!(bench.try_run(echo()).await.unwrap().stdout, "here\n");
    assert_eq!(bench.host.list()[0].commands, 1, "those that were given up did not run");
    bench.end().await;
}
