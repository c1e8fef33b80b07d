//! Commands that print much: on both streams, in bursts, without end, and until their shell is closed.

use std::time::Duration;

use ctx_host::{
    CreateRequest, ExecRequest, ExecResult, Output, Progress, ShellError, ShellHost, ShellRecord,
};
use tokio::sync::watch;

use super::many::whole_of;
use super::support::{Bench, Kind, Records, assert_state, assert_stopped, config, eventually, with_state};

const MUCH: u64 = 4 << 20;

/// Starts a command that prints without end; the second future is ready when it has printed much.
fn endless(
    bench: &Bench,
    command: &str,
) -> (impl Future<Output = Result<ExecResult, ShellError>>, impl Future<Output = ()>) {
    let (sender, mut seen) = watch::channel(Progress::default());
    let request = ExecRequest { command: command.to_owned(), ..ExecRequest::default() };
    let printed = async move {
        seen.wait_for(|seen| seen.stdout_bytes + seen.stderr_bytes > MUCH).await.unwrap();
    };
    (bench.host.exec(&bench.id, request, Some(sender)), printed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_output_ends_in_time_and_the_next_command_has_its_own() {
    let bench = with_state(Kind::Bash).await;
    for command in ["yes", "yes >&2; echo never", "yes & yes >&2; echo never", "yes | cat; echo never"] {
        assert_stopped(&bench, command).await;
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_output_is_stopped_when_nobody_waits_for_it_any_more() {
    let bench = with_state(Kind::Bash).await;
    for command in ["yes", "yes >&2", "yes & yes >&2"] {
        let (running, printed) = endless(&bench, command);
        tokio::select! {
            result = running => panic!("{command} ended by itself: {result:?}"),
            () = printed => (),
        }
        assert_state(&bench).await;
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_output_is_interrupted() {
    let bench = with_state(Kind::Bash).await;
    let (running, printed) = endless(&bench, "yes; echo never");
    let (result, ()) = tokio::join!(running, async {
        printed.await;
        assert!(bench.host.interrupt(&bench.id).unwrap().interrupted);
    });
    let result = result.unwrap();
    assert_eq!((result.exit_code, result.shell_restarted), (130, false), "{result:?}");
    assert!(!result.stdout.contains("never"));
    assert_state(&bench).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_is_closed_in_the_middle_of_endless_output() {
    let bench = Bench::new(Kind::Bash).await;
    let (running, printed) = endless(&bench, "yes & yes >&2");
    let closed = async {
        printed.await;
        bench.host.destroy(&bench.id).await.unwrap();
    };
    let (result, ()) =
        tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(running, closed) }).await.unwrap();
    assert_eq!(result.unwrap_err().code().name(), "EHOSTDOWN");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_printed_until_its_shell_was_closed_is_recorded_to_the_last_byte() {
    let bench = Bench::new(Kind::Bash).await;
    std::fs::write(bench.path("out"), "one line of very many lines\n".repeat(200_000)).unwrap();
    let command = "cat out; echo the last line; touch done; sleep 300".to_owned();
    let request = ExecRequest { command, ..ExecRequest::default() };
    let (result, ()) = tokio::join!(bench.try_run(request), async {
        eventually("all output", || bench.path("done").exists()).await;
        bench.host.destroy(&bench.id).await.unwrap();
    });
    assert!(result.is_err());
    let records = bench.records.clone();
    bench.end().await;
    let cut = records.0.lock().unwrap().iter().find_map(|record| match record {
        ShellRecord::ExecCut { stdout_bytes, stdout, .. } => Some((*stdout_bytes, stdout.clone())),
        _ => None,
    });
    let (bytes, text) = cut.unwrap();
    assert_eq!(bytes, 5_600_014);
    assert!(text.ends_with("the last line\n"), "{text:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_streams_are_whole_however_fast_they_come() {
    let bench = Bench::new(Kind::Bash).await;
    let text = |name: &str| (0..300_000).map(|n| format!("{name} line {n}\n")).collect::<String>();
    let (out, err) = (text("stdout"), text("stderr"));
    std::fs::write(bench.path("out"), &out).unwrap();
    std::fs::write(bench.path("err"), &err).unwrap();
    // The second one is quiet in between for long enough to be read in place again.
    let bursts = "for from in 1 2 3; do cat out; sleep 0.1; done; cat err >&2";
    for (call, command, times) in [(1, "cat out & cat err >&2; wait", 1), (3, bursts, 3)] {
        let result = bench.run(command).await;
        assert_eq!((result.call, result.exit_code), (call, 0), "{command}");
        assert!(whole_of(&bench.host, &bench.id, call, Output::Stdout) == out.repeat(times), "{command}");
        assert!(whole_of(&bench.host, &bench.id, call, Output::Stderr) == err, "{command}");
        assert_eq!(bench.out("echo next").await, "next\n");
    }
    bench.end().await;
}

/// A server that ends waits for its threads: those that read must end too.
#[test]
fn a_server_ends_in_the_middle_of_endless_output() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let records = std::sync::Arc::new(Records::default());
    let host = runtime.block_on(async {
        let host = ShellHost::new(config(Kind::Bash, dir.path()), records).unwrap();
        let id = host.create(CreateRequest::default()).await.unwrap();
        let (sender, mut seen) = watch::channel(Progress::default());
        let request = ExecRequest { command: "yes".to_owned(), ..ExecRequest::default() };
        let running = host.clone();
        tokio::spawn(async move { running.exec(&id, request, Some(sender)).await });
        seen.wait_for(|seen| seen.stdout_bytes > MUCH).await.unwrap();
        host
    });
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop((runtime, host));
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(30)).unwrap();
}
