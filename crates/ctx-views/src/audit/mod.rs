//! The audit log: who did what, in an append-only log of its own beside the logs of sessions and projects.
//!
//! Its lines follow from records and are written after them, within 200 ms, by one thread. What a crash left out is found
//! when the log is opened: it says for each session and project how far its events are in, and what its log has
//! beyond that is appended. Purging a session leaves its lines, and adds one (`deed`).

mod catch_up;
mod control;
mod deed;
mod map;
mod progress;
mod project;
mod read;
mod standing;
mod writer;

use std::collections::HashSet;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ctx_journal::{Journal, LogPath, Owner, lock};
use ctx_session::project::{Project, ProjectRecord};
use ctx_session::{Record, Session, Timestamp};

use crate::db::SessionLogs;
use crate::dir::RootDir;
pub use ctx_session::record::EventName;
pub use deed::Deed;
pub use map::{AuditEvent, RecordOf, events};
pub use project::project_events;
pub use read::{AuditLine, AuditQuery, AuditReader};
use writer::Writer;

/// The kind of an audit line; the first line of the log is of another kind.
const KIND: &str = "audit";
/// Commits that may wait to be audited; more are read from their logs later.
const WAITING_MAX: usize = 4096;

/// Where the audit log is, and what it watches over.
#[derive(Clone)]
pub struct AuditOptions {
    /// `.state/audit.jsonl`.
    pub log: LogPath,
    /// The daemon.
    pub owner: Owner,
    pub now: Timestamp,
    pub root: RootDir,
    pub session_logs: SessionLogs,
}

/// The audit log, open in the daemon that writes it.
pub struct Audit {
    to_writer: Mutex<Option<SyncSender<Work>>>,
    behind: Arc<Behind>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

enum Work {
    Commit {
        log: LogPath,
        through: u64,
        time: Timestamp,
        events: Vec<AuditEvent>,
    },
    /// Records may have been written that are not audited.
    Behind(LogPath),
    /// A session's log was taken up, and may be another than the one whose events it has.
    Opened(LogPath),
    /// Logs may be read now for what has not been audited.
    Read,
    /// Tells everything that a log has, before it goes; says when that is on disk, or what stands in the way.
    Last(LogPath, SyncSender<Result<(), String>>),
    /// Writes a deed, which no record describes, unless that was done; says when that is on disk.
    Deed(Box<Deed>, SyncSender<Result<(), String>>),
    /// Tells when everything before it is on disk.
    Flush(SyncSender<()>),
    /// Says when nothing that can be audited is missing.
    Complete(SyncSender<()>),
}

/// Logs of which not everything has been audited, and what stands in the way.
#[derive(Default)]
struct Behind {
    logs: Mutex<Unaudited>,
    error: Mutex<Option<String>>,
}

#[derive(Default)]
struct Unaudited {
    logs: HashSet<LogPath>,
    /// Whether the writer knows which logs there were at its start. Until then nobody knows what was audited of a log: it
    /// is read, also for what is handed over.
    has_list: bool,
}

impl Behind {
    fn take(&self) -> HashSet<LogPath> {
        std::mem::take(&mut lock(&self.logs).logs)
    }
}

impl Audit {
    /// Starts the writer. It opens the log and makes it if there is none, behind the caller's back.
    /// [`Audit::catch_up`] has it look for what a crash left out.
    pub fn start(journal: Arc<dyn Journal>, options: AuditOptions) -> std::io::Result<Audit> {
        let (to_writer, work) = sync_channel(WAITING_MAX);
        let behind = Arc::new(Behind::default());
        let of_thread = Arc::clone(&behind);
        let writer = std::thread::Builder::new()
            .name("audit-writer".to_owned())
            .spawn(move || Writer::new(journal, options, of_thread).run(&work))?;
        Ok(Audit { to_writer: Mutex::new(Some(to_writer)), behind, writer: Mutex::new(Some(writer)) })
    }

