//! The one thread that writes `index.db`: takes what waits on the desk, and puts it into one transaction.

use std::path::Path;
use std::sync::Arc;

use ctx_journal::LogPath;
use rusqlite::{Connection, params};

use super::column::to_json;
use super::desk::{Job, Work};
use super::stretch::{self, Outside, Part, Put, Stretch};
use super::{Shared, issues, schema, store};

/// Memory for pages while much is written, and while little is; in KiB.
const CACHE_BUSY_KIB: i64 = 64 * 1024;
const CACHE_IDLE_KIB: i64 = 2 * 1024;

/// Text that goes into one transaction while nothing else waits: each leaves a segment of the full text, and segments
/// have to be merged later.
const TEXT_AT_ONCE: usize = 4 * 1024 * 1024;

/// What became of the stretches of a batch.
type Outcome = Vec<Put>;

/// The database as the writer knows it: what differs later, someone else did.
pub(super) struct Known {
    files: schema::OnDisk,
    version: i64,
}

impl Known {
    pub(super) fn look(path: &Path, db: &Connection) -> Known {
        Known { files: schema::OnDisk::look(path), version: data_version(db) }
    }
}

/// Writes until the desk is closed. What is known is from before anyone could ask for anything: this thread may
/// begin late. Without a database, which the disk may have no room for, one is tried to be made again and again.
pub(super) fn run(shared: &Arc<Shared>, opened: Option<(Connection, Known)>) {
    if let Some((db, _)) = &opened {
        // A crash just after a purge was written leaves there what was purged.
        truncate_wal(db);
    }
    let mut writer = Writer { opened, is_busy: false, is_fresh: false };
    while let Some(batch) = shared.desk.next_batch() {
        writer.turn(shared, batch);
    }
    if let Some((db, _)) = &writer.opened {
        // What follows a clean stop finds no log beside the database.
        truncate_wal(db);
    }
}

struct Writer {
    /// None while it cannot be made.
    opened: Option<(Connection, Known)>,
    is_busy: bool,
    /// It was made anew, and nothing has been written since.
    is_fresh: bool,
}

impl Writer {
    fn turn(&mut self, shared: &Arc<Shared>, mut batch: Vec<Work>) {
        // Whoever removed the files wants them made anew; what is written into removed files nobody finds.
        let opened = self.opened.as_mut().filter(|(_, known)| !known.files.are_others(&shared.path));
        let Some((db, known)) = opened else { return self.remake(shared, batch) };
        if batch.is_empty() {
            let staff = shared.desk.retry_stale();
            shared.hire(staff);
            // Only a repair writes into it besides: it has marked what is to be read again.
            let now = data_version(db);
            if std::mem::replace(&mut known.version, now) != now {
                let staff = shared.desk.ask(Job::Plan, 0);
                shared.hire(staff);
            }
            return;
        }
        let is_much =
            |work: &Work| matches!(work, Work::Stretch(s) if matches!(s.part, Part::Lists | Part::Text));
        let much = batch.iter().any(is_much);
        if much != self.is_busy {
            self.is_busy = much;
            set_cache(db, much);
        }
        let again = batch.iter().any(|work| matches!(work, Work::Rebuild));
        let written = write(shared, db, &mut batch);
        if let Err(error) = &written {
            shared.note_error(error);
        }
        if batch.iter().any(|work| matches!(work, Work::Removed(_))) {
            // What was purged stands in the log of the database until that is begun anew.
            truncate_wal(db);
        }
        match written {
            Ok(outcome) if !again => {
                self.is_fresh = false;
                after(shared, batch, outcome);
            }
            // A fresh database that fails too would fail for ever.
            Err(error) if !again && (self.is_fresh || !schema::needs_remake(&error)) => {
                give_up(shared, &batch);
                answer(batch);
            }
            Ok(_) | Err(_) => self.remake(shared, batch),
        }
    }

    /// Throws the database away, makes it anew and has everything read again.
    fn remake(&mut self, shared: &Arc<Shared>, batch: Vec<Work>) {
        shared.forget_readers();
        self.opened = None;
        match schema::make(&shared.path) {
            Ok(fresh) => {
                let known = Known::look(&shared.path, &fresh);
                self.opened = Some((fresh, known));
                self.is_fresh = true;
                let staff = shared.desk.start_over();
                shared.hire(staff);
                answer(batch);
            }
            Err(error) => {
                shared.note_error(&error);
                // All logs are read once there is a database; nobody waits until then.
                let is_read = |work: &Work| matches!(work, Work::Stretch(_) | Work::Issues(_));
                let (read, others) = batch.into_iter().partition::<Vec<Work>, _>(is_read);
                give_up(shared, &read);
                answer(others);
            }
        }
    }
}

/// While someone reads it, a part of it stays until the next time.
fn truncate_wal(db: &Connection) {
    let _ = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
}

/// Another number when another connection than this has written. One that cannot be asked says nothing new.
fn data_version(db: &Connection) -> i64 {
    db.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap_or(0)
}

