//! Sessions that someone copied: two logs with one id. At most one of them is the session, and the
//! others must not become it.

use std::collections::BTreeMap;

use ctx_journal::{Entry, LogPath};
use ctx_session::SessionId;
use ctx_views::identity::{Fit, original};

use super::meta::Known;
use crate::root::Root;

/// Which session a log is, and how well its first record says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Says {
    fit: Fit,
    id: SessionId,
}

impl Says {
    /// By the first record as it stands; nothing for logs that are no session's.
    pub fn of(root: &Root, log: &LogPath, first: Option<&Entry>) -> Option<Says> {
        let identity = Known::new(root, log).identity(first)?;
        let fit = Fit::of(&identity.flaws);
        Some(Says { fit, id: identity.meta.session_id })
    }
}

/// The logs that are not the session whose id they have, each with the log that is; none where nobody can tell which it is.
pub fn copies<'a>(
    logs: impl Iterator<Item = (&'a LogPath, Option<Says>)>,
) -> BTreeMap<&'a LogPath, Option<&'a LogPath>> {
    let mut by_id: BTreeMap<SessionId, Vec<(Fit, &LogPath)>> = BTreeMap::new();
    for (log, says) in logs {
        if let Some(says) = says {
            by_id.entry(says.id).or_default().push((says.fit, log));
        }
    }
    let mut copies = BTreeMap::new();
    for same in by_id.into_values().filter(|same| same.len() > 1) {
        let session = original(&same).copied();
        copies.extend(same.iter().filter(|(_, log)| Some(*log) != session).map(|(_, log)| (*log, session)));
    }
    copies
}
