//! The reading side: finds sessions in the tree and reads their files, also while no daemon is up.
//!
//! For the command line. Everything is read as the caller, so what they may not read they do not see. What was said
//! comes from the log, and what is small from its files, or from the log where one is missing or is no value; nothing
//! is ever written here.

mod conversation;
mod find;
mod messages;
mod outputs;
mod place;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ctx_journal::{Journal, LogPath};
use ctx_session::record::{Decoded, SessionBody};
use ctx_session::{Body, Code, Record, Session, StateName, Timestamp};

use crate::dir::RootDir;
use crate::error::ViewError;
use crate::files::{self, Disagreement, Meta, record_of};
use crate::witness::Sources;
pub use conversation::{Conversation, RemovedBy, Said, Wanted};
pub use find::ID_PART_MIN;
pub use messages::{Ended, Messages};
pub use outputs::Outputs;
pub use place::{Object, Place, SessionRef, SessionsDir};

/// Reads the tree.
#[derive(Clone)]
pub struct Reader {
    root: RootDir,
    journal: Arc<dyn Journal>,
}

/// What a list shows of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub session: SessionRef,
    pub meta: Meta,
    pub cwd: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A session could not be found or read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("no session \"{text}\"; `ctx ls --all` lists your sessions")]
    NotFound { text: String },
    #[error("`{text}` matches {}; write more of the id", .matches.join(", "))]
    Ambiguous { text: String, matches: Vec<String> },
    #[error("`{text}` is not a session: write agent/name, an id or the beginning of an id")]
    BadName { text: String },
    #[error(transparent)]
    View(#[from] ViewError),
}

impl ReadError {
    pub fn code(&self) -> Code {
        match self {
            ReadError::NotFound { .. } => Code::Enoent,
            ReadError::Ambiguous { .. } | ReadError::BadName { .. } => Code::Einval,
            ReadError::View(ViewError::Io { error, .. }) => match error.kind() {
                std::io::ErrorKind::NotFound => Code::Enoent,
                std::io::ErrorKind::PermissionDenied => Code::Eacces,
                _ => Code::Eio,
            },
            ReadError::View(ViewError::Log(error)) => error.code(),
            ReadError::View(ViewError::Stale { .. }) => Code::Eio,
        }
    }
}

impl Reader {
    pub fn new(root: &RootDir, journal: Arc<dyn Journal>) -> Reader {
        Reader { root: root.clone(), journal }
    }

    /// The root whose files it reads.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// What a session is. Its log is read when `meta.json` cannot be.
    pub fn meta(&self, session: &SessionRef) -> Result<Meta, ReadError> {
        match self.meta_file(session)? {
            Some(meta) => Ok(meta),
            None => Ok(Meta::of(&self.replay(session)?)),
        }
    }

    fn meta_file(&self, session: &SessionRef) -> Result<Option<Meta>, ReadError> {
        let bytes = self.root.dir(&session.path())?.contents(files::META)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// The word in the file `state`: active, idle, done or error.
    pub fn state(&self, session: &SessionRef) -> Result<String, ReadError> {
        let word = self.value(session, files::STATE)?;
        // A power cut may have left the file empty.
        match word.filter(|word| StateName::ALL.iter().any(|state| state.file_word() == word)) {
            Some(word) => Ok(word),
            None => Ok(self.replay(session)?.state.name().file_word().to_owned()),
        }
    }

    /// What a list shows of a session.
    pub fn summary(&self, session: &SessionRef) -> Result<Summary, ReadError> {
        let time = |name| -> Result<Option<Timestamp>, ReadError> {
            Ok(self.value(session, name)?.and_then(|text| text.parse().ok()))
        };
        let parts = (
            self.meta_file(session)?,
            self.value(session, files::CWD)?,
            time(files::CREATED_AT)?,
            time(files::UPDATED_AT)?,
        );
        if let (Some(meta), Some(cwd), Some(created_at), Some(updated_at)) = parts {
            return Ok(Summary { session: session.clone(), meta, cwd, created_at, updated_at });
        }
        let replayed = self.replay(session)?;
        Ok(Summary {
            session: session.clone(),
            meta: Meta::of(&replayed),
            cwd: replayed.cwd.clone(),
            created_at: replayed.created_at,
            updated_at: replayed.updated_at,
        })
    }

    /// A file of one value, without its line end.
    fn value(&self, session: &SessionRef, name: &str) -> Result<Option<String>, ReadError> {
        let bytes = self.root.dir(&session.path())?.contents(name)?;
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(text.map(|text| text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)))
    }

    /// The session as its log tells it.
    pub fn replay(&self, session: &SessionRef) -> Result<Session, ReadError> {
        let replayed = self.replay_log(&session.log()?)?.session;
        replayed.ok_or_else(|| ReadError::NotFound { text: session.to_string() })
    }

    /// Every record of the session's log that can be read.
    pub fn records(&self, session: &SessionRef) -> Result<Vec<Record>, ReadError> {
        let mut records = Vec::new();
        let read = self.journal.read(&session.log()?, 0, &mut |entry| {
            records.extend(record_of(&entry));
            ControlFlow::Continue(())
        });
        read.map_err(ViewError::from)?;
        Ok(records)
    }

    /// What session it is, whoever knows says: the first record may be damaged.
    fn replay_log(&self, log: &LogPath) -> Result<Replayed, ViewError> {
        let sources = Sources { journal: &*self.journal, root: Some(&self.root), index: &|_| None };
        let identity = sources.identify(log)?;
        let mut is_whole = identity.as_ref().is_some_and(|identity| identity.flaws.is_empty());
        let mut session: Option<Session> = None;
        let damage = self.journal.read(log, 0, &mut |entry| {
            let Some(record) = record_of(&entry) else {
                is_whole &= matches!(Body::decode(&entry.kind, &entry.text), Decoded::Unknown);
                // What we do not know still holds its place.
                if let Some(session) = &mut session {
                    session.next_seq = entry.seq_after();
                }
                return ControlFlow::Continue(());
            };
            if session.is_none() {
                let meta = identity.as_ref().map(|identity| identity.meta.clone());
                let meta = meta.or_else(|| match &record.body {
                    Body::Session(SessionBody::Meta(meta)) => Some((**meta).clone()),
                    _ => None,
                });
                session = meta.map(|meta| Session::new(meta, record.seq, record.time));
            }
            if let Some(session) = &mut session {
                session.apply(&record);
            }
            ControlFlow::Continue(())
        })?;
        Ok(Replayed { session, is_whole: is_whole && damage.is_empty() })
    }

    /// Which files of the session of a log say something else than it. Of a log that is damaged nobody can say.
    pub fn disagreements(&self, log: &LogPath) -> Result<Vec<Disagreement>, ReadError> {
        match self.replay_log(log)? {
            Replayed { session: Some(session), is_whole: true } => {
                Ok(files::disagreements(&self.root, &*self.journal, log, &session)?)
            }
            Replayed { .. } => Ok(Vec::new()),
        }
    }
}

struct Replayed {
    /// None where no record says what it is.
    session: Option<Session>,
    is_whole: bool,
}
