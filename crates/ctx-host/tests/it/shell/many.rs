//! Sixty-four shells at once: nothing crosses between shells or streams, and memory stays bounded.

use ctx_host::{CreateRequest, ExecRequest, Output, OutputRequest, ShellHost};

use super::support::{Bench, Kind, Records, alive, config};

const SHELLS: usize = 64;
/// About 2.2 MB on stdout and 0.7 MB on stderr of every shell.
const LINES: usize = 80_000;

/// Every line names the shell and the stream it belongs to.
fn script(n: usize) -> String {
    format!(
        "awk 'BEGIN {{ for (i = 0; i < {LINES}; i++) {{ print \"shell {n} stdout line \" i; \
         if (i % 3 == 0) print \"shell {n} stderr line \" i > \"/dev/stderr\" }} }}'"
    )
}

fn expected(n: usize, stream: &str, step: usize) -> String {
    (0..LINES).step_by(step).map(|i| format!("shell {n} {stream} line {i}\n")).collect()
}

/// Megabytes of memory: what this process holds (`VmRSS`), or has held at most (`VmHWM`).
fn memory_mb(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse::<usize>().unwrap() / 1024
}

/// Forgets how much this process has held so far.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// Set for a process that runs one of the tests below alone: its memory is that test's.
const ALONE_VARIABLE: &str = "CTX_TEST_ALONE";

/// Runs a test of this binary in a process of its own.
fn alone(test: &str) {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(ALONE_VARIABLE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{test}");
}

fn whole(host: &ShellHost, id: &str, stream: Output) -> String {
    whole_of(host, id, 2, stream)
}

pub(super) fn whole_of(host: &ShellHost, id: &str, call: u64, stream: Output) -> String {
    let (mut text, mut at) = (String::new(), Some(0));
    while let Some(offset) = at {
        let request = OutputRequest {
            call,
            stream,
            offset,
            limit: Some(256 << 10),
            grep: None,
            ..OutputRequest::default()
        };
        let page = host.output(id, &request).unwrap();
        text.push_str(&page.text);
        at = page.next_offset;
    }
    text
}

#[test]
fn sixty_four_shells_print_megabytes_and_nothing_crosses() {
    for kind in [Kind::Bash, Kind::Dash] {
        let test = format!("shell::many::{kind:?}_sixty_four_for_the_test_above").to_lowercase();
        alone(&test);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bash_sixty_four_for_the_test_above() {
    sixty_four(Kind::Bash).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dash_sixty_four_for_the_test_above() {
    sixty_four(Kind::Dash).await;
}

async fn sixty_four(kind: Kind) {
    if std::env::var_os(ALONE_VARIABLE).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = ShellHost::new(config(kind, dir.path()), std::sync::Arc::new(Records::default())).unwrap();
    let mut ids = Vec::new();
    for _ in 0..SHELLS {
        ids.push(host.create(CreateRequest::default()).await.unwrap());
    }
    assert!(host.create(CreateRequest::default()).await.is_err(), "64 is the limit");
    let mut pids: Vec<i32> = Vec::new();
    for id in &ids {
        let command = "sleep 600 & echo $$ $!".to_owned();
        let said = host.exec(id, ExecRequest { command, ..ExecRequest::default() }, None).await.unwrap();
        pids.extend(said.stdout.split_whitespace().map(|pid| pid.parse::<i32>().unwrap()));
    }
    assert!(pids.len() == 2 * SHELLS && pids.iter().all(|pid| alive(*pid)), "{pids:?}");
    reset_peak();
    let before = memory_mb("VmRSS");
    let runs: Vec<_> = ids
        .iter()
        .enumerate()
        .map(|(n, id)| {
            let (host, id) = (host.clone(), id.clone());
            let timeout = Some(std::time::Duration::from_secs(900));
            let request = ExecRequest { command: script(n), timeout, ..ExecRequest::default() };
            tokio::spawn(async move { host.exec(&id, request, None).await.unwrap() })
        })
        .collect();
    for (n, run) in runs.into_iter().enumerate() {
        let result = run.await.unwrap();
        assert_eq!((result.exit_code, result.truncated), (0, true), "shell {n}");
        let begin = format!("shell {n} stdout line 0\n");
        assert!(result.stdout.starts_with(&begin), "shell {n}");
    }
    let grown = memory_mb("VmHWM").saturating_sub(before);
    // They printed over 300 MB together.
    assert!(grown < 150, "64 shells held {grown} MB at once");
    for (n, id) in ids.iter().enumerate() {
        assert!(whole(&host, id, Output::Stdout) == expected(n, "stdout", 1), "stdout of shell {n}");
        assert!(whole(&host, id, Output::Stderr) == expected(n, "stderr", 3), "stderr of shell {n}");
    }
    host.shutdown().await;
    assert!(pids.iter().all(|pid| !alive(*pid)), "processes are left: {pids:?}");
}

#[test]
fn a_flood_of_output_does_not_fill_the_memory() {
    alone("shell::many::flood_for_the_test_above");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_for_the_test_above() {
    if std::env::var_os(ALONE_VARIABLE).is_none() {
        return;
    }
    let bench = Bench::new(Kind::Bash).await;
    bench.out("true").await;
    let before = memory_mb("VmRSS");
    let (mut peak, mut done) = (0, false);
    let mut flood = Box::pin(bench.run("head -c 100000000 /dev/zero | tr '\\0' 'x'"));
    while !done {
        tokio::select! {
            result = &mut flood => { done = true; assert!(result.truncated); }
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => (),
        }
        peak = peak.max(memory_mb("VmRSS"));
    }
    drop(flood);
    // One line of 100 MB held as text would show.
    assert!(peak.saturating_sub(before) < 95, "{before} MB before, {peak} MB at the peak");
    bench.end().await;
}

/// Twenty megabytes of a file in the page cache come faster than they are worked on; every 10,007 bytes stands a
/// secret, so that reads cut some of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_fast_is_kept_redacted_byte_for_byte() {
    use ctx_text::redact::{Secrets, redact_text};
    let bench = Bench::new(Kind::Bash).await;
    let mut text = String::new();
    for number in 0..2_000 {
        let token = format!("ghp_{number:04}{}", "aB3".repeat(12));
        text.push_str(&format!("{number} {}\nthe token is {token}\n", "a plain line\n".repeat(765)));
    }
    let file = bench.dir.path().join("log");
    std::fs::write(&file, &text).unwrap();
    for call in 1..=2 {
        let result = bench.run(&format!("cat {}", file.display())).await;
        assert_eq!((result.call, result.exit_code), (call, 0));
    }
    // What is kept of the first call is what is kept of the second: neither begins or ends where the other does.
    let expected = redact_text(&std::sync::Arc::new(Secrets::none()), &text);
    assert!(expected.contains("the token is [REDACTED:") && !expected.contains("ghp_"));
    for call in 1..=2 {
        assert!(whole_of(&bench.host, &bench.id, call, Output::Stdout) == expected, "call {call}");
    }
    bench.end().await;
}
