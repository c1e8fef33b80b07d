//! The first record of a session's log, made anew where it is damaged; see [`ctx_views::identity`].

use ctx_journal::repair::{Anew, Where};
use ctx_journal::{Entry, LogPath};
use ctx_session::Body;
use ctx_views::Sources;
use ctx_views::db::IndexReader;
use ctx_views::identity::{Identity, Place, first, repaired};

use crate::index;
use crate::root::Root;

/// What can be known of a log besides its first record.
pub struct Known<'a> {
    root: &'a Root,
    log: &'a LogPath,
}

impl<'a> Known<'a> {
    pub fn new(root: &'a Root, log: &'a LogPath) -> Known<'a> {
        Known { root, log }
    }

    /// What session it is, by record 0 as it stands; nothing for logs that are no session's.
    pub fn identity(&self, entry: Option<&Entry>) -> Option<Identity> {
        let place = Place::of(self.log)?;
        let (journal, dir) = (self.root.journal().ok()?, self.root.dir().ok()?);
        let index = |log: &LogPath| {
            let index = IndexReader::open(&index::path(self.root)).ok()?;
            index.queries().meta_at(log).ok().flatten()
        };
        let sources = Sources { journal: &*journal, root: Some(&dir), index: &index };
        Some(sources.identify_by(self.log, &place, first(&place, entry)))
    }

    /// What to put in place of record 0; nothing where it is good, and for logs that are no session's.
    pub fn first(&self, entry: Option<&Entry>) -> Option<Anew> {
        let identity = self.identity(entry)?;
        if identity.is_in_log && identity.flaws.is_empty() {
            return None;
        }
        let why: Vec<String> = identity.flaws.iter().map(ToString::to_string).collect();
        let at = if identity.is_taken { Where::Last } else { Where::First };
        let body = Body::SessionMeta(Box::new(repaired(identity.meta))).to_json();
        Some(Anew { body, why: why.join("; "), at })
    }
}
