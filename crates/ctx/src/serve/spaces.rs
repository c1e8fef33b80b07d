//! Spaces on the disk: a file for each in `.state/spaces/`, and the groups of this machine.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ctx_engine::{Space, SpaceFiles};
use ctx_journal::Owner;
use ctx_session::{Name, Timestamp};
use serde::{Deserialize, Serialize};

use super::{owner, passwd};

/// The spaces of a root.
pub(super) struct Directory {
    root: PathBuf,
}

/// The file of a space; its name is the space's.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    group: String,
    gid: u32,
    created_by: u32,
    created_at: Timestamp,
}

impl Directory {
    pub fn new(root: &Path) -> Directory {
        Directory { root: root.to_owned() }
    }

    fn dir(&self) -> PathBuf {
        self.root.join(".state/spaces")
    }
}

impl SpaceFiles for Directory {
    fn load(&self) -> io::Result<Vec<Space>> {
        let entries = match std::fs::read_dir(self.dir()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut spaces = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| Name::new(name.to_str()?).ok()) else {
                continue;
            };
            let read = std::fs::read(&path).and_then(|text| Ok(serde_json::from_slice(&text)?));
            match read {
                Ok(Kept { group, gid, created_by, created_at }) => {
                    spaces.push(Space { name, group, gid, created_by, created_at });
                }
                // One that cannot be read lets nobody in, and hides no others.
                Err(error) => tracing::error!(path = %path.display(), %error, "a space cannot be read"),
            }
        }
        Ok(spaces)
    }

    fn add(&self, space: &Space) -> io::Result<()> {
        let readers = Owner { space: Some(space.gid), ..Owner::own() };
        let unchanged = |_: &str, _: u32, _: &[u8]| Err("it is foreign".to_owned());
        let taken =
            ctx_journal::take_over(&self.root, &format!("shared/{}", space.name), readers, true, &unchanged)?;
        for (path, why) in taken.left {
            tracing::warn!(path, why, "this is left alone in the new space");
        }
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(self.dir())?;
        let Space { name, group, gid, created_by, created_at } = space.clone();
        let text = serde_json::to_vec(&Kept { group, gid, created_by, created_at })?;
        owner::replace_durably(&self.dir().join(name.as_str()), &text)
    }

    fn remove(&self, name: &Name) -> io::Result<()> {
        std::fs::remove_file(self.dir().join(name.as_str()))?;
        std::fs::File::open(self.dir())?.sync_all()?;
        // Lists and empty directories are all that is left. A session that was made at this moment keeps its directory.
        remove_if_empty(&self.root.join("shared").join(name.as_str()));
        Ok(())
    }

    fn groups_of(&self, uid: u32) -> Vec<u32> {
        ctx_cage::rights::groups_of(uid).unwrap_or_default()
    }

    fn group(&self, word: &str) -> Option<u32> {
        passwd::group(word)
    }
}

/// Removes a space's directories, down to the lists of its agents, as far as nothing else is in them.
fn remove_if_empty(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.ends_with("session/index") {
            let _ = std::fs::remove_dir_all(&path);
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_if_empty(&path);
        }
    }
    let _ = std::fs::remove_dir(dir);
}
