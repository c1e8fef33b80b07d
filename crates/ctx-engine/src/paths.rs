//! Where a session is kept: the directory under the root, by owner or space, agent or model, and name.

use ctx_journal::{BadLogPath, Journal, JournalError, LogPath};
use ctx_session::record::{Scope, SessionMeta};
use ctx_session::{Name, Object, SessionId};

/// The `session/` directory that a session's directory lies in; index files are kept per shelf.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shelf {
    Private { owner: u32, object: Object },
    Shared { space: Name, object: Object },
}

impl Shelf {
    /// None for a temp session, which is kept nowhere.
    pub fn of(meta: &SessionMeta) -> Option<Shelf> {
        let object = Object::of(meta)?;
        match (meta.scope, meta.space.clone()) {
            (Scope::Private, _) => Some(Shelf::Private { owner: meta.owner, object }),
            (Scope::Shared, Some(space)) => Some(Shelf::Shared { space, object }),
            (Scope::Shared, None) | (Scope::Temp, _) => None,
        }
    }

    /// Relative to the root.
    pub fn dir(&self) -> String {
        match self {
            Shelf::Private { owner, object } => format!("home/{owner}/{}/session", object.dir()),
            Shelf::Shared { space, object } => format!("shared/{space}/{}/session", object.dir()),
        }
    }

    /// The log of the session in this directory of the shelf.
    pub fn log(&self, dir_name: &str) -> Result<LogPath, BadLogPath> {
        LogPath::new(format!("{}/{dir_name}/events.jsonl", self.dir()))
    }
}

/// What the directory of a session that is over is called once another session uses its name. Until then it is called by
/// the name alone, like that of any session.
pub fn freed_name(name: &Name, id: SessionId) -> String {
    format!("{name}+{id}")
}

/// Where session logs are below a user's or a space's directory, one pattern per kind of object.
pub const LOGS: [&str; 2] = ["agent/*/session", "model/*/*/session"];

/// The log of every session that is kept on disk.
pub fn session_logs(journal: &dyn Journal) -> Result<Vec<LogPath>, JournalError> {
    let mut logs = Vec::new();
    for whose in ["home/*", "shared/*"] {
        for pattern in LOGS {
            logs.extend(journal.list(&format!("{whose}/{pattern}"))?);
        }
    }
    Ok(logs)
}
