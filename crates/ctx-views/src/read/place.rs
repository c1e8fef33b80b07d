//! Where sessions are kept: one `session/` directory per owner or space and agent or model.

use std::fmt;
use std::path::PathBuf;

use ctx_journal::LogPath;
use ctx_session::Name;

use super::ReadError;

/// Whose sessions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Private { uid: u32 },
    Shared { space: Name },
}

impl Place {
    pub fn path(&self) -> PathBuf {
        match self {
            Place::Private { uid } => PathBuf::from(format!("home/{uid}")),
            Place::Shared { space } => PathBuf::from(format!("shared/{space}")),
        }
    }
}

/// With whom.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    Agent(Name),
    /// A model's socket, by the model's path such as `debug/echo`.
    Model(Vec<Name>),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Agent(name) => write!(f, "{name}"),
            Object::Model(names) => {
                f.write_str("model")?;
                names.iter().try_for_each(|name| write!(f, "/{name}"))
            }
        }
    }
}

/// A directory that holds session directories and their index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionsDir {
    pub place: Place,
    pub object: Object,
}

impl SessionsDir {
    pub fn of_agent(uid: u32, agent: Name) -> SessionsDir {
        SessionsDir { place: Place::Private { uid }, object: Object::Agent(agent) }
    }

    /// Relative to the root.
    pub fn path(&self) -> PathBuf {
        let mut path = self.place.path();
        match &self.object {
            Object::Agent(name) => path.extend(["agent", name.as_str(), "session"]),
            Object::Model(names) => {
                path.push("model");
                let mut names = names.iter().map(Name::as_str).peekable();
                while let Some(name) = names.next() {
                    match names.peek() {
                        Some(_) => path.push(name),
                        None => path.push(format!("{name}.d")),
                    }
                }
                path.push("session");
            }
        }
        path
    }

    pub fn session(&self, dir_name: &str) -> SessionRef {
        SessionRef { sessions: self.clone(), dir_name: dir_name.to_owned() }
    }
}

/// A session's directory. It may be gone by the time it is read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionRef {
    pub sessions: SessionsDir,
    /// `<name>`, or `<name>+<ulid>` once the session is over.
    pub dir_name: String,
}

impl SessionRef {
    /// Relative to the root.
    pub fn path(&self) -> PathBuf {
        self.sessions.path().join(&self.dir_name)
    }

    /// Its log.
    pub fn log(&self) -> Result<LogPath, ReadError> {
        let path = self.path().join("events.jsonl");
        let text = path.to_str().map(str::to_owned);
        let log = text.and_then(|text| LogPath::new(text).ok());
        log.ok_or_else(|| ReadError::BadName { text: self.to_string() })
    }
}

/// As a person names it: `coder/default`.
impl fmt::Display for SessionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.sessions.object, self.dir_name)
    }
}
