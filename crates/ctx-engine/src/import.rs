//! Importing: sessions of other agents become sessions here, under ids that depend on the source alone.
//!
//! A batch is one command, so that it is there as a whole or not at all, and what is there already is left out: an import that
//! is stopped anywhere is finished by doing it again.

use std::sync::Arc;
use std::time::Duration;

use ctx_session::command::Import;
use ctx_session::model_name::provider;
use ctx_session::name::IMPORT_AGENTS;
use ctx_session::record::{Scope, SessionMeta};
use ctx_session::{Body, Code, Name, Object, Refusal, SessionId, Timestamp, Ulid};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::driver::Ask;
use crate::engine::Engine;
use crate::registry::Summary;
use crate::request::Caller;
use crate::shared::Inner;

/// How long it is waited for the index.
const INDEX_WAIT: Duration = Duration::from_secs(10);

/// Why a session stays.
const CONTINUED: &str = "it was continued here";

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
    /// Messages that count no more.
    pub superseded: Vec<Ulid>,
    /// Nothing is to change.
    pub is_dry: bool,
}

/// What came of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportDone {
    pub session: SessionId,
    pub created: bool,
    /// Records that were not there before. Of a dry run: those that would be added.
    pub added: u64,
}

/// What came of taking an import back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportUndone {
    pub import_id: Option<Ulid>,
    pub removed: u64,
    /// Sessions of earlier imports from which what it had added was taken.
    pub taken_back: u64,
    /// Sessions that stay, and why.
    pub kept: Vec<(SessionId, String)>,
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
    /// Adds records to an imported session, which is made where it is not there. They are on disk when this returns. A dry run
    /// only says how many would be added.
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
            None if new.is_dry => {
                let added = u64::try_from(new.records.len()).unwrap_or(u64::MAX);
                return Ok(ImportDone { session, created: false, added });
            }
            None => self.begin_import(caller, &new).await.map(|()| true)?,
        };
        let import = Import {
            import_id: new.import_id,
            records: new.records,
            by: caller.uid,
            restored: Vec::new(),
            superseded: new.superseded,
        };
        let is_dry = new.is_dry;
        let ask = |reply| Ask::Import { import: import.clone(), is_dry, reply };
        let added = self.inner.ask(session, ask).await?;
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
            provider: provider(&new.model).map(str::to_owned),
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

    /// Waits until the index has what was imported or taken back, so that whoever asks it next sees that; but not for ever.
    pub async fn await_index(&self) {
        let engine = self.clone();
        let waited = tokio::task::spawn_blocking(move || {
            if let Some(index) = engine.behind().index() {
                index.flush();
                index.wait_all(INDEX_WAIT);
            }
        });
        // A wait that was broken off is over too.
        drop(waited.await);
    }

    /// The imported sessions of a caller, each with the imports that brought it in or added to it, oldest first.
    pub async fn imported(&self, caller: Caller) -> Result<Vec<(Arc<Summary>, Vec<Ulid>)>, Refusal> {
        let is_own = |summary: &Summary| summary.meta.owner == caller.uid && summary.meta.import().is_some();
        let sessions = self.inner.registry.select(is_own);
        let engine = self.clone();
        let uid = caller.uid;
        let known =
            tokio::task::spawn_blocking(move || engine.ask_index(|queries| queries.imports(uid))).await;
        let known = known.map_err(|error| Refusal::new(Code::Eio, error.to_string()))??;
        let mut all = Vec::with_capacity(sessions.len());
        for summary in sessions {
            let (read, imports) = known.get(&summary.id()).cloned().unwrap_or_default();
            // The index follows behind: what it has not read is asked of the session itself.
            let imports = if summary.next_seq.is_none_or(|next| next <= read) {
                imports
            } else {
                self.look(caller, summary.id()).await?.imports.clone()
            };
            all.push((summary, imports));
        }
        Ok(all)
    }

    /// Takes the newest import back: the sessions that it made are purged, and what it added to others no longer counts. A session
    /// that went on here stays as it is.
    pub async fn undo_import(&self, caller: Caller) -> Result<ImportUndone, Refusal> {
        let sessions = self.imported(caller).await?;
        let Some(newest) = sessions.iter().flat_map(|(_, imports)| imports).max().copied() else {
            return Ok(ImportUndone::default());
        };
        let mut undone = ImportUndone { import_id: Some(newest), ..ImportUndone::default() };
        for (summary, _) in sessions.iter().filter(|(_, imports)| imports.contains(&newest)) {
            let id = summary.id();
            let made = summary.meta.import() == Some(newest);
            let done = if made {
                self.remove_imported(caller, id).await
            } else {
                self.take_back(caller, id, newest).await
            };
            match done {
                Ok(None) if made => undone.removed += 1,
                Ok(None) => undone.taken_back += 1,
                Ok(Some(why)) => undone.kept.push((id, why.to_owned())),
                Err(refusal) => undone.kept.push((id, refusal.to_string())),
            }
        }
        self.await_index().await;
        Ok(undone)
    }

    /// Takes back what an import added to a session; or says why it stays.
    async fn take_back(
        &self,
        caller: Caller,
        id: SessionId,
        import: Ulid,
    ) -> Result<Option<&'static str>, Refusal> {
        if self.went_on(caller, id).await? {
            return Ok(Some(CONTINUED));
        }
        let by = caller.uid;
        self.inner.ask(id, |reply| Ask::UndoImport { import, by, reply }).await.map(|()| None)
    }

    /// Whether a message was sent to an imported session here.
    async fn went_on(&self, caller: Caller, id: SessionId) -> Result<bool, Refusal> {
        let session = self.look(caller, id).await?;
        // Only a run of this daemon has a context.
        Ok(session.control.context.is_some() || session.current_run().is_some())
    }

    /// Removes an imported session; or says why it stays.
    async fn remove_imported(&self, caller: Caller, id: SessionId) -> Result<Option<&'static str>, Refusal> {
        if self.went_on(caller, id).await? {
            return Ok(Some(CONTINUED));
        }
        if !self.look(caller, id).await?.state.name().is_over() {
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
        object: &Object,
    ) -> Result<Option<Arc<[u8]>>, Refusal> {
        let Object::Agent(agent) = object else { return Ok(None) };
        let caller = Caller { uid: meta.owner, gid: self.owner_of(meta).gid };
        Ok(self.described(caller, agent)?.and_then(|described| described.snapshot()))
    }

    /// What works in a session: its own agent or model, or for an imported session the agent of its project.
    pub(crate) fn working_object(&self, meta: &SessionMeta) -> Option<Object> {
        if !self.is_another_agents(meta) {
            return Object::of(meta);
        }
        let standings = ctx_journal::lock(&self.projects.standings);
        let of_project = standings.get(&meta.project).and_then(|standing| standing.agent().cloned());
        of_project.or_else(|| Name::new("coder").ok()).map(Object::Agent)
    }
}
