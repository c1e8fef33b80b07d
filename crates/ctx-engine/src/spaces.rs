//! Spaces: named places for shared sessions, each with a group of the machine. Its members read the sessions in it and
//! resume them; for everyone else they do not exist.
//!
//! Who is in a group is asked at every request. A session in a space acts with the rights of its owner, whoever posts to
//! it, so letting someone into a space means trusting them with the sessions that are kept there. This is what is known; what
//! is asked and done with it is in `space_ops`.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use ctx_journal::lock;
use ctx_session::record::{Scope, SessionMeta};
use ctx_session::{Name, Timestamp};

/// A space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    pub name: Name,
    /// The group as it was called when the space was made.
    pub group: String,
    pub gid: u32,
    pub created_by: u32,
    pub created_at: Timestamp,
}

/// Where spaces are kept, and who is in which group. All of it may block for a moment.
pub trait SpaceFiles: Send + Sync + 'static {
    fn load(&self) -> io::Result<Vec<Space>>;

    /// Stores a space and lets its group read what is in it already. Durable when this returns.
    fn add(&self, space: &Space) -> io::Result<()>;

    fn remove(&self, name: &Name) -> io::Result<()>;

    /// The groups that a user is in, as the machine knows them now.
    fn groups_of(&self, uid: u32) -> Vec<u32>;

    /// A group by its name or number.
    fn group(&self, word: &str) -> Option<u32>;
}

/// No spaces: for an engine without a disk.
pub struct NoSpaces;

impl SpaceFiles for NoSpaces {
    fn load(&self) -> io::Result<Vec<Space>> {
        Ok(Vec::new())
    }

    fn add(&self, _: &Space) -> io::Result<()> {
        Err(io::Error::other("this daemon keeps no spaces"))
    }

    fn remove(&self, _: &Name) -> io::Result<()> {
        Ok(())
    }

    fn groups_of(&self, _: u32) -> Vec<u32> {
        Vec::new()
    }

    fn group(&self, _: &str) -> Option<u32> {
        None
    }
}

/// The spaces that there are.
pub(crate) struct Spaces {
    pub files: Arc<dyn SpaceFiles>,
    pub known: Mutex<BTreeMap<Name, Space>>,
}

impl Spaces {
    pub fn new(files: Arc<dyn SpaceFiles>) -> Spaces {
        Spaces { files, known: Mutex::default() }
    }

    pub fn load(&self) {
        match self.files.load() {
            Ok(spaces) => {
                *lock(&self.known) = spaces.into_iter().map(|space| (space.name.clone(), space)).collect();
            }
            Err(error) => tracing::error!(%error, "the spaces cannot be read; nobody is let into one"),
        }
    }

    pub fn gid_of(&self, name: &Name) -> Option<u32> {
        lock(&self.known).get(name).map(|space| space.gid)
    }
}

/// What someone may see, asked once for each request.
#[derive(Debug)]
pub struct Sight {
    pub(crate) uid: u32,
    /// The daemon's owner sees all.
    pub(crate) all: bool,
    /// The spaces whose group they are in.
    pub(crate) spaces: Vec<Name>,
}

impl Sight {
    /// A private session is seen by its owner; a shared one also by the members of its space.
    pub fn sees(&self, meta: &SessionMeta) -> bool {
        let shared = || meta.space.as_ref().is_some_and(|space| self.spaces.contains(space));
        self.all || meta.owner == self.uid || (meta.scope == Scope::Shared && shared())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(scope: &str, space: Option<&str>, owner: u32) -> SessionMeta {
        let text = serde_json::json!({
            "session_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "name": "s", "scope": scope, "space": space, "owner": owner,
            "agent": "coder", "project": "default", "cwd": "/", "model": "m", "app": "",
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_member_sees_what_the_space_shares_and_nothing_else() {
        let sight = Sight { uid: 7, all: false, spaces: vec![Name::new("team").unwrap()] };
        assert!(sight.sees(&meta("private", None, 7)));
        assert!(sight.sees(&meta("shared", Some("team"), 8)));
        assert!(sight.sees(&meta("shared", Some("gone"), 7)), "what is theirs stays theirs");
        assert!(!sight.sees(&meta("shared", Some("other"), 8)));
        assert!(!sight.sees(&meta("private", None, 8)));
        assert!(
            !sight.sees(&meta("private", Some("team"), 8)),
            "the scope decides, not a word that is left over"
        );
        assert!(Sight { all: true, ..sight }.sees(&meta("private", None, 8)));
    }
}