    /// Audits a commit, after it. `session` has its records applied. Never waits.
    pub fn committed(&self, log: &LogPath, session: &Session, commit: &[Record]) {
        let Some(last) = commit.last() else { return };
        let events = events(session, commit);
        if !events.is_empty() {
            self.hand_over(
                log,
                Work::Commit { log: log.clone(), through: last.seq, time: last.time, events },
            );
        }
    }

    /// The same for a project.
    pub fn project_committed(&self, log: &LogPath, project: &Project, commit: &[ProjectRecord]) {
        let Some(last) = commit.last() else { return };
        let events = project_events(project, commit);
        if !events.is_empty() {
            self.hand_over(
                log,
                Work::Commit { log: log.clone(), through: last.seq, time: last.time, events },
            );
        }
    }

    /// A log was taken up again after a failure: it may have records that were never audited.
    pub fn reopened(&self, log: &LogPath) {
        self.hand_over(log, Work::Behind(log.clone()));
    }

    /// A session's log was taken up. Someone may have cut it or put an older one in its place meanwhile: then what
    /// comes has seqs that have been audited of, and is audited all the same.
    pub fn opened(&self, log: &LogPath) {
        self.hand_over(log, Work::Opened(log.clone()));
    }

    fn hand_over(&self, log: &LogPath, work: Work) {
        let mut unaudited = lock(&self.behind.logs);
        let to_writer = lock(&self.to_writer);
        match to_writer.as_ref().filter(|_| unaudited.has_list).map(|to_writer| to_writer.try_send(work)) {
            Some(Ok(())) => {}
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => {
                unaudited.logs.insert(log.clone());
            }
        }
    }

    /// Reads all logs for what has not been audited, behind the caller's back. Until then, what happens to sessions and
    /// projects that there were at the start waits too. Waits while much is handed over.
    pub fn catch_up(&self) {
        let to_writer = lock(&self.to_writer).clone();
        // Fails when the writer is gone: then there is nothing to read for.
        let _ = to_writer.map(|to_writer| to_writer.send(Work::Read));
    }

    /// Waits until everything that was handed over is on disk or has failed.
    pub fn flush(&self) {
        self.wait_for(Work::Flush);
    }

    /// Waits until what a crash left out is audited too, or has failed.
    pub fn wait_until_complete(&self) {
        self.catch_up();
        self.wait_for(Work::Complete);
        self.flush();
    }

    fn wait_for(&self, work: impl FnOnce(SyncSender<()>) -> Work) {
        let (done, answered) = sync_channel(1);
        let to_writer = lock(&self.to_writer).clone();
        if let Some(Ok(())) = to_writer.map(|to_writer| to_writer.send(work(done))) {
            // Fails when the writer is gone: then there is nothing to wait for.
            let _ = answered.recv();
        }
    }

    /// Audits the rest of a session, whose log is about to go. On disk when this returns; else says what
    /// stands in the way.
    pub fn audit_last(&self, log: &LogPath) -> Result<(), String> {
        self.answered(|done| Work::Last(log.clone(), done))
    }

    /// Writes a deed, which no record describes, once. On disk when this returns.
    pub fn audit_once(&self, deed: Deed) -> Result<(), String> {
        self.answered(|done| Work::Deed(Box::new(deed), done))
    }

    fn answered(&self, work: impl FnOnce(SyncSender<Result<(), String>>) -> Work) -> Result<(), String> {
        let gone = || "the audit log is not written any more".to_owned();
        let (done, answered) = sync_channel(1);
        let to_writer = lock(&self.to_writer).clone().ok_or_else(gone)?;
        to_writer.send(work(done)).map_err(|_| gone())?;
        drop(to_writer);
        answered.recv().map_err(|_| gone())?
    }

    /// What went wrong last, if anything did.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.behind.error).clone()
    }

    /// Tells what happened since the start and stops. What a crash left out before may wait for the next start.
    pub fn close(&self) {
        lock(&self.to_writer).take();
        if let Some(writer) = lock(&self.writer).take() {
            // A writer that panicked has nothing more to write.
            let _ = writer.join();
        }
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.close();
    }
}
