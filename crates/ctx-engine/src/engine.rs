//! The engine's front: a cheap handle that doors hold. Who may ask is checked here; what may be asked, in the rules.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ctx_journal::lock;
use ctx_session::admission::Counts;
use ctx_session::command::{Change, RunNet, RunWishes};
use ctx_session::name::IMPORT_AGENTS;
use ctx_session::object::Earlier;
use ctx_session::record::{Approvals, CancelReason, Scope, SessionBody};
use ctx_session::request::RequestKey;
use ctx_session::rules::{Create, check_message, create};
use ctx_session::{
    Answer, Body, Code, Command, Limits, Name, Object, Refusal, RunId, RunState, Session, SessionId,
    Timestamp, Ulid,
};
use ctx_views::audit::Deed;
use tokio::sync::watch;

use crate::driver::{Ask, DriverLink};
use crate::follow::Follow;
use crate::live::EventId;
use crate::paths::Shelf;
use crate::port::{Place, Prepare, Prepared};
use crate::project_ops::here::Begin;
use crate::projects::Described;
use crate::registry::{NameSpace, Summary};
use crate::request::{Caller, NewSession, Parts, Post, Posted};
use crate::shared::Inner;

/// The engine. Cloning it is cheap.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

/// What a new session will be made with.
pub(crate) struct Plan {
    pub prepared: Prepared,
    /// None: the agent's control files describe it.
    pub described: Option<Described>,
    /// The host directory that it begins in.
    pub dir: Option<String>,
}

fn begin_in(dir: Option<&str>) -> Begin {
    dir.map_or(Begin::Anywhere, |dir| Begin::In(dir.to_owned()))
}

impl Engine {
    /// An engine that knows no session yet; [`Engine::start`] finds them.
    pub fn new(parts: Parts) -> Engine {
        let inner = Arc::new(Inner::new(parts));
        crate::index_files::spawn_writer(&inner);
        Engine { inner }
    }

    /// Finds every session and settles what an earlier daemon left open. Doors open after this.
    pub async fn start(&self) -> Result<crate::start::Found, Refusal> {
        self.inner.spaces.load();
        self.of_start().await?;
        let started = crate::start::start(&self.inner).await;
        self.inner.behind.catch_up();
        let (found, files_behind) = started?;
        crate::start::catch_up_later(&self.inner, files_behind);
        self.take_up_terminals();
        Ok(found)
    }

    /// Has the audit log tell, once, that logs which belonged to users are the daemon's now. Asked at every start: the
    /// daemon may have died before it was told.
    pub fn root_taken_over(&self, layout: u64, logs: u64, at: Timestamp) {
        if logs > 0 {
            let inner = self.inner.clone();
            let deed = Deed::taken_over(layout, logs, inner.daemon_uid, at);
            // The audit log may be long, and nobody waits for it.
            tokio::task::spawn_blocking(move || inner.behind.taken_over(deed));
        }
    }

    /// The index and the audit log.
    pub fn behind(&self) -> &crate::followers::Behind {
        &self.inner.behind
    }

    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// How many sessions of a project may run at once.
    pub fn running_limit(&self, project: &Name) -> u32 {
        self.inner.limits_of(project).running_per_project
    }

    /// A fresh id, for a connection or a request.
    pub fn new_id(&self) -> Ulid {
        self.inner.fresh.id()
    }

    /// The time, as the engine has it.
    pub fn now(&self) -> Timestamp {
        self.inner.fresh.now()
    }

    /// The running counts, as they change.
    pub fn counts(&self) -> watch::Receiver<Counts> {
        self.inner.slots.counts()
    }

    pub fn session_count(&self) -> usize {
        self.inner.registry.count()
    }

    /// Sessions that are loaded at the moment, whoever's they are.
    pub fn loaded_count(&self) -> usize {
        lock(&self.inner.active).len()
    }

    /// Of these, those that this caller may see.
    pub fn loaded_for(&self, caller: Caller) -> usize {
        let loaded: Vec<SessionId> = lock(&self.inner.active).keys().copied().collect();
        loaded.into_iter().filter(|id| self.find(caller, *id).is_ok()).count()
    }

    /// Whether this caller may see what belongs to this owner alone. The daemon's owner sees all.
    pub fn may_see(&self, caller: Caller, owner: u32) -> bool {
        caller.uid == owner || caller.uid == self.inner.daemon_uid
    }

    /// A session the caller may see; others do not exist for them.
    pub fn find(&self, caller: Caller, id: SessionId) -> Result<Arc<Summary>, Refusal> {
        match self.inner.registry.get(id) {
            Some(summary) if self.sight(caller).sees(&summary.meta) => Ok(summary),
            Some(_) | None => Err(Refusal::new(Code::Enoent, format!("no session {id}"))),
        }
    }

