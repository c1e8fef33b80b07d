//! Starts of the daemon: `start DIR`. On 10,000 sessions with 1 GB of logs, beside starts on an empty root, by turns;
//! and the first start on the same logs without any view. DIR is kept; it is filled when it is empty.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ctx_bench::history::{self, Outcome};
use ctx_bench::{Daemon, millis, percentile, row, target};
use ctx_views::db::IndexReader;

const SESSIONS: u64 = 10_000;
const MESSAGES_EACH: u64 = 100;
const ROUNDS: usize = 9;
/// A file that has not grown for this long is complete.
const QUIET: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(300);

fn main() -> Outcome<()> {
    let root = std::env::args().nth(1).map(PathBuf::from).ok_or("a directory to work in is needed")?;
    history::generate(&root, SESSIONS, MESSAGES_EACH)?;
    if !root.join(".state/index.db").exists() {
        first_start(&root)?;
    }
    let (mut ours, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let empty = tempfile::tempdir()?;
        beside.push(timed(&empty.path().join("root")));
        ours.push(timed(&root));
    }
    let (ours, beside) = (percentile(&mut ours, 50), percentile(&mut beside, 50));
    let more = ours.saturating_sub(beside);
    row(
        "start with 10,000 sessions, 1 GB of logs, p50",
        &millis(ours),
        &format!("{}, start with none", millis(beside)),
        &format!("{} more", millis(more)),
        &target("< 1 s more", more < Duration::from_secs(1)),
    );
    Ok(())
}

/// From the command to the first connection.
fn timed(root: &Path) -> Duration {
    let begun = Instant::now();
    let daemon = Daemon::on(root, &[]);
    let took = begun.elapsed();
    drop(daemon);
    took
}

/// No index, no session files, no audit log: the doors do not wait for them.
fn first_start(root: &Path) -> Outcome<()> {
    let begun = Instant::now();
    let daemon = Daemon::on(root, &[]);
    let doors = begun.elapsed();
    let seconds = |what: &str| format!("{what} after {:.1} s", begun.elapsed().as_secs_f64());
    let index = IndexReader::open(&root.join(".state/index.db"))?;
    wait("the lists", || Ok(index.queries().known_logs()?.len() as u64 == SESSIONS))?;
    let lists = seconds("lists complete");
    wait("the full text", || Ok(index.queries().unread()? == 0))?;
    let text = seconds("full text");
    wait("the session files", || has_files(root))?;
    let files = seconds("session files");
    wait_until_quiet(&root.join(".state/audit.jsonl"))?;
    row(
        "first start with the same logs, without any view: until the doors answer",
        &millis(doors),
        &format!("behind that: {lists}, {text}, {files}"),
        "",
        "",
    );
    drop(daemon);
    Ok(())
}

/// Whether every session directory has its `state`, which is written last.
fn has_files(root: &Path) -> Outcome<bool> {
    let uid = rustix::process::geteuid().as_raw();
    for session in std::fs::read_dir(root.join(format!("home/{uid}/agent/coder/session")))? {
        let session = session?.path();
        if session.join("events.jsonl").exists() && !session.join("state").exists() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn wait(what: &str, mut done: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() > deadline {
            return Err(format!("{what} did not come").into());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The audit log says nowhere that it is complete.
fn wait_until_quiet(file: &Path) -> Outcome<()> {
    let (mut size, mut since) = (0, Instant::now());
    wait("the audit log", || {
        let now = std::fs::metadata(file)?.len();
        if now != size {
            (size, since) = (now, Instant::now());
        }
        Ok(since.elapsed() > QUIET)
    })
}
