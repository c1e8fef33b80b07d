//! Throughput of the text work on ordinary build output: `cargo bench -p ctx-text --bench text`.
//!
//! In MB for each second of CPU time, because other work on the machine must not count. With `--rows` it prints the row
//! of redaction for the table in docs/performance.md and nothing else; with the name of a file it looks at that alone.

#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a bench stops at the first thing that is wrong"
)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ctx_text::ansi::Cleaner;
use ctx_text::budget::{Budget, Collector, Grep, Plan};
use ctx_text::output::OutputStream;
use ctx_text::redact::{Redactor, Secrets};
use rustix::time::{ClockId, clock_gettime};

const TOTAL_BYTES: usize = 64 << 20;
const READ_BYTES: usize = 256 << 10;
const ROUNDS: usize = 5;

/// Lines as cargo, npm, make, pytest and a web server print them.
fn build_log() -> String {
    let lines = [
        "   Compiling serde_derive v1.0.229 (/home/tom/.cargo/registry/src/index/serde_derive-1.0.229)",
        "warning: unused variable: `context` --> crates/host/src/shell/mod.rs:128:13",
        "test session::rules::a_run_ends_once ... ok",
        "gcc -O2 -Wall -Wextra -fPIC -I../include -c src/tokenizer.c -o build/tokenizer.o",
        "npm warn deprecated inflight@1.0.6: This module is not supported, and leaks memory.",
        "[2026-11-15T08:11:02Z] INFO GET /api/sessions?page=2&limit=50 200 3.1 ms 7f3a9c21-5b7e-4d7a-9d3e-1c2b3a4d5e6f",
        "tests/test_login.py::test_password_is_hashed PASSED                                   [ 42%]",
        "  adding: node_modules/@babel/core/lib/index.js (deflated 68%)",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b Merge branch 'main' of github.com:example/project",
        "",
        "Downloading https://files.example.org/packages/ab/cd/requests-2.32.3-py3-none-any.whl (64 kB)",
        "make[2]: Entering directory '/home/tom/src/project/build/third_party/zlib'",
    ];
    let mut text = String::with_capacity(TOTAL_BYTES + 256);
    let mut seed = 1u64;
    while text.len() < TOTAL_BYTES {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let index = usize::try_from(seed >> 33).unwrap_or(0);
        text.push_str(lines[index % lines.len()]);
        text.push('\n');
    }
    text
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}

/// The least that redaction may do, in MB a second.
const REDACTED_MIN: f64 = 100.0;

fn best(name: &str, bytes: usize, round: impl FnMut()) {
    println!("{name:<28} {:>8.0} MB/s", rate(bytes, round));
}

/// The best of a few rounds, in MB a second.
fn rate(bytes: usize, mut round: impl FnMut()) -> f64 {
    let mut fastest = f64::MAX;
    for _ in 0..ROUNDS {
        let start = cpu_time();
        round();
        fastest = fastest.min((cpu_time() - start).as_secs_f64());
    }
    bytes as f64 / 1e6 / fastest
}

/// One read after another through a redactor.
fn redact(secrets: &Arc<Secrets>, input: &[u8], out: &mut Vec<u8>) {
    let mut redactor = Redactor::new(Arc::clone(secrets));
    for read in input.chunks(READ_BYTES) {
        out.clear();
        redactor.push(read, out);
        black_box(&out);
    }
}

/// One read after another through all that is done to a stream.
fn whole_stream(secrets: &Arc<Secrets>, input: &[u8]) {
    let mut stream = OutputStream::new(Arc::clone(secrets), &Plan::default());
    for read in input.chunks(READ_BYTES) {
        stream.push(read, &mut |bytes| {
            black_box(bytes);
        });
    }
    black_box(stream.finish());
}

fn one_file(secrets: &Arc<Secrets>, path: &str) {
    let input = std::fs::read(path).expect("a file that can be read");
    let mut out = Vec::with_capacity(READ_BYTES * 2);
    best("redact", input.len(), || redact(secrets, &input, &mut out));
    best("whole stream", input.len(), || whole_stream(secrets, &input));
}

