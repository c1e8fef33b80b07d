//! What is known of a log besides its bytes: the first record of a session's, made anew where it is damaged, see
//! [`ctx_views::identity`]; and whether its records fit their types.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use ctx_journal::repair::{Anew, Judge, Plan, RepairError, Repaired, Unfit, Versions, Where};
use ctx_journal::{Entry, FileJournal, Journal, LogPath};
use ctx_session::Body;
use ctx_session::record::SessionBody;
use ctx_views::Sources;
use ctx_views::db::IndexReader;
use ctx_views::identity::{Identity, Place, first, repaired};

use super::bodies::Whose;
use crate::root::Root;
use crate::{index, words};

/// What can be known of a log besides its first record.
pub struct Known<'a> {
    root: &'a Root,
    log: &'a LogPath,
    /// It has records of types that this ctx does not know.
    has_newer_types: OnceCell<bool>,
    /// What the last plan left as it is and why, by where it stands.
    left: RefCell<BTreeMap<u64, String>>,
}

/// A record that does not fit its type and is not changed: a newer ctx may have written it.
#[derive(Debug, Clone)]
pub struct Left {
    /// From 1.
    pub line: u64,
    pub why: String,
}

impl<'a> Known<'a> {
    pub fn new(root: &'a Root, log: &'a LogPath) -> Known<'a> {
        Known { root, log, has_newer_types: OnceCell::new(), left: RefCell::default() }
    }

    /// What a repair would do.
    pub fn plan(&self, journal: &FileJournal, versions: Versions) -> Result<Plan, RepairError> {
        self.left.take();
        let first = |entry: Option<&Entry>| self.first(entry);
        let fits = |entry: &Entry| self.unfit(entry, versions);
        journal.plan_repair(self.log, words::now(), Judge { first: &first, fits: &fits, versions })
    }

    /// Does it; `before` is called just before the log changes.
    pub fn repair(
        &self,
        journal: &FileJournal,
        versions: Versions,
        before: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<Repaired, RepairError> {
        self.left.take();
        let first = |entry: Option<&Entry>| self.first(entry);
        let fits = |entry: &Entry| self.unfit(entry, versions);
        journal.repair(self.log, words::now(), Judge { first: &first, fits: &fits, versions }, before)
    }

    /// What the last plan leaves as it is.
    pub fn left(&self) -> Vec<Left> {
        let left = self.left.borrow();
        if left.is_empty() {
            return Vec::new();
        }
        let path = self.root.path.join(self.log.as_str());
        let line = |offset: u64| words::lines_before(&path, offset) + 1;
        left.iter().map(|(offset, why)| Left { line: line(*offset), why: why.clone() }).collect()
    }

    /// What does not fit in a record. One that cannot be put right is let be where a newer ctx may have written it.
    fn unfit(&self, entry: &Entry, versions: Versions) -> Option<Unfit> {
        let whose = Whose::of(self.log)?;
        if whose == Whose::Session && entry.seq == 0 {
            // Told by what session it is.
            return None;
        }
        let unfit = whose.unfit(entry)?;
        if unfit.was.is_some() {
            return Some(unfit);
        }
        let has_newer_word = versions == Versions::MayBeNewer && whose.has_unknown_word(entry);
        if has_newer_word || *self.has_newer_types.get_or_init(|| self.find_newer_type(whose)) {
            self.left.borrow_mut().insert(entry.offset, unfit.why);
            return None;
        }
        Some(unfit)
    }

    fn find_newer_type(&self, whose: Whose) -> bool {
        let mut found = false;
        let read = self.root.journal().ok().map(|journal| {
            journal.read(self.log, 0, &mut |entry| {
                found |= whose.is_unknown(&entry);
                if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        // What cannot be read a second time is not judged.
        found || !matches!(read, Some(Ok(_)))
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
        let body = Body::Session(SessionBody::Meta(Box::new(repaired(identity.meta)))).to_json();
        Some(Anew { body, why: why.join("; "), at })
    }
}