    /// Whether the caller may see a session, for doors that tell "not yours" from "not there". None: not there.
    pub fn is_seen(&self, caller: Caller, id: SessionId) -> Option<bool> {
        self.inner.registry.get(id).map(|summary| self.sight(caller).sees(&summary.meta))
    }

    /// The live session of this name.
    pub fn named(
        &self,
        caller: Caller,
        object: &Object,
        scope: Scope,
        space: Option<&Name>,
        name: &Name,
    ) -> Option<SessionId> {
        self.inner.check_space(caller, scope, space).ok()?;
        let object = object.clone();
        let namespace = match (scope, space) {
            (Scope::Private, _) => NameSpace::Shelf(Shelf::Private { owner: caller.uid, object }),
            (Scope::Shared, Some(space)) => NameSpace::Shelf(Shelf::Shared { space: space.clone(), object }),
            (Scope::Shared, None) => return None,
            (Scope::Temp, _) => NameSpace::Temp { owner: caller.uid, object },
        };
        self.inner.registry.named(&namespace, name)
    }

    /// The sessions this caller may see and that pass, newest first. Temp sessions are never listed.
    pub fn list(&self, caller: Caller, keep: impl Fn(&Summary) -> bool) -> Vec<Arc<Summary>> {
        let sight = self.sight(caller);
        let mut found = self.inner.registry.select(|summary| {
            summary.meta.scope != Scope::Temp && sight.sees(&summary.meta) && keep(summary)
        });
        found.sort_by_key(|summary| std::cmp::Reverse((summary.updated_at, summary.id())));
        found
    }

    /// Whether a message could begin a new session, so that one that cannot leaves none behind.
    pub async fn may_begin(
        &self,
        caller: Caller,
        object: &Object,
        dir: Option<&str>,
        post: &Post,
    ) -> Result<(), Refusal> {
        check_message(&post.text, post.client_id.as_deref(), &self.inner.limits)?;
        ctx_session::image::check(&post.images)?;
        let model = post.model_override.clone().flatten();
        self.plan(caller, object, model, post.cwd.clone(), begin_in(dir)).await.map(drop)
    }

    /// Finds out how an agent is described now, and under what a run of it, or of a model, would work.
    pub(crate) async fn plan(
        &self,
        caller: Caller,
        object: &Object,
        model_override: Option<String>,
        cwd: Option<String>,
        begin: Begin,
    ) -> Result<Plan, Refusal> {
        let inner = self.inner.clone();
        let object = object.clone();
        let planned = tokio::task::spawn_blocking(move || {
            let described = match &object {
                Object::Agent(agent) => inner.described(caller, agent)?,
                Object::Model { .. } => None,
            };
            let snapshot = described.as_ref().and_then(Described::snapshot);
            let place = match &object {
                Object::Agent(_) => inner.place(caller, begin, described.as_ref())?,
                // It sees no files.
                Object::Model { .. } => Place::default(),
            };
            let dir = place.dir.clone();
            let ask = Prepare {
                object,
                owner: caller.uid,
                model_override,
                cwd,
                snapshot,
                prompts: Vec::new(),
                wishes: RunWishes::default(),
                recorded: None,
                earlier: Vec::new(),
                place,
            };
            let prepared = inner.worker.prepare(&ask)?;
            Ok(Plan { prepared, described, dir })
        });
        planned.await.map_err(|error| Refusal::new(Code::Eio, error.to_string()))?
    }

    /// The session that a request with this key has made, also before this daemon was started.
    pub fn made_by(&self, caller: Caller, key: &RequestKey) -> Result<Option<SessionId>, Refusal> {
        let same = |known: &RequestKey| known.request == key.request;
        let found = self.inner.registry.select(|summary| summary.meta.requested.as_ref().is_some_and(same));
        for summary in found.into_iter().filter(|summary| self.may_see(caller, summary.meta.owner)) {
            if let Some(known) = &summary.meta.requested
                && key.repeats(known)?
            {
                return Ok(Some(summary.id()));
            }
        }
        Ok(None)
    }

