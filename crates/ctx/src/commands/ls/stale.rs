//! Which sessions keep a project file that has changed since: only the daemon knows, and nobody waits for it in vain.

use std::collections::{BTreeSet, HashMap};

use ctx_api::http::{List, Session};
use ctx_session::project::DEFAULT_PROJECT;
use ctx_session::{Name, SessionId};

use super::find::Row;
use crate::client::Api;
use crate::root::Root;

/// Asks the daemon, if there is one and there is anything to ask about.
pub fn mark(root: &Root, rows: &mut [Row]) {
    let described = |row: &&mut Row| row.meta.project.as_str() != DEFAULT_PROJECT;
    let projects: BTreeSet<Name> =
        rows.iter_mut().filter(described).map(|row| row.meta.project.clone()).collect();
    if projects.is_empty() || !root.is_up() {
        return;
    }
    let api = Api::new(root);
    let mut known: HashMap<SessionId, bool> = HashMap::new();
    for project in projects {
        known.extend(of_project(&api, &project));
    }
    for row in rows.iter_mut().filter(described) {
        row.stale = known.get(&row.meta.id).copied();
    }
}

/// What a daemon of another version does not answer is not known.
fn of_project(api: &Api<'_>, project: &Name) -> Vec<(SessionId, bool)> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/projects/{project}/sessions?archived=true&limit=1000{cursor}");
        let Ok(page) = api.get::<List<Session>>(&path) else { return found };
        let described = page.items.into_iter().filter(|session| session.dsl_snapshot.is_some());
        found.extend(described.map(|session| (session.id, session.stale)));
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}
