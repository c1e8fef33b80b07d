//! Snapshots beside what a user would use instead: `git stash create` and `rsync` for many files, `cp` and `sync` for new
//! content.
//!
//! `snapshot [FILES] [MEBIBYTES]`; default: 100,000 files and 1,024 MiB. Needs git and rsync for the comparison.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ctx_bench::{row, target};
use ctx_cage::rights::Rights;
use ctx_snapshot::workspace::Ask;
use ctx_snapshot::{Limits, Reason, Snapshots, Workspace};

/// A file that changed so shortly before it is read again the next time.
const SETTLED: Duration = Duration::from_millis(2_100);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: usize| args.next().map_or(Ok(default), |text| text.parse());
    let (files, mebibytes) = (number(100_000)?, number(1_024)?);
    let dir = tempfile::tempdir()?;
    many(&dir.path().join("many"), &dir.path().join("store-many"), files)?;
    much(&dir.path().join("much"), &dir.path().join("store-much"), mebibytes)?;
    Ok(())
}

fn open(work: &Path, store: &Path) -> Result<Workspace, Box<dyn std::error::Error>> {
    let limits = Limits { budget_bytes: u64::MAX, ..Limits::default() };
    let snapshots = Snapshots::new(store.to_owned(), Vec::new(), limits, Box::new(|_| true));
    let uid = rustix::process::geteuid().as_raw();
    Ok(snapshots.open(work, uid, Rights::own())?)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let done = work();
    (done, begun.elapsed())
}

fn shown(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn many(work: &Path, store: &Path, files: usize) -> Result<(), Box<dyn std::error::Error>> {
    for n in 0..files {
        let dir = work.join(format!("{}/{}", n / 10_000, n / 100 % 100));
        if n % 100 == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        std::fs::write(dir.join(format!("file-{n}.txt")), format!("the content of file {n}\n").repeat(10))?;
    }
    let workspace = open(work, store)?;
    let take = || workspace.take(Ask::new(Reason::Asked));
    let (first, first_time) = timed(take);
    first?;
    std::thread::sleep(SETTLED);
    take()?;
    let (unchanged, unchanged_time) = timed(take);
    unchanged?;
    let change = |round: usize| -> std::io::Result<()> {
        for n in (0..files).step_by((files / 100).max(1)) {
            let path = work.join(format!("{}/{}/file-{n}.txt", n / 10_000, n / 100 % 100));
            std::fs::write(path, format!("changed in round {round}\n"))?;
        }
        Ok(())
    };
    change(1)?;
    let (changed, changed_time) = timed(take);
    changed?;
    let git = |args: &[&str]| {
        let who = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "gc.auto=0"];
        run(Command::new("git").args(who).args(args).current_dir(work))
    };
    let has_git = git(&["init", "-q", "."]) && git(&["add", "-A"]) && git(&["commit", "-q", "-m", "first"]);
    change(2)?;
    let (_, stash) = timed(|| git(&["stash", "create"]));
    let copy = work.with_extension("copy");
    let from = format!("{}/", work.display());
    let rsync = || run(Command::new("rsync").args(["-a", "--exclude=.git"]).arg(&from).arg(&copy));
    let has_rsync = rsync();
    let (_, same) = timed(rsync);
    change(3)?;
    let (_, some) = timed(rsync);
    let beside = |stash: Duration, rsync: Duration| {
        let stash = if has_git { shown(stash) } else { "no".to_owned() };
        let rsync = if has_rsync { shown(rsync) } else { "no".to_owned() };
        format!("{stash} git stash create (100 changed), {rsync} rsync")
    };
    let ratio = |ours: Duration| format!("{:.2}", ours.as_secs_f64() / stash.as_secs_f64());
    let work = format!("snapshot of {files} files, unchanged (the first: {})", shown(first_time));
    let holds = unchanged_time < Duration::from_secs(1);
    row(&work, &shown(unchanged_time), &beside(stash, same), &ratio(unchanged_time), &target("< 1 s", holds));
    let holds = changed_time < Duration::from_millis(1_200);
    let work = format!("snapshot of {files} files, 100 changed");
    row(&work, &shown(changed_time), &beside(stash, some), &ratio(changed_time), &target("< 1.2 s", holds));
    Ok(())
}

fn much(work: &Path, store: &Path, mebibytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::create_dir_all(work)?;
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for n in 0..mebibytes.div_ceil(64) {
        let mut bytes = Vec::with_capacity(64 << 20);
        while bytes.len() < 64 << 20 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        std::fs::write(work.join(format!("large-{n}")), bytes)?;
    }
    run(&mut Command::new("sync"));
    let workspace = open(work, store)?;
    let (taken, ours) = timed(|| workspace.take(Ask::new(Reason::Asked)));
    taken?;
    let copy = work.with_extension("copy");
    let (_, copied) =
        timed(|| run(Command::new("cp").arg("-a").arg(work).arg(&copy)) && run(&mut Command::new("sync")));
    let ratio = ours.as_secs_f64() / copied.as_secs_f64();
    let work = format!("snapshot of {mebibytes} MiB of new content that does not shrink");
    let beside = format!("{} cp and sync", shown(copied));
    row(&work, &shown(ours), &beside, &format!("{ratio:.2}"), &target("≤ 4", ratio <= 4.0));
    Ok(())
}

/// Whether a program is there and did what it was asked.
fn run(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
