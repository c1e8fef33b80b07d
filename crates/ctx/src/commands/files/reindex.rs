//! `ctx reindex`: rebuilds the index from the logs while no daemon is running.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_engine::followers::meta_of;
use ctx_engine::paths::session_logs;
use ctx_journal::Journal;
use ctx_session::Code;
use ctx_views::db::{IndexDb, Options, Progress as Read};
use rustix::fs::{FlockOperation, flock};

use crate::failure::Failure;
use crate::index::{self, INDEX};
use crate::output;
use crate::progress::Progress;
use crate::root::Root;

/// How often the progress is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Rebuild the index of sessions and messages
///
/// The index is derived from the logs and can always be rebuilt. The daemon updates it at its start and rebuilds
/// it if it is damaged. This command rebuilds it while no daemon is running.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx reindex
  ctx reindex --quiet && ctx stats

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// Print nothing on success
    #[arg(short, long)]
    quiet: bool,
    /// Print what the index has as JSON, as `ctx stats` does
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    // Says what is to be done where there is no root at all.
    root.reader()?;
    let _lock = take_root(root)?;
    let begun = Instant::now();
    remove(root)?;
    let index = open(root)?;
    let bar = Progress::new("indexing");
    index.catch_up(|_| {});
    while !index.wait_all(LOOK) {
        show(&bar, index.progress());
    }
    index.flush();
    bar.clear();
    let failed = index.last_error();
    index.close();
    if let Some(error) = failed {
        return Err(Failure::new(Code::Eio, format!("the index is incomplete: {error}"))
            .hint("`ctx doctor` shows details; the daemon retries what is missing"));
    }
    if args.json {
        return crate::commands::reading::stats::print_all(root);
    }
    if !args.quiet {
        let stats = ctx_views::db::IndexReader::open(&index::path(root))?;
        let sessions = stats.queries().known_logs()?.len();
        output::say(format_args!("indexed {sessions} sessions in {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Keeps daemons away for as long as it is held.
fn take_root(root: &Root) -> Result<std::fs::File, Failure> {
    let path = root.path.join(".state/lock");
    let lock = OpenOptions::new().read(true).write(true).open(&path);
    let lock = lock.map_err(|error| Failure::io(path.display(), error))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Failure::new(
            Code::Ebusy,
            format!("a daemon is running at {} and writes the index", root.path.display()),
        )
        .hint("it updates the index automatically; to rebuild it, stop the daemon first")),
        Err(error) => Err(Failure::io(path.display(), error.into())),
    }
}

fn remove(root: &Root) -> Result<(), Failure> {
    for suffix in ["", "-wal", "-shm"] {
        let path = root.path.join(format!("{INDEX}{suffix}"));
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::io(path.display(), error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn open(root: &Root) -> Result<IndexDb, Failure> {
    let journal: Arc<dyn Journal> = root.journal()?;
    let of_logs = journal.clone();
    let dir = root.dir()?;
    let options = Options {
        session_logs: Arc::new(move || session_logs(&*of_logs)),
        meta_of: meta_of(journal.clone(), dir.clone()),
    };
    Ok(IndexDb::open(&dir, Path::new(INDEX), journal, options)?)
}

fn show(bar: &Progress, read: Read) {
    let (lists, text) = (read.lists, read.text);
    let words = format!("{} of {} sessions listed, {} searchable", lists.logs, lists.logs_total, text.logs);
    bar.show(lists.bytes + text.bytes, lists.bytes_total.saturating_mul(2), &words);
}