/// Only a matter of speed and memory: a failure changes nothing else.
fn set_cache(db: &Connection, busy: bool) {
    let kib = if busy { CACHE_BUSY_KIB } else { CACHE_IDLE_KIB };
    let _ = db.execute_batch(&format!("PRAGMA cache_size = -{kib}; PRAGMA shrink_memory;"));
}

/// Writes a batch, and what more text there is by then.
fn write(shared: &Shared, db: &mut Connection, batch: &mut Vec<Work>) -> rusqlite::Result<Outcome> {
    let transaction = db.transaction()?;
    let is_there = |log: &LogPath| {
        !shared.root.identity(Path::new(log.as_str())).is_err_and(|error| error.is_not_found())
    };
    let outside = Outside { meta_of: &shared.options.meta_of, is_there: &is_there };
    let mut outcome = Outcome::new();
    let (mut put, mut text) = (0, 0);
    while put < batch.len() {
        for work in batch.iter_mut().skip(put) {
            outcome.extend(put_one(&transaction, work, &outside)?);
            text += take_text(work);
        }
        put = batch.len();
        if text < TEXT_AT_ONCE {
            batch.extend(shared.desk.more_text());
        }
    }
    transaction.commit()?;
    Ok(outcome)
}

/// What was put is not kept until the transaction ends; how much text it was.
fn take_text(work: &mut Work) -> usize {
    match work {
        Work::Stretch(stretch) if stretch.part == Part::Text => {
            let bytes = stretch.text_bytes();
            stretch.records = Vec::new();
            bytes
        }
        _ => TEXT_AT_ONCE,
    }
}

fn put_one(db: &Connection, work: &Work, outside: &Outside<'_>) -> rusqlite::Result<Option<Put>> {
    match work {
        Work::Stretch(stretch) => return stretch::put(db, stretch, outside).map(Some),
        Work::Moved { from, to } => store::moved(db, from, to)?,
        Work::Removed(log) => store::forget(db, log)?,
        Work::Missing(logs) => {
            for log in logs {
                db.execute("UPDATE sessions SET missing = 1 WHERE log = ?1", params![log.as_str()])?;
            }
        }
        Work::Broken(log, failure) => {
            let sql = "UPDATE sessions SET broken = ?2 WHERE log = ?1";
            db.execute(sql, params![log.as_str(), to_json(failure)])?;
        }
        Work::Issues(given) => issues::put(db, given)?,
        Work::Projects(projects) => issues::keep_only(db, projects)?,
        Work::Rebuild | Work::Flush(_) => {}
    }
    Ok(None)
}

/// Tells everyone who waits, and asks for what turned out to be missing.
fn after(shared: &Arc<Shared>, batch: Vec<Work>, outcome: Outcome) {
    let mut outcome = outcome.into_iter();
    for work in &batch {
        let staff = match work {
            Work::Stretch(Stretch { log, part, is_last, .. }) => {
                let put = outcome.next().unwrap_or(Put::Behind);
                shared.desk.written(log, *part, *is_last, put)
            }
            // A reader may have been in the middle of it.
            Work::Moved { to, .. } => shared.desk.ask(Job::Lists(to.clone()), 0),
            Work::Issues(given) if given.is_whole => shared.desk.close(&Job::Issues(given.log.clone())),
            Work::Issues(_)
            | Work::Projects(_)
            | Work::Removed(_)
            | Work::Missing(_)
            | Work::Broken(..)
            | Work::Rebuild
            | Work::Flush(_) => continue,
        };
        shared.hire(staff);
    }
    answer(batch);
}

fn answer(batch: Vec<Work>) {
    for work in batch {
        if let Work::Flush(waiting) = work {
            // Who asked may have stopped waiting.
            let _ = waiting.try_send(());
        }
    }
}

/// Nothing of the batch was written: every log in it is behind.
fn give_up(shared: &Arc<Shared>, batch: &[Work]) {
    for work in batch {
        match work {
            Work::Stretch(stretch) => {
                shared.desk.mark_stale(stretch.log.clone());
                let job = match stretch.part {
                    Part::Lists => Job::Lists(stretch.log.clone()),
                    Part::Text => Job::Text(stretch.log.clone()),
                    Part::Live | Part::Opened => continue,
                };
                if stretch.is_last {
                    let staff = shared.desk.close(&job);
                    shared.hire(staff);
                }
            }
            Work::Issues(given) => {
                shared.desk.mark_stale(given.log.clone());
                if given.is_whole {
                    let staff = shared.desk.close(&Job::Issues(given.log.clone()));
                    shared.hire(staff);
                }
            }
            // The plan of the next start, or of this one, sees what moved and what went.
            Work::Moved { .. }
            | Work::Removed(_)
            | Work::Missing(_)
            | Work::Broken(..)
            | Work::Projects(_) => {
                let staff = shared.desk.ask(Job::Plan, 0);
                shared.hire(staff);
            }
            Work::Rebuild | Work::Flush(_) => {}
        }
    }
}
