//! Importing: sessions of other agents become sessions here, under ids that depend on the source alone.
//!
//! A batch is one command, so that it is there as a whole or not at all, and what is there already is left out: an import that
//! is stopped anywhere is finished by doing it again.

use std::collections::BTreeSet;
use std::sync::Arc;

use ctx_session::command::Import;
use ctx_session::name::IMPORT_AGENTS;
use ctx_session::record::{Scope, SessionMeta};
use ctx_session::{Body, Code, Name, Refusal, SessionId, Timestamp, Ulid};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::driver::Ask;
use crate::engine::Engine;
use crate::registry::Summary;
use crate::request::Caller;
use crate::shared::Inner;

/// Records of another agent's session, and what the session is where it is new.
#[derive(Debug, Clone)]
pub struct NewImport {
    pub import_id: Ulid,
    pub session: SessionId,
    /// The agent that it was a session of.
    pub agent: Name,
    pub name: Name,
    pub cwd: Option<String>,
    pub model: String,
    pub title: Option<String>,
    pub created_at: Timestamp,
    /// Where it comes from, as the first record of the log has it.
    pub origin: Value,
    pub records: Vec<(Timestamp, Body)>,
}

/// What came of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportDone {
    pub session: SessionId,
    pub created: bool,
    /// Records that were not there before.
    pub added: u64,
}

/// What came of taking an import back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportUndone {
    pub import_id: Option<Ulid>,
    pub removed: u64,
    /// Sessions that stay, and why.
    pub kept: Vec<(SessionId, String)>,
}

/// The import that made a session.
pub fn import_of(meta: &SessionMeta) -> Option<Ulid> {
    meta.origin.as_ref()?.get("import_id")?.as_str()?.parse().ok()
}

/// The id that an imported session has for a user who is not the daemon's own. It follows from the source, which others may
/// have too: so none can take another's id first, nor find out whether it is taken.
fn id_of_user(source: SessionId, uid: u32) -> SessionId {
    let hash =
        Sha256::new().chain_update(source.0.0.to_le_bytes()).chain_update(uid.to_le_bytes()).finalize();
    let random = hash.iter().take(10).fold(0u128, |all, byte| (all << 8) | u128::from(*byte));
    // Its time stays.
    SessionId(Ulid((source.0.0 >> 80 << 80) | random))
}

impl Engine {
    /// Adds records to an imported session, which is made where it is not there. They are on disk when this returns.
    pub async fn import(&self, caller: Caller, mut new: NewImport) -> Result<ImportDone, Refusal> {
        self.inner.refuse_when_closing()?;
        self.inner.serve_user(caller)?;
        if caller.uid != self.inner.daemon_uid {
            new.session = id_of_user(new.session, caller.uid);
        }
        if !IMPORT_AGENTS.contains(&new.agent.as_str()) {
            let known = IMPORT_AGENTS.join(", ");
            return Err(Refusal::invalid("agent", format!("sessions are imported from {known}")));
        }
        let session = new.session;
        let created = match self.inner.registry.get(session) {
            Some(summary) if summary.meta.owner != caller.uid || summary.meta.origin.is_none() => {
                return Err(Refusal::new(Code::Eexist, format!("{session} is the id of another session")));
            }
            Some(_) => false,
            None => self.begin_import(caller, &new).await.map(|()| true)?,
        };
        let import = Import { import_id: new.import_id, records: new.records, by: caller.uid };
        let added = self.inner.ask(session, |reply| Ask::Import { import: import.clone(), reply }).await?;
        Ok(ImportDone { session, created, added })
    }

    async fn begin_import(&self, caller: Caller, new: &NewImport) -> Result<(), Refusal> {
        let default = Name::new("default").map_err(|rule| Refusal::new(Code::Eio, rule.to_string()))?;
        let project = new.cwd.as_deref().and_then(|cwd| self.inner.project_of_directory(caller, cwd));
        let mut origin = new.origin.clone();
        if let Some(origin) = origin.as_object_mut() {
            origin.insert("import_id".to_owned(), Value::String(new.import_id.to_string()));
        }
        let meta = SessionMeta {
            session_id: new.session,
            name: new.name.clone(),
            scope: Scope::Private,
            space: None,
            owner: caller.uid,
            agent: Some(new.agent.clone()),
            project: project.unwrap_or(default),
            cwd: new.cwd.clone().unwrap_or_else(|| "/".to_owned()),
            dir: None,
            workspace: None,
            model: new.model.clone(),
            title: new.title.clone(),
            client: Some("import".to_owned()),
            origin: Some(origin),
            forked_from: None,
            dsl_hash: None,
            dsl_snapshot: None,
            requested: None,
            app: self.inner.app.clone(),
        };
        match self.make_imported(meta.clone(), new.created_at).await {
            // Another session has the name, such as one of the same source under another id.
            Err(refusal) if refusal.code == Code::Eexist => {
                let name = Name::from(new.session);
                self.make_imported(SessionMeta { name, ..meta }, new.created_at).await
            }
            made => made,
        }
    }