    /// Makes a session. It exists when this returns.
    pub async fn create(&self, caller: Caller, new: NewSession) -> Result<SessionId, Refusal> {
        self.inner.refuse_when_closing()?;
        self.inner.serve_user(caller)?;
        self.inner.check_space(caller, new.scope, new.space.as_ref())?;
        if new.object.agent().is_some_and(|agent| IMPORT_AGENTS.contains(&agent.as_str())) {
            let message =
                format!("`{}` is the agent of imported sessions; `ctx import` makes those", new.object);
            return Err(Refusal::invalid("agent", message));
        }
        let begin = begin_in(new.dir.as_deref());
        let plan = self.plan(caller, &new.object, None, new.cwd.clone(), begin).await?;
        let own = &plan.prepared.project;
        if new.project.as_ref().is_some_and(|project| project != own) {
            let message = format!("the agent `{}` belongs to project {own}", new.object);
            return Err(Refusal::invalid("agent", message));
        }
        self.create_planned(caller, new, plan).await
    }

    pub(crate) async fn create_planned(
        &self,
        caller: Caller,
        new: NewSession,
        plan: Plan,
    ) -> Result<SessionId, Refusal> {
        let Plan { prepared, described, dir } = plan;
        let workspace = prepared.workspace.filter(|workspace| {
            // A mount table that a person wrote is read at every run.
            let of_serve = self.inner.projects.workspace.as_ref() == Some(&workspace.directory);
            !matches!(described, Some(Described::File { .. }))
                && (workspace.described_by.is_some() || workspace.read_only || of_serve)
        });
        let mut dsl = None;
        if let Some(described) = described {
            // Before the record that names it.
            let stored = tokio::task::spawn_blocking(move || described.store()).await;
            dsl = stored.map_err(|error| Refusal::new(Code::Eio, error.to_string()))??;
        }
        let time = self.inner.fresh.now();
        let decision = create(Create {
            id: SessionId(self.inner.fresh.id()),
            name: new.name,
            scope: new.scope,
            space: new.space,
            owner: caller.uid,
            agent: new.object.agent().cloned(),
            project: prepared.project,
            cwd: prepared.context.cwd,
            dir,
            workspace,
            model: prepared.context.model,
            dsl,
            client: new.client,
            origin: Earlier::origin(new.earlier),
            requested: new.key,
            app: self.inner.app.clone(),
        });
        let meta = decision.records.into_iter().find_map(|body| match body {
            Body::Session(SessionBody::Meta(meta)) => Some(Arc::new(*meta)),
            _ => None,
        });
        let meta = meta.ok_or_else(|| Refusal::new(Code::Eio, "a session without a first record"))?;
        let id = meta.session_id;
        let owner = self.inner.owner_of(&meta);
        let made = self.inner.begin(meta, owner, time)?;
        let lost = |_| Refusal::new(Code::Eio, "the new session was lost; try again");
        made.await.map_err(lost)?.map(|()| id)
    }

    /// Reads the projects before any session is looked at.
    async fn of_start(&self) -> Result<(), Refusal> {
        let inner = self.inner.clone();
        let read = tokio::task::spawn_blocking(move || inner.load_projects()).await;
        read.map_err(|error| Refusal::new(Code::Eio, error.to_string()))
    }

    /// Posts a message. It is durable when this returns.
    pub async fn post(&self, caller: Caller, id: SessionId, post: Post) -> Result<Posted, Refusal> {
        let summary = self.find(caller, id)?;
        // What is looser than its owner's word is the owner's to say; a denial and no network are anyone's.
        let RunWishes { approvals, allow, net } = &post.wishes;
        if *approvals == Some(Approvals::Allow) || !allow.is_empty() || *net == Some(RunNet::Host) {
            self.check_allows(caller, &summary)?;
        }
        self.inner.ask(id, |reply| Ask::Post { post: post.clone(), by: caller.uid, reply }).await
    }

    pub async fn resume_queued(&self, caller: Caller, id: SessionId) -> Result<Posted, Refusal> {
        self.find(caller, id)?;
        self.inner.ask(id, |reply| Ask::ResumeQueued { by: caller.uid, reply }).await
    }

    pub async fn discard_queued(&self, caller: Caller, id: SessionId) -> Result<(), Refusal> {
        self.command(caller, id, Command::DiscardQueued { by: caller.uid }).await.map(drop)
    }

    /// Cancels a run and waits for its end; answers with the state it ended in, also when it was over before.
    pub async fn cancel(&self, caller: Caller, id: SessionId, run: RunId) -> Result<RunState, Refusal> {
        let (reason, by) = (CancelReason::Operator, Some(caller.uid));
        match self.command(caller, id, Command::CancelRun { run, reason, by, partial: None }).await? {
            Answer::Run { state, .. } => Ok(state),
            _ => Err(Refusal::new(Code::Eio, "a cancel without an answer")),
        }
    }

