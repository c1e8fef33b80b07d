//! What the files of the sessions in a list do not say: which keep a project file that has changed since, which are
//! failing, which wait for an approval, and why they are paused. The daemon knows; without it, the logs say the last.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use ctx_api::http::{Checkpoint, List, Session};
use ctx_journal::{Journal, LogPath};
use ctx_session::project::DEFAULT_PROJECT;
use ctx_session::record::{Body, CheckpointBody, Decoded, Usage};
use ctx_session::{CheckpointId, Name, SessionId, StateName, Usd};

use super::find::Row;
use crate::client::Api;
use crate::index::{self, Index};
use crate::root::Root;

/// Asks the daemon, if there is one and there is anything to ask about.
pub fn mark(root: &Root, rows: &mut [Row]) {
    let described = of(rows, |row| row.meta.project.as_str() != DEFAULT_PROJECT);
    let running = of(rows, |row| matches!(row.meta.state, StateName::Running | StateName::Paused));
    if described.is_empty() && running.is_empty() {
        return;
    }
    if !root.is_up() {
        for row in rows.iter_mut().filter(|row| row.meta.state == StateName::Paused) {
            row.pause_reason = reason_in_log(root, row);
        }
        return;
    }
    let api = Api::new(root);
    let mut known: HashMap<SessionId, Session> = HashMap::new();
    for project in running.difference(&described) {
        for only in ["&state=running", "&state=paused"] {
            known.extend(of_project(&api, project, only));
        }
    }
    for project in &described {
        known.extend(of_project(&api, project, ""));
    }
    for row in rows {
        if let Some(session) = known.remove(&row.meta.id) {
            row.stale = session.dsl_snapshot.as_ref().map(|_| session.stale);
            row.failing = session.failing.clone();
            row.approvals = session.pending_approvals;
            row.pause_reason = session.checkpoint.and_then(|at| reason(&api, session.id, at));
            row.known = Some(Box::new(session));
        }
    }
}

/// What the sessions have cost, from the index, or from the daemon where that is another user's. What is not known stays 0.
pub fn count(root: &Root, rows: &mut [Row]) {
    let of_known = |session: &Session| Usage {
        input: session.tokens_in,
        output: session.tokens_out,
        cached: session.tokens_cached,
        cost_nano_usd: Usd::of_dollars(session.cost_usd).unwrap_or_default().nano,
    };
    let ids: Vec<SessionId> = rows.iter().map(|row| row.meta.id).collect();
    let mut found: HashMap<SessionId, Usage> = match index::open(root) {
        _ if rows.is_empty() => HashMap::new(),
        Ok(Index::File(index)) => index.queries().usage_of(&ids).unwrap_or_default(),
        Ok(Index::Daemon(api)) => {
            let projects = of(rows, |_| true);
            let sessions = projects.iter().flat_map(|project| of_project(&api, project, ""));
            sessions.map(|(id, session)| (id, of_known(&session))).collect()
        }
        Err(_) => HashMap::new(),
    };
    for row in rows {
        let known = row.known.as_deref().map(of_known);
        row.usage = known.or_else(|| found.remove(&row.meta.id)).unwrap_or(row.usage);
    }
}

/// Why a session is paused. There are few paused ones, so each is asked for.
fn reason(api: &Api<'_>, id: SessionId, checkpoint: CheckpointId) -> Option<String> {
    api.get::<Checkpoint>(&format!("/sessions/{id}/checkpoints/{checkpoint}")).ok()?.reason
}

/// The same from the log: the reason of the newest checkpoint, at which a paused session stands. It reads the whole log.
fn reason_in_log(root: &Root, row: &Row) -> Option<String> {
    let log = LogPath::new(row.dir.join("events.jsonl").to_str()?).ok()?;
    let mut reason = None;
    let read = root.journal().ok()?.read(&log, 0, &mut |entry| {
        if entry.kind == "checkpoint_created"
            && let Decoded::Known(Body::Checkpoint(CheckpointBody::Created(made))) =
                Body::decode(&entry.kind, &entry.text)
        {
            reason = made.reason;
        }
        ControlFlow::Continue(())
    });
    read.ok().and(reason)
}

/// The projects of the rows that are meant.
fn of(rows: &[Row], is_meant: impl Fn(&Row) -> bool) -> BTreeSet<Name> {
    rows.iter().filter(|row| is_meant(row)).map(|row| row.meta.project.clone()).collect()
}

/// What a daemon of another version does not answer is not known.
fn of_project(api: &Api<'_>, project: &Name, only: &str) -> Vec<(SessionId, Session)> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/projects/{project}/sessions?archived=true&limit=1000{only}{cursor}");
        let Ok(page) = api.get::<List<Session>>(&path) else { return found };
        found.extend(page.items.into_iter().map(|session| (session.id, session)));
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}