/// Our own sources, over and over.
fn code() -> String {
    let mut sources = String::new();
    let mut dirs = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../ctx-host/src"))];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory of sources").flatten() {
            match entry.path() {
                path if path.is_dir() => dirs.push(path),
                path => sources.push_str(&std::fs::read_to_string(path).expect("a source")),
            }
        }
    }
    sources.repeat(TOTAL_BYTES / sources.len())
}

/// The rows for the table: a build's output and code. Says whether both are fast enough.
fn rows(secrets: &Arc<Secrets>, log: &str) -> bool {
    let mut fast = true;
    let mut out = Vec::with_capacity(READ_BYTES * 2);
    for (work, text) in [("a build's log", log), ("code", &code())] {
        let rate = rate(text.len(), || redact(secrets, text.as_bytes(), &mut out));
        let times = rate / REDACTED_MIN;
        fast &= rate >= REDACTED_MIN;
        println!(
            "| redaction, {work}, of one core | {rate:.0} MB/s |  | {times:.1}× the target | ≥ {REDACTED_MIN:.0} MB/s |"
        );
    }
    if !fast {
        eprintln!("redaction is slower than {REDACTED_MIN:.0} MB/s");
    }
    fast
}

fn main() -> ExitCode {
    let log = build_log();
    let coloured =
        log.replace("warning", "\u{1b}[33mwarning\u{1b}[0m").replace(" ok", " \u{1b}[32mok\u{1b}[0m");
    let secrets =
        Arc::new(Secrets::from_env([("MY_TOKEN", "quite-a-Secret-77"), ("DB_PASSWORD", "hunter2-hunter2")]));
    if std::env::args().any(|argument| argument == "--rows") {
        return if rows(&secrets, &log) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // Cargo itself puts an option before.
    if let Some(path) = std::env::args().skip(1).find(|argument| !argument.starts_with("--")) {
        one_file(&secrets, &path);
        return ExitCode::SUCCESS;
    }
    let one_line = vec![b'x'; TOTAL_BYTES];
    let mut out = Vec::with_capacity(READ_BYTES * 2);
    for (name, input) in [("redact, build log", log.as_bytes()), ("redact, one line", &one_line)] {
        best(name, input.len(), || redact(&secrets, input, &mut out));
    }
    let mut text = String::with_capacity(READ_BYTES * 2);
    for (name, input) in [("ansi, plain", &log), ("ansi, coloured", &coloured)] {
        best(name, input.len(), || {
            let mut cleaner = Cleaner::new();
            for read in input.as_bytes().chunks(READ_BYTES) {
                text.clear();
                cleaner.push(read, &mut text);
                black_box(&text);
            }
        });
    }
    let grep =
        Budget { grep: Some(Grep { pattern: "warning|error".into(), context: 1 }), ..Budget::default() };
    for (name, plan) in
        [("budget, default", Plan::default()), ("budget, grep", grep.plan().expect("a good pattern"))]
    {
        best(name, log.len(), || {
            let mut collector = Collector::new(&plan);
            for read in log.as_bytes().chunks(READ_BYTES) {
                collector.push(std::str::from_utf8(read).expect("ASCII"));
            }
            black_box(collector.finish());
        });
    }
    let zeros = vec![0; TOTAL_BYTES];
    let noise: Vec<u8> =
        (0..TOTAL_BYTES as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let inputs = [
        ("whole stream, plain", log.as_bytes()),
        ("whole stream, coloured", coloured.as_bytes()),
        ("whole stream, zeros", &zeros),
        ("whole stream, one line", &one_line),
        ("whole stream, noise", &noise),
    ];
    for (name, input) in inputs {
        best(name, input.len(), || whole_stream(&secrets, input));
    }
    if rows(&secrets, &log) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
