//! The index database as commands use it: opened to read, also while no daemon is up.

use std::path::{Path, PathBuf};

use ctx_session::Code;
use ctx_views::db::{DbError, IndexReader, Viewer};
use ctx_views::read::{Place, Reader};

use crate::failure::Failure;
use crate::output;
use crate::root::Root;
use crate::sessions::own_uid;

/// Where it is beneath the root.
pub const INDEX: &str = ".state/index.db";

pub fn path(root: &Root) -> PathBuf {
    root.path.join(INDEX)
}

/// The index, if there is one that can be read.
pub fn open(root: &Root) -> Result<IndexReader, Failure> {
    // Says what is to be done where there is no root at all.
    root.reader()?;
    let path = path(root);
    match std::fs::File::open(&path) {
        Ok(_) => Ok(IndexReader::open(&path)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::new(Code::Enoent, format!("there is no index yet at {}", path.display()))
                .hint("start the daemon with `ctx serve`, or build the index with `ctx reindex`"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(not_yours(&path)),
        Err(error) => Err(Failure::io(path.display(), error)),
    }
}

/// A file of the daemon's own, on a root that others use too.
pub fn not_yours(path: &Path) -> Failure {
    Failure::new(Code::Eacces, format!("{} belongs to whoever runs the daemon", path.display()))
        .hint("`ctx ls`, `ctx history` and `ctx show` read your sessions themselves")
}

/// What the user at the keyboard may see: their own, and what is in the spaces that let them in.
pub fn viewer(reader: &Reader) -> Result<Viewer, Failure> {
    let spaces = reader.places(own_uid())?.into_iter().filter_map(|place| match place {
        Place::Shared { space } => Some(space),
        Place::Private { .. } => None,
    });
    Ok(Viewer::User { uid: own_uid(), spaces: spaces.collect() })
}

/// Says so when not everything has been read into the index yet.
pub fn say_if_behind(root: &Root, index: &IndexReader) -> Result<(), Failure> {
    let unread = index.queries().unread()?;
    if unread > 0 {
        let when = if root.is_up() { "the daemon is reading them" } else { "`ctx reindex` reads them" };
        output::say(format_args!(
            "the index is not complete: {unread} sessions are still to be read; {when}"
        ));
    }
    Ok(())
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}
