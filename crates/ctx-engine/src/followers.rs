//! Views that follow behind the sessions: the index database and the audit log.
//!
//! They are told of every commit after it, never hold one up, and catch up from the logs by themselves. A view
//! that cannot be opened is missed by those who ask it, and by nobody else.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ctx_journal::{Entry, Journal, JournalError, LogPath, Owner};
use ctx_session::project::{Project, ProjectRecord};
use ctx_session::record::Failure;
use ctx_session::{Code, IssueId, Record, Refusal, Session, SessionId, Timestamp};
use ctx_views::audit::{Audit, AuditOptions, Deed};
use ctx_views::db::{IndexDb, MetaOf, Options, Remade, SessionLogs};
use ctx_views::identity::{First, Flaw, Place};
use ctx_views::{RootDir, Sources};

use crate::paths::session_logs;

const INDEX: &str = ".state/index.db";
pub(crate) const AUDIT: &str = ".state/audit.jsonl";
/// How long other views wait for the lists, which read the same logs.
const LISTS_PATIENCE: Duration = Duration::from_secs(300);

/// Tells the index what session a log is.
pub fn meta_of(journal: Arc<dyn Journal>, root: RootDir) -> MetaOf {
    Arc::new(move |log, first, before| {
        let place = Place::of(log)?;
        let first = match first {
            Some(mut meta) => {
                let flaws = place.correct(&mut meta);
                First { meta: Some(meta), flaws, is_taken: false }
            }
            None => First { meta: None, flaws: vec![Flaw::Missing], is_taken: false },
        };
        let index = |_: &LogPath| before.clone();
        let sources = Sources { journal: &*journal, root: Some(&root), index: &index };
        Some(sources.identify_by(log, &place, first).meta)
    })
}

/// The views behind; each is there or not.
#[derive(Default)]
pub struct Behind {
    index: Option<IndexDb>,
    /// Opened after the sessions are found: it reads the whole audit log, and what it misses it finds by itself.
    audit: OnceLock<Audit>,
    audit_later: Option<(Arc<dyn Journal>, AuditOptions)>,
    /// Held by whoever removes what was purged.
    clearing: Mutex<()>,
}

impl Behind {
    pub(crate) fn open(root: &RootDir, journal: &Arc<dyn Journal>, owner: Owner, now: Timestamp) -> Behind {
        let of_logs = journal.clone();
        // What is foreign is not there for the views: they forget what they knew of it.
        let logs: SessionLogs = Arc::new(move || {
            let mut logs = session_logs(&*of_logs)?;
            logs.retain(|log| !of_logs.is_foreign(log));
            Ok(logs)
        });
        let options = Options { session_logs: logs.clone(), meta_of: meta_of(journal.clone(), root.clone()) };
        let index = IndexDb::open(root, Path::new(INDEX), journal.clone(), options)
            .inspect_err(|error| tracing::error!(%error, "no index: lists and search are not there"))
            .ok();
        let audit_later = LogPath::new(AUDIT).ok().map(|log| {
            (journal.clone(), AuditOptions { log, owner, now, root: root.clone(), session_logs: logs })
        });
        Behind { index, audit: OnceLock::new(), audit_later, clearing: Mutex::new(()) }
    }

    /// Reads what the index misses, behind everyone's back; [`Behind::follow`] reads what the others miss.
    pub(crate) fn catch_up(&self) {
        if let (Some((journal, options)), None) = (&self.audit_later, self.audit.get()) {
            match Audit::start(journal.clone(), options.clone()) {
                // Nobody else sets it: a start happens once.
                Ok(audit) => drop(self.audit.set(audit)),
                Err(error) => tracing::error!(%error, "no audit log is written"),
            }
        }
        let Some(index) = &self.index else { return };
        match index.remade() {
            None | Some(Remade::New) => {}
            Some(remade @ (Remade::OtherVersion(_) | Remade::Corrupt(_))) => {
                tracing::warn!(
                    ?remade,
                    "the index is being rebuilt; lists and search are incomplete until it is done"
                );
            }
        }
        index.catch_up(|progress| tracing::debug!(?progress, "the index catches up"));
    }

    /// Waits for the lists, which people look at first, and then has the audit log read what it misses. Blocking.
    pub(crate) fn follow(&self) {
        if let Some(index) = &self.index
            && !index.wait_lists(LISTS_PATIENCE)
        {
            // The time was over, or the daemon stops.
            tracing::debug!("the lists are not complete yet; other views are made meanwhile");
        }
        if let Some(audit) = self.audit.get() {
            audit.catch_up();
        }
        if let Some((journal, _)) = &self.audit_later
            && let Err(error) = self.empty_trash(&**journal)
        {
            tracing::warn!(%error, "not everything of a purged session could be removed");
        }
    }

    pub fn index(&self) -> Option<&IndexDb> {
        self.index.as_ref()
    }

    /// A commit that ends at this byte of the log.
    pub(crate) fn committed(&self, log: &LogPath, session: &Session, records: &[Record], end: u64) {
        if let Some(index) = &self.index {
            index.committed_to(log, session.id(), records, end);
        }
        if let Some(audit) = self.audit.get() {
            audit.committed(log, session, records);
        }
    }

    /// A session's log was taken up; it ends with this record.
    pub(crate) fn opened(&self, log: &LogPath, session: SessionId, last: Option<&Entry>) {
        if let Some(index) = &self.index {
            index.opened(log, session, last);
        }
    }

    /// A session's log turned out to be gone.
    pub(crate) fn gone(&self, log: &LogPath) {
        if let Some(index) = &self.index {
            index.missing(log);
        }
    }