    async fn make_imported(&self, meta: SessionMeta, time: Timestamp) -> Result<(), Refusal> {
        let owner = self.inner.owner_of(&meta);
        let made = self.inner.begin(Arc::new(meta), owner, time)?;
        let lost = |_| Refusal::new(Code::Eio, "the new session was lost; try again");
        made.await.map_err(lost)?
    }

    /// The imported sessions of a caller.
    pub fn imported(&self, caller: Caller) -> Vec<Arc<Summary>> {
        let is_own =
            |summary: &Summary| summary.meta.owner == caller.uid && import_of(&summary.meta).is_some();
        self.inner.registry.select(is_own)
    }

    /// Takes the newest import back: the sessions that it made are purged, but for those that went on here.
    pub async fn undo_import(&self, caller: Caller) -> Result<ImportUndone, Refusal> {
        let sessions = self.imported(caller);
        let imports: BTreeSet<Ulid> =
            sessions.iter().filter_map(|summary| import_of(&summary.meta)).collect();
        let Some(newest) = imports.last().copied() else { return Ok(ImportUndone::default()) };
        let mut undone = ImportUndone { import_id: Some(newest), ..ImportUndone::default() };
        for summary in sessions.iter().filter(|summary| import_of(&summary.meta) == Some(newest)) {
            let id = summary.id();
            match self.remove_imported(caller, id).await {
                Ok(None) => undone.removed += 1,
                Ok(Some(why)) => undone.kept.push((id, why.to_owned())),
                Err(refusal) => undone.kept.push((id, refusal.to_string())),
            }
        }
        Ok(undone)
    }

    /// Removes an imported session; or says why it stays.
    async fn remove_imported(&self, caller: Caller, id: SessionId) -> Result<Option<&'static str>, Refusal> {
        let session = self.look(caller, id).await?;
        // Only a run of this daemon has a context.
        if session.control.context.is_some() || session.current_run().is_some() {
            return Ok(Some("it was continued here"));
        }
        if !session.state.name().is_over() {
            self.end(caller, id).await?;
        }
        self.purge(caller, id).await.map(|()| None)
    }
}

impl Inner {
    /// The caller's project that a directory lies in; the innermost where several do.
    fn project_of_directory(&self, caller: Caller, directory: &str) -> Option<Name> {
        let standings = ctx_journal::lock(&self.projects.standings);
        let holds = |root: &str| {
            directory.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let own = standings.iter().filter(|(_, standing)| standing.entry.owner == caller.uid);
        let around = own.filter(|(_, standing)| holds(standing.entry.directory.trim_end_matches('/')));
        around.max_by_key(|(_, standing)| standing.entry.directory.len()).map(|(slug, _)| slug.clone())
    }

    /// Whether a session was imported: its agent is a name, and nobody here.
    pub(crate) fn is_another_agents(&self, meta: &SessionMeta) -> bool {
        let agent = meta.agent.as_ref().map(Name::as_str);
        meta.origin.is_some() && agent.is_some_and(|agent| IMPORT_AGENTS.contains(&agent))
    }

    /// How the agent that goes on with an imported session is described now. Blocking.
    pub(crate) fn snapshot_of_agent(
        &self,
        meta: &SessionMeta,
        agent: &Name,
    ) -> Result<Option<Arc<[u8]>>, Refusal> {
        let caller = Caller { uid: meta.owner, gid: self.owner_of(meta).gid };
        Ok(self.described(caller, agent)?.and_then(|described| described.snapshot()))
    }

    /// The agent that works in a session: its own, or for an imported session that of its project.
    pub(crate) fn working_agent(&self, meta: &SessionMeta) -> Option<Name> {
        if !self.is_another_agents(meta) {
            return meta.agent.clone();
        }
        let standings = ctx_journal::lock(&self.projects.standings);
        let of_project = standings.get(&meta.project).and_then(|standing| standing.agent().cloned());
        of_project.or_else(|| Name::new("coder").ok())
    }
}
