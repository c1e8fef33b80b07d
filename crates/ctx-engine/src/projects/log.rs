//! A project's log: the registry entry and whatever else the project keeps, through the same journal as sessions.
//!
//! Blocking. Read when the daemon starts; opened for writing when something is written, and again after a failure.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctx_journal::{AppendError, Entry, Journal, JournalError, LogPath, LogWriter, Owner};
use ctx_session::project::{Project, ProjectBody, ProjectRecord};
use ctx_session::record::Decoded;
use ctx_session::{Name, Refusal, Timestamp};
use ctx_views::db::PROJECT_LOGS;

use crate::core::journal_refusal;

/// What the followers of a project get, in the order of its log.
pub enum LogChange<'a> {
    /// These are durable, and the project has them.
    Records(&'a [ProjectRecord]),
    /// The log was taken up again, and has more than was known.
    Reopened,
}

/// The log of one project.
pub struct ProjectLog {
    log: LogPath,
    journal: Arc<dyn Journal>,
    owner: Owner,
    /// What the log begins with when nobody has registered the project: the daemon's own has this.
    first: Option<ProjectBody>,
    inside: Mutex<Inside>,
}

struct Inside {
    project: Project,
    writer: Option<Box<dyn LogWriter>>,
}

impl ProjectLog {
    /// A log that may not be there yet.
    pub(crate) fn new(
        journal: Arc<dyn Journal>,
        slug: Name,
        owner: Owner,
        first: Option<ProjectBody>,
    ) -> Result<ProjectLog, Refusal> {
        let log = LogPath::new(format!("{PROJECT_LOGS}/{slug}/events.jsonl"))
            .map_err(|error| Refusal::invalid("project", error.to_string()))?;
        let inside = Mutex::new(Inside { project: Project::new(slug), writer: None });
        Ok(ProjectLog { log, journal, owner, first, inside })
    }

    pub(crate) fn path(&self) -> &LogPath {
        &self.log
    }

    /// Reads what is there, without taking the log up.
    pub(crate) fn read(&self) -> Result<(), JournalError> {
        let mut inside = self.lock();
        let mut project = Project::new(inside.project.slug.clone());
        let read = self.journal.read(&self.log, 0, &mut |entry| {
            self.follow(&mut project, &entry);
            ControlFlow::Continue(())
        });
        match read {
            Ok(damage) => {
                for damage in damage {
                    tracing::warn!(log = %self.log, %damage, "a project's log is damaged here");
                }
                inside.project = project;
                Ok(())
            }
            Err(JournalError::NotThere { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A change is applied after it is durable: a panic leaves at worst less than the log has.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, project: &mut Project, entry: &Entry) {
        match ProjectBody::decode(&entry.kind, &entry.text) {
            Decoded::Known(body) => {
                project.apply(&ProjectRecord { seq: entry.seq, time: entry.time, body });
            }
            // What we do not know still holds its place.
            Decoded::Unknown => project.next_seq = entry.seq + 1,
            Decoded::Malformed(why) => {
                tracing::warn!(log = %self.log, line = entry.line, why, "record does not fit its type");
                project.next_seq = entry.seq + 1;
            }
        }
    }

    /// The project as it is now.
    pub fn project(&self) -> Project {
        self.lock().project.clone()
    }

    /// Looks at the project without copying it.
    pub fn with<T>(&self, look: impl FnOnce(&Project) -> T) -> T {
        look(&self.lock().project)
    }

    /// Decides, makes it durable, applies it, tells it while the project is held still. Nothing has changed when this
    /// is refused.
    pub fn perform(
        &self,
        now: Timestamp,
        decide: impl FnOnce(&Project) -> Result<Vec<ProjectBody>, Refusal>,
        tell: impl Fn(&Project, LogChange<'_>),
    ) -> Result<Vec<ProjectRecord>, Refusal> {
        let mut inside = self.lock();
        self.open(&mut inside, now, &tell)?;
        let mut bodies = decide(&inside.project)?;
        if bodies.is_empty() {
            return Ok(Vec::new());
        }
        if inside.project.entry.is_none()
            && let Some(first) = &self.first
        {
            bodies.insert(0, first.clone());
        }
        let lines: Vec<String> = bodies.iter().map(ProjectBody::to_json).collect();
        let first = inside.project.next_seq;
        match &inside.writer {
            Some(writer) => {
                let appended = writer.append(first, now, &lines);
                if let Err(error) = appended {
                    let lost = matches!(error, AppendError::Poisoned { .. } | AppendError::Conflict { .. });
                    if lost {
                        // Whether it is there is known once the log was taken up through recovery: now, or by whoever
                        // writes next.
                        inside.writer = None;
                        if let Err(refusal) = self.open(&mut inside, now, &tell) {
                            tracing::error!(log = %self.log, %refusal, "a project's log cannot be taken up yet");
                        }
                    }
                    return Err(Refusal::new(error.code(), error.to_string()));
                }
            }
            None => {
                let made = self.journal.create(&self.log, self.owner, now, &lines);
                inside.writer = Some(made.map_err(|error| journal_refusal(&error))?);
            }
        }
        let records: Vec<ProjectRecord> =
            (first..).zip(bodies).map(|(seq, body)| ProjectRecord { seq, time: now, body }).collect();
        for record in &records {
            inside.project.apply(record);
        }
        tell(&inside.project, LogChange::Records(&records));
        Ok(records)
    }

    /// Takes the log up, if it is there and was let go.
    fn open(
        &self,
        inside: &mut Inside,
        now: Timestamp,
        tell: &impl Fn(&Project, LogChange<'_>),
    ) -> Result<(), Refusal> {
        if inside.writer.is_some() {
            return Ok(());
        }
        let mut project = Project::new(inside.project.slug.clone());
        match self.journal.open(&self.log, now, &mut |entry| self.follow(&mut project, &entry)) {
            Ok(opened) => {
                project.next_seq = opened.writer.next_seq();
                let has_more = project.next_seq > inside.project.next_seq;
                *inside = Inside { project, writer: Some(opened.writer) };
                if has_more {
                    tell(&inside.project, LogChange::Reopened);
                }
                Ok(())
            }
            Err(JournalError::NotThere { .. }) => Ok(()),
            Err(error) => Err(journal_refusal(&error)),
        }
    }

    /// Stores bytes beside the log, by their hash. The log must be there.
    pub fn put_blob(&self, bytes: &[u8]) -> Result<(), Refusal> {
        self.journal.put_blob(&self.log, bytes).map(drop).map_err(|error| journal_refusal(&error))
    }

    pub fn get_blob(&self, sha256: &str) -> Result<Vec<u8>, Refusal> {
        self.journal.get_blob(&self.log, sha256).map_err(|error| journal_refusal(&error))
    }
}

/// The slugs of all logs there are.
pub(crate) fn slugs(journal: &dyn Journal) -> Result<Vec<Name>, JournalError> {
    let logs = match journal.list(PROJECT_LOGS) {
        Ok(logs) => logs,
        Err(JournalError::NotThere { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let slug = |log: &LogPath| Name::new(log.dir().strip_prefix(PROJECT_LOGS)?.strip_prefix('/')?).ok();
    Ok(logs.iter().filter_map(slug).collect())
}