    /// Refuses what cannot be undone to those with whom a session is only shared.
    pub(crate) fn check_owner(&self, caller: Caller, summary: &Summary) -> Result<(), Refusal> {
        if self.may_see(caller, summary.meta.owner) {
            return Ok(());
        }
        let message = format!(
            "session {} is shared with you; only its owner can end, restart or purge it",
            summary.id()
        );
        Err(Refusal::new(Code::Eacces, message))
    }

    /// Lets only its owner allow what the agent of a session is to ask for: it works with the owner's rights.
    pub(crate) fn check_allows(&self, caller: Caller, summary: &Summary) -> Result<(), Refusal> {
        if self.may_see(caller, summary.meta.owner) {
            return Ok(());
        }
        let message = format!(
            "session {} is shared with you, and its agent works with its owner's rights; only the owner can allow it more",
            summary.id()
        );
        Err(Refusal::new(Code::Eacces, message))
    }

    pub async fn end(&self, caller: Caller, id: SessionId) -> Result<(), Refusal> {
        self.check_owner(caller, &*self.find(caller, id)?)?;
        self.command(caller, id, Command::End { by: caller.uid, partial: None }).await.map(drop)
    }

    /// Sets a session's title, its sticky model, and whether it is put away: all that is named, or nothing. A model that
    /// does not exist is refused.
    pub async fn change(&self, caller: Caller, id: SessionId, change: Change) -> Result<(), Refusal> {
        let summary = self.find(caller, id)?;
        let object = self.inner.working_object(&summary.meta);
        if let (Some(Some(_)), Some(Object::Model { .. })) = (&change.model, &object) {
            let message = "this is a session with a model; begin one with the other model on its own socket";
            return Err(Refusal::invalid("model_override", message));
        }
        if let (Some(Some(model)), Some(object)) = (&change.model, object) {
            let (inner, model) = (self.inner.clone(), Some(model.clone()));
            let checked = tokio::task::spawn_blocking(move || {
                let ask = Prepare {
                    object,
                    owner: summary.meta.owner,
                    model_override: model,
                    cwd: Some(summary.cwd.clone()),
                    snapshot: inner.snapshot_of(&summary.meta)?,
                    prompts: Vec::new(),
                    wishes: RunWishes::default(),
                    recorded: None,
                    earlier: Vec::new(),
                    place: Place::of(&summary.meta),
                };
                inner.worker.prepare(&ask).map(drop)
            });
            checked.await.map_err(|error| Refusal::new(Code::Eio, error.to_string()))??;
        }
        let change = Change { by: caller.uid, ..change };
        self.command(caller, id, Command::Change(change)).await.map(drop)
    }

    /// The session as it is now.
    pub async fn look(&self, caller: Caller, id: SessionId) -> Result<Session, Refusal> {
        self.find(caller, id)?;
        self.inner.ask(id, |reply| Ask::Look { reply }).await.map(|session| *session)
    }

    /// The session's events after a place; None: from the first record on.
    pub async fn follow(
        &self,
        caller: Caller,
        id: SessionId,
        after: Option<EventId>,
    ) -> Result<Follow, Refusal> {
        self.find(caller, id)?;
        let live = self.inner.live(id).await?;
        let newest = live.newest();
        if after.is_some_and(|after| after.seq > newest.seq) {
            let message = format!("the newest event of this session is {newest}; resume without `after`");
            return Err(Refusal::invalid("after", message));
        }
        Ok(Follow::new(self.inner.clone(), id, live, after))
    }

    /// The session of a run that was started not long ago, whoever's it is.
    pub fn session_of_run(&self, run: RunId) -> Option<SessionId> {
        self.inner.runs.session_of(run)
    }

    /// Has a command carried out in a session that the caller may see. What only the driver knows, it fills in.
    pub(crate) async fn command(
        &self,
        caller: Caller,
        id: SessionId,
        command: Command,
    ) -> Result<Answer, Refusal> {
        self.find(caller, id)?;
        self.inner.command(id, command).await
    }

    /// No new work; runs get the grace time to end; everything is written before this returns.
    pub async fn shut_down(&self) {
        self.inner.closing.store(true, Ordering::SeqCst);
        let links: Vec<DriverLink> = lock(&self.inner.active).values().cloned().collect();
        let leaving = links.into_iter().map(|link| async move { link.shut_down().await });
        futures_util::future::join_all(leaving).await;
        let inner = self.inner.clone();
        let flushed = tokio::task::spawn_blocking(move || {
            inner.shelves.flush(&inner);
            inner.behind.close();
        })
        .await;
        if let Err(error) = flushed {
            tracing::error!(%error, "writing the session index panicked");
        }
    }
}