    /// A session has failed in a way that its log does not tell.
    pub(crate) fn broken(&self, log: &LogPath, failure: Failure) {
        if let Some(index) = &self.index {
            index.broken(log, failure);
        }
    }

    /// A session whose log is gone is purged: the index forgets it, and the audit log tells it. Blocking.
    pub(crate) fn purge_gone(&self, purged: Deed) -> Result<(), Refusal> {
        let refused =
            |why: String| Refusal::new(Code::Eio, format!("the session is not forgotten yet: {why}"));
        self.forget(purged.event.session()).map_err(refused)?;
        self.audit.get().map_or(Ok(()), |audit| audit.audit_once(purged)).map_err(refused)
    }

    /// A session was loaded: the audit log checks whether it is the log whose events it has.
    pub(crate) fn log_opened(&self, log: &LogPath) {
        if let Some(audit) = self.audit.get() {
            audit.opened(log);
        }
    }

    /// In the order of the project's log.
    pub(crate) fn project_committed(&self, log: &LogPath, project: &Project, records: &[ProjectRecord]) {
        if let Some(index) = &self.index {
            let changed: BTreeSet<IssueId> =
                records.iter().filter_map(|record| record.body.issue()).collect();
            for issue in changed {
                index.issue_changed(log, project, issue);
            }
        }
        if let Some(audit) = self.audit.get() {
            audit.project_committed(log, project, records);
        }
    }

    /// A project's log was taken up again, and has what nobody was told of.
    pub(crate) fn project_reopened(&self, log: &LogPath, project: &Project) {
        if let Some(index) = &self.index {
            for issue in project.issues() {
                index.issue_changed(log, project, issue.id);
            }
        }
        self.reopened(log);
    }

    /// A log was taken up again after a failure. The index sees by itself what it misses of a session.
    pub(crate) fn reopened(&self, log: &LogPath) {
        if let Some(audit) = self.audit.get() {
            audit.reopened(log);
        }
    }

    pub(crate) fn moved(&self, from: &LogPath, to: &LogPath) {
        if let Some(index) = &self.index {
            index.moved(from, to);
        }
        // What waits to be read of it for the audit log is not where it was any more.
        self.reopened(to);
    }

    /// A fork was made: the audit log begins with its own records.
    pub(crate) fn forked(&self, log: &LogPath, session: &Session, records: &[Record]) {
        if let Some(audit) = self.audit.get() {
            audit.committed(log, session, records);
        }
    }

    /// Reads a log that did not come to be by commits. Blocking.
    pub(crate) fn read_whole(&self, log: &LogPath) {
        if let Some(index) = &self.index {
            index.reindex(log);
        }
    }

    /// Has the audit log tell that the root was taken over, unless it has.
    pub(crate) fn taken_over(&self, deed: Deed) {
        if let Some(Err(error)) = self.audit.get().map(|audit| audit.audit_once(deed)) {
            tracing::error!(error, "the audit log does not tell yet that the root was taken over");
        }
    }

    /// Removes a session's log, and has the audit log tell that. On error the log is there as it was, or gone and not all of
    /// its bytes yet. What cannot be told now is told at the next purge, or the next start. Blocking.
    pub(crate) fn purge(&self, journal: &dyn Journal, log: &LogPath, purged: &Deed) -> Result<(), Refusal> {
        let refused = |error: &JournalError| Refusal::new(error.code(), error.to_string());
        if self.audit_later.is_none() {
            return journal.remove(log).map_err(|error| refused(&error));
        }
        let cannot = |why: String| {
            Refusal::new(
                Code::Eio,
                format!("nothing was purged, because the audit log cannot be written: {why}"),
            )
        };
        if let Some(audit) = self.audit.get() {
            audit.audit_last(log).map_err(cannot)?;
        }
        journal.move_to_trash(log, &purged.to_notice()).map_err(|error| refused(&error))?;
        self.empty_trash(journal).map_err(|error| refused(&error))
    }

    /// Has the audit log tell which sessions were purged and the index forget them, and removes what is left. Blocking.
    fn empty_trash(&self, journal: &dyn Journal) -> Result<(), JournalError> {
        let _one = self.clearing.lock().unwrap_or_else(PoisonError::into_inner);
        journal.empty_trash(&mut |notice| {
            let Some(purged) = Deed::of_notice(notice) else {
                tracing::error!(notice, "a session was purged, and its notice cannot be read");
                return true;
            };
            let forgotten = self.forget(purged.event.session());
            let told = match self.audit.get() {
                Some(audit) => audit.audit_once(purged),
                None => Err("the audit log is not open".to_owned()),
            };
            let unheard = forgotten.err().into_iter().chain(told.err());
            let why: Vec<String> = unheard
                .inspect(|error| tracing::error!(error, "a session was purged; not everyone knows it yet"))
                .collect();
            why.is_empty()
        })
    }

    /// Has the index forget a session that is gone for good.
    fn forget(&self, session: Option<SessionId>) -> Result<(), String> {
        match (&self.index, session) {
            (Some(index), Some(session)) => index.purged(session),
            // What it holds of the session is still in its file.
            (None, Some(_)) => Err("the index is not open".to_owned()),
            (_, None) => Ok(()),
        }
    }

    /// Writes what waits. Blocking.
    pub(crate) fn close(&self) {
        if let Some(audit) = self.audit.get() {
            audit.flush();
            audit.close();
        }
        if let Some(index) = &self.index {
            index.close();
        }
    }
}
