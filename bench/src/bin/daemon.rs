//! The daemon as its clients see it: message to first delta, memory idle and with 10,000 sessions, and reading
//! commands as whole commands.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ctx_bench::{Daemon, ctx, millis, percentile, row, target};

const MESSAGES: usize = 400;
const SESSIONS: usize = 10_000;

fn main() {
    first_delta();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("root");
    memory_and_start(&root);
    whole_commands(&root);
}

/// The same message again and again, each to its first delta; beside it, the one append it cannot do without.
fn first_delta() {
    let daemon = Daemon::fresh(&[]);
    let mut client = daemon.client();
    let mut file =
        OpenOptions::new().create(true).append(true).open(daemon.root.join("plain")).expect("a file");
    let (mut ours, mut append) = (Vec::new(), Vec::new());
    for n in 0..MESSAGES {
        let started = Instant::now();
        file.write_all(&[b'x'; 900]).expect("a write");
        file.sync_data().expect("a sync");
        append.push(started.elapsed());
        let started = Instant::now();
        client.send("default", &format!("message {n}"));
        client.until("delta");
        ours.push(started.elapsed());
        client.until("done");
    }
    let (ours, append) = (percentile(&mut ours, 50), percentile(&mut append, 50));
    let on_top = ours.saturating_sub(append);
    row(
        "post to first delta over the socket, p50",
        &millis(ours),
        &format!("{}, the append alone", millis(append)),
        &format!("{} on top", millis(on_top)),
        &target("< 3 ms on top", on_top < Duration::from_millis(3)),
    );
}

fn memory_and_start(root: &Path) {
    let empty = Instant::now();
    let daemon = Daemon::on(root, &[]);
    let empty = empty.elapsed();
    std::thread::sleep(Duration::from_millis(300));
    let idle = daemon.memory_kb() as f64 / 1024.0;
    row(
        "memory, idle daemon",
        &format!("{idle:.1} MB"),
        "opencode serve: 415 MB",
        "",
        &target("< 30 MB", idle < 30.0),
    );
    let started = Instant::now();
    let mut client = daemon.client();
    for n in 0..SESSIONS {
        client.send(&format!("s{n}"), "hello");
        client.until("done");
    }
    let made = started.elapsed();
    drop(client);
    drop(daemon);
    let again = Instant::now();
    let daemon = Daemon::on(root, &[]);
    let again = again.elapsed();
    std::thread::sleep(Duration::from_millis(500));
    let with_sessions = daemon.memory_kb() as f64 / 1024.0;
    let more = again.saturating_sub(empty);
    row(
        "memory, 10,000 idle sessions",
        &format!("{with_sessions:.1} MB"),
        "opencode serve: 656 MB",
        "",
        &target("< 60 MB", with_sessions < 60.0),
    );
    row(
        "start with 10,000 sessions",
        &millis(again),
        &format!("{}, start with none", millis(empty)),
        &format!("{} more", millis(more)),
        &target("< 1 s more", more < Duration::from_secs(1)),
    );
    row(
        "10,000 sessions, a run each, one after the other",
        &format!("{:.0} runs/s", SESSIONS as f64 / made.as_secs_f64()),
        "",
        "",
        "",
    );
}

fn whole_commands(root: &Path) {
    let commands: [(&str, &[&str]); 3] = [
        ("ctx latest", &["latest", "coder"]),
        ("ctx ls", &["ls", "-A"]),
        ("ctx history | head", &["history", "coder"]),
    ];
    for (name, args) in commands {
        let (mut ours, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            beside.push(time(Command::new("/bin/true")));
            let mut command = Command::new(ctx());
            command.args(args).arg("--root").arg(root);
            ours.push(time(command));
        }
        let (ours, beside) = (percentile(&mut ours, 50), percentile(&mut beside, 50));
        row(
            &format!("`{name}`, whole command, 10,000 sessions, p50"),
            &millis(ours),
            &format!("{}, /bin/true", millis(beside)),
            &format!("{:.1}", ours.as_secs_f64() / beside.as_secs_f64()),
            &target("< 15 ms", ours < Duration::from_millis(15)),
        );
    }
}

fn time(mut command: Command) -> Duration {
    let started = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().expect("a command");
    assert!(status.success(), "{command:?}");
    started.elapsed()
}
