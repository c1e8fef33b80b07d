//! `index.db`: the SQLite view for lists, search and joins, caught up and rebuilt from the logs.
//!
//! It is the truth for nothing: delete it, and the next start builds it again. One thread writes it
//! (`writer`), fed with what the engine commits and with what readers find in the logs (`reader`); both meet at
//! the `desk`. Nobody waits for it: a commit that finds the desk full is read from its log later.

mod column;
mod control;
mod desk;
mod issues;
mod query;
mod reader;
mod runs;
mod schema;
mod spaced;
mod store;
mod stretch;
mod subagents;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ctx_journal::{Entry, Journal, JournalError, LogPath};
use ctx_session::project::Project;
use ctx_session::record::{Failure, SessionMeta};
use ctx_session::{Code, IssueId, Record, SessionId};
use rusqlite::Connection;

use crate::dir::RootDir;
use crate::error::ViewError;
use column::Print;
pub use column::Standing;
use desk::{Desk, Job, Staff, Wait, Work};
pub use desk::{Done, Progress};
pub use issues::{PROJECT_LOGS, project_logs, project_of_log};
pub use query::list::{ListQuery, SessionItem, Sort};
pub use query::pages::{MessageItem, MessagesQuery, RunItem, ToolCallItem};
pub use query::search::{Hit, Piece, RANKED_TOGETHER, SearchQuery, SearchSort, SessionHits};
pub use query::standing::{KnownLog, mark_unread};
pub use query::stats::{Share, Spent, Stats, StatsQuery, ToolStats};
pub use query::{Flawed, IndexReader, Page, Queries, Viewer};
pub use schema::{Remade, SCHEMA_VERSION};
pub use store::OUTPUT_BYTES;
use stretch::{Part, Seen, Stretch};

/// Connections kept for the next query.
const READERS_KEPT: usize = 4;

/// Finds every session log that there is.
pub type SessionLogs = Arc<dyn Fn() -> Result<Vec<LogPath>, JournalError> + Send + Sync>;
/// Tells what session a log is, by its first record, if that can be read, and by what the index had of it before.
pub type MetaOf =
    Arc<dyn Fn(&LogPath, Option<SessionMeta>, Option<SessionMeta>) -> Option<SessionMeta> + Send + Sync>;

/// What the index has to be told by its owner.
#[derive(Clone)]
pub struct Options {
    pub session_logs: SessionLogs,
    pub meta_of: MetaOf,
}

/// The index could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    #[error("{}: {error}; `ctx reindex` rebuilds it", path.display())]
    Sqlite { path: PathBuf, error: rusqlite::Error },
    #[error("{}: cannot {action}: {error}", path.display())]
    Io { path: PathBuf, action: &'static str, error: std::io::Error },
    #[error("{}: has version {version}; this ctx reads version {SCHEMA_VERSION}; start the daemon to rebuild it", path.display())]
    OtherVersion { path: PathBuf, version: i64 },
    #[error("the index cannot read a log: {0}")]
    Log(#[from] JournalError),
    #[error(transparent)]
    View(#[from] ViewError),
    #[error("`{cursor}` is not a page cursor; leave it out to start with the first page")]
    BadCursor { cursor: String },
    #[error("`{text}` has no word to search for")]
    BadQuery { text: String },
}

impl DbError {
    fn sqlite(path: &Path, error: rusqlite::Error) -> DbError {
        DbError::Sqlite { path: path.to_owned(), error }
    }

    pub fn code(&self) -> Code {
        match self {
            DbError::BadCursor { .. } | DbError::BadQuery { .. } => Code::Einval,
            DbError::Log(error) => error.code(),
            DbError::Sqlite { .. } | DbError::Io { .. } | DbError::OtherVersion { .. } | DbError::View(_) => {
                Code::Eio
            }
        }
    }
}

/// What the threads of the index share.
struct Shared {
    root: RootDir,
    path: PathBuf,
    journal: Arc<dyn Journal>,
    options: Options,
    desk: Desk,
    readers: Readers,
    last_error: Mutex<Option<String>>,
}

/// Connections to read with. Those of a database that was thrown away are not used again.
#[derive(Default)]
struct Readers {
    free: Mutex<Vec<(u64, Connection)>>,
    /// Goes up when the database is made anew.
    made: AtomicU64,
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, Vec<(u64, Connection)>> {
        self.readers.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, DbError> {
        self.with(|db| query(db).map_err(|error| DbError::sqlite(&self.path, error)))
    }

    fn with<T>(&self, query: impl FnOnce(&Connection) -> Result<T, DbError>) -> Result<T, DbError> {
        let made = self.readers.made.load(Ordering::Acquire);
        let free = self.free().pop();
        let db = match free.filter(|(of, _)| *of == made) {
            Some((_, db)) => db,
            None => schema::open_to_read(&self.path)?,
        };
        let answer = query(&db);
        if let Err(error) = &answer
            && schema::is_broken(error)
        {
            self.note_error(error);
            self.desk.push(Work::Rebuild);
        }
        let mut free = self.free();
        if answer.is_ok() && free.len() < READERS_KEPT {
            free.push((made, db));
        }
        answer
    }

    fn forget_readers(&self) {
        self.readers.made.fetch_add(1, Ordering::AcqRel);
        self.free().clear();
    }

    fn note_error(&self, error: &dyn std::fmt::Display) {
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(error.to_string());
    }

    /// Starts a reader, if one is needed.
    fn hire(self: &Arc<Self>, staff: Staff) {
        match staff {
            Staff::Enough => {}
            Staff::OneMore => {
                let shared = Arc::clone(self);
                let thread = std::thread::Builder::new().name("index-reader".to_owned());
                if let Err(error) = thread.spawn(move || reader::run(&shared)) {
                    self.note_error(&error);
                    self.desk.reader_lost();
                }
            }
        }
    }
}

/// Closes the desk when the writer goes, however it goes, so that nobody waits for it.
struct Closing<'a>(&'a Desk);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.closed();
    }
}

