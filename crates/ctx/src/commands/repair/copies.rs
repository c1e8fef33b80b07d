//! Sessions that someone copied: two logs with one id. One of them is the session, and the other must not become it.

use std::collections::BTreeMap;

use ctx_journal::{Entry, LogPath};
use ctx_session::SessionId;
use ctx_views::identity::Flaw;

use super::meta::Known;
use crate::root::Root;

/// Which session a log is, and how well its first record says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Says {
    fit: Fit,
    id: SessionId,
}

/// The better one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Sound,
    Damaged,
    /// It says another place than it is at, as a copy does.
    Elsewhere,
}

impl Says {
    /// By the first record as it stands; nothing for logs that are no session's.
    pub fn of(root: &Root, log: &LogPath, first: Option<&Entry>) -> Option<Says> {
        let identity = Known::new(root, log).identity(first)?;
        let elsewhere = identity.flaws.iter().any(|flaw| matches!(flaw, Flaw::Contradicts { .. }));
        let fit = match (identity.flaws.is_empty(), elsewhere) {
            (true, _) => Fit::Sound,
            (false, false) => Fit::Damaged,
            (false, true) => Fit::Elsewhere,
        };
        Some(Says { fit, id: identity.meta.session_id })
    }
}

/// The copies, each with the log that is the session: the one that says the name which it has.
pub fn copies<'a>(
    logs: impl Iterator<Item = (&'a LogPath, Option<Says>)>,
) -> BTreeMap<&'a LogPath, &'a LogPath> {
    let mut by_id: BTreeMap<SessionId, Vec<(Fit, &LogPath)>> = BTreeMap::new();
    for (log, says) in logs {
        if let Some(says) = says {
            by_id.entry(says.id).or_default().push((says.fit, log));
        }
    }
    let mut copies = BTreeMap::new();
    for mut same in by_id.into_values() {
        same.sort();
        if let [(_, original), others @ ..] = same.as_slice() {
            copies.extend(others.iter().map(|(_, log)| (*log, *original)));
        }
    }
    copies
}
