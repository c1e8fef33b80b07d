//! `ctx reindex`: builds the index anew from the logs, while no daemon is up.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_engine::behind::meta_of;
use ctx_engine::start::session_logs;
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

/// Build the index of sessions and messages anew
///
/// The index is made from the logs and is the truth for nothing: a daemon brings it up to date when it starts and
/// builds it anew when it is damaged. This does the same while no daemon is up, from nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx reindex
  ctx reindex --quiet && ctx stats")]
pub struct Args {
    /// Say nothing when all went well
    #[arg(short, long)]
    quiet: bool,
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
        return Err(Failure::new(Code::Eio, format!("the index is not complete: {error}"))
            .hint("`ctx doctor` says more; what was read is there, and the daemon tries the rest again"));
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
            format!("a daemon runs at {} and keeps the index", root.path.display()),
        )
        .hint("it catches up by itself; to build the index from nothing, stop the daemon and ask again")),
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
    let words = format!("{} of {} sessions, text of {}", lists.logs, lists.logs_total, text.logs);
    bar.show(lists.bytes + text.bytes, lists.bytes_total.saturating_mul(2), &words);
}