/// The index, open in the daemon that writes it.
pub struct IndexDb {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    remade: Option<Remade>,
}

impl IndexDb {
    /// Opens the database at a path beneath the root and starts its writer. One that is missing, of another
    /// version or not sound is made anew; it is empty until [`IndexDb::catch_up`] has filled it. Where that fails, as
    /// on a full disk, questions are refused until the writer could make it.
    pub fn open(
        root: &RootDir,
        path: &Path,
        journal: Arc<dyn Journal>,
        options: Options,
    ) -> Result<IndexDb, DbError> {
        let path = root.path().join(path);
        let opened = schema::open(&path);
        let (last_error, remade) = match &opened {
            Ok((_, remade)) => (None, remade.clone()),
            Err(error) => (Some(error.to_string()), Some(Remade::Corrupt(error.to_string()))),
        };
        let opened = opened.ok().map(|(db, _)| {
            let known = writer::Known::look(&path, &db);
            (db, known)
        });
        let shared = Arc::new(Shared {
            root: root.clone(),
            path: path.clone(),
            journal,
            options,
            desk: Desk::default(),
            readers: Readers::default(),
            last_error: Mutex::new(last_error),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("index-writer".to_owned());
        let writer = thread
            .spawn(move || {
                let _closing = Closing(&of_thread.desk);
                writer::run(&of_thread, opened);
            })
            .map_err(|error| DbError::Io { path, action: "start the writer of", error })?;
        Ok(IndexDb { shared, writer: Mutex::new(Some(writer)), remade })
    }

    /// Why the database was made anew when it was opened, if it was.
    pub fn remade(&self) -> Option<&Remade> {
        self.remade.as_ref()
    }

    /// Compares the index with all logs and reads what it misses, behind the caller's back: lists first, then
    /// text. `on_progress` is called from other threads, once for every log that is done.
    pub fn catch_up(&self, on_progress: impl Fn(Progress) + Send + Sync + 'static) {
        self.shared.desk.set_on_progress(Arc::new(on_progress));
        let staff = self.shared.desk.ask(Job::Plan, 0);
        self.shared.hire(staff);
    }

    /// Waits until lists are complete; false when the time is over first.
    pub fn wait_lists(&self, timeout: Duration) -> bool {
        self.shared.desk.wait(Wait::Lists, timeout)
    }

    /// Waits until lists and full text are complete; false when the time is over first.
    pub fn wait_all(&self, timeout: Duration) -> bool {
        self.shared.desk.wait(Wait::All, timeout)
    }

    pub fn progress(&self) -> Progress {
        self.shared.desk.progress()
    }

    /// Shows the records of a commit, within 200 ms. Never waits: see the module.
    pub fn committed(&self, log: &LogPath, id: SessionId, records: &[Record]) {
        self.committed_to(log, id, records, 0);
    }

    /// The same, where it is known at which byte of the log the commit ends; 0: it is not.
    pub fn committed_to(&self, log: &LogPath, id: SessionId, records: &[Record], end: u64) {
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return };
        let seen = Seen { inode: 0, bytes: end, seq: last.seq, time: last.time, print: Print::of(last) };
        self.shared.desk.push(Work::Stretch(Stretch {
            log: log.clone(),
            id: Some(id),
            key: None,
            part: Part::Live,
            from: first.seq,
            next: last.seq + 1,
            records: records.to_vec(),
            lost: Vec::new(),
            seen: Some(seen),
            start_over: false,
            is_last: false,
            damage: Vec::new(),
        }));
    }

    /// A session's log was taken up to be written to, and ends with this record: what the index has of it is
    /// compared with that. Never waits.
    pub fn opened(&self, log: &LogPath, id: SessionId, last: Option<&Entry>) {
        let seen = last.map(|last| Seen {
            inode: 0,
            bytes: 0,
            seq: last.seq,
            time: last.time,
            print: Print::of_entry(last),
        });
        let next = seen.map_or(0, |seen| seen.seq + 1);
        self.shared.desk.push(Work::Stretch(Stretch {
            log: log.clone(),
            id: Some(id),
            key: None,
            part: Part::Opened,
            from: next,
            next,
            records: Vec::new(),
            lost: Vec::new(),
            seen,
            start_over: false,
            is_last: false,
            damage: Vec::new(),
        }));
    }

    /// A session's log turned out to be gone.
    pub fn missing(&self, log: &LogPath) {
        self.shared.desk.push(Work::Missing(vec![log.clone()]));
    }

    /// A session has failed in a way that its log does not tell, until more of the log is read. Never waits.
    pub fn broken(&self, log: &LogPath, failure: Failure) {
        self.shared.desk.push(Work::Broken(log.clone(), failure));
    }

    /// Shows an issue as its project has it now. Never waits, as above; who calls holds the project still.
    pub fn issue_changed(&self, log: &LogPath, project: &Project, issue: IssueId) {
        self.shared.desk.push(Work::Issues(issues::Issues {
            log: log.clone(),
            project: project.slug.clone(),
            next_seq: project.next_seq,
            issues: project.issue(issue).cloned().into_iter().collect(),
            is_whole: false,
        }));
    }

    /// A session's directory has another name now.
    pub fn moved(&self, from: &LogPath, to: &LogPath) {
        self.shared.desk.push(Work::Moved { from: from.clone(), to: to.clone() });
    }

    /// A session was purged: nothing of it is left here when this returns; otherwise why not.
    pub fn purged(&self, id: SessionId) -> Result<(), String> {
        let known = || self.ask(|queries| queries.log_of(id)).map_err(|error| error.to_string());
        // What was said last may still be on its way.
        self.flush();
        let Some(log) = known()? else { return Ok(()) };
        self.removed(&log);
        self.flush();
        match known()? {
            None => Ok(()),
            Some(_) => {
                Err(self.last_error().unwrap_or_else(|| "the index is not written any more".to_owned()))
            }
        }
    }

    fn removed(&self, log: &LogPath) {
        self.shared.desk.push(Work::Removed(log.clone()));
    }

    /// Forgets a session and reads its log again, after a repair.
    pub fn reindex(&self, log: &LogPath) {
        self.removed(log);
        self.flush();
        let staff = self.shared.desk.ask(Job::Lists(log.clone()), 0);
        self.shared.hire(staff);
    }

    /// Throws the database away and reads every log again.
    pub fn rebuild(&self) {
        self.shared.desk.push(Work::Rebuild);
        self.flush();
    }

    /// Waits until everything that was handed over is written.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        self.shared.desk.push(Work::Flush(done));
        // Fails when the writer is gone: then there is nothing to wait for.
        let _ = written.recv();
    }

    /// Asks the database something.
    pub fn ask<T>(&self, query: impl FnOnce(&Queries<'_>) -> Result<T, DbError>) -> Result<T, DbError> {
        self.shared.with(|db| query(&Queries { db, path: &self.shared.path }))
    }

    /// What went wrong last, if anything did: the index may be behind, and goes on trying.
    pub fn last_error(&self) -> Option<String> {
        self.shared.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes what waits and stops. Reading that is under way is taken up at the next start.
    pub fn close(&self) {
        self.shared.desk.stop();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            // A writer that panicked has nothing more to write.
            let _ = writer.join();
            self.shared.desk.wait_for_readers();
        }
    }
}

impl Drop for IndexDb {
    fn drop(&mut self) {
        self.close();
    }
}
